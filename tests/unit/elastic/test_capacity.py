"""Launches: gangs joined, answers shared out, refusals by size, reservations, fleets; and calls only as tokens come."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from support.builders import a_plan
from support.cluster_states import NOW, WAKING, ask, instance, job, node, sight
from support.fleet import START, Fleet
from support.launches import alternative, with_changes

from gpucluster.cloud.port import CloudError, Fault, FleetError, LaunchCall, Reservation
from gpucluster.elastic import launch_calls
from gpucluster.elastic.decide import (
    decide,
    event_of_error,
    events_of_nothing,
    events_of_shortfall,
    next_look,
)
from gpucluster.elastic.decide.api_rate import Pace, ends
from gpucluster.elastic.decide.offers import ANY_SIZE, Headroom, all_offers, choose, largest_gang, why_none
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import (
    Entry,
    Event,
    LaunchDeferred,
    LaunchDone,
    LaunchRefused,
    LaunchRequest,
    LaunchRequested,
    NodeNeeded,
    OfferRefused,
    TerminationRequested,
)
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.memory import BucketLevel, Memory, fold
from gpucluster.elastic.memory.launches import served
from gpucluster.elastic.model import Block, LaunchGang, MarkDown, RecordEvents, ResetDown, Terminate, Undrain
from gpucluster.plan.model import LaunchTemplate, Market, SlurmOnAws, Source
from gpucluster.sandbox.aws.ec2.state.client import ModelCloud
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Lag

A, B, SPOT, OTHER = "us-east-2a", "us-east-2b", "p5en.48xlarge", "p5e.48xlarge"
KEY = f"spot/{SPOT}/{A}"
PLAN = a_plan()
TIMES = PLAN.times


@pytest.fixture
def f(tmp_path: Path) -> Fleet:
    return Fleet(PLAN, tmp_path)


def slots(first: int, last: int) -> tuple[str, ...]:
    return tuple(f"h200-2a-{n}" for n in range(first, last + 1))


def starting(*sizes: int, plan: SlurmOnAws = PLAN) -> ClusterSnapshot:
    """Jobs of these sizes that start side by side in the first zone, the first the most urgent."""
    found, at = [], 1
    for number, size in enumerate(sizes, start=1):
        found.append(job(number, *slots(at, at + size - 1), starts=True))
        at += size
    return sight(plan, nodes=[node(n, WAKING) for n in slots(1, at - 1)], jobs=found)


def asks(moment: ClusterSnapshot) -> list[LaunchRequest]:
    actions = decide(moment.plan, moment.bindings, moment.observation, moment.memory, moment.now)
    return [a.request for a in actions if isinstance(a, LaunchGang)]


def world_of(moment: ClusterSnapshot) -> World:
    assert moment.world
    return moment.world


def after(moment: ClusterSnapshot, *events: Event, at: float = NOW) -> ClusterSnapshot:
    return replace(moment, memory=fold(moment.memory, [Entry(at=at, event=e) for e in events]))


def bought(*sources: Source) -> SlurmOnAws:
    """The plan with other sources."""
    pool = PLAN.pools[0]
    keys = [t.key for t in pool.templates]
    templates = tuple(
        LaunchTemplate(key=keys[n], source=s.position, machine=m, market=s.market)
        for n, (s, m) in enumerate((s, m) for s in sources for m in s.machines)
    )
    return replace(PLAN, pools=(replace(pool, sources=sources, templates=templates),))


def source(position: int, market: Market, **changes: object) -> Source:
    usual = {"machines": (SPOT,), "zones": (A,), "max": None}
    return Source(position=position, market=market, **(usual | changes))  # type: ignore[arg-type]


# --- joined and shared out ---------------------------------------------------------------------------
def test_jobs_with_equal_needs_share_one_request() -> None:
    (one,) = asks(starting(4, 2, 3))
    assert (one.gangs, len(one.slots), one.smallest_gang, one.jobs) == ((4, 2, 3), 9, 2, (1, 2, 3))


@pytest.mark.parametrize(
    ("gangs", "came", "full"),
    [((4, 2, 3), 9, 9), ((4, 2, 3), 5, 4), ((4, 2, 3), 6, 6), ((4, 2, 3), 3, 2), ((4, 2), 1, 0), ((), 3, 0)],
)
def test_instances_fill_whole_gangs_in_order(gangs: tuple[int, ...], came: int, full: int) -> None:
    """T05: 200 with fewer instances than asked. (4, 2, 3) of 5: the first, and neither of the others whole."""
    request = replace(ask(1, *slots(1, sum(gangs) or 4)), gangs=gangs)
    assert len(served(request, came)) == full


def test_partial_launch_serves_whole_gangs_and_terminates_the_rest(f: Fleet) -> None:
    f.model.set_capacity(SPOT, A, "spot", 6)
    jobs = [f.slurm.submit(n, lasts=500) for n in (4, 3, 1)]
    f.until(lambda: all(j.state == "RUNNING" for j in jobs), 300)
    first, second = f.cloud.launches[:2]
    assert [(r.at_least, r.count, r.spec.machine) for r in (first, second)] == [
        (1, 8, SPOT),
        (None, 3, OTHER),
    ]
    assert len(f.living()) == 8
    assert [j.restarts for j in jobs] == [0, 0, 0]
    ended = [i for i in f.model.describe((), f.now) if i.state.value in ("shutting-down", "terminated")]
    assert len(ended) == 1, "six came, five were of use"
    assert f.journal.memory.refusals[KEY].size == 3
    assert f.journal.memory.refusals[KEY].words == "gave 5 of 8, nothing"


def test_spares_that_ec2_does_not_know_yet_count_until_they_are_terminated(f: Fleet) -> None:
    """EC2 lists new instances after ten seconds, and until then refuses to terminate them by id."""
    f.model.set_capacity(SPOT, A, "spot", 6)
    f.model.switches.lag = Lag(id_s=10.0)
    jobs = [f.slurm.submit(n, lasts=500) for n in (4, 3, 1)]
    f.until(lambda: bool(f.cloud.launches), 60)
    (spare,) = f.journal.memory.spares.values()
    assert (spare.pool, spare.source) == ("h200", 0)
    f.until(lambda: all(j.state == "RUNNING" for j in jobs), 600)
    assert len(f.living()) == 8
    assert f.journal.memory.spares == {}
    (ended,) = [i for i in f.model.describe((), f.now) if i.state.value in ("shutting-down", "terminated")]
    assert ended.id not in {x.instance for x in f.journal.memory.incarnations.values()}


def test_repeat_of_a_lost_partial_launch_assigns_the_same_instances(f: Fleet) -> None:
    f.model.set_capacity(SPOT, A, "spot", 6)
    f.model.faults.lose_reply("RunInstances", 2)
    jobs = [f.slurm.submit(n, lasts=500) for n in (4, 3, 1)]
    f.until(lambda: all(j.state == "RUNNING" for j in jobs), 300)
    assert len(f.living()) == 8


class Unordered(ModelCloud):
    """T21: the order of an answer is not stable."""

    def launch(self, call: LaunchCall) -> tuple[str, ...]:
        ids = super().launch(call)
        return ids if len(self.calls) % 2 else ids[::-1]


def test_order_of_the_repeated_answer_does_not_matter() -> None:
    """Else what was given back the first time would be used the second, and the other way round."""
    cloud = Unordered(CloudModel(Random(7)), lambda: NOW)  # noqa: S311 -- the same each time
    request = replace(ask(1, *slots(1, 9)), gangs=(4, 2, 3))
    first, again = (launch_calls.call(cloud, "burst", request) for _ in range(2))
    assert first == again
    assert len(launch_calls.serving(request, replace(first, instances=first.instances[:5]))) == 4


def test_parts_of_one_job_are_separate_requests() -> None:
    parts = [node(n, WAKING) for n in ("h200-2a-1", "h200-2b-1", "h200-2a-2")]
    jobs = [job(1, "h200-2a-1", "h200-2b-1", starts=True), job(2, "h200-2a-2", starts=True)]
    assert sorted(a.slots for a in asks(sight(PLAN, nodes=parts, jobs=jobs))) == [
        ("h200-2a-1",),
        ("h200-2a-2",),
        ("h200-2b-1",),
    ]


# --- refusals by size -----------------------------------------------------------------------------------
def refused(size: int, until: float = NOW + 60) -> OfferRefused:
    return OfferRefused(key=KEY, words="InsufficientInstanceCapacity", until=until, size=size)


@pytest.mark.parametrize(
    ("events", "most"),
    [
        ((), ANY_SIZE),
        ((refused(8),), 7),
        ((refused(8), refused(4)), 3),
        ((refused(0),), 0),
        ((refused(8, until=NOW - 1),), ANY_SIZE),
        ((refused(8), OfferRefused(key="source/h200/0", words="quota", until=NOW + 60)), 0),
    ],
)
def test_refusal_of_eight_does_not_exclude_two(events: tuple[Event, ...], most: int) -> None:
    """T06: refusals depend on the size of the request."""
    moment = after(starting(2), *events)
    some = all_offers(world_of(moment))["h200", A][0]
    assert largest_gang(moment.memory, some, NOW) == most


def test_refusal_of_a_smaller_gang_does_not_double_the_time() -> None:
    error = CloudError(Fault.NO_CAPACITY, "InsufficientInstanceCapacity", "")
    memory = Memory()
    for number, size in ((1, 8), (2, 2)):
        request = ask(number, *slots(1, size))
        memory = fold(memory, [Entry(at=NOW, event=event_of_error(TIMES, memory, request, error, NOW))])
    kept = memory.refusals[KEY]
    assert (kept.times, kept.size, kept.until) == (1, 2, NOW + TIMES.refusal_s)


def test_success_of_a_small_gang_keeps_the_refusal_of_larger_gangs() -> None:
    small = (
        LaunchRequested(request=ask(1, *slots(1, 2))),
        LaunchDone(request="r1", instances=("i-1", "i-2")),
    )
    assert KEY in after(starting(2), refused(8), *small).memory.refusals
    assert KEY not in after(starting(2), refused(8, until=NOW - 1), *small).memory.refusals


def test_half_open_offer_is_tested_by_one_request_at_a_time() -> None:
    ripe = after(starting(2, 2), refused(0, until=NOW - 1))
    (one,) = asks(ripe)
    assert one.gangs == (2, 2)
    asked = [NodeNeeded(slot=s, incarnation=1, jobs=(1,)) for s in slots(1, 2)]
    under_way = after(ripe, *asked, LaunchRequested(request=ask(1, *slots(1, 2))))
    assert [a.id for a in asks(under_way)] == ["r1"], "the repeat, and no second test beside it"


def test_fifty_waiting_jobs_cause_one_test(f: Fleet) -> None:
    f.model.set_capacity(free=0)
    for _ in range(50):
        f.slurm.submit(2)
    f.run(700)
    assert len(f.cloud.launches) <= 2 * 3 * 4, "zones x offers x probes after 2, 4 and 8 minutes"


def test_too_low_price_excludes_only_lower_or_equal_prices() -> None:
    cheap = with_changes(ask(1, *slots(1, 2)), max_price=5)
    error = CloudError(Fault.NO_CAPACITY, "SpotMaxPriceTooLow", "")
    event = event_of_error(TIMES, Memory(), cheap, error, NOW)
    assert isinstance(event, LaunchRefused)
    assert (event.key, event.size) == (f"{KEY}/at-most-5", 0)
    dear = bought(source(0, Market.SPOT, max_price=9), source(1, Market.ON_DEMAND))
    (one,) = asks(after(starting(2, plan=dear), event))
    assert (one.spec.market, one.spec.max_price) == (Market.SPOT, 9)
    same = bought(source(0, Market.SPOT, max_price=5), source(1, Market.ON_DEMAND))
    (one,) = asks(after(starting(2, plan=same), event))
    assert one.spec.market is Market.ON_DEMAND


def test_spot_quota_does_not_stop_on_demand() -> None:
    """T08: MaxSpotInstanceCountExceeded; the on-demand quota is another."""
    error = CloudError(Fault.QUOTA, "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    moment = starting(2)
    moment = after(moment, event_of_error(TIMES, moment.memory, ask(1, *slots(1, 2)), error, NOW))
    (one,) = asks(moment)
    assert one.spec.market is Market.ON_DEMAND
    world = world_of(moment)
    sentence = why_none(world, Headroom(world), PLAN.pools[0], A, all_offers(world)["h200", A])
    assert "MaxSpotInstanceCountExceeded (Max spot instance count exceeded)" in sentence


def test_quota_causes_no_loop_of_launches_and_requeues(f: Fleet) -> None:
    """cluster-toolkit#3225, aws-parallelcluster#1375: with a quota of 0 nodes were made and deleted for ever."""
    f.model.faults.next_error(
        "RunInstances", "VcpuLimitExceeded", message="the limit of 0 vCPU", times=10_000
    )
    one = f.slurm.submit(2)
    f.run(3000)
    assert len(f.cloud.launches) <= 2 * 3, "each source once, and once again after half an hour"
    assert one.state == "PENDING"
    assert one.restarts <= 3
    assert "VcpuLimitExceeded (the limit of 0 vCPU)" in one.comment


