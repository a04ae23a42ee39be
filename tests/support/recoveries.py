"""Recoveries: closed slots of a small cluster that the daemon opens again, for jobs that wait or for none.

A drained slot is undrained, and one that is DOWN or FUTURE is resumed.

Between the passes nothing changes but what the daemon itself did, and the time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.world import SCHEDULES_S
from gpucluster.elastic.events import InterruptionKind, Verb
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.memory import Interruption, OperatorOrder, fold
from gpucluster.elastic.model import (
    Action,
    Block,
    Drain,
    MarkDown,
    PowerDown,
    RecordEvents,
    ResetDown,
    Undrain,
)
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.values import SlurmJob, SlurmNode
from support.cluster_states import NOW, OFF, UP, job, node
from support.worlds.scene import (
    A1,
    A2,
    A3,
    A4,
    B1,
    B2,
    B3,
    B4,
    SMALL,
    SPOT,
    TWO,
    offer_keys,
    refused,
    scene,
    up,
)

SLOTS = (A1, A2, A3, A4, B1, B2, B3, B4)
ZONES = ("us-east-2a", "us-east-2b")
# Reasons of drains that the daemon removes, the last one only by a person's order; each with the user who set it.
DRAINS = (
    ("gpucluster: no h200", "slurm"),
    ("gpucluster: [evacuation] spot", "slurm"),
    ("gpucluster: [evacuation] spot : Kill task failed", "slurm"),
    ("gpucluster: [operator] kept", "slurm"),
    ("gpucluster: [bundle] removed", "root"),
    ("gpucluster: [termination] i-1 cannot be terminated", "slurm"),
    ("gpucluster: [health] gpu.ecc: GPU 3", "root"),
    ("Prolog error", "slurm"),
    ("bad disk (by ann)", "slurm"),
)
# States without an instance that the daemon ends by a resume, each with Slurm's reason.
DOWNS = (
    ("DOWN CLOUD POWERED_DOWN", "ResumeTimeout reached"),
    ("DOWN CLOUD POWERED_DOWN NOT_RESPONDING", "ResumeTimeout reached"),
    ("FUTURE CLOUD", ""),
    ("DOWN CLOUD POWERED_DOWN DRAIN", "gpucluster: no h200"),
    ("DOWN CLOUD POWERED_DOWN DRAIN", "gpucluster: [evacuation] spot"),
)
# Interruptions whose instances have no end: after an undrain, the node may take a job.
ENDLESS = (InterruptionKind.REBALANCE, InterruptionKind.REPLACE, InterruptionKind.FAULT)


@dataclass(frozen=True)
class Recovery:
    """Closed slots of a small cluster, jobs that wait for them, and the seconds between the daemon's passes."""

    plan: str
    drained: tuple[tuple[str, int], ...]  # slot, and position in DRAINS
    nodes_up: frozenset[str]  # of the drained ones: with an instance
    down: tuple[tuple[str, int], ...]  # slot, and position in DOWNS; a drained one is that alone
    marked: frozenset[str]  # slots that are off and marked NOT_RESPONDING from the start
    interrupted: tuple[tuple[str, int], ...]  # slot, and position in ENDLESS; of those with an instance
    undrain_orders: frozenset[str]  # `gpucluster node undrain`
    refused: frozenset[str]  # zones whose offers were refused; the refusal is over
    open_since: float  # seconds since when a refusal is over; negative: it lasts so much longer
    jobs: tuple[tuple[float, int, str], ...]  # seconds of waiting, nodes, reason of Slurm
    drained_pool: bool
    paces: tuple[float, ...]
    marks: bool  # the version marks an undrained slot that is off


