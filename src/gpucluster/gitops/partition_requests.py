"""What jobs of a partition ask for that an edit takes from them, as rows of the table of requests. Pure."""

from collections.abc import Iterable, Iterator

from gpucluster.gitops.lost_gres import Lost, lost_gres
from gpucluster.gitops.partition_limits import recorded, setting
from gpucluster.plan.model import Partition, Pool, Qos, SlurmPlan
from gpucluster.slurm.states import PartitionState

AGAIN = "until there are as many again"
OTHERS_END = "until others end, and one that is above it alone never starts"
STATES = {
    PartitionState.DOWN: "partition-down",
    PartitionState.DRAIN: "partition-drain",
    PartitionState.INACTIVE: "partition-inactive",
}
_UP = "until it is UP"
_CLOSED = ("partition-down", "partition-inactive")
_SAME_OF_NODE = ("node-cpus-task-any", "node-cpus-tasks", "node-cpus-tasks-per-node")


def of_partitions(old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    """All jobs of a partition that is closed wait, so nothing else is said of them."""
    after = {one.name: one for one in new.partitions}
    for one in old.partitions:
        if one.name in after:
            yield from _of_state(one.name, old, new)
            if STATES.get(state_of(one.name, new)) not in _CLOSED:
                yield from _of_partition(one, after[one.name], old, new)


def _of_partition(one: Partition, after: Partition, old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    was, now = _pools(one, old), _pools(after, new)
    yield from lost_gres(one.name, was, now, new.pools)
    yield from _features(one.name, was, now)
    yield from _sizes(one.name, was, now, leave(one, old, new))
    yield from _of_one_node(one.name, was, now)
    yield from recorded(one.name, old, new)
    yield from _own_qos(one, after, old, new)


def _pools(partition: Partition, plan: SlurmPlan) -> tuple[Pool, ...]:
    return tuple(pool for pool in plan.pools if pool.name in partition.pools)


def _features(name: str, was: tuple[Pool, ...], now: tuple[Pool, ...]) -> Iterator[Lost]:
    kept = {feature for pool in now for feature in pool.features}
    gone = [feature for pool in was for feature in pool.features if feature not in kept]
    if gone:
        yield Lost("feature-removed", f"that need the feature {' or '.join(dict.fromkeys(gone))}", (name,))


def leave(partition: Partition, old: SlurmPlan, new: SlurmPlan) -> frozenset[str]:
    """Return the nodes that the partition loses, and the cluster keeps."""
    after = next((one for one in new.partitions if one.name == partition.name), None)
    if after is None:
        return frozenset()
    every = {node for pool in new.pools for node in pool.node_names}
    return (frozenset(partition.node_names(old.pools)) & every) - frozenset(after.node_names(new.pools))


def _sizes(name: str, was: tuple[Pool, ...], now: tuple[Pool, ...], leave: frozenset[str]) -> Iterator[Lost]:
    """Nodes and CPUs of the partition, and memory of a node. `leave`: nodes that only the partition loses."""
    fewer, what = _nodes(now) < _nodes(was), "partition" if leave else "nodes"
    if leave:
        yield Lost(
            "partition-other-nodes",
            "that wait for nodes that leave the partition, and name none of them,",
            (name,),
        )
    if fewer:
        yield Lost(f"{what}-too-few", "that need more nodes than are left", (name,), AGAIN)
    if _cpus(now) < _cpus(was):
        row = f"{what}-too-few-cpus" if fewer else "cpus-too-few"
        yield Lost(row, "that need more CPUs than are left", (name,), AGAIN)
    if (left := _memory(now)) < _memory(was):
        yield Lost("memory-too-low", f"that ask for more than {left} MiB of a node", (name,))


def _of_one_node(name: str, was: tuple[Pool, ...], now: tuple[Pool, ...]) -> Iterator[Lost]:
    """CPUs of one node, where the partition has more: `_sizes` has jobs that need more than all of it."""
    most = _most_cpus(now)
    if not most < min(_most_cpus(was), _cpus(now)):
        return
    jobs = f"that ask for more than {most} CPUs of one node, or for one task,"
    yield Lost("node-cpus-task", jobs, (name,), also=_SAME_OF_NODE)
    jobs = "that ask for as many for tasks which several nodes hold (-n without -N)"
    yield Lost("node-cpus-tasks-any", jobs, (name,))


def _most_cpus(pools: Iterable[Pool]) -> int:
    return max((one.shape.job_cpus for one in pools), default=0)


def _nodes(pools: Iterable[Pool]) -> int:
    return sum(len(one.node_names) for one in pools)


def _cpus(pools: Iterable[Pool]) -> int:
    return sum(one.shape.job_cpus * len(one.node_names) for one in pools)


def _memory(pools: Iterable[Pool]) -> int:
    return max((one.shape.job_memory_mib for one in pools), default=0)


def state_of(name: str, plan: SlurmPlan) -> PartitionState:
    return PartitionState(setting(name, "State", plan).upper() or PartitionState.UP)


def still_closed(old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    """Yield partitions that start no job, neither before nor after the edit."""
    before = {one.name for one in old.partitions}
    for one in new.partitions:
        row = STATES.get(state_of(one.name, new))
        if one.name in before and row in _CLOSED and state_of(one.name, old) == state_of(one.name, new):
            yield Lost(row, "", (one.name,), _UP)


def _of_state(name: str, old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    row = STATES.get(state_of(name, new))
    if row and state_of(name, old) != state_of(name, new):
        yield Lost(row, "", (name,), _UP)


def _own_qos(was: Partition, now: Partition, old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    """The limits of another QOS of the partition itself. `field_effects` has those of one QOS that change."""
    if now.qos is None or was.qos == now.qos:
        return
    before, after = (_limits(_qos(one.qos, plan)) for one, plan in ((was, old), (now, new)))
    for row, (limit, what) in after.items():
        if row not in before or limit < before[row][0]:
            until = "until the next month" if row.endswith("minutes") else OTHERS_END
            yield Lost(row, f"that bring {what} (QOS {now.qos})", (now.name,), until)


def _limits(qos: Qos | None) -> dict[str, tuple[int, str]]:
    """Return the limits of a partition's QOS by the row of each, with what is limited."""
    if qos is None:
        return {}
    of, hours = qos.limits, qos.gpu_hours_per_month
    found = {
        "partition-own-qos": (of.gpus, f"its jobs above {of.gpus} GPUs"),
        "partition-own-qos-user": (of.gpus_per_user, f"a user above {of.gpus_per_user} GPUs"),
        "partition-own-qos-cpus": (of.cpus_per_user, f"a user above {of.cpus_per_user} CPUs"),
        "partition-own-qos-minutes": (hours, f"its jobs above {hours} GPU hours of the month"),
    }
    return {row: (limit, what) for row, (limit, what) in found.items() if limit is not None}


def _qos(name: str | None, plan: SlurmPlan) -> Qos | None:
    every = () if plan.slurm.accounting is None else plan.slurm.accounting.qos
    return next((one for one in every if one.name == name), None)
