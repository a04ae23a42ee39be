"""Capacity blocks: launched only in their time, and no job before it or into its end (T26)."""

from dataclasses import replace

import pytest
from support.builders import a_plan
from support.cluster_states import BUSY, NOW, WAKING, instance, job, living, node, sight

from gpucluster.cloud.port import Reservation
from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.block_reservations import until, why_unusable
from gpucluster.elastic.decide.offers import Headroom, all_offers, choose
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.model import DeleteReservation, LaunchGang, SetReservation
from gpucluster.plan import names
from gpucluster.plan.model import LaunchTemplate, Market, SlurmOnAws, Source
from gpucluster.slurm.values import SlurmReservation

A, SPOT, H = "us-east-2a", "p5en.48xlarge", 3600.0
LEAD = 20.0  # of a termination, by default
A1, A2 = "h200-2a-1", "h200-2a-2"
ZONE = tuple(f"h200-2a-{n}" for n in range(1, 17))


def a_block_plan(*, alone: bool = True) -> SlurmOnAws:
    """A block, and on-demand in the other zone only or beside it."""
    block = Source(
        position=0,
        market=Market.CAPACITY_BLOCK,
        machines=(SPOT,),
        zones=(A,),
        max=None,
        reservation="cr-1",
    )
    beside = Source(
        position=1,
        market=Market.ON_DEMAND,
        machines=(SPOT,),
        zones=("us-east-2b",) if alone else (A,),
        max=None,
    )
    plan = a_plan()
    keys = [t.key for t in plan.pools[0].templates]
    templates = tuple(
        LaunchTemplate(key=keys[s.position], source=s.position, machine=SPOT, market=s.market)
        for s in (block, beside)
    )
    pool = replace(plan.pools[0], sources=(block, beside), templates=templates)
    return replace(plan, pools=(pool,))


def block(begins: float, ends: float, state: str = "active", free: int = 16) -> Reservation:
    return Reservation(
        id="cr-1",
        state=state,
        machine=SPOT,
        zone=A,
        total=16,
        free=free,
        starts_at=NOW + begins,
        ends_at=NOW + ends,
    )


def seeing(
    moment: ClusterSnapshot, listed: Reservation | None, *reservations: SlurmReservation
) -> ClusterSnapshot:
    assert moment.observation.slurm
    return replace(
        moment,
        observation=replace(
            moment.observation,
            reservations={"cr-1": listed} if listed else {},
            slurm=replace(moment.observation.slurm, reservations=reservations),
        ),
    )


def found(moment: ClusterSnapshot) -> list[SlurmReservation]:
    actions = decide(moment.plan, moment.bindings, moment.observation, moment.memory, moment.now)
    return [a.reservation for a in actions if isinstance(a, SetReservation)]


def closed(moment: ClusterSnapshot) -> list[str]:
    actions = decide(moment.plan, moment.bindings, moment.observation, moment.memory, moment.now)
    return [a.name for a in actions if isinstance(a, DeleteReservation)]


def at_the_end(ends: float) -> SlurmReservation:
    return SlurmReservation(
        name="gpucluster-cr-1",
        starts_at=NOW + ends - 2400 - LEAD,
        ends_at=NOW + ends,
        nodes=ZONE,
    )


@pytest.mark.parametrize(
    ("what", "listed", "said"),
    [
        ("in its time", block(-H, 5 * H), ""),
        ("a second before its start", block(1, 5 * H), "begins at 2026-11-17 14:00 UTC"),
        ("scheduled, though its time has come", block(-1, 5 * H, "scheduled"), "is scheduled"),
        ("not paid", block(-1, 5 * H, "payment-failed"), "is payment-failed"),
        ("the warning is near", block(-H, 2400 + LEAD), "ends at 2026-11-17 14:40 UTC"),
        ("a second before that", block(-H, 2401 + LEAD), ""),
        ("the cloud does not list it", None, "is not known to the cloud"),
    ],
)
def test_block_is_launched_from_only_in_its_time(what: str, listed: Reservation | None, said: str) -> None:
    moment = sight(a_block_plan(), nodes=[node(A1, WAKING)], jobs=[job(1, A1, starts=True, time_limit_s=1.0)])
    moment = seeing(moment, listed)
    assert moment.world
    assert why_unusable(moment.world, "cr-1") == said, what
    actions = decide(moment.plan, moment.bindings, moment.observation, moment.memory, NOW)
    asked = [a.request.spec.reservation for a in actions if isinstance(a, LaunchGang)]
    assert asked == ([] if said else ["cr-1"]), what