# --- reservations -----------------------------------------------------------------------------------------
def listed(state: str = "active", free: int = 4, **changes: float) -> Reservation:
    return Reservation(id="cr-1", state=state, machine=SPOT, zone=A, total=4, free=free, **changes)


RESERVED = bought(source(0, Market.RESERVATION, reservation="cr-1"), source(1, Market.ON_DEMAND))


@pytest.mark.parametrize(
    ("what", "view", "market"),
    [
        ("free: it comes first", listed(), Market.RESERVATION),
        ("three are not enough for four", listed(free=3), Market.ON_DEMAND),
        ("not active", listed(state="expired"), Market.ON_DEMAND),
        ("the cloud does not list it: not asked for", None, Market.ON_DEMAND),
    ],
)
def test_reservation_has_the_listed_free_capacity(
    what: str, view: Reservation | None, market: Market
) -> None:
    """T25."""
    moment = starting(4, plan=RESERVED)
    seen = replace(moment.observation, reservations={"cr-1": view} if view else {})
    (one,) = asks(replace(moment, observation=seen))
    assert one.spec.market is market, what
    assert one.spec.reservation == ("cr-1" if market is Market.RESERVATION else None)


def test_two_gangs_of_one_pass_share_the_free_capacity_of_a_reservation() -> None:
    moment = starting(3, 2, plan=RESERVED)
    seen = replace(moment.observation, reservations={"cr-1": listed()})
    found = {a.spec.market: len(a.slots) for a in asks(replace(moment, observation=seen))}
    assert found == {Market.RESERVATION: 3, Market.ON_DEMAND: 2}


