"""Worlds of interrupted instances, stalled and half-started jobs, capacity blocks, and the budget."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gpucluster.cloud.port import QueueNotice, Reservation
from gpucluster.elastic.events import InterruptionKind, Verb
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.memory import Incarnation, Interruption, OperatorOrder, Placement, Refusal, StalledJob
from gpucluster.elastic.model import ReceivedReport
from gpucluster.plan.messages import Beat, GpuFault, NodePhase, Notice, NoticeKind
from gpucluster.plan.model import Budget, JobHeartbeat, Market, SlurmOnAws, Source, Standby, Termination
from gpucluster.slurm.values import SlurmReservation
from support.cluster_states import BUSY, NOW, UP, job, node, report_of
from support.worlds.scene import (
    A1,
    A2,
    A3,
    A4,
    B1,
    B2,
    P5EN,
    SMALL,
    SPOT_A,
    TWO,
    A,
    boots,
    needed,
    offer_keys,
    pool_with,
    refused,
    scene,
    up,
)

Kind = InterruptionKind
OURS = "gpucluster: [evacuation] spot"
USD = 1_000_000


def report(*notices: Notice, **changes: Any) -> ReceivedReport:
    """A report of an agent that reads the notices."""
    plain = report_of(0, phase=NodePhase.UP)
    found = replace(plain.report, notices=notices, watched=True, clock=NOW - 5, **changes)
    return replace(plain, report=found)


def notice(kind: NoticeKind, after: float | None = None, words: str = "") -> Notice:
    return Notice(kind=kind, at=None if after is None else NOW + after, words=words)


def interrupted(
    slot: str, kind: InterruptionKind, ends: float | None = None, since: float = -10.0, source: str = "node"
) -> Incarnation:
    one = Interruption(
        kind=kind,
        since=NOW + since,
        words=kind.value,
        ends_at=None if ends is None else NOW + ends,
        source=source,
    )
    return up(slot, 1000, interruption=one)


def _told(
    *notices: Notice, queue: tuple[Notice, ...] = (), old: Incarnation | None = None, **changes: Any
) -> Callable[[], ClusterSnapshot]:
    """Notices for the first of two nodes of a job, from the agent and from the queue."""

    def build() -> ClusterSnapshot:
        lives = {A1: old or up(A1, 1000), A2: up(A2, 1000)}
        messages = tuple(
            QueueNotice(instance="i-2a-1", notice=one, handle=f"h{n}") for n, one in enumerate(queue)
        )
        return scene(
            SMALL,
            (node(A1, BUSY), node(A2, BUSY)),
            (job(1, A1, A2),),
            lives,
            reports={"i-2a-1": report(*notices, **changes)},
            queue_notices=messages,
        )

    return build


def _leaves(kind: InterruptionKind, ends: float | None = None, **known: Any) -> Callable[[], ClusterSnapshot]:
    """Interrupted instances: with running jobs of each kind, idle, drained by a person, kept; of another zone."""

    def build() -> ClusterSnapshot:
        lives = {slot: interrupted(slot, kind, ends) for slot in (A1, A2, A3, A4, B1)}
        nodes = (
            node(A1, BUSY),
            node(A2, f"{BUSY} DRAIN", reason=OURS),
            node(A3, f"{UP} DRAIN", reason=OURS),
            node(A4, f"{UP} DRAIN", reason="fan", reason_by="root"),
            node(B1, UP),
        )
        jobs = (
            job(1, A1, A2),
            job(2, A1, requeueable=False),
            job(3, A2, states=frozenset({"SUSPENDED"})),
            job(4, A1, starts=True),
            job(5, A1, het_id=5),
            job(6, A2, het_id=5),
            job(7, states=frozenset({"PENDING"}), node_count=1),
        )
        keep = {B1: OperatorOrder(verb=Verb.NODE_KEEP, at=NOW - 50, by="alice")}
        placed = {
            "2": Placement(slots=(A1,), running=True, signalled=True),
            "3": Placement(slots=(A2,), running=True, signalled=True),
            "5": Placement(slots=(A1,), running=True, signalled=True, sent_back=True),
        }
        return scene(
            pool_with(TWO, max=8), nodes, jobs, lives, known={"orders": keep, "jobs": placed, **known}
        )

    return build


def _faults(*faults: GpuFault, **known: Any) -> Callable[[], ClusterSnapshot]:
    def build() -> ClusterSnapshot:
        lives = {A1: up(A1, 1000, faults=("79 0000:53:00 isolate",)), A2: up(A2, 1000)}
        nodes = (node(A1, BUSY), node(A2, UP, last_busy=NOW))
        reports = {"i-2a-1": report(faults=faults), "i-2a-2": report(faults=faults[:1])}
        return scene(SMALL, nodes, (job(1, A1),), lives, reports=reports, known=known)

    return build


def fault(xid: int, count: int = 1, text: str = "") -> GpuFault:
    return GpuFault(xid=xid, device="0000:53:00", count=count, last_at=NOW - 5, text=text)


def _boots_interrupted() -> ClusterSnapshot:
    """Interrupted instances that boot: reclaimed, hinted, and one where slurmd is up already."""
    kinds = {A1: Kind.SPOT, A2: Kind.REBALANCE, A3: Kind.SPOT, A4: Kind.MAINTENANCE, B1: Kind.FAULT}
    lives = {
        slot: boots(slot, 60, registered_at=NOW - 30, interruption=interrupted(slot, kind, 100).interruption)
        for slot, kind in kinds.items()
    }
    nodes = [node(slot, "ALLOCATED CLOUD NOT_RESPONDING POWERING_UP") for slot in lives]
    return scene(
        SMALL, nodes, (job(1, *lives, starts=True),), lives, reports={"i-2a-3": report(incarnation=1)}
    )


def _storm(*ago: float, living: int = 3, until: float = -10.0) -> Callable[[], ClusterSnapshot]:
    """Instances of one offer that were reclaimed so long ago."""

    def build() -> ClusterSnapshot:
        slots = (A1, A2, A3, A4)[:living]
        known = {
            "taken": {SPOT_A: tuple(NOW - one for one in ago)},
            "refusals": {SPOT_A: Refusal(until=NOW + until, times=2, words="ICE")},
        }
        nodes = [node(slot, BUSY) for slot in slots]
        return scene(SMALL, nodes, (job(1, *slots),), {slot: up(slot) for slot in slots}, known=known)

    return build


def _orders(**changes: Any) -> Callable[[], ClusterSnapshot]:
    """Replace orders: a busy node, an idle one, one whose instance is newer, one whose slot is free."""

    def build() -> ClusterSnapshot:
        order = OperatorOrder(verb=Verb.NODE_REPLACE, at=NOW - 50, by="bob", **changes)
        lives = {
            A1: up(A1, 1000),
            A2: up(A2, 1000),
            A3: boots(A3, 40),
            B1: interrupted(B1, Kind.REPLACE, source="operator"),
            B2: needed(60, 4, request="r9"),
        }
        nodes = (node(A1, BUSY), node(A2, UP, last_busy=NOW), node(A3, BUSY), node(B1, BUSY))
        jobs = (job(1, A1), job(3, A3), job(4, B1))
        orders = dict.fromkeys((A1, A2, A3, A4, B2), order)
        return scene(SMALL, nodes, jobs, lives, known={"orders": orders})

    return build


# --- jobs ------------------------------------------------------------------------------------------------
BEATS = pool_with(SMALL, job_heartbeat=JobHeartbeat(after_s=240, requeue=True))


def _beats(
    ago: float, plan: SlurmOnAws = BEATS, stalled: bool = False, **changes: Any
) -> Callable[[], ClusterSnapshot]:
    """The job's last heartbeat on the first of two nodes; an older one on the second, and one of another user."""

    def build() -> ClusterSnapshot:
        beats = (
            Beat(job=1, uid=1000, at=NOW - ago),
            Beat(job=1, uid=0, at=NOW - 1),
            Beat(job=2, uid=1000, at=NOW - 2),
        )
        far = replace(report(heartbeats=beats), at=NOW + 9000)  # the agents still report
        near = replace(report(heartbeats=(Beat(job=1, uid=1000, at=NOW - ago - 40),)), at=NOW + 9000)
        far, near = (replace(one, report=replace(one.report, clock=NOW + 9000)) for one in (far, near))
        one = replace(job(1, A1, A2, user_id=1000, started_at=NOW - 900), **changes)
        known = (
            {
                "stalled": {
                    "1": StalledJob(since=NOW - 400, words="no progress"),
                    "9": StalledJob(since=NOW, words="x"),
                }
            }
            if stalled
            else {}
        )
        return scene(
            plan,
            (node(A1, BUSY), node(A2, BUSY)),
            (one,),
            {A1: up(A1, 1000), A2: up(A2, 1000)},
            reports={"i-2a-1": far, "i-2a-2": near},
            known=known,
        )

    return build