RECOVERIES = st.builds(
    Recovery,
    plan=st.sampled_from(["small", "spot", "two"]),
    drained=st.lists(
        st.tuples(st.sampled_from(SLOTS), st.integers(0, len(DRAINS) - 1)), min_size=1, max_size=8, unique_by=lambda d: d[0]
    ).map(tuple),
    nodes_up=st.frozensets(st.sampled_from(SLOTS), max_size=3),
    down=st.lists(
        st.tuples(st.sampled_from(SLOTS), st.integers(0, len(DOWNS) - 1)), max_size=4, unique_by=lambda d: d[0]
    ).map(tuple),
    marked=st.frozensets(st.sampled_from(SLOTS), max_size=3),
    interrupted=st.lists(
        st.tuples(st.sampled_from(SLOTS), st.integers(0, len(ENDLESS) - 1)), max_size=3, unique_by=lambda d: d[0]
    ).map(tuple),
    undrain_orders=st.frozensets(st.sampled_from(SLOTS), max_size=3),
    refused=st.frozensets(st.sampled_from(ZONES)),
    open_since=st.sampled_from([-300.0, 0.0, 5.0, 60.0, 700.0]),
    jobs=st.lists(
        st.tuples(st.sampled_from([0.0, 30.0, 59.0, 61.0, 90.0, 300.0, 4000.0]), st.integers(1, 4),
                  st.sampled_from(["Resources", "Priority", "ReqNodeNotAvail", "None"])),
        max_size=3,
    ).map(tuple),
    drained_pool=st.booleans(),
    paces=st.lists(st.sampled_from([1.0, 5.0, 20.0, 29.0]), min_size=2, max_size=5).map(tuple),
    marks=st.booleans(),
)  # fmt: skip
PLANS = {"small": SMALL, "spot": SPOT, "two": TWO}


def stays_open(recovery: Recovery) -> None:
    """Assert that no passes in a row undrain or resume one slot and power it down.

    Nor do they drain a slot again that was opened because there may be capacity.
    """
    undrained_at, opened_at = dict[str, float](), dict[str, float]()
    for snapshot, actions in passes(recovery):
        now, slots = snapshot.now, slots_in(actions, Undrain, ResetDown)
        undrained_at |= dict.fromkeys(slots, now)
        opened = slots_in(actions, Undrain)  # a slot that is only resumed may lack capacity still
        opened_at |= dict.fromkeys((s for s in opened if owner(snapshot, s) is DrainOwner.CAPACITY), now)
        ended, closed = slots_in(actions, PowerDown, MarkDown), slots_in(actions, Block)
        early = {s for s in ended if now < undrained_at.get(s, 0.0) + SCHEDULES_S}
        early |= {s for s in closed if now < opened_at.get(s, 0.0) + SCHEDULES_S}
        assert not early, f"opened, and at once powered down or drained: {sorted(early)}"


def passes(recovery: Recovery) -> Iterable[tuple[ClusterSnapshot, tuple[Action, ...]]]:
    """Yield each pass of the daemon. Between them only its own updates of Slurm and its events change the world."""
    snapshot = first_of(recovery)
    for pace in (0.0, *recovery.paces):
        snapshot = at(snapshot, snapshot.now + pace)
        actions = decide(
            snapshot.plan, snapshot.bindings, snapshot.observation, snapshot.memory, snapshot.now
        )
        yield snapshot, actions
        snapshot = after(snapshot, actions, marks=recovery.marks)