def test_launches_after_the_list_reduce_the_free_capacity_of_a_reservation() -> None:
    """The list of instances is younger than that of reservations."""
    held = [(60.0, NodeNeeded(slot=s, incarnation=1, jobs=(9,))) for s in slots(10, 12)]
    request = with_changes(ask(1, *slots(10, 12)), market=Market.RESERVATION, reservation="cr-1")
    done = LaunchDone(request="r1", instances=("i-0", "i-1", "i-2"))
    nodes = [node(n, WAKING) for n in (*slots(1, 2), *slots(10, 12))]
    found = [job(1, *slots(1, 2), starts=True), job(9, *slots(10, 12), starts=True)]
    moment = sight(
        RESERVED,
        *held,
        (59.0, LaunchRequested(request=request)),
        (3.0, done),
        nodes=nodes,
        jobs=found,
        instances=[instance(n, 3.0) for n in range(3)],
    )
    for read_ago, market in ((8.0, Market.ON_DEMAND), (1.0, Market.RESERVATION)):
        seen = replace(moment.observation, reservations={"cr-1": listed()}, reservations_at=NOW - read_ago)
        (one,) = asks(replace(moment, observation=seen))
        assert one.spec.market is market


def test_full_reservation_excludes_no_other_reservation() -> None:
    """ReservationCapacityExceeded, and not `InsufficientReserved...`: the machine and zone say nothing here."""
    error = CloudError(Fault.NO_CAPACITY, "ReservationCapacityExceeded", "")
    request = with_changes(ask(1, *slots(1, 2)), market=Market.RESERVATION, reservation="cr-1")
    event = event_of_error(TIMES, Memory(), request, error, NOW)
    both = bought(
        source(0, Market.RESERVATION, reservation="cr-1"), source(1, Market.RESERVATION, reservation="cr-2")
    )
    moment = after(starting(2, plan=both), event)
    views = {"cr-1": listed(), "cr-2": replace(listed(), id="cr-2")}
    seen = replace(moment.observation, reservations=views)
    assert [a.spec.reservation for a in asks(replace(moment, observation=seen))] == ["cr-2"]


