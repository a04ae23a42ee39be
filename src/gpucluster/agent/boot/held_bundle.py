"""Hold a bundle that removes or changes nodes with jobs: slurmctld would end those jobs when it reads the files (S18).

The agent of a head keeps the applied bundle, with all its parts, until the nodes are drained and have no jobs. The daemon
drains them, because the agent writes names.HELD_BUNDLE. An existing head has no daemon, so its agent drains them itself.
An operator can apply the bundle at once: `gpucluster bundle apply DIGEST --now`, on the head or on an operator's machine.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpucluster.agent.boot import bundles
from gpucluster.agent.boot.boot_state import BootState, Bundle, require
from gpucluster.agent.boot.runner import one_line
from gpucluster.agent.machine import Machine
from gpucluster.errors import GpuclusterError, HostError
from gpucluster.plan import codec, names
from gpucluster.plan.messages import BundleRelease, HeldBundle
from gpucluster.plan.removals import Removals, removals
from gpucluster.slurm import client, drains, hostlist, parse
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import NodeState
from gpucluster.slurm.values import ActiveJob, SlurmNode

SLURM_S = 30.0
MOST_JOBS = 8  # jobs that the message names; the others are counted
NODES_PER_CALL = client.NODES_PER_CALL

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacles:
    """What must end before the bundle can be applied without harm to a job."""

    unknown: str = ""  # why the state of the nodes is not known
    undrained: tuple[str, ...] = ()
    running: tuple[ActiveJob, ...] = ()
    queued: tuple[ActiveJob, ...] = ()  # that slurmctld would end, because they name what the bundle removes

    def __bool__(self) -> bool:
        return bool(self.unknown or self.undrained or self.running or self.queued)


def hold(machine: Machine, state: BootState) -> BootState:
    """Continue with the applied bundle while the offered one would end jobs."""
    offered, applied = state.offered, bundles.stored(machine, bundles.applied(machine) or "none")
    if offered is None or state.refused or applied is None or applied.digest == offered.digest:
        return replace(state, held="")
    found = removals(applied.plan, offered.plan)
    waits = _obstacles(machine, state, applied, found) if found else Obstacles()
    if not waits:
        return replace(state, bundle=offered, held="")
    if (release := _release(machine, offered.digest)) is not None:
        log.warning("bundle %s is applied now, by %s: %s", offered.digest[:12], release.by, words(waits))
        return replace(state, bundle=offered, held="")
    text = sentence(offered, found, waits)
    if text != state.held:
        log.warning("%s", text)
    held = HeldBundle(bundle=offered.digest, nodes=found.nodes, waits_for=text)
    _publish(machine, held)
    if applied.plan.aws is None:
        _drain(machine, waits.undrained, held)
    return replace(state, bundle=applied, held=text)


def clear(machine: Machine, state: BootState) -> BootState:
    """After the bundle is applied, refused or replaced by a newer one: the daemon then removes its drains."""
    if state.held:
        return state
    machine.path(names.HELD_BUNDLE).unlink(missing_ok=True)
    if _release(machine, bundles.applied(machine) or "") is not None:
        machine.path(names.BUNDLE_RELEASE).unlink(missing_ok=True)
    return state


def lift_drains(machine: Machine, state: BootState) -> BootState:
    """On an existing head: remove our drains of nodes that no held bundle removes."""
    try:
        nodes = _nodes(machine, require(state.bundle))
    except (GpuclusterError, OSError) as error:
        log.warning("drains: %s", one_line(error))
        return state
    kept = frozenset(_read_held(machine).nodes) if state.held else frozenset[str]()
    ours = [
        node.name
        for node in nodes.values()
        if node.drained and node.drain_owner is DrainOwner.BUNDLE and node.name not in kept
    ]
    for batch in _batches(ours):
        machine.run(["scontrol", "update", f"nodename={','.join(batch)}", "state=undrain"], timeout_s=SLURM_S)
    return state


def obstacles(found: Removals, nodes: Mapping[str, SlurmNode], jobs: Sequence[ActiveJob]) -> Obstacles:
    """Return the nodes and jobs that the bundle waits for. A node that slurmctld does not list has no jobs.

    Completing jobs still hold their nodes. A pending job ends at the reconfigure if it names a removed node or a
    removed partition, even if they list other partitions.
    """
    every, gone, parts = frozenset(found.nodes), frozenset(found.removed), frozenset(found.partitions)
    return Obstacles(
        undrained=tuple(name for name in found.nodes if _takes_jobs(nodes.get(name))),
        running=tuple(
            job for job in jobs if not job.pending and (every & set(job.nodes) or parts & set(job.partitions))
        ),
        queued=tuple(
            job
            for job in jobs
            if job.pending and (gone & set(job.required_nodes) or parts & set(job.partitions))
        ),
    )


def sentence(offered: Bundle, found: Removals, waits: Obstacles) -> str:
    """Return what the bundle takes away, what it waits for, and how to apply it at once."""
    short = offered.digest[:12]
    return (
        f"bundle {short} is held, with all its changes, because it {what(found)}. It waits: {words(waits)}. "
        f"To apply it now and end these jobs: gpucluster bundle apply {short} --now -c {offered.plan.name}"
    )


def what(found: Removals) -> str:
    """Return what the bundle takes away: `removes small-1a-[3-4] and the partition spare`."""
    removed = [hostlist.fold(found.removed)] if found.removed else []
    removed += [f"the partition {name}" for name in found.partitions]
    parts = [f"removes {' and '.join(removed)}"] if removed else []
    parts += [f"changes the hardware or address of {hostlist.fold(found.changed)}"] if found.changed else []
    return " and ".join(parts)


def words(waits: Obstacles) -> str:
    """Return the nodes and jobs that the bundle waits for."""
    return "; ".join(_words(waits)) or "for nothing"


def _words(waits: Obstacles) -> Iterator[str]:
    if waits.unknown:
        yield f"it is not known which jobs run ({waits.unknown})"
    if waits.running:
        where = hostlist.fold(dict.fromkeys(node for job in waits.running for node in job.nodes))
        yield f"{_named(waits.running)} must end{f' on {where}' if where else ''}"
    if waits.queued:
        yield (
            f"{_named(waits.queued)} in the queue would be ended by Slurm: cancel them, or change them to other nodes "
            "or partitions (scontrol update jobid=JOB partition=NAME reqnodelist=)"
        )
    if waits.undrained:
        yield f"{hostlist.fold(waits.undrained)} must be drained, which the daemon does"


def _named(jobs: tuple[ActiveJob, ...]) -> str:
    shown = ", ".join(str(job.id) for job in jobs[:MOST_JOBS])
    more = f" and {len(jobs) - MOST_JOBS} more" if len(jobs) > MOST_JOBS else ""
    return f"{'job' if len(jobs) == 1 else 'jobs'} {shown}{more}"


def _obstacles(machine: Machine, state: BootState, applied: Bundle, found: Removals) -> Obstacles:
    try:
        nodes = _nodes(machine, applied)
        jobs = parse.parse_active(_ask(machine, client.ACTIVE_JOBS))
    except (GpuclusterError, OSError) as error:
        return Obstacles(unknown=one_line(error))
    if (unapplied := _not_yet_on_head(machine, state, applied, found, nodes)) != "":
        return Obstacles(unknown=unapplied)
    return obstacles(found, nodes, jobs)


def _not_yet_on_head(
    machine: Machine, state: BootState, applied: Bundle, found: Removals, nodes: Collection[str]
) -> str:
    """On the standby, while the head's slurmctld answers: the head applies such a bundle first."""
    head = applied.plan.head
    if require(state.identity).role != names.ROLE_STANDBY:
        return ""
    if not machine.listening(head.address, head.controller_port):
        return ""
    return "the head has not applied it yet" if any(name in nodes for name in found.removed) else ""


