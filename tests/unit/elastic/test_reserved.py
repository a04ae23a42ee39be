"""Reservations of any origin: no idle node is held for a job that they keep off it, and `why` names them."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from support.cluster_states import BUSY, NOW, OFF, UP, job, node
from support.worlds.scene import A1, A2, A3, A4, B1, SMALL, offer_keys, pool_with, refused, scene, up

from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.node_table import NodeTable, row_for
from gpucluster.elastic.decide.reserved import Holds, against
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.inspect.why import Cause, Screen, why
from gpucluster.elastic.model import Comment, PowerDown, PowerUp, Undrain
from gpucluster.plan.model import SlurmOnAws
from gpucluster.slurm.values import SlurmJob, SlurmNode, SlurmReservation

H = 3600.0
RESERVED = f"{UP} RESERVED"
OURS = "gpucluster: no h200 in us-east-2a: ICE"


def holds(
    name: str, *nodes: str, begins: float = -60, ends: float = H, **changes: object
) -> SlurmReservation:
    """A reservation that a person made."""
    plain = SlurmReservation(
        name=name, starts_at=NOW + begins, ends_at=NOW + ends, nodes=nodes, users=("ada", "bob")
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


COURSE = holds("course", A1)
LATER = holds("later", A1, begins=600)


def seen(
    reservations: Iterable[SlurmReservation],
    nodes: Iterable[SlurmNode] = (),
    jobs: Iterable[SlurmJob] = (),
    plan: SlurmOnAws = SMALL,
    **more: object,
) -> ClusterSnapshot:
    """Nodes that are up have instances."""
    nodes = tuple(nodes)
    lives = {n.name: up(n.name, 2000) for n in nodes if "POWERED_DOWN" not in n.states}
    found = scene(plan, nodes, jobs, lives, **more)  # type: ignore[arg-type]
    assert found.observation.slurm is not None
    view = replace(found.observation.slurm, reservations=tuple(reservations))
    return replace(found, observation=replace(found.observation, slurm=view))


def waits(**changes: object) -> SlurmJob:
    return job(1, **{"node_count": 1, "reason": "Resources", "time_limit_s": H, **changes})


def row(snapshot: ClusterSnapshot, slot: str) -> str:
    world = snapshot.world
    assert world is not None
    return row_for(NodeTable(world).context(slot)).name


def said(shown: Screen) -> str:
    return "\n".join((shown.headline, *(line.words for line in shown.lines)))


@pytest.mark.parametrize(
    ("says", "reservations", "changes", "allowed"),
    [
        ("an active one", [COURSE], {}, False),
        ("one that begins before the job could end", [LATER], {}, False),
        ("one that begins when the job has ended", [LATER], {"time_limit_s": 600.0}, True),
        ("a job without a limit", [LATER], {"time_limit_s": None}, False),
        ("backfill may shorten the job", [LATER], {"time_min_s": 300.0}, True),
        ("of another node", [holds("x", A2)], {}, True),
        ("one that has ended", [holds("x", A1, ends=-1)], {}, True),
        ("over before the job begins", [COURSE], {"begins_at": NOW + H}, True),
        ("begins before a job that begins later could end", [LATER], {"begins_at": NOW + 500, "time_limit_s": 300.0}, False),
        ("its own", [COURSE], {"reservation": "course"}, True),
        ("one of its own", [COURSE], {"reservation": "exam,course"}, True),
        ("another job's", [COURSE], {"reservation": "exam"}, False),
        ("its own is of another node", [holds("exam", A2)], {"reservation": "exam"}, False),
        ("its own is flexible", [holds("exam", A2, flags=("FLEX",))], {"reservation": "exam"}, True),
        ("flexible, and another one has the node", [holds("exam", A2, flags=("FLEX",)), COURSE], {"reservation": "exam"}, False),
        ("two over each other", [COURSE, holds("exam", A1)], {"reservation": "exam"}, False),
        ("two over each other, its own may overlap", [COURSE, holds("exam", A1, flags=("OVERLAP",))], {"reservation": "exam"}, True),
        ("maintenance over one that may overlap", [holds("m", A1, flags=("MAINT",)), holds("exam", A1, flags=("OVERLAP",))], {"reservation": "exam"}, False),
        ("its own is the maintenance", [COURSE, holds("m", A1, flags=("MAINT",))], {"reservation": "m"}, True),
        ("IGNORE_JOBS is for running jobs", [holds("x", A1, flags=("IGNORE_JOBS",))], {}, False),
        ("some cores", [holds("x", A1, whole=False)], {}, True),
        ("it takes jobs of its users by itself", [holds("x", A1, flags=("MAGNETIC",))], {}, True),
        ("the other one takes jobs of its users", [holds("x", A1, flags=("MAGNETIC",)), holds("exam", A1)], {"reservation": "exam"}, False),
    ],
)  # fmt: skip
def test_reservations_allow_a_node(
    says: str, reservations: list[SlurmReservation], changes: dict[str, object], allowed: bool
) -> None:
    one = waits(**changes)
    world = seen(reservations, (node(A1, UP),), (one,)).world
    assert world is not None
    assert Holds.of(world, one).allow(world.node(A1)) is allowed, says


def test_state_of_the_node_counts_if_the_reservation_is_not_listed() -> None:
    """Nodes are read first: a reservation may have ended, or begun, since then."""
    one = waits()
    world = seen([holds("exam", A2)], (node(A1, RESERVED, reservation="course"),), (one,)).world
    assert world is not None
    assert not Holds.of(world, one).allow(world.node(A1))
    assert not Holds().allow(node(A1, f"{UP} MAINTENANCE"))


def test_reservation_that_begins_first_comes_first() -> None:
    one = waits()
    world = seen([LATER, holds("b", A2), holds("a", A2)], (), (one,)).world
    assert world is not None
    assert [found.name for found in against(world, one)] == ["a", "b", "later"]


@pytest.mark.parametrize(
    ("says", "reservations", "changes", "expected"),
    [
        ("no reservation", [], {}, "expected"),
        ("it holds the node", [COURSE], {}, "idle-over"),
        ("it will hold the node", [LATER], {}, "idle-over"),
        ("the job ends before", [LATER], {"time_limit_s": 60.0}, "expected"),
        ("the job is of another partition", [], {"partitions": ("other",)}, "idle-over"),
        ("the job excludes the node", [], {"excluded_nodes": (A1,)}, "idle-over"),
        ("the job needs a feature", [], {"features": "other"}, "idle-over"),
        ("the job requires another node", [], {"required_nodes": (A2,)}, "idle-over"),
        ("the job requires two others", [], {"node_count": 2, "required_nodes": (A2, A3)}, "idle-over"),
        ("the job requires this node", [], {"required_nodes": (A1,)}, "expected"),
        (
            "the job requires another node and takes one more",
            [],
            {"node_count": 2, "required_nodes": (A2,)},
            "expected",
        ),
        (
            "the job requires a node of another zone and takes one more",
            [],
            {"node_count": 2, "required_nodes": (B1,)},
            "idle-over",
        ),
        ("a person holds the job", [], {"priority": 0}, "idle-over"),
    ],
)
@pytest.mark.parametrize("reason", ["Resources", "ReqNodeNotAvail"])
def test_planned_node_is_held_only_for_a_job_that_may_use_it_now(
    says: str, reservations: list[SlurmReservation], changes: dict[str, object], expected: str, reason: str
) -> None:
    """slurmctld sets PLANNED on a reserved node for a job that it plans for the end of the reservation: the idle node was held, and with `max` another job waited for it."""
    idle = node(A1, f"{UP} PLANNED", last_busy=NOW - 400)
    assert row(seen(reservations, (idle,), (waits(**{"reason": reason, **changes}),)), A1) == expected, says


@pytest.mark.parametrize("mark", ["", " PLANNED"])
@pytest.mark.parametrize(
    ("says", "components", "expected"),
    [
        ("both can use it", ({}, {}), "expected"),
        ("one can use it", ({}, {"features": "other"}), "expected"),
        ("neither has its feature there", ({"features": "other"}, {"features": "other"}), "idle-over"),
        ("one has not its feature, the other excludes it", ({"features": "other"}, {"excluded_nodes": (A1,)}), "idle-over"),
        ("each requires another node", ({"required_nodes": (A2,)}, {"required_nodes": (A3,)}), "idle-over"),
        ("one requires another node", ({"required_nodes": (A2,)}, {}), "expected"),
    ],
)  # fmt: skip
def test_node_is_held_for_a_het_job_if_a_component_may_use_it(
    says: str, components: tuple[dict[str, object], ...], expected: str, mark: str
) -> None:
    """The features of het jobs were dropped: an idle node was held for a job whose components it can not serve."""
    idle = node(A1, f"{UP}{mark}", last_busy=NOW - 400)
    jobs = [replace(waits(**changes), id=n, het_id=1) for n, changes in enumerate(components, 1)]
    assert row(seen([], (idle,), jobs), A1) == expected, says


def test_only_as_many_nodes_are_held_as_a_job_takes_beside_its_required_ones() -> None:
    """A job of two nodes with --nodelist of a busy one held two idle nodes, of which it can take one."""
    idle = [node(slot, UP, last_busy=NOW - 400) for slot in (A1, A2)]
    found = seen([], (*idle, node(A3, BUSY)), (waits(node_count=2, required_nodes=(A3,)),))
    assert sorted((row(found, A1), row(found, A2))) == ["expected", "idle-over"]


@pytest.mark.parametrize(
    ("says", "reservations", "changes", "expected"),
    [
        ("no reservation", [], {}, ("awaited", "awaited")),
        ("one node is reserved", [LATER], {}, ("idle", "awaited")),
        ("one is excluded", [], {"excluded_nodes": (A2,)}, ("awaited", "idle")),
        ("two others are required", [], {"required_nodes": (A3, A4)}, ("idle", "idle")),
        ("one other is required", [], {"required_nodes": (A3,)}, ("awaited", "idle")),
    ],
)
def test_node_awaits_only_a_requeued_job_that_may_use_it(
    says: str, reservations: list[SlurmReservation], changes: dict[str, object], expected: tuple[str, str]
) -> None:
    """An idle node was kept for a requeued job that a reservation, or --exclude, keeps off it."""
    back = waits(node_count=2, reason="BeginTime", begins_at=NOW + 60, admin_comment="gpucluster: [evacuation] spot", **changes)  # fmt: skip
    idle = [node(slot, UP, last_busy=NOW - 200) for slot in (A1, A2)]
    found = seen(reservations, idle, (back,))
    assert (row(found, A1), row(found, A2)) == expected, says


def test_reserved_node_is_no_spare() -> None:
    """An idle node of a reservation counted as the pool's spare, so other jobs had none."""
    plan = pool_with(SMALL, spares=1)
    held = node(A1, RESERVED, reservation="course", last_busy=NOW - 100)
    assert row(seen([COURSE], (held,), plan=plan), A1) == "idle"
    more = (held, node(A2, UP, last_busy=NOW - 100))
    assert row(seen([COURSE], more, plan=plan), A2) == "spare"