# --- fleets -------------------------------------------------------------------------------------------------
def test_burst_of_single_nodes_is_one_fleet(f: Fleet) -> None:
    """By RunInstances it would be a partial answer and a second request."""
    f.model.set_capacity(SPOT, A, "spot", 5)
    jobs = [f.slurm.submit(1, lasts=500) for _ in range(12)]
    f.until(lambda: all(j.state == "RUNNING" for j in jobs), 300)
    assert [name for name, _ in f.cloud.calls if name in ("launch", "fleet")] == ["fleet"]
    machines = [
        incarnation.machine for incarnation in f.journal.memory.incarnations.values() if incarnation.instance
    ]
    assert (machines.count(SPOT), machines.count(OTHER)) == (5, 7)
    assert len(f.living()) == 12


def test_fleet_with_a_lost_answer_launches_nothing_twice(f: Fleet) -> None:
    f.model.faults.lose_reply("CreateFleet", 2)
    jobs = [f.slurm.submit(1, lasts=500) for _ in range(12)]
    f.until(lambda: all(j.state == "RUNNING" for j in jobs), 300)
    assert len(f.living()) == 12
    assert len(f.model.describe((), f.now)) == 12


def fleet_ask() -> LaunchRequest:
    first = ask(1, *slots(1, 10))
    return replace(first, gangs=(1,) * 10, alternatives=(alternative(first, OTHER, template_id="lt-1"),))


