"""The tree for Flux: a source and a HelmRelease for each chart, and a Kustomization for each wave that depends on the one before.

None depends on the services: one of them may wait for a Secret or for quota, and gangs do not need it.

The same releases and waves as `gpucluster k8s up`. The paths expect the output of `gpucluster render NAME --to NAME` at the root of the
repository that the GitRepository `flux-system` names. Fields: fluxcd/source-controller and helm-controller (OCIRepository and
HelmRelease), fluxcd/kustomize-controller (healthCheckExprs). The strategy of a release is known since Flux 2.7.
"""

from collections.abc import Iterator, Mapping, Set
from typing import Any

from gpucluster.k8s.awaited import CONDITIONS
from gpucluster.k8s.manifest import Manifest, dump
from gpucluster.k8s.releases import Release, releases, values_of
from gpucluster.k8s.site import Site
from gpucluster.k8s.views.storage import missing
from gpucluster.k8s.waves import SERVICES, STORAGE, TRAINING, WAVES, Wave
from gpucluster.plan import names

FOLDER = "flux"
NAMESPACE = "flux-system"  # of `flux bootstrap`
SOURCE = "flux-system"
INTERVAL = "10m"
CHART_TIMEOUT = "15m"  # images of several GB; Flux's default is five minutes
RETRY = "1m"  # after a failure; Flux's default is the interval
_AGAIN: Manifest = {
    # helm's way, and Flux's default, replaces no definitions of a folder `crds`
    "crds": "CreateReplace",
    # by default Flux gives a release up at its first failure; its other strategy uninstalls the chart before each try
    "strategy": {"name": "RetryOnFailure", "retryInterval": RETRY},
}
_CHART_LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


def flux(site: Site, files: Mapping[str, str]) -> dict[str, str]:
    """Return the files below FOLDER. `files` has the values of the charts and the waves."""
    folders = {path.partition("/")[0] for path in files}
    made = {
        f"{FOLDER}/charts/{one.name}.yaml": dump(list(_chart(site, one, files))) for one in releases(site)
    }
    return {**made, f"{FOLDER}/kustomizations.yaml": dump(list(_kustomizations(site, folders)))}


def _chart(site: Site, release: Release, files: Mapping[str, str]) -> Iterator[Manifest]:
    spec: dict[str, Any] = {
        "interval": INTERVAL,
        "releaseName": release.name,
        "targetNamespace": release.namespace,
        "storageNamespace": release.namespace,
        "timeout": CHART_TIMEOUT,
        "install": {"createNamespace": True, **_AGAIN},
        "upgrade": _AGAIN,
        "values": values_of(release, files),
    }
    name = f"{site.plan.name}-{release.name}"
    if release.repository.startswith("oci://"):
        layer = {"mediaType": _CHART_LAYER, "operation": "copy"}
        source = {
            "url": f"{release.repository}/{release.name}",
            "ref": {"tag": release.version},
            "layerSelector": layer,
        }
        yield _object(site, "source.toolkit.fluxcd.io/v1", "OCIRepository", name, source)
        spec["chartRef"] = {"kind": "OCIRepository", "name": name}
    else:
        yield _object(
            site, "source.toolkit.fluxcd.io/v1", "HelmRepository", name, {"url": release.repository}
        )
        reference = {"kind": "HelmRepository", "name": name}
        spec["chart"] = {"spec": {"chart": release.name, "version": release.version, "sourceRef": reference}}
    yield _object(site, "helm.toolkit.fluxcd.io/v2", "HelmRelease", name, spec)


def _kustomizations(site: Site, folders: Set[str]) -> Iterator[Manifest]:
    before = f"{site.plan.name}-charts"
    yield _kustomization(site, before, f"{FOLDER}/charts", {"wait": True, "timeout": "20m"})
    for wave in WAVES:
        if wave.folder in folders:
            name = f"{site.plan.name}-{wave.folder}"
            yield _kustomization(
                site, name, wave.folder, {**_awaited(site, wave), "dependsOn": [{"name": before}]}
            )
            before = before if wave is SERVICES else name


def _awaited(site: Site, wave: Wave) -> Manifest:
    """Return how Flux waits. A gang may be queued for days; a claim whose volume has no id yet stays pending."""
    if wave is TRAINING or (wave in (STORAGE, SERVICES) and missing(site)):
        return {"wait": False}
    return {
        "wait": True,
        # Flux reads no newer commit while it waits for an older one, and a model loads for half an hour
        "timeout": "5m" if wave is SERVICES else "10m",
        "healthCheckExprs": list(_expressions()),
    }


def _expressions() -> Iterator[Manifest]:
    new = "(!has(c.observedGeneration) || c.observedGeneration in [0, metadata.generation])"
    for (version, kind), name in CONDITIONS.items():
        true = f"c.type == '{name}' && c.status == 'True' && {new}"
        current = f"has(status.conditions) && status.conditions.exists(c, {true})"
        yield {"apiVersion": version, "kind": kind, "current": current}


def _kustomization(site: Site, name: str, folder: str, more: Manifest) -> Manifest:
    path = f"./{site.plan.name}/{names.K8S_DIR}/{folder}"
    source = {"kind": "GitRepository", "name": SOURCE}
    spec = {
        "interval": INTERVAL,
        "path": path,
        "prune": False,
        "retryInterval": RETRY,
        "sourceRef": source,
        **more,
    }
    return _object(site, "kustomize.toolkit.fluxcd.io/v1", "Kustomization", name, spec)


def _object(site: Site, version: str, kind: str, name: str, spec: Manifest) -> Manifest:
    spec = {"interval": INTERVAL, **spec}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": site.labels}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
