"""The tree for Argo CD: an Application for each chart, and each wave with its number, in one Kustomize folder.

The same releases and waves as `gpucluster k8s up`. One Application that a person makes from the folder applies all: Argo CD begins a sync
wave when the one before is healthy. Fields and annotations: argoproj/argo-cd v3.6 (docs/user-guide/sync-waves.md, sync-options.md, helm.md,
docs/operator-manual/health.md). It has no health checks for kinds of Kueue and LeaderWorkerSet, and none for Application since 1.8, so
`argocd-cm.yaml` has them. Without a status that says so, its own checks take a NodePool and an EC2NodeClass for not healthy.
"""

from collections.abc import Iterator, Mapping, Set

from gpucluster.k8s.awaited import CONDITIONS
from gpucluster.k8s.kustomization import FILE, kustomization
from gpucluster.k8s.manifest import Manifest, dump
from gpucluster.k8s.releases import Release, releases, values_of
from gpucluster.k8s.site import Site
from gpucluster.k8s.views.storage import missing
from gpucluster.k8s.waves import SERVICES, STORAGE, WAVES
from gpucluster.plan import names

FOLDER = "argocd"
NAMESPACE = "argocd"
CHARTS_FIRST = -1  # the sync wave of the charts
_HERE = "https://kubernetes.default.svc"  # the cluster that Argo CD runs in
RETRIES = 100  # with up to three minutes between two; by default Argo CD gives a commit up after five
_WAVE = "argocd.argoproj.io/sync-wave"
_OPTIONS = "argocd.argoproj.io/sync-options"
_MISSING_KINDS = "SkipDryRunOnMissingResource=true"  # the charts bring the kinds of later waves
_OWN_CHECKS = ("karpenter.sh", "karpenter.k8s.aws")  # API groups


def argocd(site: Site, files: Mapping[str, str]) -> dict[str, str]:
    """Return the files below FOLDER. `files` has the values of the charts and the waves."""
    present = {path.partition("/")[0] for path in files}
    waves = dict(_numbers(site, present))
    made = {f"{FOLDER}/{folder}/{FILE}": _wave(folder, number) for folder, number in waves.items()}
    charts = dump([_chart(site, one, files) for one in releases(site)])
    top = kustomization(["charts.yaml", *waves])
    return {
        **made,
        f"{FOLDER}/charts.yaml": charts,
        f"{FOLDER}/{FILE}": top,
        f"{FOLDER}/settings/argocd-cm.yaml": dump([_health()]),
    }


def create(cluster: str) -> str:
    """Return the command that makes the Application of the whole. REPOSITORY has the output of `gpucluster render` at its root."""
    path = f"{cluster}/{names.K8S_DIR}/{FOLDER}"
    retry = f"--sync-retry-limit {RETRIES} --sync-retry-refresh"
    return f"argocd app create {cluster} --repo REPOSITORY --path {path} --dest-server {_HERE} --sync-policy automated {retry}"


def _numbers(site: Site, present: Set[str]) -> Iterator[tuple[str, int]]:
    """Yield folder and sync wave. No wave comes after what may stay pending: they are one.

    That is a claim whose volume has no id yet, and a service that waits for a Secret or for quota.
    """
    last = WAVES.index(STORAGE if missing(site) else SERVICES)
    for number, wave in enumerate(WAVES):
        if wave.folder in present:
            yield wave.folder, min(number, last)


def _wave(folder: str, number: int) -> str:
    """Return the overlay of a wave. commonAnnotations would also mark the pods of templates, and start them anew."""
    transformer: Manifest = {
        "apiVersion": "builtin",
        "kind": "AnnotationsTransformer",
        "metadata": {"name": "wave"},
        "annotations": {_WAVE: str(number), _OPTIONS: f"ServerSideApply=true,{_MISSING_KINDS}"},
        "fieldSpecs": [{"path": "metadata/annotations", "create": True}],
    }
    return kustomization([f"../../{folder}"], transformers=[dump([transformer])])


def _chart(site: Site, release: Release, files: Mapping[str, str]) -> Manifest:
    source = {
        "repoURL": release.repository.removeprefix("oci://"),
        "chart": release.name,
        "targetRevision": release.version,
        "helm": {"releaseName": release.name, "valuesObject": values_of(release, files)},
    }
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {
            "name": f"{site.plan.name}-{release.name}",
            "namespace": NAMESPACE,
            "labels": site.labels,
            "annotations": {_WAVE: str(CHARTS_FIRST)},
        },
        "spec": {
            "project": "default",
            "source": source,
            "destination": {"server": _HERE, "namespace": release.namespace},
            "syncPolicy": {
                "automated": {"prune": False},
                "retry": {"limit": RETRIES, "refresh": True},  # with a newer commit, if there is one
                "syncOptions": ["CreateNamespace=true", "ServerSideApply=true"],
            },
        },
    }


def _health() -> Manifest:
    """Return the settings of Argo CD that the waves need, to be added to its ConfigMap."""
    checks = {
        _key(version, kind): _LUA_OF_CONDITION % name
        for (version, kind), name in CONDITIONS.items()
        if version.partition("/")[0] not in _OWN_CHECKS
    }
    labels = {"app.kubernetes.io/name": "argocd-cm", "app.kubernetes.io/part-of": "argocd"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "argocd-cm", "namespace": NAMESPACE, "labels": labels},
        "data": {_key("argoproj.io/v1alpha1", "Application"): _LUA_OF_APPLICATION, **checks},
    }


def _key(version: str, kind: str) -> str:
    return f"resource.customizations.health.{version.partition('/')[0]}_{kind}"


_LUA_OF_APPLICATION = """\
hs = {status = "Progressing", message = ""}
if obj.status ~= nil and obj.status.health ~= nil then
  hs.status = obj.status.health.status
end
return hs
"""
_LUA_OF_CONDITION = """\
hs = {status = "Progressing", message = "no controller has judged it"}
if obj.status ~= nil and obj.status.conditions ~= nil then
  for i, condition in ipairs(obj.status.conditions) do
    if condition.type == "%s" then
      hs.message = condition.message
      seen = condition.observedGeneration
      old = seen ~= nil and seen ~= 0 and seen ~= obj.metadata.generation
      if condition.status == "True" and not old then
        hs.status = "Healthy"
      end
    end
  end
end
return hs
"""