def errors(*pairs: tuple[str, str]) -> tuple[FleetError, ...]:
    return tuple(FleetError(machine=m, code=code, message="") for m, code in pairs)


def test_each_refusal_of_a_fleet_excludes_its_own_machine_type() -> None:
    said = errors((SPOT, "InsufficientInstanceCapacity"), (OTHER, "InvalidFleetConfiguration"))
    found = list(events_of_nothing(TIMES, Memory(), fleet_ask(), said, NOW))
    kept = {e.key: e.until - NOW for e in found if isinstance(e, OfferRefused)}
    assert kept == {KEY: TIMES.refusal_s, f"spot/{OTHER}/{A}": TIMES.refusal_max_s}
    assert [e.key for e in found if isinstance(e, LaunchRefused)] == [None]


def test_throttle_of_a_fleet_is_no_refusal_for_capacity() -> None:
    """aws-parallelcluster-node#734: the throttled override's local_holders were disabled as without capacity."""
    said = errors((SPOT, "RequestLimitExceeded"), (OTHER, "UnfulfillableCapacity"))
    found = list(events_of_nothing(TIMES, Memory(), fleet_ask(), said, NOW))
    assert not [e for e in found if isinstance(e, OfferRefused)]
    assert [e.pace_all for e in found if isinstance(e, LaunchDeferred)] == [True]
    assert not list(events_of_shortfall(TIMES, Memory(), fleet_ask(), 4, said, now=NOW))
    short = list(events_of_shortfall(TIMES, Memory(), fleet_ask(), 4, (), now=NOW))
    assert [e.key for e in short if isinstance(e, OfferRefused)] == [KEY, f"spot/{OTHER}/{A}"]


def test_partial_launch_refuses_gangs_of_the_unserved_sizes() -> None:
    """Ten slots in gangs of one, two, three and four; three came: the first two gangs have them."""
    unequal = replace(ask(1, *slots(1, 10)), gangs=(1, 2, 4, 3))
    (short,) = events_of_shortfall(TIMES, Memory(), unequal, 3, (), now=NOW)
    assert isinstance(short, OfferRefused)
    assert (short.size, short.words) == (3, "gave 3 of 10, nothing")
    assert list(events_of_shortfall(TIMES, Memory(), unequal, 10, (), now=NOW)) == []