def first_of(recovery: Recovery) -> ClusterSnapshot:
    living = recovery.nodes_up & {slot for slot, _ in recovery.drained}
    nodes = {slot: node(slot, f"{OFF} NOT_RESPONDING") for slot in recovery.marked}
    for slot, position in recovery.down:
        states, reason = DOWNS[position]
        nodes[slot] = node(slot, states, reason=reason, reason_by="slurm", reason_at=NOW - 5000)
    for slot, position in recovery.drained:
        reason, by = DRAINS[position]
        states = f"{UP if slot in living else OFF} DRAIN"
        nodes[slot] = node(
            slot, states, reason=reason, reason_by=by, reason_at=NOW - 5000, last_busy=NOW - 5000
        )
    keys = [key for zone in recovery.refused for key in offer_keys(zone)]
    orders = (
        {"h200": OperatorOrder(verb=Verb.POOL_DRAIN, at=NOW - 100, by="root")}
        if recovery.drained_pool
        else {}
    )
    notices = {
        slot: Interruption(kind=ENDLESS[kind], since=NOW - 900, words="a notice", source="queue")
        for slot, kind in recovery.interrupted
    }
    lifted = {
        slot: OperatorOrder(verb=Verb.NODE_UNDRAIN, at=NOW - 1, by="ann")
        for slot in sorted(recovery.undrain_orders)
    }
    return scene(
        PLANS[recovery.plan],
        nodes.values(),
        [waiting_job(n, *row) for n, row in enumerate(recovery.jobs, 1)],
        {slot: up(slot, 5000.0, interruption=notices.get(slot)) for slot in sorted(living)},
        known={"refusals": refused(-recovery.open_since, *keys), "orders": orders, "drain_orders": lifted},
    )


def waiting_job(number: int, waited: float, count: int, reason: str) -> SlurmJob:
    return job(number, node_count=count, reason=reason, submitted_at=NOW - waited)


def at(snapshot: ClusterSnapshot, now: float) -> ClusterSnapshot:
    """The same world later."""
    seen = snapshot.observation
    assert seen.slurm is not None
    assert seen.cloud is not None
    observation = replace(seen, slurm=replace(seen.slurm, at=now), cloud=replace(seen.cloud, at=now))
    return replace(snapshot, now=now, observation=observation)


def after(snapshot: ClusterSnapshot, actions: Sequence[Action], *, marks: bool) -> ClusterSnapshot:
    """The world after the daemon's events, its updates of drains and its resumes."""
    entries = [entry for a in actions if isinstance(a, RecordEvents) for entry in a.entries]
    seen = snapshot.observation
    assert seen.slurm is not None
    nodes = dict(seen.slurm.nodes)
    for action in actions:
        if isinstance(action, Undrain):
            nodes |= {slot: undrained(nodes[slot], marks=marks) for slot in action.slots}
        elif isinstance(action, ResetDown):
            nodes |= {slot: resumed(nodes[slot], marks=marks) for slot in action.slots}
        elif isinstance(action, Block | Drain):
            nodes |= {slot: drained(nodes[slot], action.reason, snapshot.now) for slot in action.slots}
    return replace(
        snapshot,
        memory=fold(snapshot.memory, entries),
        observation=replace(seen, slurm=replace(seen.slurm, nodes=nodes)),
    )


def undrained(old: SlurmNode, *, marks: bool) -> SlurmNode:
    mark = {"NOT_RESPONDING"} if marks and "POWERED_DOWN" in old.states else set[str]()
    return replace(old, states=(old.states - {"DRAIN"}) | mark, reason="", reason_by="", reason_at=0.0)


def resumed(old: SlurmNode, *, marks: bool) -> SlurmNode:
    mark = {"NOT_RESPONDING"} if marks else set[str]()
    states = frozenset({"IDLE", "CLOUD", "POWERED_DOWN", *mark})
    return replace(old, states=states, reason="", reason_by="", reason_at=0.0)


def drained(old: SlurmNode, reason: str, now: float) -> SlurmNode:
    return replace(old, states=old.states | {"DRAIN"}, reason=reason, reason_by="slurm", reason_at=now)


def owner(snapshot: ClusterSnapshot, slot: str) -> DrainOwner:
    seen = snapshot.observation.slurm
    assert seen is not None
    return seen.nodes[slot].drain_owner


def slots_in(
    actions: Iterable[Action], *kinds: type[Undrain | ResetDown | PowerDown | MarkDown | Block]
) -> set[str]:
    return {slot for action in actions if isinstance(action, kinds) for slot in action.slots}