def test_only_source_block_reserves_all_slots_before_and_after_it() -> None:
    moment = seeing(sight(a_block_plan()), block(2 * H, 26 * H, "scheduled"))
    begin = SlurmReservation(name="gpucluster-cr-1-begin", starts_at=NOW, ends_at=NOW + 2 * H, nodes=ZONE)
    assert found(moment) == [at_the_end(26 * H), begin]


@pytest.mark.parametrize(
    ("what", "have", "opens"),
    [
        ("as it should be", at_the_end(5 * H), 0),
        ("Slurm cut the seconds", replace(at_the_end(5 * H), ends_at=NOW + 5 * H - 30), 0),
        ("the block was made longer", at_the_end(4 * H), 1),
        ("a slot is new", replace(at_the_end(5 * H), nodes=ZONE[:15]), 1),
        (
            "it has begun: Slurm moves it no more",
            replace(at_the_end(5 * H), starts_at=NOW - 1, nodes=ZONE[:15]),
            0,
        ),
    ],
)
def test_reservation_is_updated_only_if_it_differs(what: str, have: SlurmReservation, opens: int) -> None:
    assert len(found(seeing(sight(a_block_plan()), block(-H, 5 * H), have))) == opens, what


@pytest.mark.parametrize(
    ("what", "listed", "gone"),
    [
        ("it stands", block(-H, 5 * H), []),
        ("it was cancelled", block(-H, 5 * H, "cancelled"), ["gpucluster-cr-1"]),
        ("it is over", block(-9 * H, -1, "expired"), ["gpucluster-cr-1"]),
        ("the cloud does not list it: nothing is concluded", None, []),
    ],
)
def test_reservation_is_deleted_with_its_block(
    what: str, listed: Reservation | None, gone: list[str]
) -> None:
    assert closed(seeing(sight(a_block_plan()), listed, at_the_end(5 * H))) == gone, what


def test_plan_without_blocks_deletes_old_reservations() -> None:
    assert closed(seeing(sight(a_plan()), None, at_the_end(5 * H))) == ["gpucluster-cr-1"]


def on_the_block(ends: float, *, alone: bool = False) -> ClusterSnapshot:
    plan = a_block_plan(alone=alone)
    moment = sight(plan, *living(A1), nodes=[node(A1, BUSY)], jobs=[job(41, A1)], instances=[instance(0)])
    incarnation = replace(moment.memory.incarnations[A1], market=Market.CAPACITY_BLOCK, source=0)
    return seeing(
        replace(moment, memory=replace(moment.memory, incarnations={A1: incarnation})),
        block(-H, ends, free=15),
    )


def test_with_other_sources_only_slots_on_the_block_are_reserved() -> None:
    (reservation,) = found(on_the_block(5 * H))
    assert reservation.nodes == (A1,)


@pytest.mark.parametrize(
    ("limit", "market"),
    [(3600.0, Market.CAPACITY_BLOCK), (7200.0, Market.ON_DEMAND), (None, Market.ON_DEMAND)],
)
def test_long_job_gets_another_source_than_the_block(limit: float | None, market: Market) -> None:
    moment = sight(
        a_block_plan(alone=False),
        nodes=[node(A2, WAKING)],
        jobs=[job(1, A2, starts=True, time_limit_s=limit)],
    )
    moment = seeing(moment, block(-H, 2 * H))
    actions = decide(moment.plan, moment.bindings, moment.observation, moment.memory, NOW)
    assert [a.request.spec.market for a in actions if isinstance(a, LaunchGang)] == [market]