# --- pacing ---------------------------------------------------------------------------------------------------
def tokens(moment: ClusterSnapshot, instances: float, calls: float = 5.0) -> ClusterSnapshot:
    levels = {
        "RunInstances": BucketLevel(tokens=calls, at=NOW),
        "RunInstances#instances": BucketLevel(tokens=instances, at=NOW),
    }
    return replace(moment, memory=replace(moment.memory, levels=levels))


def test_gang_without_tokens_waits_and_is_not_refused() -> None:
    short = tokens(starting(4), 2)
    actions = decide(short.plan, short.bindings, short.observation, short.memory, NOW)
    assert not [a for a in actions if isinstance(a, LaunchGang | MarkDown)]
    known = [e for a in actions if isinstance(a, RecordEvents) for e in a.entries]
    memory = fold(short.memory, known)
    assert next_look(short.plan, short.bindings, short.observation, memory, NOW) == pytest.approx(1.0)


def test_no_gang_is_launched_before_a_gang_that_waits_for_tokens() -> None:
    assert asks(tokens(starting(8, 1, 1), 4)) == []
    wide = a_plan(("{min: 0, max: 16}", "{min: 0, max: 80}"))
    (one,) = asks(tokens(starting(1, 60, plan=wide), 4))
    assert one.jobs == (1,), "who comes first does not wait for the large one behind"


def test_no_call_is_made_without_a_token() -> None:
    assert asks(tokens(starting(1), 500, calls=0.5)) == []


def test_jobs_that_wait_for_tokens_are_joined() -> None:
    assert asks(tokens(starting(2, 2, 2, 2), 5)) == []
    (one,) = asks(tokens(starting(2, 2, 2, 2), 8))
    assert one.gangs == (2, 2, 2, 2)


def test_throttle_empties_the_model_of_the_buckets() -> None:
    moment = starting(2)
    error = CloudError(Fault.THROTTLED, "RequestLimitExceeded", "")
    request = ask(1, *slots(1, 2))
    moment = after(
        moment, LaunchRequested(request=request), event_of_error(TIMES, moment.memory, request, error, NOW)
    )
    pace = Pace(moment.memory, NOW)
    assert (pace.calls("RunInstances"), pace.instances("RunInstances")) == (0, 0)
    assert pace.wait_s("RunInstances", 100) == pytest.approx(50.0)
    assert Pace(moment.memory, NOW - 5000).instances("RunInstances") == 1000, "the clock went back"


@pytest.mark.parametrize(
    ("fault", "instances"), [(Fault.LOST, 990), (Fault.THROTTLED, -10)], ids=["lost", "throttled"]
)
def test_repeat_uses_instance_tokens_only_if_the_first_call_used_none(fault: Fault, instances: int) -> None:
    request = ask(1, *slots(1, 10))
    events = [
        LaunchRequested(request=request),
        event_of_error(TIMES, Memory(), request, CloudError(fault, "x", ""), NOW),
    ]
    memory = fold(Memory(), [Entry(at=NOW, event=e) for e in (*events, LaunchRequested(request=request))])
    assert memory.levels["RunInstances#instances"].tokens == instances
    assert memory.levels["RunInstances"].tokens == (3 if fault is Fault.LOST else -1)


def test_terminations_are_rate_limited_and_split() -> None:
    ids = tuple(f"i-{n}" for n in range(2500))
    found = list(ends(Pace(Memory(), NOW), [Terminate(instances=ids, reason="x")]))
    assert [len(a.instances) for a in found if isinstance(a, Terminate)] == [1000]
    spent = fold(Memory(), [Entry(at=NOW, event=TerminationRequested(instances=ids[:1000], words="x"))])
    later = list(ends(Pace(spent, NOW + 11), [Terminate(instances=ids[1000:], reason="x")]))
    assert [len(a.instances) for a in later if isinstance(a, Terminate)] == [200]


def test_job_larger_than_the_bucket_is_launched_in_chunks(tmp_path: Path) -> None:
    """The whole burst of 4,000 is `make bench NAME=pacing`."""
    f = Fleet(a_plan(("{min: 0, max: 16}", "{min: 0, max: 1010}")), tmp_path, boot_s=1e9)
    f.slurm.submit(1010)
    f.run(4)
    assert [r.count for r in f.cloud.launches] == [1000]
    f.run(12)
    assert [r.count for r in f.cloud.launches] == [1000, 10]
    assert f.now - START < 20
    assert not f.journal.memory.refusals
    assert not [c for c in f.model.trail if c.code == "RequestLimitExceeded"]


