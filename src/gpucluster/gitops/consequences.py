"""Find consequences that only the plans show: removed slots, different nodes, a replaced head.

Each check compares one pool, or the cluster, before and after. It yields the consequences.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from gpucluster.cost import AnyPool, pools_of
from gpucluster.gitops import pod_storage, pods, rebuilt
from gpucluster.gitops.events import events
from gpucluster.gitops.identity import is_another
from gpucluster.gitops.model import WAITS, Consequence, SpecChange, worse, worst
from gpucluster.gitops.node_groups import ended_nodes, zones_held
from gpucluster.gitops.refine import THEN_REPLACED
from gpucluster.plan import names
from gpucluster.plan.model import ClusterPlan, Pool, SlurmOnAws, eks_of
from gpucluster.slurm import hostlist
from gpucluster.spec import UpdateClass
from gpucluster.text import listed

# templates/k8s/nodepool.yaml.j2 forbids disruptions by drift
_OF_KARPENTER = "Karpenter keeps its nodes until they are empty"
_BY_HAND = "they are made and drained by hand"


def consequences(
    old: ClusterPlan, new: ClusterPlan, changes: Iterable[SpecChange]
) -> tuple[Consequence, ...]:
    """Return consequences worse than every change of the same part. Another cluster has none.

    That the head waits for jobs is also said with changes of the same class, unless one of them says it.
    """
    found = tuple(changes)
    every = () if is_another(old, new) else _all(old, new, found)
    return tuple(one for one in every if _is_new(one, found))


def _is_new(one: Consequence, changes: tuple[SpecChange, ...]) -> bool:
    known = _class_of(one.path, changes)
    if worse(one.update, known) or known is not one.update or WAITS not in one.message:
        return worse(one.update, known)
    return not any(WAITS in change.why for change in changes if change.path.startswith(one.path))


def _all(old: ClusterPlan, new: ClusterPlan, changes: tuple[SpecChange, ...]) -> Iterator[Consequence]:
    yield from _head(old, new, changes)
    yield from _login(old, new)
    yield from _stores(old, new)
    yield from _detached(old, new)
    if pods.plane(old, new) is pods.Plane.STAYS:  # a new control plane has new node groups
        yield from _plane_zones(old, new)
        yield from _node_groups(old, new)
        yield from _drivers(old, new)
    before, every = _by_name(old), _nodes(new)
    by_hand = not (_on_eks(old) and _on_eks(new))
    for name, pool in _by_name(new).items():
        was = before.get(name)
        if was is None or type(was) is not type(pool):  # a pool of another orchestrator is a different pool
            continue
        yield from _slots(was, pool, every)
        for check in _POOL_CHECKS:
            yield from check(was, pool)
        if not isinstance(pool, Pool):
            yield from _of_pods(was, pool, by_hand=by_hand)


def _head(old: ClusterPlan, new: ClusterPlan, changes: tuple[SpecChange, ...]) -> Iterator[Consequence]:
    """Check the head on AWS. Existing hosts are neither created nor deleted."""
    if not (isinstance(old, SlurmOnAws) and isinstance(new, SlurmOnAws)):
        return
    for one in rebuilt.turned(rebuilt.head(old), rebuilt.head(new))[:1]:
        rest = (
            "and the queue on it is lost" if events(old, new, changes).queue_lost else "and keeps its state"
        )
        message = f"the head's {one.what} changes ({one.was} -> {one.now}): the head is deleted and created again, {rest}"
        yield Consequence(path="head", update=UpdateClass.REPLACE, message=message)


def _login(old: ClusterPlan, new: ClusterPlan) -> Iterator[Consequence]:
    """Check login machines: they follow the head's zone, the image, the network and the key."""
    if not (isinstance(old, SlurmOnAws) and isinstance(new, SlurmOnAws)):
        return
    was, now = rebuilt.login(old), rebuilt.login(new)
    for one in () if was is None or now is None else rebuilt.turned(was, now)[:1]:
        message = (
            f"the {one.what} of the login machines changes ({one.was} -> {one.now}): they are deleted and created again, "
            "and sessions on them end"
        )
        yield Consequence(path="login", update=UpdateClass.REPLACE, message=message)


