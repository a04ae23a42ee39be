"""Uninstall the charts, the last one first.

A chart stays as long as there are objects of its kinds. Some charts have their CustomResourceDefinitions as templates: uninstalling
deletes these, and with them those objects. Definitions of a folder `crds` stay. Without its controllers an object with a finalizer
would stay for ever, and machines of Karpenter would run on.
"""

from collections.abc import Iterable

from gpucluster import catalog
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply.access import Access
from gpucluster.k8s_apply.clock import patiently, some
from gpucluster.k8s_apply.faults import NotFoundError
from gpucluster.k8s_apply.helm import Installed
from gpucluster.k8s_apply.lease import Lease
from gpucluster.k8s_apply.objects import ref_of, top_level
from gpucluster.k8s_apply.steps import CHART_S, Steps

GROUPS = {  # chart -> the API groups of its CustomResourceDefinitions (tests/recorded/chart-definitions.json)
    "aws-efa-k8s-device-plugin": (),
    "gpu-operator": ("nfd.k8s-sigs.io", "nvidia.com", "resource.nvidia.com"),
    "jobset": ("jobset.x-k8s.io",),
    "karpenter": ("autoscaling.x-k8s.io", "karpenter.k8s.aws", "karpenter.sh"),
    "kubeflow-trainer": ("trainer.kubeflow.org",),
    "kueue": ("kueue.x-k8s.io",),
    "lws": ("disaggregatedset.x-k8s.io", "leaderworkerset.x-k8s.io"),
}
MADE_BY_CHART = ("ClusterPolicy",)  # the GPU operator's chart makes it


def installed(access: Access) -> tuple[Installed, ...]:
    """Return the releases of this cluster, the last chart of the catalog first. None without helm: they are of others."""
    helm = access.helm
    if helm is None:
        return ()
    order = tuple(catalog.kubernetes_charts())
    there = patiently(helm.installed, access.clock, access.report).values()
    return tuple(
        sorted(
            (one for one in there if one.ours and one.name in order),
            key=lambda one: order.index(one.name),
            reverse=True,
        )
    )


def strays(access: Access, steps: Steps) -> tuple[Installed, ...]:
    """Return the releases of this cluster that its spec does not need."""
    needed = {(one.namespace, one.name) for one in steps.releases}
    return tuple(one for one in installed(access) if (one.namespace, one.name) not in needed)


def uninstall(
    access: Access, found: Iterable[Installed], lease: Lease
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of what was uninstalled, and what stays with the reason."""
    gone, left = list[str](), list[str]()
    for release in found:
        users = users_of(access, release)
        if users:
            left.append(f"{release.place}, for {some(users)}")
            continue
        lease.require()
        access.report(f"uninstalling the chart {release.name}")
        _uninstall(access, release)
        gone.append(release.name)
    return tuple(gone), tuple(left)


def _uninstall(access: Access, release: Installed) -> None:
    helm = access.helm
    try:
        if helm is not None:
            patiently(lambda: helm.uninstall(release, CHART_S), access.clock, access.report)
    except NotFoundError:
        return  # an earlier try did it, and its answer was lost


def users_of(access: Access, release: Installed) -> list[str]:
    """Return the objects whose definitions the chart has: they would be deleted with the definitions."""

    def find() -> list[Manifest]:
        kinds = [one for one in access.kubectl.kinds(GROUPS[release.name]) if one[1] not in MADE_BY_CHART]
        return access.kubectl.find(kinds)

    found = patiently(find, access.clock, access.report)
    return [str(ref_of(one)) for one in top_level(found)]
