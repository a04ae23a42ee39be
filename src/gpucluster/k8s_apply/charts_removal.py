"""Uninstall the charts, the last one first.

A chart stays if objects of others need it: uninstalling deletes its CustomResourceDefinitions, and with them those objects.
"""

from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s.releases import Release
from gpucluster.k8s_apply.access import Access
from gpucluster.k8s_apply.clock import patiently, some
from gpucluster.k8s_apply.faults import NotFoundError
from gpucluster.k8s_apply.lease import Lease
from gpucluster.k8s_apply.objects import ref_of, top_level
from gpucluster.k8s_apply.steps import CHART_S, Steps

GROUPS = {  # chart -> the API groups of its CustomResourceDefinitions
    "aws-efa-k8s-device-plugin": (),
    "gpu-operator": ("nvidia.com",),
    "jobset": ("jobset.x-k8s.io",),
    "karpenter": ("karpenter.k8s.aws", "karpenter.sh"),
    "kubeflow-trainer": ("trainer.kubeflow.org",),
    "kueue": ("kueue.x-k8s.io",),
    "lws": ("leaderworkerset.x-k8s.io",),
}
MADE_BY_CHART = ("ClusterPolicy",)  # the GPU operator's chart makes it


def uninstall(access: Access, steps: Steps, lease: Lease) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of what was uninstalled, and what stays with the reason."""
    helm = access.helm
    if helm is None:
        return (), ()
    gone, left = list[str](), list[str]()
    there = patiently(helm.installed, access.clock, access.report)
    for release in reversed(steps.releases):
        found = there.get((release.namespace, release.name))
        if found is None or not found.ours:
            continue
        users = _users(access, release)
        if users:
            left.append(f"{release.name} in {release.namespace}, for {some(users)}")
            continue
        lease.require()
        access.report(f"uninstalling the chart {release.name}")
        _uninstall(access, release)
        gone.append(release.name)
    return tuple(gone), tuple(left)


def _uninstall(access: Access, release: Release) -> None:
    helm = access.helm
    try:
        if helm is not None:
            patiently(lambda: helm.uninstall(release, CHART_S), access.clock, access.report)
    except NotFoundError:
        return  # an earlier try did it, and its answer was lost


def _users(access: Access, release: Release) -> list[str]:
    """Return the objects whose definitions the chart has: they would be deleted with the definitions. Ours are gone by now."""

    def find() -> list[Manifest]:
        kinds = [one for one in access.kubectl.kinds(GROUPS[release.name]) if one[1] not in MADE_BY_CHART]
        return access.kubectl.find(kinds)

    found = patiently(find, access.clock, access.report)
    return [str(ref_of(one)) for one in top_level(found)]