def _stores(old: ClusterPlan, new: ClusterPlan) -> Iterator[Consequence]:
    """Check data that the cluster created: what AWS fixes at creation needs a new and empty volume or file system."""
    if old.aws is None or new.aws is None:
        return
    after = rebuilt.stores(new)
    for name, store in rebuilt.stores(old).items():
        found = rebuilt.turned(store.fixed, after[name].fixed) if name in after else ()
        for one in found[:1]:
            message = (
                f"the {one.what} of {store.path} cannot change ({one.was} -> {one.now}): only a new and empty one can have it, "
                "and `pulumi up` refuses to replace the protected one"
            )
            yield Consequence(path=f"storage[{store.path}]", update=UpdateClass.DATA_LOSS, message=message)


def _detached(old: ClusterPlan, new: ClusterPlan) -> Iterator[Consequence]:
    """Check volumes that leave the head: the preview of `pulumi up` refuses. What comes later stops the head, and does not start it."""
    if not (isinstance(old, SlurmOnAws) and isinstance(new, SlurmOnAws)):
        return
    kept = {volume.key for volume in new.head.volumes}
    paths = [volume.path for volume in old.head.volumes if volume.key not in kept]
    if paths:
        message = (
            f"`pulumi up` refuses in its preview to delete the protected volume of {', '.join(paths)}, and changes nothing; "
            "without the protection, or with --skip-preview, it stops the head to detach the volume, and leaves it stopped"
        )
        yield Consequence(path="head", update=UpdateClass.RESTART, message=message)


def _node_groups(old: ClusterPlan, new: ClusterPlan) -> Iterator[Consequence]:
    """Check always-on nodes of EKS."""
    ended = ended_nodes(old, new)
    for pools, what in (
        (ended.deleted, "`pulumi up` deletes the node group of always-on nodes"),
        (
            ended.updated,
            "`pulumi up` updates the node group of always-on nodes, which replaces node after node",
        ),
        (ended.fewer, "EKS ends some of the always-on nodes"),
    ):
        for name in pools:
            path = "kubernetes.system" if name == names.SYSTEM_NODES else f"pools[{name}]"
            yield Consequence(path=path, update=UpdateClass.DRAIN, message=f"{what}: EKS evicts their pods")


def _drivers(old: ClusterPlan, new: ClusterPlan) -> Iterator[Consequence]:
    """Check the driver of Lustre on EKS."""
    for path in pod_storage.undriven(old, new):
        message = "`pulumi up` deletes the driver of its volumes: pods that use it must have ended"
        yield Consequence(path=f"storage[{path}]", update=UpdateClass.DRAIN, message=message)


def _plane_zones(old: ClusterPlan, new: ClusterPlan) -> Iterator[Consequence]:
    """Check the zones of a control plane of EKS."""
    if gone := zones_held(old, new):
        message = (
            f"EKS keeps a control plane in the zones of its creation, so `pulumi up` cannot delete the subnet in {', '.join(gone)}: "
            "write it in `zones`, beside the others; only a new cluster is without it"
        )
        yield Consequence(path="aws.network.zones", update=UpdateClass.REPLACE, message=message)


def _nodes(plan: ClusterPlan) -> frozenset[str]:
    """Return the nodes of Slurm. Kubernetes assigns node names itself."""
    return frozenset(name for one in pools_of(plan) if isinstance(one, Pool) for name in one.node_names)


def _slots(old: AnyPool, new: AnyPool, every: frozenset[str]) -> Iterator[Consequence]:
    """Check what leaves the cluster. `every`: all nodes that it has then."""
    gone = [name for name in old.node_names if name not in every] if isinstance(old, Pool) else []
    if gone:
        message = f"{hostlist.fold(gone)} are removed from Slurm's files: {WAITS}"
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.DRAIN, message=message)


def _shape(old: AnyPool, new: AnyPool) -> Iterator[Consequence]:
    change = _hardware(old, new)
    if change and isinstance(old, Pool) and isinstance(new, Pool) and _shares(old, new):
        rest = f"{WAITS}{THEN_REPLACED}" if old.sources else WAITS  # nobody replaces a host
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.DRAIN, message=f"{change}: {rest}")


def _shares(old: Pool, new: Pool) -> bool:
    return not {*old.node_names}.isdisjoint(new.node_names)


