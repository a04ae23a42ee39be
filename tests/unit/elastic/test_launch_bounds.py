"""The boundaries of launches, refusals, retries and power-ups: the last value on each side of each rule."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace

import pytest
from support.builders import a_plan
from support.cluster_states import NOW, OFF, UP, WAKING, ask, instance, job, living, node, sight
from support.launches import alternative, with_changes

from gpucluster.cloud.limits import UNSEEN_S
from gpucluster.cloud.port import CloudError, Fault, FleetError
from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.launches import (
    FLEET_FROM,
    LONGEST_RETRY_S,
    LaunchBatch,
    event_of_error,
    events_of_nothing,
    is_over,
    new_request,
    refused_for,
    repeats_due,
)
from gpucluster.elastic.decide.node_context import AWAITED_S, awaited
from gpucluster.elastic.decide.offers import all_offers, refusal_of
from gpucluster.elastic.decide.world import InstanceStatus, World
from gpucluster.elastic.events import (
    BootFailed,
    DaemonStarted,
    Entry,
    Event,
    Interrupted,
    InterruptionKind,
    LaunchDeferred,
    LaunchDone,
    LaunchRefused,
    LaunchRequest,
    LaunchRequested,
    NodeNeeded,
    OfferRefused,
    StraysSeen,
)
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.memory import Launch, Memory, Refusal, fold
from gpucluster.elastic.model import Action, LaunchGang, PowerUp, Terminate
from gpucluster.plan.model import Market

PLAN = a_plan()
A1, A2, A3, B1, B2 = "h200-2a-1", "h200-2a-2", "h200-2a-3", "h200-2b-1", "h200-2b-2"
SPOT, OTHER, ZONE = "p5en.48xlarge", "p5e.48xlarge", "us-east-2a"
KEY = f"spot/{SPOT}/{ZONE}"
BUSY = "ALLOCATED CLOUD"


def world(moment: ClusterSnapshot) -> World:
    assert moment.world
    return moment.world


def acts(moment: ClusterSnapshot) -> tuple[Action, ...]:
    return decide(moment.plan, moment.bindings, moment.observation, moment.memory, moment.now)


def after(moment: ClusterSnapshot, *events: Event) -> ClusterSnapshot:
    return replace(moment, memory=fold(moment.memory, [Entry(at=NOW, event=e) for e in events]))


def refused(key: str, lasts: float = 60.0, **changes: object) -> OfferRefused:
    return replace(OfferRefused(key=key, words="no", until=NOW + lasts), **changes)  # type: ignore[arg-type]


# --- tokens of requests ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("what", "failed", "generation", "attempt"),
    [("the first launch", 0, 1, 1), ("after one failed boot", 1, 2, 2), ("after two", 2, 3, 3)],
)
def test_token_of_a_request_has_the_documented_inputs(
    what: str, failed: int, generation: int, attempt: int
) -> None:
    """The same for the values of one attempt alone. The epoch of the lease tells requests of a restored journal apart."""
    events: list[tuple[float, Event]] = [
        (99.0, DaemonStarted(epoch=5)),
        *((90.0, NodeNeeded(slot=slot, incarnation=1, jobs=(41,))) for slot in (A1, A2)),
    ]
    for number in range(1, failed + 1):
        events += [
            (80.0, LaunchRequested(request=ask(number, A1))),
            (70.0, LaunchDone(request=f"r{number}", instances=(f"i-{number}",))),
            (60.0, BootFailed(slot=A1, instance=f"i-{number}", words="no GPU")),
        ]
    now = world(sight(PLAN, *events, nodes=[node(A1, WAKING)]))
    offer = all_offers(now)["h200", ZONE][0]
    request = new_request(now, offer, LaunchBatch(slots=(A1, A2)), 7)
    parts = (PLAN.name, "e", "5", "r7", str(generation), str(attempt), repr(offer.spec), A1, A2)
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    assert request.token == f"gpucluster-{digest[:40]}", what


@pytest.mark.parametrize(("gangs", "stored"), [((), ()), ((2,), ()), ((1, 1), (1, 1))])
def test_request_stores_its_gangs_if_there_are_several(
    gangs: tuple[int, ...], stored: tuple[int, ...]
) -> None:
    now = world(sight(PLAN))
    offer = all_offers(now)["h200", ZONE][0]
    assert new_request(now, offer, LaunchBatch(slots=(A1, A2), gangs=gangs), 1).gangs == stored


@pytest.mark.parametrize(("gangs", "singles"), [((), 0), ((1,), 1), ((1, 1, 1), 3), ((1, 2), 0)])
def test_number_of_single_nodes_of_a_batch(gangs: tuple[int, ...], singles: int) -> None:
    assert LaunchBatch(slots=(), gangs=gangs).singles == singles


# --- retries and refusals ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("what", "left", "over"),
    [
        ("it ended a second ago", -1.0, True),
        ("it ends now", 0.0, True),
        ("it ends in a second", 1.0, False),
        ("the longest wait", LONGEST_RETRY_S, False),
        ("longer than the longest wait: the clock was set back", LONGEST_RETRY_S + 1, True),
    ],
)
def test_end_of_a_pause(what: str, left: float, over: bool) -> None:
    assert is_over(NOW + left, NOW) is over, what


@pytest.mark.parametrize(("tries", "wait"), [(1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (30, 60.0)])
def test_wait_before_a_repeat_doubles_up_to_a_minute(tries: int, wait: float) -> None:
    request = ask(1, A1)
    memory = Memory(launches={"r1": Launch(request=request, asked_at=NOW, tries=tries)})
    event = event_of_error(PLAN.times, memory, request, CloudError(Fault.LOST, "x", ""), NOW)
    assert isinstance(event, LaunchDeferred)
    assert event.retry_at - NOW == wait


def test_first_wait_of_an_unknown_request_is_one_second() -> None:
    event = event_of_error(PLAN.times, Memory(), ask(1, A1), CloudError(Fault.LOST, "x", ""), NOW)
    assert isinstance(event, LaunchDeferred)
    assert event.retry_at - NOW == 1.0


def test_due_repeats_are_in_the_order_of_their_numbers() -> None:
    launches = {
        f"r{number}": Launch(request=ask(number, slot), asked_at=NOW, retry_at=NOW + wait)
        for number, slot, wait in ((10, A1, 0.0), (9, A2, -5.0), (8, A3, 5.0))
    }
    assert [r.id for r in repeats_due(launches, NOW, 0.0)] == ["r9", "r10"]
    assert repeats_due(launches, NOW, NOW + 5) == ()


@pytest.mark.parametrize(
    ("what", "code", "doubtful", "tries", "key"),
    [
        ("a first call", "InvalidSubnetID.NotFound", False, 1, "source/h200/0"),
        ("a repeat", "InvalidSubnetID.NotFound", False, 2, None),
        ("a call with a lost answer", "InvalidSubnetID.NotFound", True, 1, None),
        ("a repeat with another error", "InvalidParameterValue", False, 2, "source/h200/0"),
    ],
)
def test_repeat_with_a_name_of_an_old_bundle_refuses_no_source(
    what: str, code: str, doubtful: bool, tries: int, key: str | None
) -> None:
    request = ask(1, A1)
    memory = Memory(launches={"r1": Launch(request=request, asked_at=NOW, tries=tries, doubtful=doubtful)})
    event = event_of_error(PLAN.times, memory, request, CloudError(Fault.CONFIGURATION, code, ""), NOW)
    assert isinstance(event, LaunchRefused)
    assert event.key == key, what


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault.QUOTA, "Code (why)"),
        (Fault.CONFIGURATION, "Code (why)"),
        (Fault.NO_CAPACITY, "Code"),
        (Fault.THROTTLED, "Code"),
    ],
)
def test_message_of_the_cloud_is_quoted_if_a_person_must_act(fault: Fault, words: str) -> None:
    event = event_of_error(PLAN.times, Memory(), ask(1, A1), CloudError(fault, "Code", "why"), NOW)
    assert isinstance(event, LaunchRefused | LaunchDeferred)
    assert event.words == words
    event = event_of_error(PLAN.times, Memory(), ask(1, A1), CloudError(fault, "Code", ""), NOW)
    assert isinstance(event, LaunchRefused | LaunchDeferred)
    assert event.words == "Code"


@pytest.mark.parametrize(("code", "size"), [("InsufficientInstanceCapacity", 2), ("SpotMaxPriceTooLow", 0)])
def test_size_of_a_refusal(code: str, size: int) -> None:
    """A price is too low for any number of instances."""
    request = ask(1, A1, A2)
    event = event_of_error(PLAN.times, Memory(), request, CloudError(Fault.NO_CAPACITY, code, ""), NOW)
    assert isinstance(event, LaunchRefused)
    assert event.size == size
    found = events_of_nothing(
        PLAN.times, Memory(), request, (FleetError(machine=SPOT, code=code, message=""),), NOW
    )
    assert [e.size for e in found if isinstance(e, OfferRefused)] == [size]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("RequestLimitExceeded", ["LaunchDeferred", "LaunchRefused"]),
        ("MaxSpotInstanceCountExceeded", ["LaunchRefused"]),
        ("InsufficientInstanceCapacity", ["LaunchRefused", "OfferRefused"]),
        ("SpotMaxPriceTooLow", ["LaunchRefused", "OfferRefused"]),
        (None, ["LaunchRefused", "OfferRefused"]),
    ],
)
def test_events_of_a_fleet_without_instances(code: str | None, found: list[str]) -> None:
    errors = () if code is None else (FleetError(machine=SPOT, code=code, message=""),)
    events = list(events_of_nothing(PLAN.times, Memory(), ask(1, A1), errors, NOW))
    assert [type(event).__name__ for event in events] == found


FIRST_S, LONGEST_S = PLAN.times.refusal_s, PLAN.times.refusal_max_s


@pytest.mark.parametrize(
    ("what", "old", "size", "lasts"),
    [
        ("the first refusal", None, 0, FIRST_S),
        ("the second", Refusal(until=NOW - 1, times=1, words="w"), 0, 2 * FIRST_S),
        ("the third", Refusal(until=NOW - 1, times=2, words="w"), 0, 4 * FIRST_S),
        ("the hundredth", Refusal(until=NOW - 1, times=99, words="w"), 0, LONGEST_S),
        ("a smaller gang, while the refusal stands", Refusal(until=NOW + 1, times=1, words="w", size=8), 7, FIRST_S),
        ("a gang of the same size", Refusal(until=NOW + 1, times=1, words="w", size=8), 8, 2 * FIRST_S),
        ("a smaller gang, after the refusal", Refusal(until=NOW, times=1, words="w", size=8), 7, 2 * FIRST_S),
        ("any size, after a refusal of eight", Refusal(until=NOW + 1, times=1, words="w", size=8), 0, 2 * FIRST_S),
    ],
)  # fmt: skip
def test_duration_of_the_next_refusal(what: str, old: Refusal | None, size: int, lasts: float) -> None:
    assert refused_for(PLAN.times, old, size, NOW) == lasts, what


@pytest.mark.parametrize(
    ("what", "events", "key"),
    [
        ("no refusal", (), None),
        ("one", (refused(KEY),), 60.0),
        ("the longer one is of the source", (refused(KEY, 60.0), refused("source/h200/0", 90.0)), 90.0),
        ("the longer one is of the offer", (refused(KEY, 90.0), refused("source/h200/0", 60.0)), 90.0),
        ("of another offer", (refused(f"spot/{OTHER}/{ZONE}"),), None),
    ],
)
def test_refusal_that_expires_last_counts(what: str, events: tuple[Event, ...], key: float | None) -> None:
    moment = after(sight(PLAN), *events)
    found = refusal_of(moment.memory, all_offers(world(moment))["h200", ZONE][0])
    assert (found and found.until - NOW) == key, what


def test_refusal_for_this_run_counts_before_one_with_an_end() -> None:
    request = ask(1, A1)
    for_this_run = LaunchRefused(request="r1", key=KEY, words="x", until=NOW, for_this_run=True)
    moment = after(sight(PLAN), LaunchRequested(request=request), for_this_run, refused("source/h200/0"))
    found = refusal_of(moment.memory, all_offers(world(moment))["h200", ZONE][0])
    assert found is not None
    assert found.for_this_run


# --- alternatives of a fleet ----------------------------------------------------------------------------------
def burst(count: int, *events: Event) -> list[LaunchRequest]:
    """The requests for so many jobs of one node in one zone, after these events."""
    slots = [f"h200-2a-{n}" for n in range(1, count + 1)]
    jobs = [job(n, slot, starts=True) for n, slot in enumerate(slots, start=1)]
    wide = a_plan(("{min: 0, max: 16}", "{min: 0, max: 40}"))
    moment = after(sight(wide, nodes=[node(s, WAKING) for s in slots], jobs=jobs), *events)
    return [a.request for a in acts(moment) if isinstance(a, LaunchGang)]


@pytest.mark.parametrize(
    ("what", "count", "events", "machines"),
    [
        ("too few nodes for a fleet", FLEET_FROM - 1, (), (SPOT,)),
        ("a fleet has all machine types of the source", FLEET_FROM, (), (SPOT, OTHER)),
        ("a refused type is no alternative", FLEET_FROM, (refused(f"spot/{OTHER}/{ZONE}"),), (SPOT,)),
        ("a type of another source is none", FLEET_FROM, (refused(KEY),), (OTHER,)),
    ],
)
def test_machine_types_of_a_burst(
    what: str, count: int, events: tuple[Event, ...], machines: tuple[str, ...]
) -> None:
    (request,) = burst(count, *events)
    assert (request.machines, request.spec.market) == (machines, Market.SPOT), what
    assert len(request.slots) == count


def test_request_names_the_machine_types_of_its_alternatives() -> None:
    first = with_changes(ask(1, A1))
    assert replace(first, alternatives=(alternative(first, OTHER),)).machines == (SPOT, OTHER)


# --- idle nodes for requeued jobs ------------------------------------------------------------------------------
OURS = "gpucluster: [evacuation] the cloud reclaims this spot instance"
LEAVES = (1.0, Interrupted(slot=A1, instance="i-0", kind=InterruptionKind.SPOT, words="w", ends_at=NOW + 119, source="node"))  # fmt: skip


def waits(begins_in: float = 0.0, **changes: object) -> object:
    return replace(job(41, admin_comment=OURS, begins_at=NOW + begins_in, node_count=1), **changes)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("what", "jobs", "found"),
    [
        ("no job", (), ()),
        ("a requeued job that begins now", (waits(),), (A2,)),
        ("it begins in less than the limit", (waits(AWAITED_S - 1),), (A2,)),
        ("it begins at the limit", (waits(AWAITED_S),), ()),
        ("it should have begun long ago", (waits(-AWAITED_S),), ()),
        ("a pending job that was not requeued", (waits(admin_comment=""),), ()),
        ("a requeued job of two nodes takes the zone with two", (waits(node_count=2),), (B1, B2)),
        ("a second job gets no node of the first", (waits(node_count=2), waits(id=42)), (A2, B1, B2)),
        ("a job in a partition without the pool", (waits(partitions=("cpu",)),), ()),
        ("a running job with an interrupted node", (replace(job(41, A1), admin_comment=OURS),), (A2,)),
        ("a running job that was not told", (job(41, A1),), ()),
        ("a running job without an interrupted node", (replace(job(41, A3), admin_comment=OURS),), ()),
        ("one of its two nodes is interrupted", (replace(job(41, A1, A3), admin_comment=OURS),), (A2,)),
    ],
)
def test_idle_nodes_wait_for_requeued_jobs(what: str, jobs: Iterable, found: tuple[str, ...]) -> None:  # type: ignore[type-arg]
    nodes = [node(A1, BUSY), node(A3, BUSY), *(node(slot, UP) for slot in (A2, B1, B2))]
    if "two nodes takes" not in what and "second job" not in what:
        nodes = [n for n in nodes if n.name not in (B1, B2)]
    moment = sight(PLAN, *living(A1, A2), LEAVES, nodes=nodes, jobs=jobs)
    assert awaited(world(moment)) == frozenset(found), what


@pytest.mark.parametrize(("states", "free"), [(UP, True), (f"{UP} DRAIN", False), (BUSY, False)])
def test_only_idle_nodes_without_a_drain_wait_for_a_job(states: str, free: bool) -> None:
    moment = sight(PLAN, nodes=[node(A2, states)], jobs=[waits()])  # type: ignore[list-item]
    assert awaited(world(moment)) == (frozenset({A2}) if free else frozenset())


# --- instances -----------------------------------------------------------------------------------------------------
GRACE_S = PLAN.times.orphan_grace_s


@pytest.mark.parametrize(("age", "ends"), [(GRACE_S - 1, False), (GRACE_S, True)])
def test_stray_instance_is_terminated_at_its_grace(age: float, ends: bool) -> None:
    """The grace begins when the daemon first sees it, not at its launch."""
    moment = sight(PLAN, (age, StraysSeen(instances=("i-7",))), instances=[instance(7, ago=9000)])
    assert bool([a for a in acts(moment) if isinstance(a, Terminate)]) is ends


@pytest.mark.parametrize(
    ("what", "launched_ago", "absent_ago", "status"),
    [
        ("new, and never listed", UNSEEN_S - 1, 9000.0, InstanceStatus.UNSEEN),
        ("old, and missing for a short time", 9000.0, UNSEEN_S - 1, InstanceStatus.UNSEEN),
        ("old, and missing since this moment", 9000.0, None, InstanceStatus.UNSEEN),
        ("old, and missing for the whole time", 9000.0, UNSEEN_S, InstanceStatus.MISSING),
        ("launched just so long ago, and never listed", UNSEEN_S, 9000.0, InstanceStatus.MISSING),
    ],
)
def test_status_of_an_unlisted_instance(
    what: str, launched_ago: float, absent_ago: float | None, status: InstanceStatus
) -> None:
    moment = sight(PLAN, *living(A1, ago=launched_ago + 3), nodes=[node(A1, UP)])
    seen = moment.observation
    assert seen.cloud
    absent = {} if absent_ago is None else {"i-0": NOW - absent_ago}
    moment = replace(moment, observation=replace(seen, cloud=replace(seen.cloud, absent_since=absent)))
    assert world(moment).instance_status(A1) is status, what
    gone = replace(node(A1, OFF), name=A1)
    seen = moment.observation
    assert seen.slurm
    off = replace(seen, slurm=replace(seen.slurm, nodes={**seen.slurm.nodes, A1: gone}))
    expected = InstanceStatus.ENDED if status is InstanceStatus.MISSING else status
    assert world(replace(moment, observation=off)).instance_status(A1) is expected, what


@pytest.mark.parametrize(
    ("what", "least", "up", "more"),
    [
        ("nothing is up", 3, (), 3),
        ("one is up", 3, (A1,), 2),
        ("all are up", 3, (A1, A2, A3), 0),
    ],
)
def test_always_on_slots_are_powered_up_to_the_minimum(
    what: str, least: int, up: tuple[str, ...], more: int
) -> None:
    plan = a_plan(("{min: 0, max: 16}", f"{{min: {least}, max: 16}}"))
    moment = sight(
        plan, *(living(*up) if up else ()), nodes=[node(s, UP) for s in up], instances=[instance(n) for n in range(len(up))]
    )  # fmt: skip
    found = [slot for a in acts(moment) if isinstance(a, PowerUp) for slot in a.slots]
    assert len(found) == more, what


@pytest.mark.parametrize(("launching", "more"), [((), 4), ((A1,), 3), ((A1, A2), 2)])
def test_always_on_slots_are_powered_up_within_the_maximum(launching: tuple[str, ...], more: int) -> None:
    """Instances of jobs and open launches count against `max`."""
    plan = a_plan(("{min: 0, max: 16}", "{min: 4, max: 4}"))
    asked = [(5.0, LaunchRequested(request=ask(1, *launching)))] if launching else []
    needed = [(6.0, NodeNeeded(slot=s, incarnation=1, jobs=())) for s in launching]
    moment = sight(plan, *needed, *asked, nodes=[node(s, WAKING) for s in launching])
    found = [slot for a in acts(moment) if isinstance(a, PowerUp) for slot in a.slots]
    assert len(found) == more