def _quiet_agent() -> ClusterSnapshot:
    """The agents do not report any more, so the job does not count as stalled."""
    moment = _beats(200)()
    reports = {
        key: replace(one, at=NOW - 5, report=replace(one.report, clock=NOW - 5))
        for key, one in moment.observation.reports.items()
    }
    return replace(moment, observation=replace(moment.observation, reports=reports))


def _prolog(**changes: Any) -> Callable[[], ClusterSnapshot]:
    def build() -> ClusterSnapshot:
        jobs = (
            job(1, A1, reason="Prolog", started_at=NOW - 300, **changes),
            job(2, A2, reason="Prolog", started_at=NOW - 299, **changes),
            job(3, "gpu01", reason="Prolog", started_at=NOW - 400),
            job(4, A3, reason="None", started_at=NOW - 400),
        )
        slots = (A1, A2, A3)
        return scene(
            SMALL, [node(slot, BUSY) for slot in slots], jobs, {slot: up(slot, 1000) for slot in slots}
        )

    return build


def _signalled(*, breaks: int = 0, **changes: Any) -> Callable[[], ClusterSnapshot]:
    """Jobs that ended after our signal: by it, by another one, completing, and one whose signal was not recorded."""

    def build() -> ClusterSnapshot:
        failed = dict[str, Any](states=frozenset({"FAILED"}), node_count=1, exit_signal=10, **changes)
        jobs = (
            job(1, **failed),
            job(2, **{**failed, "exit_signal": 9}),
            job(3, **{**failed, "states": frozenset({"FAILED", "COMPLETING"})}),
            job(4, **failed),
            job(5, **{**failed, "states": frozenset({"COMPLETED"})}),
            job(6, **failed),
        )
        placed = {str(n): Placement(slots=(A1,), running=True, signalled=True) for n in (1, 2, 3, 5)}
        placed["4"] = Placement(slots=(A2,), running=True)
        placed["6"] = Placement(slots=(A1,), running=True, signalled=True, sent_back=True)
        lives = {A1: up(A1, 1000), A2: interrupted(A2, Kind.SPOT, 100)}
        nodes = (node(A1, UP, last_busy=NOW), node(A2, UP, last_busy=NOW))
        return scene(SMALL, nodes, jobs, lives, known={"jobs": placed, "breaks": {"1": breaks, "77": 2}})

    return build