def _always_on(old: AnyPool, new: AnyPool) -> Iterator[Consequence]:
    change = _zones(old, new)
    if change and isinstance(old, Pool):
        message = f"{change}: the old ones are removed when their jobs end"
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.DRAIN, message=message)


def _of_pods(old: AnyPool, new: AnyPool, *, by_hand: bool) -> Iterator[Consequence]:
    """Check a pool of Kubernetes. Only EKS has node groups of ours: `_node_groups` has them."""
    path = f"pools[{_named(new)}]"
    if change := _hardware(old, new):
        karpenter = (_OF_KARPENTER,) if old.max > old.min else ()
        standing = (f"always-on nodes: {_BY_HAND}",) if by_hand and old.min and new.min else ()
        rest = "; ".join((*karpenter, *standing))
        message = f"{change}: {rest}" if rest else change
        yield Consequence(path=path, update=UpdateClass.DRAIN, message=message)
    if by_hand and (change := _zones(old, new)):
        yield Consequence(path=path, update=UpdateClass.DRAIN, message=f"{change}: {_BY_HAND}")


def _hardware(old: AnyPool, new: AnyPool) -> str:
    """Return how the hardware changes; empty if it does not."""
    was, now = _look(old), _look(new)
    return "" if was == now else f"the hardware of the nodes changes ({was} -> {now})"


def _zones(old: AnyPool, new: AnyPool) -> str:
    """Return how always-on nodes move; empty if they do not."""
    was, now = _zone(old), _zone(new)
    moves = old.min and new.min and was != now
    return f"the always-on nodes move from {was} to {now}" if moves else ""


def _moved(old: AnyPool, new: AnyPool) -> Iterator[Consequence]:
    if not (isinstance(old, Pool) and isinstance(new, Pool)):
        return
    before = dict(old.hosts())
    moved = [f"{name} {before[name]} -> {now}" for name, now in new.hosts() if before.get(name, now) != now]
    if moved:
        message = (
            f"the address of a host name changes, so it is a different machine: {', '.join(moved)}; {WAITS}"
        )
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.DRAIN, message=message)


def _placed(old: AnyPool, new: AnyPool) -> Iterator[Consequence]:
    if isinstance(old, Pool) and isinstance(new, Pool) and old.placement != new.placement:
        where = "in a placement group of their zone" if new.placement else "without a placement group"
        message = f"nodes that are launched later are placed {where}"
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.NEW_NODES, message=message)


_POOL_CHECKS: tuple[Callable[[AnyPool, AnyPool], Iterator[Consequence]], ...] = (
    _shape,
    _always_on,
    _moved,
    _placed,
)


def _on_eks(plan: ClusterPlan) -> bool:
    return plan.aws is not None and eks_of(plan) is not None


def _by_name(plan: ClusterPlan) -> dict[str, AnyPool]:
    """Return the pools by their names in the spec. The first part of a pool has its always-on nodes."""
    found: dict[str, AnyPool] = {}
    for pool in pools_of(plan):
        found.setdefault(_named(pool), pool)
    return found


def _named(pool: AnyPool) -> str:
    """Return the name of the pool in the spec, also for its part in a zone."""
    return pool.name if isinstance(pool, Pool) else pool.of


def _look(pool: AnyPool) -> str:
    """Return the node's hardware as jobs request it."""
    if not isinstance(pool, Pool):
        return f"{_gpus(pool.gpu_count, pool.gpu_model)}{_slices(pool.mig)}{pool.vcpus} CPUs"
    shape = pool.shape
    cpus = f"{shape.sockets} x {shape.cores_per_socket} x {shape.threads_per_core} CPUs"
    return f"{_gpus(shape.gpu_count, shape.gpu_model)}{cpus}, {shape.real_memory_mib} MiB"


def _gpus(count: int, model: str | None) -> str:
    return f"{count} x {model}, " if count else ""


def _slices(mig: Mapping[str, int]) -> str:
    return (
        f"each in {listed(f'{count} x {profile}' for profile, count in sorted(mig.items()))}, " if mig else ""
    )


def _zone(pool: AnyPool) -> str | None:
    """Return the zone of always-on nodes; None for existing hosts."""
    return pool.sources[0].zones[0] if pool.sources else None


def _class_of(path: str, changes: tuple[SpecChange, ...]) -> UpdateClass | None:
    return worst(change.update for change in changes if change.path.startswith(path))