def test_reserved_slot_is_not_powered_up_as_a_spare() -> None:
    plan = pool_with(SMALL, spares=1)
    nodes = [node(slot, f"{OFF} RESERVED", reservation="course") for slot in (A1, A2, A3, A4)]
    found = seen([holds("course", A1, A2, A3, A4)], nodes, plan=plan)
    ups = [a for a in actions(found) if isinstance(a, PowerUp)]
    assert [a.slots for a in ups] == [(B1,)]


def test_slots_of_a_later_reservation_are_not_tested_for_a_job_that_runs_into_it() -> None:
    """After a refusal, slots were undrained for a job that no reservation of the future lets start there."""
    blocked = [node(slot, f"{OFF} DRAIN", reason=OURS) for slot in (A1, A2, A3, A4)]
    keys = (*offer_keys("us-east-2a"), *offer_keys("us-east-2b"))
    known = {"refusals": refused(-1, *offer_keys("us-east-2a")) | refused(9000, *keys[3:])}
    first = seen([holds("later", A1, A2, begins=600)], blocked, (waits(),), known=known)
    assert [a.slots for a in actions(first) if isinstance(a, Undrain)] == [(A3,)]


def actions(snapshot: ClusterSnapshot) -> tuple[object, ...]:
    return decide(snapshot.plan, snapshot.bindings, snapshot.observation, snapshot.memory, snapshot.now)