def _takes_jobs(node: SlurmNode | None) -> bool:
    """Return whether Slurm could place a job on the node."""
    return node is not None and not node.drained and NodeState.FUTURE not in node.states


def _nodes(machine: Machine, bundle: Bundle) -> Mapping[str, SlurmNode]:
    """Return slurmctld's nodes. HostError if no slurmctld of the bundle listens: its clients would wait for their timeout."""
    head = bundle.plan.head
    if not any(machine.listening(address, head.controller_port) for address in head.addresses):
        raise HostError("slurmctld does not answer")
    return {node.name: node for node in parse.parse_nodes(_ask(machine, client.SHOW_NODES))}


def _ask(machine: Machine, argv: Sequence[str]) -> str:
    standby_conf = machine.path(names.STANDBY_CONF)
    env = {"SLURM_CONF": str(standby_conf)} if standby_conf.exists() else None
    return machine.run(argv, timeout_s=SLURM_S, env=env).stdout


def _drain(machine: Machine, nodes: Collection[str], held: HeldBundle) -> None:
    reason = drains.reason(DrainOwner.BUNDLE, held.reason)
    for batch in _batches(tuple(nodes)):
        argv = ["scontrol", "update", f"nodename={','.join(batch)}", "state=drain", f"reason={reason}"]
        machine.run(argv, timeout_s=SLURM_S)


def _batches(nodes: Collection[str]) -> Iterator[list[str]]:
    every = list(nodes)
    return (every[start : start + NODES_PER_CALL] for start in range(0, len(every), NODES_PER_CALL))


def _publish(machine: Machine, held: HeldBundle) -> None:
    """Write the file for the daemon. Without it nothing is drained, and the bundle stays held."""
    try:
        machine.write(names.HELD_BUNDLE, codec.dumps(held))
    except OSError as error:
        log.warning("%s cannot be written, so its nodes are not drained: %s", names.HELD_BUNDLE, error)


def _read_held(machine: Machine) -> HeldBundle:
    try:
        return codec.loads(HeldBundle, machine.read(names.HELD_BUNDLE))
    except ValueError:
        return HeldBundle()


def _release(machine: Machine, digest: str) -> BundleRelease | None:
    """Return the operator's order for this bundle; None if there is none."""
    try:
        found = codec.loads(BundleRelease, machine.read(names.BUNDLE_RELEASE))
    except ValueError:
        return None
    return found if found.bundle == digest else None
