"""What the cluster lacks of a chart that helm calls deployed: helm compares nothing with the cluster.

An object that somebody deleted, a Deployment that somebody scaled to 0, and a definition that is gone. The same `helm upgrade` mends all
three: it creates what is missing, and sets fields that differ from the chart (helm, pkg/kube/client.go, Update and createPatch).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpucluster import catalog
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s.releases import Release
from gpucluster.k8s_apply.charts_removal import GROUPS
from gpucluster.k8s_apply.faults import NotFoundError
from gpucluster.k8s_apply.helm import Helm
from gpucluster.k8s_apply.kubectl import Kubectl
from gpucluster.k8s_apply.objects import ref_of, section

_SCALED = ("Deployment", "StatefulSet")


def lacks(kubectl: Kubectl, helm: Helm, release: Release, users: Iterable[Manifest]) -> tuple[str, ...]:
    """Return what is missing of an installed release, for people. `users`: manifests, perhaps of the chart's kinds."""
    try:
        made = helm.manifests(release)
    except NotFoundError:
        return ()  # somebody uninstalls it
    wanted = {ref_of(one): one for one in _placed(kubectl, release, made)}
    there = {ref_of(one): one for one in kubectl.get([ref.manifest() for ref in wanted])}
    return (
        *(f"{ref} is missing" for ref in wanted if ref not in there),
        *(f"{ref} is scaled to 0" for ref in there if _is_stopped(wanted[ref], there[ref])),
        *(f"the definition of {kind} is missing" for kind in _undefined(kubectl, release, users)),
    )


def _is_stopped(wanted: Manifest, there: Manifest) -> bool:
    """Return whether somebody has scaled it to 0. A chart without a number lets others set it."""
    count = section(wanted, "spec").get("replicas", 0)
    return wanted["kind"] in _SCALED and count > 0 and section(there, "spec").get("replicas") == 0


def _placed(kubectl: Kubectl, release: Release, made: Sequence[Manifest]) -> Iterator[Manifest]:
    """Yield the objects with their namespace: helm puts those that name none into that of the release."""
    of_cluster = _of_cluster(kubectl, made)
    for one in made:
        metadata = section(one, "metadata")
        if "namespace" not in metadata and (one["apiVersion"], one["kind"]) not in of_cluster:
            yield {**one, "metadata": {**metadata, "namespace": release.namespace}}
        else:
            yield one


def _of_cluster(kubectl: Kubectl, made: Sequence[Manifest]) -> frozenset[tuple[str, str]]:
    """Return the types of the objects that have no namespace. The server says it of kinds that are not Kubernetes' own."""
    facts = catalog.kubernetes_facts()
    types = {(one["apiVersion"], one["kind"]) for one in made}
    own = {one for one in types if one in facts.served}
    found = {one for one in own if one[1] in facts.cluster_scoped}
    for version in sorted({version for version, _ in types - own}):
        found |= {(version, kind) for kind in kubectl.of_cluster(version)}
    return frozenset(found)


def _undefined(kubectl: Kubectl, release: Release, users: Iterable[Manifest]) -> Iterator[str]:
    """Yield the kinds of the chart that the manifests use and the server does not serve."""
    types = {(one["apiVersion"], one["kind"]) for one in users}
    mine = sorted(one for one in types if one[0].partition("/")[0] in GROUPS[release.name])
    served: Mapping[str, frozenset[str]] = {version: kubectl.served(version) for version, _ in mine}
    return (kind for version, kind in mine if kind not in served[version])