# --- why ------------------------------------------------------------------------------------------------
FULL = pool_with(SMALL, max=1)


@pytest.mark.parametrize("one", [COURSE, LATER], ids=["active", "later"])
def test_why_names_the_reservation_of_an_idle_node_that_fills_the_pool(one: SlurmReservation) -> None:
    """A reservation made by hand held the only instance that `max` allows: `why` said that nothing blocks the job, or blamed `max`."""
    idle = node(A1, RESERVED if one is COURSE else UP, reservation="course" if one is COURSE else "", last_busy=NOW - 100)  # fmt: skip
    found = seen([one], (idle,), (waits(),), plan=FULL)
    shown = why(found, "1")
    assert shown.cause is Cause.RESERVATION
    words = said(shown)
    assert f"because of the reservation {one.name} of {A1} from " in words
    assert f"--reservation={one.name}; users ada, bob" in words
    assert f"has powered down {A1} if none of the reservation's jobs comes" in words
    line = next(line for line in shown.lines if "has powered down" in line.words)
    assert line.at == NOW - 100 + SMALL.pools[0].idle_s
    then = replace(found, now=line.at)
    assert [a.slots for a in actions(then) if isinstance(a, PowerDown)] == [(A1,)]
    assert ("timelimit=TIME" in words) is (one is LATER)


