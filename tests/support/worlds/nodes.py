"""Worlds of nodes: boots, idle nodes, nodes that are down or stuck, orders, and instances in each state."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gpucluster.cloud.port import KEY_REFUSALS, InstanceState
from gpucluster.elastic.events import InterruptionKind, Verb
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.memory import Interruption, OperatorOrder
from gpucluster.plan.messages import HeldBundle, NodePhase
from gpucluster.plan.model import Market
from gpucluster.slurm.values import SlurmJob, SlurmNode, SlurmReservation
from support.cluster_states import BUSY, NOW, OFF, UP, WAKING, instance, job, node, report_of
from support.worlds.launches import ALWAYS
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
    boots,
    needed,
    offer_keys,
    refused,
    scene,
    up,
)

IDLE_WAKING = WAKING.replace("ALLOCATED", "IDLE")
KEEP = OperatorOrder(verb=Verb.NODE_KEEP, at=NOW - 50, by="alice", words="look at it", until=NOW + 200)
REPLACE = OperatorOrder(verb=Verb.NODE_REPLACE, at=NOW - 50, by="bob")
SPOT_NOTICE = Interruption(kind=InterruptionKind.SPOT, since=NOW - 10, words="spot", ends_at=NOW + 110)


def all_are(states: str, **changes: Any) -> Callable[[], ClusterSnapshot]:
    """Each slot of zone a has these states: with an instance, without, failed, and with a running job."""

    def build() -> ClusterSnapshot:
        nodes = [node(slot, states, **changes) for slot in (A1, A2, A3, A4)]
        lives = {A1: up(A1), A3: up(A3, failed="i-2a-3: step mounts: refused"), A4: up(A4)}
        return scene(SMALL, nodes, (job(1, A4),), lives)

    return build


def _idle(*jobs: SlurmJob, **changes: Any) -> Callable[[], ClusterSnapshot]:
    """Idle nodes since different times, in two zones. Other slots are refused."""

    def build() -> ClusterSnapshot:
        nodes = [
            node(A1, UP, last_busy=NOW - 290, features=("spot",)),
            node(A2, UP, last_busy=NOW - 100),
            node(B1, UP, last_busy=NOW - 50),
            node(B2, f"{UP} PLANNED", last_busy=NOW - 280),
            node(B3, UP, last_busy=NOW - 9000),
        ]
        lives = {slot: up(slot, 1000, idle_at=NOW - 50) for slot in (A1, A2, B1, B2)} | {
            B3: up(B3, 150, idle_at=NOW - 150)
        }
        known = {"refusals": refused(9000, *offer_keys("us-east-2a"), *offer_keys("us-east-2b")), **changes}
        return scene(SMALL, nodes, jobs, lives, known=known)

    return build


def _reserved(*reservations: SlurmReservation, **changes: Any) -> Callable[[], ClusterSnapshot]:
    """Idle nodes that Slurm plans for a waiting job, with reservations of people."""

    def build() -> ClusterSnapshot:
        waiting = job(1, node_count=1, reason="Resources", time_limit_s=1800.0, **changes)
        nodes = [node(slot, f"{UP} PLANNED", last_busy=NOW - 290) for slot in (A1, A2)]
        found = scene(SMALL, nodes, (waiting,), {slot: up(slot, 1000, idle_at=NOW - 50) for slot in (A1, A2)})
        assert found.observation.slurm is not None
        view = replace(found.observation.slurm, reservations=reservations)
        return replace(found, observation=replace(found.observation, slurm=view))

    return build


COURSE = SlurmReservation(name="course", starts_at=NOW + 900, ends_at=NOW + 9000, nodes=(A1,))


def _awaited(**changes: Any) -> Callable[[], ClusterSnapshot]:
    """A job was sent back from an interrupted instance and begins in 100 s. Three idle nodes in zone a, one in zone b."""

    def build() -> ClusterSnapshot:
        nodes = [node(slot, UP, last_busy=NOW - 250) for slot in (A1, A2, A3, B1)]
        one = job(
            1,
            begins_at=NOW + 100,
            reason="BeginTime",
            admin_comment="gpucluster: [evacuation] spot",
            **changes,
        )
        return scene(SMALL, nodes, (one,), {slot: up(slot, 1000) for slot in (A1, A2, A3, B1)})

    return build


def _leaving() -> ClusterSnapshot:
    """The job still runs on an interrupted instance, so one idle node of its zone waits for it."""
    nodes = [
        node(A1, f"{BUSY} DRAIN", reason="gpucluster: [evacuation] spot"),
        *(node(slot, UP, last_busy=NOW - 250) for slot in (A2, A3, B1, B2, B3)),
    ]
    lives = {slot: up(slot, 1000) for slot in (A1, A2, A3, B1, B2, B3)}
    lives[A1] = replace(lives[A1], interruption=SPOT_NOTICE)
    one = job(1, A1, admin_comment="gpucluster: [evacuation] spot")
    return scene(SMALL, nodes, (one,), lives)


def _boots(**reports: Any) -> Callable[[], ClusterSnapshot]:
    """Instances that were launched 100, 700 and 1100 s ago, and one that a slow list does not show yet."""

    def build() -> ClusterSnapshot:
        lives = {
            A1: boots(A1, 100),
            A2: boots(A2, 700, registered_at=NOW - 600),
            A3: boots(A3, 1100, registered_at=NOW - 1000),
            A4: boots(A4, 20),
        }
        nodes = [node(slot, WAKING) for slot in lives]
        jobs = (job(1, A1, A2, starts=True), job(2, A3, A4, starts=True))
        return scene(SMALL, nodes, jobs, lives, states={A4: None}, **reports)

    return build


def _silent() -> ClusterSnapshot:
    """An agent never reported; the daemon itself listens since 250 s."""
    moment = scene(SMALL, (node(A1, WAKING),), (job(1, A1, starts=True),), {A1: boots(A1, 390)})
    return replace(moment, observation=replace(moment.observation, listening_since=NOW - 250))


def _instances() -> ClusterSnapshot:
    """Off nodes that have instances in each state, or had."""
    lives = {
        A1: up(A1, 1000, unneeded_at=NOW - 290),
        A2: up(A2, 1000),
        A3: up(A3, 1000, unneeded_at=NOW - 10),
        A4: up(A4, 1000, unneeded_at=NOW - 500),
        B1: up(B1, 1000, unneeded_at=NOW - 500),
        B2: boots(B2, 30),
        B3: needed(30, 3),
        B4: up(B4, 1000, open=False, instance=None),
    }
    states = {
        A3: InstanceState.STOPPED,
        A4: InstanceState.TERMINATED,
        B1: InstanceState.SHUTTING_DOWN,
        B2: None,
    }
    return scene(SMALL, (), (), lives, states=states)


def _unlisted() -> ClusterSnapshot:
    """The list lacks instances: of a node that is up, of one that boots, and of one that powers down."""
    lives = {A1: up(A1), A2: boots(A2, 100), A3: up(A3), A4: up(A4)}
    nodes = (
        node(A1, BUSY),
        node(A2, WAKING),
        node(A3, "IDLE CLOUD POWERING_DOWN"),
        node(A4, f"{BUSY} NOT_RESPONDING"),
    )
    jobs = (job(1, A1), job(2, A2, starts=True), job(3, A4))
    moment = scene(SMALL, nodes, jobs, lives, states=dict.fromkeys(lives))
    cloud = moment.observation.cloud
    assert cloud is not None
    gone = {f"i-2a-{n}": NOW - 10 for n in range(1, 5)}
    return replace(moment, observation=replace(moment.observation, cloud=replace(cloud, absent_since=gone)))


def _ended() -> ClusterSnapshot:
    """Instances that ended while their node was up, booted, or was asked to end."""
    lives = {A1: up(A1), A2: boots(A2, 100), A3: up(A3), A4: up(A4, market=Market.ON_DEMAND), B1: up(B1)}
    nodes = (
        node(A1, BUSY),
        node(A2, WAKING),
        node(A3, UP, last_busy=NOW),
        node(A4, UP, last_busy=NOW),
        node(B1, f"{UP} DRAIN", reason="fan", reason_by="root"),
    )
    jobs = (job(1, A1), job(2, A2, starts=True))
    moment = scene(
        SMALL,
        nodes,
        jobs,
        lives,
        states=dict.fromkeys(lives, InstanceState.TERMINATED),
        known={"endings": {"i-2a-3": NOW - 60}},
    )
    cloud = moment.observation.cloud
    assert cloud is not None
    reason = {
        "i-2a-1": "Server.SpotInstanceTermination",
        "i-2a-2": KEY_REFUSALS[0],
        "i-2b-1": "User initiated (2026-11-17)",
    }
    found = {key: replace(one, reason=reason.get(key)) for key, one in cloud.instances.items()}
    return replace(moment, observation=replace(moment.observation, cloud=replace(cloud, instances=found)))


def _own_ends() -> ClusterSnapshot:
    """A node that was up ended for its key; one that powers up again was asked to end; one is of a slot that is not in the plan."""
    lives = {A1: up(A1), A2: up(A2), "old-2a-1": up("old-2a-1")}
    nodes = (node(A1, UP, last_busy=NOW), node(A2, IDLE_WAKING))
    known = {"endings": {"i-2a-2": NOW - 10}}
    moment = scene(SMALL, nodes, (), lives, known=known)
    cloud = moment.observation.cloud
    assert cloud is not None
    ended = replace(cloud.instances["i-2a-1"], state=InstanceState.TERMINATED, reason=KEY_REFUSALS[0])
    stray = replace(
        cloud.instances.get("i-2a-1", ended), id="i-old", state=InstanceState.RUNNING, reason=None
    )
    lives = {**lives, "old-2a-1": replace(lives["old-2a-1"], instance="i-old")}
    found = {**cloud.instances, "i-2a-1": ended, "i-old": stray}
    return replace(
        moment,
        memory=replace(moment.memory, incarnations=lives),
        observation=replace(moment.observation, cloud=replace(cloud, instances=found)),
    )


def _orders() -> ClusterSnapshot:
    """Keep orders for a failed boot, an idle node, an off node, a powering-down one; one that has expired; a replace order."""
    lives = {
        A1: boots(A1, 500, failed="i-2a-1: step mounts: refused"),
        A2: up(A2, 1000),
        A3: up(A3, 1000, unneeded_at=NOW - 1000),
        A4: up(A4, 1000),
        B1: up(B1, 1000),
        B2: up(B2, 1000),
        B3: boots(B3, 500, failed="i-2b-3: step mounts: refused"),
        B4: up(B4, 1000),
    }
    nodes = (
        node(A1, IDLE_WAKING),
        node(A2, UP, last_busy=NOW - 800),
        node(A4, "IDLE CLOUD POWERING_DOWN"),
        node(B1, UP, last_busy=NOW - 800),
        node(B2, BUSY),
        node(B3, OFF),
        node(B4, "DOWN CLOUD", reason="Not responding", reason_by="slurm", reason_at=NOW - 400),
    )
    orders = dict.fromkeys((A1, A2, A3, A4, B3, B4), KEEP) | {B1: replace(KEEP, until=NOW - 1), B2: REPLACE}
    return scene(SMALL, nodes, (job(1, B2),), lives, known={"orders": orders})


def _drains() -> ClusterSnapshot:
    """Idle nodes that are up, with a drain of each owner."""
    nodes = (
        node(A1, f"{UP} DRAIN", reason="gpucluster: no h200"),
        node(A2, f"{UP} DRAIN", reason="gpucluster: [bundle] removed"),
        node(A3, f"{UP} DRAIN", reason="gpucluster: [evacuation] spot", reason_at=NOW - 250),
        node(A4, f"{UP} DRAIN", reason="gpucluster: [evacuation] spot", reason_at=NOW - 250),
        node(B1, f"{UP} DRAIN", reason="gpucluster: [operator] kept"),
        node(B2, f"{UP} DRAIN", reason="broken fan", reason_by="root"),
        node(B3, f"{UP} DRAIN", reason="Prolog error", reason_by="slurm", reason_at=NOW - 250),
        node(B4, f"{UP} INVALID_REG", reason="Low RealMemory", reason_by="slurm", reason_at=NOW - 350),
    )
    watched = report_of(0, phase=NodePhase.UP)
    reports = {"i-2a-4": replace(watched, report=replace(watched.report, watched=True))}
    return scene(SMALL, nodes, (), {n.name: up(n.name, 250) for n in nodes}, reports=reports)


def _removed(held: HeldBundle | None) -> Callable[[], ClusterSnapshot]:
    def build() -> ClusterSnapshot:
        ours = "gpucluster: [bundle] bundle 0123456789ab removes or changes it, and is applied when its jobs have ended"
        nodes = (
            node(A1, f"{UP} DRAIN", reason=ours),
            node(A2, f"{BUSY} DRAIN", reason=ours),
            node(A3, BUSY),
            node(A4, f"{OFF} DRAIN", reason=ours),
            node(B1, "IDLE CLOUD POWERING_DOWN"),
            node(B2, f"{UP} DRAIN", reason="fan", reason_by="root"),
        )
        lives = {slot: up(slot, 250) for slot in (A1, A2, A3, B2)}
        jobs = (job(1, A2), job(2, A3), job(3))
        return scene(SMALL, nodes, jobs, lives, held=held)

    return build


def _power_marks() -> ClusterSnapshot:
    """Nodes with Slurm's mark of a power-up that stays, and one that boots again for it."""
    lives = {
        A1: up(A1, 1000),
        A2: up(A2, 1000, relapses=True),
        A3: needed(20, 1, relapses=True),
        A4: boots(A4, 200, registered_at=NOW - 100),
    }
    nodes = (
        node(A1, f"{UP} POWER_UP", last_busy=NOW),
        node(A2, UP, last_busy=NOW),
        node(A3, "IDLE CLOUD POWERED_DOWN POWERING_UP"),
        node(A4, WAKING),
    )
    ready = replace(report_of(0, phase=NodePhase.UP), since=NOW - 20)
    reports = {"i-2a-4": replace(ready, report=replace(ready.report, incarnation=1))}
    return scene(SMALL, nodes, (job(1, A4, starts=True),), lives, reports=reports)


