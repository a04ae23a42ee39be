"""Worlds of slots without capacity: refusals, tests of half-open zones, and the constraints of waiting jobs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.memory import OpenBreaker
from gpucluster.plan.messages import HeldBundle
from gpucluster.plan.model import SlurmOnAws
from gpucluster.slurm.values import SlurmJob, SlurmNode
from support.cluster_states import NOW, OFF, UP, WAKING, job, node
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
    SPOT_A,
    SPOT_B,
    TWO,
    A,
    B,
    boots,
    offer_keys,
    pool_with,
    refused,
    scene,
    up,
)

OURS = "gpucluster: no h200"
BROKEN = {"h200": OpenBreaker(until=NOW - 40, words="6 boots failed in a row", boots=6)}
FAILED = {"h200": 6}


def drained(*slots: str, reason: str = OURS, **changes: Any) -> tuple[SlurmNode, ...]:
    return tuple(node(slot, f"{OFF} DRAIN", reason=reason, reason_by="slurm", **changes) for slot in slots)


ZONE_A, ZONE_B = (A1, A2, A3, A4), (B1, B2, B3, B4)
ALL = drained(*ZONE_A, *ZONE_B)
SPOT_REFUSED = {**refused(-30, SPOT_A), **refused(20, SPOT_B)}  # half open in one zone now, and soon in both


def waits(
    *jobs: SlurmJob, nodes: tuple[SlurmNode, ...] = ALL, plan: SlurmOnAws = SPOT, **known: Any
) -> ClusterSnapshot:
    """Jobs that wait while spot is the only source and is refused."""
    return scene(plan, nodes=nodes, jobs=jobs, known={"refusals": SPOT_REFUSED, **known})


def _sizes() -> ClusterSnapshot:
    """Zone a refused three at once, zone b refuses all."""
    return waits(
        job(1, node_count=3),
        job(2, node_count=2),
        refusals={**refused(200, SPOT_A, size=3), **refused(200, SPOT_B)},
    )


def _idle_and_free() -> ClusterSnapshot:
    lives = {A1: up(A1, 100), A2: up(A2, 100, instance="i-2")}
    nodes = (node(A1, UP, last_busy=NOW), node(A2, f"{UP} DRAIN", reason="look at its fan"), *ALL[2:])
    return scene(
        SPOT, nodes, (job(1, node_count=3, reason="Resources"),), lives, known={"refusals": SPOT_REFUSED}
    )


def _required(*slots: str, count: int = 2) -> Callable[[], ClusterSnapshot]:
    def build() -> ClusterSnapshot:
        nodes = (node(A1, UP, last_busy=NOW), *ALL[1:7], node(B4, f"{OFF} DRAIN", reason="broken fan"))
        one = job(1, node_count=count, required_nodes=slots)
        return scene(SPOT, nodes, (one,), {A1: up(A1, 100)}, known={"refusals": SPOT_REFUSED})

    return build


def _starting_zone() -> ClusterSnapshot:
    nodes = (node(A1, WAKING), *ALL[1:])
    jobs = (job(1, A1, starts=True), job(2, node_count=1))
    return scene(SPOT, nodes, jobs, {A1: boots(A1)}, known={"refusals": SPOT_REFUSED})


def _reserved(reservation: str) -> Callable[[], ClusterSnapshot]:
    def build() -> ClusterSnapshot:
        held = tuple(
            node(slot, f"{OFF} DRAIN RESERVED", reason=OURS, reservation="course") for slot in (A1, A2, B1)
        )
        rest = drained(A3, A4, B2, B3)
        maintenance = node(B4, f"{OFF} DRAIN MAINTENANCE", reason=OURS)
        return waits(job(1, node_count=2, reservation=reservation), nodes=(*held, *rest, maintenance))

    return build


def _features(constraint: str) -> Callable[[], ClusterSnapshot]:
    def build() -> ClusterSnapshot:
        nodes = (
            *drained(*ZONE_A, features=("spot", "h200")),
            *drained(*ZONE_B, features=("spot", "h200", "rack2")),
        )
        return waits(job(1, node_count=2, features=constraint), nodes=nodes)

    return build


def _owners() -> ClusterSnapshot:
    """One slot for each owner of a drain, while capacity is there again."""
    nodes = (
        node(A1, f"{OFF} DRAIN", reason=OURS),
        node(A2, f"{OFF} DRAIN", reason="broken fan", reason_by="root"),
        node(A3, f"{OFF} DRAIN", reason="Prolog error", reason_by="slurm"),
        node(A4, f"{OFF} DRAIN", reason="gpucluster: [bundle] removed"),
        node(B1, f"{OFF} DRAIN", reason="gpucluster: [operator] kept"),
        node(B2, f"{OFF} DRAIN", reason="gpucluster: [evacuation] spot"),
        node(B3, "IDLE CLOUD POWERING_DOWN DRAIN", reason=OURS),
        node(B4, f"{OFF} DRAIN", reason="Prolog error", reason_by="slurm"),
    )
    return scene(SMALL, nodes, (), {B4: up(B4, 1000, unneeded_at=NOW - 100)})


def _sources() -> ClusterSnapshot:
    """Spot is refused in different ways, and on-demand has two left of its maximum."""
    refusals = {
        **refused(100, offer_keys(A)[0]),
        **refused(130, offer_keys(A)[1], words="SpotMaxPriceTooLow", size=2),
        **refused(90, "source/h200/0", words="MaxSpotInstanceCountExceeded"),
        **refused(-60, offer_keys(B)[0]),
    }
    lives = {A1: up(A1, source=1)}
    nodes = (node(A1, "ALLOCATED CLOUD"),)
    jobs = (job(1, A1), job(2, node_count=3), job(3, node_count=2), job(4, node_count=1))
    return scene(SMALL, nodes, jobs, lives, known={"refusals": refusals})


def _headroom() -> ClusterSnapshot:
    """Only on-demand is open, for three. The most urgent job needs four, others need two and one."""
    refusals = refused(300, *offer_keys(A)[:2], *offer_keys(B)[:2])
    jobs = (job(1, node_count=4), job(2, node_count=2), job(3, node_count=2, required_nodes=(A4,)))
    return scene(SMALL, (), jobs, known={"refusals": refusals})


def _two_pools() -> ClusterSnapshot:
    refusals = {
        **refused(60, *offer_keys(A), *offer_keys(B)),
        **refused(-10, f"on-demand/p5.48xlarge/{A}"),
        **refused(40, f"on-demand/p5.48xlarge/{B}"),
    }
    jobs = (job(1, node_count=2, partitions=("all",)), job(2, node_count=2), job(3, partitions=("none",)))
    return scene(TWO, (), jobs, known={"refusals": refusals})


def _removed() -> ClusterSnapshot:
    held = HeldBundle(bundle="0123456789abcdef", nodes=(A1, A2, B1))
    nodes = (node(A2, f"{OFF} DRAIN", reason="gpucluster: [bundle] old words"), *drained(B1, B2))
    return replace(
        moment := waits(job(1, node_count=2), nodes=nodes),
        observation=replace(moment.observation, held=held),
    )


def _breaker(until: float, count: int = 1, **refusals: Any) -> Callable[[], ClusterSnapshot]:
    def build() -> ClusterSnapshot:
        tripped = {"h200": replace(BROKEN["h200"], until=NOW + until)}
        known = {"refusals": refusals or {}, "breakers": tripped, "boots": FAILED}
        return scene(SPOT, ALL, (job(1, node_count=count), job(2, node_count=2)), known=known)

    return build


BLOCKED: Mapping[str, Callable[[], ClusterSnapshot]] = {
    "no refusals, no jobs": scene,
    "no job waits for expired refusals": waits,
    "two jobs wait, tested in turn": lambda: waits(job(1, node_count=1), job(2, node_count=3)),
    "jobs of the same size are one test": lambda: waits(job(1), job(2), job(3, node_count=4)),
    "refused for three at once": _sizes,
    "an idle node, and a drained one": _idle_and_free,
    "the required node is idle": _required(A1),
    "required nodes are idle and free": _required(A1, A3),
    "more required nodes than the count": _required(A2, A3, A4, count=1),
    "the required node is drained by a person": _required(B4),
    "required nodes are in two zones": _required(A2, B2),
    "excluded slots": lambda: waits(job(1, excluded_nodes=(A1, A2, B1)), job(2, excluded_nodes=ZONE_A)),
    "a gang starts in the half-open zone": _starting_zone,
    "a job outside of the reservation": _reserved(""),
    "a job in the reservation": _reserved("course"),
    "a job in another reservation": _reserved("exam"),
    "features of one zone": _features("rack2&h200"),
    "features of no zone": _features("rack3"),
    "features with a choice": _features("rack2|rack3"),
    "complex features": _features("[rack1*1&rack2*1]"),
    "a het job needs the sum": lambda: waits(
        job(5, node_count=1, het_id=5, excluded_nodes=(A1, A2)), job(6, node_count=2, het_id=5, excluded_nodes=(A2, A3))
    ),
    "a het job needs more than a zone": lambda: waits(job(5, het_id=5), job(6, node_count=3, het_id=5)),
    "a job larger than its zones": lambda: waits(job(5, node_count=5), job(6, node_count=1)),
    "a het job larger than its pool": lambda: waits(job(5, node_count=4, het_id=5), job(6, node_count=4, het_id=5), job(7, het_id=5)),
    "a job that begins later": lambda: waits(job(1, begins_at=NOW + 100, reason="BeginTime"), job(2, node_count=1, begins_at=NOW + 700)),
    "reasons that are not nodes": lambda: waits(
        job(1, reason="Dependency"), job(2, reason="Licenses"), job(3, priority=0), job(4, node_count=1, reason="ReqNodeNotAvail")
    ),
    "the owners of drains": _owners,
    "two sources, refused in part": _sources,
    "a gang larger than the headroom": _headroom,
    "two pools with refusals": _two_pools,
    "a held bundle removes slots": _removed,
    "the breaker is open, then half open": _breaker(100, 2),
    "the breaker is half open without refusals": _breaker(-40),
    "the breaker is half open with refusals": _breaker(-100, 2, **refused(-90, SPOT_A)),
    "the pool is full": lambda: scene(
        pool_with(SPOT, max=2),
        (node(A1, "ALLOCATED CLOUD"), node(A2, "ALLOCATED CLOUD")),
        (job(1, A1, A2), job(2, node_count=1), job(3, node_count=2)),
        {A1: up(A1), A2: up(A2)},
    ),
    "one node fits into the pool": lambda: scene(
        pool_with(SPOT, max=3),
        (node(A1, "ALLOCATED CLOUD"), node(A2, "ALLOCATED CLOUD")),
        (job(1, A1, A2), job(2, node_count=2), job(3, node_count=1)),
        {A1: up(A1), A2: up(A2)},
    ),
    "the comment is set already": lambda: waits(
        job(1, admin_comment="gpucluster: no h200 in us-east-2a: spot p5en.48xlarge InsufficientInstanceCapacity; no h200 in us-east-2b: spot p5en.48xlarge InsufficientInstanceCapacity"),
        job(2),
        refusals=refused(100, SPOT_A, SPOT_B),
    ),
}  # fmt: skip