@pytest.mark.parametrize(
    ("says", "changes"),
    [("the node is busy", {"states": frozenset(["ALLOCATED", "CLOUD"])}), ("it excludes the node", {})],
)
def test_max_is_the_cause_if_the_idle_node_would_not_serve_the_job(
    says: str, changes: dict[str, object]
) -> None:
    idle = replace(node(A1, UP, last_busy=NOW - 100), **changes)  # type: ignore[arg-type]
    one = waits(excluded_nodes=() if changes else (A1,))
    shown = why(seen([COURSE], (idle,), (one,), plan=FULL), "1")
    assert shown.cause is Cause.MAX, says
    assert "reservation course" in said(shown)


def test_idle_node_that_the_job_may_not_use_does_not_count() -> None:
    """`why` said that nothing blocks a job that excludes the only idle node of a full pool."""
    shown = why(seen([], (node(A1, UP, last_busy=NOW - 100),), (waits(reason="None", excluded_nodes=(A1,)),), plan=FULL), "1")  # fmt: skip
    assert shown.cause is Cause.MAX


@pytest.mark.parametrize("count", [1, 2])
def test_max_is_no_cause_if_the_required_node_is_busy(count: int) -> None:
    """`why` and the job's comment blamed `max`, which another value of does not start the job."""
    one = waits(node_count=count, required_nodes=(A2,))
    machines = (node(A1, UP, last_busy=NOW - 100), node(A2, BUSY))
    found = seen([], machines, (one, job(41, A2)), plan=pool_with(SMALL, max=2))
    assert why(found, "1").cause is Cause.RESOURCES
    comments = [a for a in actions(found) if isinstance(a, Comment) and a.reason]
    assert not any(1 in a.jobs for a in comments)


def test_required_node_of_a_reservation_is_the_cause() -> None:
    """A job with --nodelist of a reserved node: `why` said that its nodes are drained, down or reserved."""
    one = waits(reason="ReqNodeNotAvail", required_nodes=(A1,))
    shown = why(seen([COURSE], (node(A1, RESERVED, reservation="course"),), (one,)), "1")
    assert shown.cause is Cause.RESERVATION


def test_why_of_a_job_that_waits_for_something_else_names_no_reservation() -> None:
    shown = why(seen([COURSE], (), (waits(reason="Dependency"),)), "1")
    assert "course" not in said(shown)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (COURSE, f"the reservation course of {A1} from 2026-11-17 13:59 UTC to 2026-11-17 15:00 UTC: only its jobs start there (--reservation=course; users ada, bob)"),
        (LATER, "a job that could run into it does not start there, only its jobs do (--reservation=later; users ada, bob)"),
        (holds("part", A1, whole=False, users=(), accounts=("vision",)), "holds some of their cores for its jobs (--reservation=part; account vision)"),
        (holds("old", A1, ends=-1), ""),
        (holds("other", A2), ""),
    ],
    ids=["active", "later", "cores", "ended", "of another node"],
)  # fmt: skip
def test_why_of_a_node_names_its_reservations(one: SlurmReservation, words: str) -> None:
    """`why NODE` said nothing of a reservation: an idle node looked as if any job could use it."""
    shown = said(why(seen([one], (node(A1, UP),)), A1))
    assert words in shown
    assert ("reservation" in shown) is bool(words)