# --- blocks and budget ------------------------------------------------------------------------------------
def _block(
    begins: float,
    ends: float,
    *,
    alone: bool = True,
    state: str = "active",
    free: int = 2,
    have: tuple[SlurmReservation, ...] = (),
) -> Callable[[], ClusterSnapshot]:
    """A capacity block of two pools in zone a, with jobs that have different time limits."""

    def build() -> ClusterSnapshot:
        block = Source(
            position=0,
            market=Market.CAPACITY_BLOCK,
            machines=(P5EN,),
            zones=(A,),
            max=None,
            reservation="cr-1",
        )
        beside = Source(
            position=1,
            market=Market.ON_DEMAND,
            machines=(P5EN,),
            zones=("us-east-2b",) if alone else (A,),
            max=None,
        )
        first = TWO.pools[0]
        templates = tuple(
            replace(t, source=s.position, machine=P5EN, market=s.market)
            for s, t in zip((block, beside), first.templates, strict=False)
        )
        pool = replace(first, sources=(block, beside), templates=templates)
        other = replace(
            TWO.pools[1],
            sources=(block,),
            termination=Termination(lead_s=50),
            templates=(replace(TWO.pools[1].templates[0], machine=P5EN, market=Market.CAPACITY_BLOCK),),
        )
        plan = replace(TWO, pools=(pool, other))
        listed = Reservation(
            id="cr-1",
            state=state,
            machine=P5EN,
            zone=A,
            total=16,
            free=free,
            starts_at=NOW + begins,
            ends_at=NOW + ends,
        )
        lives = {A1: up(A1, 1000, market=Market.CAPACITY_BLOCK), A2: needed(30, 2), A3: needed(30, 3)}
        nodes = (
            node(A1, BUSY),
            *(node(slot, "ALLOCATED CLOUD NOT_RESPONDING POWERING_UP") for slot in (A2, A3)),
        )
        jobs = (
            job(1, A1),
            job(2, A2, starts=True, time_limit_s=1000.0),
            job(3, A3, starts=True, time_limit_s=9000.0),
        )
        moment = scene(plan, nodes, jobs, lives)
        slurm = moment.observation.slurm
        assert slurm is not None
        seen = replace(
            moment.observation,
            reservations={"cr-1": listed},
            slurm=replace(slurm, reservations=have),
        )
        return replace(moment, observation=seen)

    return build