def _marked(*jobs: SlurmJob) -> Callable[[], ClusterSnapshot]:
    return lambda: scene(SPOT, (node(A1, f"{OFF} NOT_RESPONDING"), node(A2, f"{OFF} NOT_RESPONDING")), jobs)


def _adopted() -> ClusterSnapshot:
    """Nodes that are up and not in memory: two have an instance with their address."""
    nodes = (node(A1, UP, last_busy=NOW), node(A2, BUSY), node(A3, UP, last_busy=NOW))
    found = (
        instance(1, address=A1, machine="p5e.48xlarge"),
        instance(2, address=A2, machine="p4d.24xlarge"),
        instance(3, address=B1),
    )
    return scene(SMALL, nodes, (job(1, A2),), instances=found)


def _unfit() -> ClusterSnapshot:
    """Two nodes of one offer, and one of another, register with less hardware than slurm.conf requires."""
    low = dict[str, Any](
        reason="Low RealMemory (reported:100 < 100.00% of configured:200)",
        reason_by="slurm",
        reason_at=NOW - 100,
    )
    nodes = [node(slot, f"{UP} INVALID_REG DRAIN", **low) for slot in (A1, A2, B1)]
    lives = {A1: up(A1, 100), A2: up(A2, 100), B1: up(B1, 100)}
    return scene(SMALL, nodes, (), lives, known={"refusals": refused(-10, "spot/p5en.48xlarge/us-east-2b")})


