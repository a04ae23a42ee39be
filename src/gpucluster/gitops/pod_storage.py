"""What an edit does to the file systems that pods mount, and what is said of it. Pure.

Beside Slurm, `gitops.sentences` tells of the file systems themselves; the volumes of teams are told here in both cases.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpucluster.gitops import storage_events
from gpucluster.gitops.events import protected
from gpucluster.gitops.model import ResourceChange
from gpucluster.gitops.sentences import OTHER_DATA, of_lost
from gpucluster.gitops.storage_events import Loss
from gpucluster.plan import names
from gpucluster.plan.eks import FSX
from gpucluster.plan.model import AwsPlan, ClusterPlan, Lustre, Nfs, eks_of
from gpucluster.text import listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Swapped:
    """A team's volume with another file system behind it. The API server lets no volume change its file system."""

    path: str
    namespace: str
    claim: str
    volume: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStorage:
    """All that happens. Beside Slurm only `swapped`, `undriven` and `told` are set."""

    lost: tuple[Loss, ...] = ()
    refused: tuple[str, ...] = ()  # protected parts
    stalls: tuple[str, ...] = ()  # file systems whose I/O stalls while they change
    swapped: tuple[Swapped, ...] = ()
    undriven: tuple[str, ...] = ()  # paths whose driver `pulumi up` deletes
    told: bool = False  # a file system is lost, and Slurm's sentences say it

    @property
    def deleted(self) -> tuple[str, ...]:
        return tuple(one.path for one in self.lost if not one.replaced)

    @property
    def swapped_paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.path for one in self.swapped))


def pod_storage(old: ClusterPlan, new: ClusterPlan, resources: Iterable[ResourceChange]) -> PodStorage:
    """Return what happens while the control plane stays."""
    if old.aws is None or new.aws is None:
        return PodStorage()
    given = tuple(resources)
    lost = tuple(storage_events.lost(old, new, given))
    swapped = tuple(_swapped(old, new, {one.path for one in lost if one.replaced}))
    if old.slurm is not None:
        return PodStorage(swapped=swapped, undriven=undriven(old, new), told=bool(lost))
    return PodStorage(
        lost=lost,
        undriven=undriven(old, new),
        refused=(*(one.path for one in lost), *protected(old, new, given)),
        stalls=tuple(storage_events.stalls(old, new, lost)),
        swapped=swapped,
    )


def undriven(old: ClusterPlan, new: ClusterPlan) -> tuple[str, ...]:
    """Return the paths of Lustre whose driver leaves: EKS has it while a file system of the spec needs it.

    Without its driver the kubelet unmounts no volume, and a pod with one does not end (kubernetes v1.36.2, `TearDownAt` in
    pkg/volume/csi/csi_mounter.go).
    """
    if old.aws is None or new.aws is None or not _drives(old) or eks_of(new) is None or _drives(new):
        return ()
    return tuple(one.path for one in old.storage if isinstance(one.source, Lustre))


def running(found: PodStorage) -> Iterator[str]:
    if found.undriven:
        paths = listed(found.undriven)
        yield f"those that use {paths} must end before `pulumi up` deletes the driver of its volumes: after it they stay in Terminating"
    if found.lost:
        yield f"those that use {listed([one.path for one in found.lost])} hang or fail"
    if found.stalls:
        yield f"those that use {listed(found.stalls)} wait while it changes"
    if found.swapped:
        yield f"those that use {listed(found.swapped_paths)} must end before its claims can be deleted"


def queued(found: PodStorage) -> Iterator[str]:
    if gone := tuple(one for one in (found.undriven or found.deleted) if one not in found.swapped_paths):
        yield f"those that need {listed(gone)} do not start"
    if found.swapped:
        yield f"those that need {listed(found.swapped_paths)} start with the new file system"


def data(found: PodStorage) -> Iterator[str]:
    yield from of_lost(found.lost)
    if found.lost:
        yield OTHER_DATA


def before_pulumi(found: PodStorage) -> Iterator[str]:
    """Yield the command that finds what must have ended."""
    if found.undriven:
        yield f"kubectl describe pvc --all-namespaces    # `Used By` has the pods with a claim: those with {listed(found.undriven)} must end before `pulumi up`"


def before_manifests(found: PodStorage) -> Iterator[str]:
    """Yield the commands that make room for volumes with another file system. tests/kubernetes/test_up.py types them."""
    for one in found.swapped:
        yield (
            f"{delete(one)}    # when no pod uses {one.path}: the API server lets no volume change its file system"
        )


def delete(one: Swapped) -> str:
    return f"kubectl delete pvc {one.claim} --namespace {one.namespace}; kubectl delete pv {one.volume}"


def _drives(plan: AwsPlan) -> bool:
    plane = eks_of(plan)
    return plane is not None and any(one.name == FSX for one in plane.addons)


def _swapped(old: AwsPlan, new: AwsPlan, replaced: set[str]) -> Iterator[Swapped]:
    """Yield the volumes of teams that are on both sides."""
    if old.kubernetes is None or new.kubernetes is None:
        return
    kept = {team.name for team in new.kubernetes.teams}
    changed = {*storage_events.mounts(old, new).changed, *replaced}
    mounted = (one.path for one in old.storage if isinstance(one.source, Nfs | Lustre))
    for path in (path for path in mounted if path in changed):
        for team in old.kubernetes.teams:
            if team.name in kept:
                volume = names.persistent_volume(old.name, team.name, path)
                claim = names.volume_name(path)
                yield Swapped(path=path, namespace=team.namespace, claim=claim, volume=volume)