FITS = 2 * H - 2400 - LEAD  # the longest time limit of a job on a block that ends in two hours


@pytest.mark.parametrize(
    ("what", "limits", "market"),
    [
        ("no job", (), Market.CAPACITY_BLOCK),
        ("the longest limit that fits", (FITS,), Market.CAPACITY_BLOCK),
        ("a second longer", (FITS + 1,), Market.ON_DEMAND),
        ("two that fit", (60.0, FITS), Market.CAPACITY_BLOCK),
        ("one of two is too long", (60.0, FITS + 1), Market.ON_DEMAND),
        ("one of two has no limit", (60.0, None), Market.ON_DEMAND),
    ],
)
def test_each_job_of_a_gang_must_end_before_the_block(
    what: str, limits: tuple[float | None, ...], market: Market
) -> None:
    moment = seeing(sight(a_block_plan(alone=False)), block(-H, 2 * H))
    assert moment.world
    jobs = [job(n, A2, starts=True, time_limit_s=limit) for n, limit in enumerate(limits, start=1)]
    offers = all_offers(moment.world)["h200", A]
    found = choose(moment.world, Headroom(moment.world), offers, 1, jobs)
    assert found is not None
    assert found.spec.market is market, what


@pytest.mark.parametrize(("launched_ago", "free"), [(1.0, 0), (0.0, 0), (-1.0, -1)])
def test_instance_newer_than_the_list_uses_the_reservation(launched_ago: float, free: int) -> None:
    """The listed number of free instances does not contain a launch after the list."""
    moment = on_the_block(5 * H)
    incarnation = replace(moment.memory.incarnations[A1], launched_at=NOW - launched_ago)
    moment = replace(moment, memory=replace(moment.memory, incarnations={A1: incarnation}))
    assert moment.world
    headroom, offers = Headroom(moment.world), all_offers(moment.world)["h200", A]
    assert headroom.of(offers[0]) == 15 + free


def test_reservation_of_a_block_outside_the_plan_is_deleted() -> None:
    """Only names with the block's own `cr-` are read: a site's `gpucluster-maintenance` is none of ours."""
    old = replace(at_the_end(5 * H), name="gpucluster-cr-2")
    assert closed(seeing(sight(a_block_plan()), block(-H, 5 * H), at_the_end(5 * H), old)) == [old.name]
    assert names.BLOCK_RESERVATION_PREFIX == "gpucluster-cr-"


def test_block_is_usable_until_its_warning_less_the_termination_lead() -> None:
    moment = on_the_block(5 * H)
    assert moment.world
    assert until(moment.world, "cr-1") == NOW + 5 * H - 2400 - LEAD


def test_reservation_of_an_extended_block_is_made_anew() -> None:
    """It has begun, and Slurm moves it no more: all slots stayed closed until the old end, and a job could meet the new one."""
    begun = replace(at_the_end(2400.0), starts_at=NOW - 60)
    moment = seeing(sight(a_block_plan()), block(-H, 2400.0 + 24 * H), begun)
    assert (found(moment), closed(moment)) == ([], ["gpucluster-cr-1"])
    assert found(seeing(moment, block(-H, 2400.0 + 24 * H))) == [at_the_end(2400.0 + 24 * H)]


def test_reservation_that_has_begun_gets_the_new_end_of_a_block_near_its_end() -> None:
    begun = replace(at_the_end(2000.0), starts_at=NOW - 460)
    moment = seeing(sight(a_block_plan()), block(-H, 2300.0), begun)
    assert (found(moment), closed(moment)) == ([], ["gpucluster-cr-1"])
    (anew,) = found(seeing(moment, block(-H, 2300.0)))
    assert (anew.starts_at, anew.ends_at) == (NOW, NOW + 2300.0)