DOWN = dict[str, Any](reason="Not responding", reason_by="slurm", reason_at=NOW - 200)
PERSON = dict[str, Any](reason="broken fan", reason_by="root", reason_at=NOW - 200)
SICK = dict[str, Any](
    reason="gpucluster: [health] gpu.ecc: GPU 3 has 2 uncorrectable ECC errors",
    reason_by="root",
    reason_at=NOW - 200,
)
HELD = HeldBundle(bundle="0123456789abcdef", nodes=(A1, A2, A3, A4, B1, B2, B3, B4))

NODES: Mapping[str, Callable[[], ClusterSnapshot]] = {
    "down": all_are("DOWN CLOUD", **DOWN),
    "down by a person": all_are("DOWN CLOUD DRAIN", **PERSON),
    "down by the daemon": all_are("DOWN CLOUD", reason="gpucluster: [evacuation] spot"),
    "down, and a power-down is pending": all_are("DOWN CLOUD POWER_DOWN", **DOWN),
    "down, and reboots": all_are("DOWN CLOUD REBOOT_ISSUED", **PERSON),
    "down and powered down": all_are("DOWN CLOUD POWERED_DOWN", **DOWN),
    "down and powered down, drained by a person": all_are("DOWN CLOUD POWERED_DOWN DRAIN", **PERSON),
    "down and powered down, and a power-down is pending": all_are("DOWN CLOUD POWERED_DOWN POWER_DOWN", **DOWN),
    "a health check failed": all_are(f"{UP} DRAIN", **{**SICK, "reason_at": NOW - 400}),
    "a health check failed a moment ago": all_are(f"{UP} DRAIN", **SICK),
    "a health check failed, and a job runs": all_are("MIXED CLOUD DRAIN", **SICK),
    "a health check failed, and the instance is replaced": all_are("IDLE CLOUD POWERED_DOWN DRAIN", **SICK),
    "powering down": all_are("IDLE CLOUD POWERING_DOWN"),
    "a power-down is pending": all_are("IDLE CLOUD POWER_DOWN"),
    "a power-down is pending on busy nodes": all_are("MIXED CLOUD POWER_DOWN"),
    "not responding": all_are("IDLE CLOUD NOT_RESPONDING", last_busy=NOW - 400),
    "powering up and down": all_are("IDLE CLOUD POWERING_UP POWER_DOWN"),
    "powering up and down while powered down": all_are("IDLE CLOUD POWERED_DOWN POWERING_UP POWER_DOWN"),
    "powering up and down, drained by a person": all_are("IDLE CLOUD POWERING_UP POWER_DOWN DRAIN", **PERSON),
    "powering up and down, with jobs": all_are("ALLOCATED CLOUD POWERING_UP POWER_DOWN"),
    "future": all_are("FUTURE CLOUD"),
    "future, drained by a person": all_are("FUTURE CLOUD DRAIN", **PERSON),
    "unknown": all_are("IDLE CLOUD LEVITATING"),
    "up, and reboots when idle": all_are("IDLE CLOUD REBOOT_REQUESTED", last_busy=NOW - 100),
    "powered up again": all_are(IDLE_WAKING),
    "idle nodes": _idle(),
    "idle nodes, and a job waits for two": _idle(job(1, node_count=2, reason="Resources")),
    "idle nodes, and jobs wait for other reasons": _idle(job(1, node_count=2, reason="Priority"), job(2, reason="Dependency")),
    "idle nodes, and six jobs wait": _idle(*(job(n, node_count=n, reason="Resources", features="spot" if n < 6 else "") for n in range(1, 7))),
    "idle nodes that are planned for a job": _reserved(),
    "idle nodes that are planned for a job, and one is soon reserved": _reserved(COURSE),
    "idle nodes that are planned for a short job, and one is soon reserved": _reserved(COURSE, time_min_s=60.0),
    "idle nodes that a requeued job will use": _awaited(),
    "idle nodes that a requeued job of another partition will use": _awaited(partitions=("other",)),
    "idle nodes that a requeued job of four will use": _awaited(node_count=4),
    "an idle node waits for a job that is being evacuated": _leaving,
    "boots": _boots(),
    "boots with reports": _boots(
        reports={
            "i-2a-1": report_of(1, "guard", failed="bundle: AccessDenied"),
            "i-2a-2": report_of(2, "guard", "machine"),
            "i-2a-3": report_of(3),
        }
    ),
    "a silent agent, and a daemon that started later": _silent,
    "instances of powered-down nodes": _instances,
    "instances that the list lacks": _unlisted,
    "instances that ended": _ended,
    "ends that were asked for, and instances of other slots": _own_ends,
    "orders for nodes": _orders,
    "drains of nodes that are up": _drains,
    "a held bundle removes nodes": _removed(HELD),
    "a held bundle is withdrawn": _removed(HeldBundle()),
    "it is not known which bundle is held": _removed(None),
    "marks of power-ups that stay": _power_marks,
    "marked as not responding while off": _marked(),
    "marked as not responding, and a job waits": _marked(job(1, reason="Priority", submitted_at=NOW)),
    "marked as not responding, and a job starves": _marked(job(1, reason="Resources", submitted_at=NOW - 10, begins_at=NOW - 5)),
    "adopted instances": _adopted,
    "instances with less hardware": _unfit,
    "always-on nodes": lambda: scene(ALWAYS, (node(A1, UP, last_busy=NOW - 900), node(A3, UP, last_busy=NOW - 100)), (), {A1: up(A1, 1000), A3: up(A3, 1000)}),
    "a node that Slurm does not list": lambda: without(scene(TWO), A1, "h100-2a-1"),
}  # fmt: skip


def without(moment: ClusterSnapshot, *slots: str) -> ClusterSnapshot:
    """The same, but Slurm does not list these nodes."""
    slurm = moment.observation.slurm
    assert slurm is not None
    nodes: Mapping[str, SlurmNode] = {name: one for name, one in slurm.nodes.items() if name not in slots}
    return replace(moment, observation=replace(moment.observation, slurm=replace(slurm, nodes=nodes)))