def ours(name: str, starts: float, ends: float, *nodes: str) -> SlurmReservation:
    return SlurmReservation(name=name, starts_at=NOW + starts, ends_at=NOW + ends, nodes=nodes)


def _budget(spent: int, before: str = "", **living: float) -> Callable[[], ClusterSnapshot]:
    """So many dollars are spent of 1000; one instance of 26 USD an hour runs."""
    plan = replace(SMALL, budget=Budget(monthly=1000 * USD, warn_at=800 * USD, stop_scaling_at=900 * USD))

    def build() -> ClusterSnapshot:
        known = {"spent": {"2026-11": spent * USD}, "budget": before}
        nodes = (node(A1, BUSY), node(A2, "ALLOCATED CLOUD NOT_RESPONDING POWERING_UP"))
        jobs = (job(1, A1), job(2, A2, starts=True), job(3))
        return scene(plan, nodes, jobs, {A1: up(A1, 3450), A2: needed(20, 2)}, known=known)

    return build


STANDBY = replace(
    SMALL,
    head=replace(
        SMALL.head,
        standby=Standby(machine="m7i.large", zone="us-east-2b", address="10.42.32.11", state="/home"),
    ),
)
SAVED = {"1": Placement(slots=(A1,), running=True)}

INTERRUPTIONS: Mapping[str, Callable[[], ClusterSnapshot]] = {
    "a spot notice": _told(notice(NoticeKind.SPOT, 110)),
    "a spot notice without a time": _told(notice(NoticeKind.SPOT)),
    "a spot notice of both sources": _told(notice(NoticeKind.SPOT, 110), queue=(notice(NoticeKind.SPOT, 100), notice(NoticeKind.REBALANCE, 50))),
    "a hint": _told(notice(NoticeKind.REBALANCE, 100)),
    "a planned maintenance": _told(notice(NoticeKind.MAINTENANCE, 7000, "system-reboot")),
    "a spot notice after a hint": _told(notice(NoticeKind.SPOT, 110), old=interrupted(A1, Kind.REBALANCE)),
    "a hint after a spot notice": _told(notice(NoticeKind.REBALANCE), old=interrupted(A1, Kind.SPOT, 100)),
    "a nearer end": _told(notice(NoticeKind.SPOT, 98.9), old=interrupted(A1, Kind.SPOT, 100)),
    "the same end": _told(notice(NoticeKind.SPOT, 99), old=interrupted(A1, Kind.SPOT, 100)),
    "an end for a notice without one": _told(notice(NoticeKind.SPOT, 500), old=interrupted(A1, Kind.SPOT)),
    "a later maintenance": _told(notice(NoticeKind.MAINTENANCE, 9000), old=interrupted(A1, Kind.MAINTENANCE, 7000)),
    "a maintenance one second later": _told(notice(NoticeKind.MAINTENANCE, 7001), old=interrupted(A1, Kind.MAINTENANCE, 7000)),
    "a later maintenance after the queue's notice": _told(notice(NoticeKind.MAINTENANCE, 9000), old=interrupted(A1, Kind.MAINTENANCE, 7000, since=-590, source="queue")),
    "a maintenance is called off": _told(old=interrupted(A1, Kind.MAINTENANCE, 7000)),
    "a maintenance of the queue that the agent does not show yet": _told(old=interrupted(A1, Kind.MAINTENANCE, 7000, since=-605, source="queue")),
    "a maintenance of the queue that the agent does not show": _told(old=interrupted(A1, Kind.MAINTENANCE, 7000, since=-606, source="queue")),
    "reclaimed instances": _leaves(Kind.SPOT, 110),
    "reclaimed instances without a time": _leaves(Kind.SPOT),
    "reclaimed instances in few seconds": _leaves(Kind.SPOT, 10),
    "hinted instances": _leaves(Kind.REBALANCE),
    "maintained instances": _leaves(Kind.MAINTENANCE, 800),
    "broken instances": _leaves(Kind.FAULT),
    "broken instances of jobs that break many": _leaves(Kind.FAULT, breaks={"1": 5, "3": 5, "5": 6}),
    "replaced instances": _leaves(Kind.REPLACE),
    "instances of a block that ends": _leaves(Kind.BLOCK_END, 600),
    "reclaimed instances, and zone a has no capacity": _leaves(Kind.SPOT, 110, refusals=refused(500, *offer_keys(A))),
    "a fault that was recorded": _faults(fault(79)),
    "a fault of the job": _faults(fault(13)),
    "contained memory errors": _faults(fault(94, 2)),
    "many contained memory errors": _faults(fault(94, 3)),
    "faults of several kinds": _faults(fault(63), fault(48), fault(92), fault(119)),
    "interrupted instances that boot": _boots_interrupted,
    "one reclaimed in the last ten minutes": _storm(100, 601),
    "two reclaimed of three": _storm(100, 550),
    "two reclaimed of four": _storm(100, 550, living=4),
    "two reclaimed of many": _storm(100, 600, living=4),
    "three reclaimed, and the offer is refused": _storm(100, 200, 300, living=4, until=60),
    "replace orders": _orders(words="ticket 812"),
    "replace orders at once": _orders(now=True),
    "a heartbeat stops": _beats(200),
    "a heartbeat stops, and the job is only reported": _beats(200, pool_with(SMALL, job_heartbeat=JobHeartbeat(after_s=240, requeue=False))),
    "a heartbeat stopped before": _beats(300, stalled=True),
    "a heartbeat stopped in a job with many restarts": _beats(300, stalled=True, restarts=5),
    "a heartbeat of an earlier run": _beats(300, started_at=NOW - 299),
    "a heartbeat resumes": _beats(30, stalled=True),
    "a heartbeat, and a silent agent": _quiet_agent,
    "a Prolog does not report": _prolog(),
    "a Prolog does not report after many restarts": _prolog(restarts=5),
    "a Prolog of a job that may not be requeued": _prolog(requeueable=False, restarts=1),
    "jobs that died of the signal": _signalled(),
    "jobs that died of the signal after many faults": _signalled(breaks=6),
    "jobs that died of the signal after five faults": _signalled(breaks=5),
    "a job starts with a second head": lambda: scene(STANDBY, (node(A1, BUSY), node(A2, BUSY)), (job(1, A1), job(2, A2, admin_comment="old")), {A1: up(A1, 1000), A2: up(A2, 1000)}, known={"jobs": SAVED}),
    "a block before its start": _block(100, 9000, state="scheduled"),
    "a block in its time": _block(-100, 5400),
    "a block near its end": _block(-100, 2500),
    "a block beside on-demand": _block(-100, 2500, alone=False),
    "a full block": _block(-100, 90_000, free=1),
    "a block with its reservation": _block(-100, 5400, have=(ours("gpucluster-cr-1", 2950, 5400, A1, A2, A3, A4, "h100-2a-1", "h100-2a-2", "h100-2a-3"),)),
    "a block with a moved reservation": _block(-100, 5400, have=(ours("gpucluster-cr-1", 2889, 5400, A1, A2, A3, A4, "h100-2a-1", "h100-2a-2", "h100-2a-3"),)),
    "a block with an older reservation": _block(-100, 5400, have=(ours("gpucluster-cr-1", -50, 5000, A1), ours("gpucluster-cr-9", 0, 900, A1), ours("gpucluster-cr-1-begin", -500, -100, A1))),
    "an expired block": _block(-9000, -100, state="expired", have=(ours("gpucluster-cr-1", -2500, -100, A1),)),
    "the budget is open": _budget(700),
    "the budget is nearly stopped": _budget(860, "2026-11/warn"),
    "the budget was stopped": _budget(950, "2026-11/stop"),
    "the budget of the last month": _budget(0, "2026-10/stop"),
}  # fmt: skip