def test_chosen_offer_has_headroom_for_all_instances() -> None:
    world = world_of(starting(2))
    some = all_offers(world)["h200", A]
    assert choose(world, Headroom(world), some, 16) == some[0]
    assert choose(world, Headroom(world), some, 17) is None


def test_after_a_refusal_of_eight_two_slots_are_undrained_for_a_job_of_two() -> None:
    keys = {o.key for offers in all_offers(world_of(starting(1))).values() for o in offers}
    stands = [OfferRefused(key=k, words="none", until=NOW + 60, size=8) for k in sorted(keys)]
    drained = [
        node(n, "IDLE CLOUD POWERED_DOWN DRAIN", reason="gpucluster: none")
        for n in world_of(starting(1)).slots
    ]
    moment = sight(PLAN, nodes=drained, jobs=[job(1, node_count=8), job(2, node_count=2)])
    moment = after(moment, *stands)
    actions = decide(moment.plan, moment.bindings, moment.observation, moment.memory, NOW)
    assert [a.slots for a in actions if isinstance(a, Undrain)] == [("h200-2a-1", "h200-2a-2")]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("DOWN CLOUD POWERED_DOWN", "gpucluster: none"),
        ("DOWN CLOUD POWERED_DOWN DRAIN", "gpucluster: none"),
        ("DOWN CLOUD POWERED_DOWN DRAIN", "gpucluster: [evacuation] the cloud reclaims it"),
        ("DOWN CLOUD POWERED_DOWN DRAIN", "gpucluster: [health] gpu.count: 7 of 8"),
        ("FUTURE CLOUD", ""),
    ],
)
def test_slot_that_is_resumed_without_capacity_is_blocked_directly_after(state: str, reason: str) -> None:
    """A resume lifts a drain, too. slurmctld started the waiting job on it within the two seconds until the next pass, and the job was requeued: 70 times in ten minutes."""
    keys = {o.key for offers in all_offers(world_of(starting(1))).values() for o in offers}
    stands = [OfferRefused(key=k, words="none", until=NOW + 60) for k in sorted(keys)]
    down, rest = "h200-2a-1", world_of(starting(1)).slots.keys() - {"h200-2a-1"}
    states = [node(n, "IDLE CLOUD POWERED_DOWN DRAIN", reason="gpucluster: none") for n in sorted(rest)]
    states.append(node(down, state, reason=reason))
    moment = after(sight(PLAN, nodes=states, jobs=[job(1, node_count=2)]), *stands)
    actions = decide(moment.plan, moment.bindings, moment.observation, moment.memory, NOW)
    touched = [type(a) for a in actions if down in getattr(a, "slots", ())]
    assert touched[:2] == [ResetDown, Block]


def test_gang_above_every_source_max_gets_that_reason(tmp_path: Path) -> None:
    """Nothing is live: `max 4 reached` would be a lie."""
    sources = tuple(replace(s, max=4) for s in PLAN.pools[0].sources)
    f = Fleet(replace(PLAN, pools=(replace(PLAN.pools[0], sources=sources),)), tmp_path)
    big, small = f.slurm.submit(8), f.slurm.submit(4, lasts=600)
    f.until(lambda: small.state == "RUNNING", 600)
    f.run(60)
    assert (big.state, len(f.cloud.launches)) == ("PENDING", 1)
    assert f"; on-demand {SPOT} max 4 leaves too few for 8" in big.comment


def test_job_behind_others_gets_the_pool_max_as_reason(f: Fleet) -> None:
    first = f.slurm.submit(10, lasts=2000)
    f.until(lambda: first.state == "RUNNING", 200)
    second = f.slurm.submit(8, lasts=60)
    f.run(60)
    assert second.comment == "gpucluster: " + "; ".join(
        f"no h200 in {zone}: max 16 leaves too few for 8" for zone in (A, A[:-1] + "b")
    )
