"""The life table: every state has a row, no row harms, and what is held to a time is left by then."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from builders import a_plan
from fleet import Fleet, some_bindings
from hypothesis import given, settings
from hypothesis import strategies as st
from slurm_model import DIALECTS

from gpucluster.cloud.port import Instance, InstanceState
from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.life import ABSENT, ROWS, UNKNOWN, Do, Lives, Row, row_for, row_of, sentence_of
from gpucluster.elastic.decide.stand import Stand
from gpucluster.elastic.decide.world import Fate, World, slots_of
from gpucluster.elastic.events import Entry, Event, Lingers, PowerUpStays, Served, TroubleKind, Unknown, Verb
from gpucluster.elastic.memory import Life, Memory, Order, Trouble, fold
from gpucluster.elastic.model import (
    Action,
    Block,
    CloudView,
    Drain,
    LaunchGang,
    MarkDown,
    Observation,
    Phase,
    PowerDown,
    PowerUp,
    Remember,
    ResetDown,
    SlurmJob,
    SlurmNode,
    SlurmView,
    Terminate,
    Unblock,
)
from gpucluster.elastic.owners import Owner, Stranger, whose
from gpucluster.elastic.states import BASES, canonical, classify
from gpucluster.plan.model import ClusterPlan, Market

NOW = 2_000_000.0
RECORDED = Path(__file__).parents[2] / "recorded" / "transitions"
TAKES = frozenset({Do.END, Do.OFF, Do.DOWN_AND_OFF, Do.RESET, Do.SET_DOWN})

# What one node can show: one base; the power flags that Slurm sets together; and what may stand beside them.
POWER = ("", "POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "POWER_DOWN", "POWER_UP", "POWERED_DOWN POWER_UP",
         "POWERED_DOWN POWER_DOWN", "POWERED_DOWN POWER_DOWN POWER_DOWN_FORCE", "POWERING_UP POWER_DOWN",
         "POWER_DOWN POWER_DRAIN", "POWERING_UP POWER_DOWN POWER_DRAIN", "POWERED_DOWN POWERING_UP")  # fmt: skip
HELD = ("", "DRAIN", "FAIL", "DRAIN FAIL")
SICK = ("", "NOT_RESPONDING", "INVALID_REG", "NOT_RESPONDING INVALID_REG")
REBOOT = ("", "REBOOT_REQUESTED", "REBOOT_ISSUED", "REBOOT_CANCELED")
BESIDE = (
    "",
    "COMPLETING",
    "MAINTENANCE RESERVED",
    "PLANNED",
    "BLOCKED",
    "DYNAMIC_NORM",
    "UNDRAIN RESUME",
    "DYNAMIC_FUTURE",
)
REASONS = (  # and who wrote it
    ("", ""), ("broken fan", "root"), ("Prolog error", "slurm"), ("Not responding", "slurm"),
    ("gpucluster: no h200", "slurm"), ("gpucluster: [trouble] spot", "slurm"), ("gpucluster: [order] kept", "slurm"),
    ("gpucluster: [later] words", "slurm"), ("broken fan : ResumeTimeout reached", "slurm"),
    ("gpucluster: no h200 : Prolog error", "slurm"),
)  # fmt: skip
MACHINES = (
    None,
    InstanceState.PENDING,
    InstanceState.RUNNING,
    InstanceState.STOPPED,
    InstanceState.SHUTTING_DOWN,
    "unlisted",
)
SHAPES = ("asked", "booting", "up", "failed", "unneeded", "troubled", "none")
JOBS = ("", "", "starts", "runs", "sleeps")
ORDERS = (None, Verb.NODE_KEEP, Verb.NODE_REPLACE)


PLAN = a_plan(("max: 16}", "max: 4000}"))
BINDINGS = some_bindings(PLAN)
LOST = (Fate.NONE, Fate.ENDED, Fate.HALTED)
SIZE, EACH = 4000, 2500


def states() -> Iterator[frozenset[str]]:
    """Every set of words that a node can show."""
    for base, *flags in product(sorted(BASES), POWER, HELD, SICK, REBOOT, BESIDE):
        yield frozenset({base, "CLOUD", *" ".join(flags).split()})


SHOWN = sorted(set(states()), key=sorted)


def test_every_set_of_words_has_a_phase_and_each_phase_ends_in_a_row_that_takes_what_is_left() -> None:
    assert {classify(words) for words in states()} == set(Phase)
    for phase in Phase:
        last = [row for row in ROWS if phase in _phases(row)][-1]
        assert last.when(None), phase  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["22.05", "24.11", "26.05"])
def test_no_state_that_a_real_slurmctld_ever_showed_is_odd(version: str) -> None:
    lines = (RECORDED / f"{version}.jsonl").read_text().splitlines()
    shown = {frozenset(words) for line in lines for words in _words(json.loads(line))}
    assert len(shown) > 30
    assert not [words for words in shown if classify(canonical(words)) is Phase.ODD]


def test_in_no_state_is_a_job_or_a_persons_drain_harmed_and_none_falls_through() -> None:
    """The product of all that a node can show and every fate of its machine, in lots of slots; the rest by lot."""
    chance, seen = Random(5), set[str]()  # noqa: S311 -- the same each time
    points = list(_points(chance))
    assert len(points) > 25_000
    for start in range(0, len(points), SIZE):
        world = _lot(points[start : start + SIZE], chance)
        lives = Lives(world)
        for slot in world.phases:
            stand = lives.stand(slot)
            row = row_for(stand)
            seen.add(row.name)
            _harmless(stand, row)
    never = {row.name for row in ROWS} - seen
    assert never <= {"awaited", "off-spare", "spare", "off-always-on", "always-on", "emptied"}, never


def test_nor_do_the_rules_beside_the_table_harm_one() -> None:
    """What `decide` does to such a lot: what the table says, and what gangs, blocks and troubles add."""
    chance = Random(6)  # noqa: S311 -- the same each time
    points: list[tuple[frozenset[str], object]] = [
        (words, chance.choice(MACHINES)) for words in chance.sample(SHOWN, 1500)
    ]
    world = _lot(points, chance)
    seen = Observation(slurm=world.slurm, cloud=world.cloud)
    actions = decide(PLAN, world.bindings, seen, world.memory, NOW)
    after = fold(world.memory, [e for a in actions if isinstance(a, Remember) for e in a.entries])
    assert {a.slots for a in actions if isinstance(a, MarkDown | PowerDown | ResetDown)}
    lives = Lives(world)
    for slot, action in _touched(actions, after):
        stand = lives.stand(slot)
        life = after.lives.get(slot)
        if life is not None and life.trouble is not None:
            continue  # its machine goes at a known time, or by a person's order: see test_troubles
        if not isinstance(action, Unblock):
            assert not stand.runs or stand.fate in LOST, (slot, stand.node, action)
        if stand.starts:
            continue  # a job that waits for what a person has drained meanwhile is sent back whole
        alone = stand.theirs and stand.phase not in (Phase.OFF, Phase.ENDING, Phase.DOWN_OFF)
        assert not alone, (slot, stand.node, action)


# --- the lots ------------------------------------------------------------------------------------------
def _points(chance: Random) -> Iterator[tuple[frozenset[str], object]]:
    """As many of each phase, and of an idle node that is up all."""
    by_phase: dict[Phase, list[tuple[frozenset[str], object]]] = {}
    for words, machine in product(SHOWN, MACHINES):
        by_phase.setdefault(classify(words), []).append((words, machine))
    for phase, points in by_phase.items():
        yield from chance.sample(points, min(len(points), EACH))
        if phase is Phase.UP:
            yield from (
                p for p in points if "IDLE" in p[0] and not p[0] & {"DRAIN", "FAIL"} for _ in range(9)
            )


def _lot(points: list[tuple[frozenset[str], object]], chance: Random) -> World:
    names = list(slots_of(PLAN))[: len(points)]
    nodes: dict[str, SlurmNode] = {}
    lives: dict[str, Life] = {}
    jobs: list[SlurmJob] = []
    machines: dict[str, Instance] = {}
    orders: dict[str, Order] = {}
    absent: dict[str, float] = {}
    for number, (slot, (words, state)) in enumerate(zip(names, points, strict=True)):
        reason, by = chance.choice(REASONS)
        at = NOW - chance.choice((10.0, 5000.0))
        nodes[slot] = SlurmNode(
            name=slot, states=words, reason=reason, reason_by=by, reason_at=at, last_busy=at, address=slot
        )
        life = _life(chance.choice(SHAPES), f"i-{number}" if state else None, at)
        if life is not None:
            lives[slot] = replace(life, relapses=number % 2 == 0)
        if life is not None and life.instance:
            if isinstance(state, InstanceState):
                machines[life.instance] = _machine(life.instance, state)
            else:
                absent[life.instance] = NOW - chance.choice((10.0, 5000.0))
        if told := chance.choice(JOBS):
            jobs.append(_job(number + 1, slot, told))
        if verb := chance.choice(ORDERS):
            orders[slot] = Order(
                verb=verb, at=at, by="anna", words="look", until=NOW + chance.choice((-1, 60))
            )
    return World.of(
        PLAN,
        BINDINGS,
        Memory(epoch="e", lives=lives, orders=orders),
        NOW,
        slurm=SlurmView(at=NOW, nodes=nodes, jobs=tuple(jobs)),
        cloud=CloudView(at=NOW, instances=machines, absent_since=absent),
        reports={},
    )


def _life(shape: str, machine: str | None, at: float) -> Life | None:
    if shape == "none":
        return None
    life = Life(
        number=1,
        since=at,
        jobs=(1,),
        instance=machine,
        machine="p5en.48xlarge",
        market=Market.SPOT,
        zone="us-east-2a",
        launched_at=at,
    )
    if machine is None:
        return replace(life, request="r1") if shape == "asked" else life
    trouble = Trouble(kind=TroubleKind.FAULT, since=at, words="a GPU of it failed")
    return {
        "asked": replace(life, instance=None, request="r1"),
        "booting": life,
        "up": replace(life, up_at=at),
        "failed": replace(life, failed="step mount: no such host", failed_boots=1),
        "unneeded": replace(life, unneeded_at=at),
        "troubled": replace(life, up_at=at, trouble=trouble),
    }[shape]


def _machine(number: str, state: InstanceState) -> Instance:
    return Instance(
        id=number, state=state, zone="us-east-2a", machine="p5en.48xlarge", market=Market.SPOT, address=None,
        launched_at=NOW - 5000, token=None,
        tags={"gpucluster:cluster": "burst", "gpucluster:role": "node", "gpucluster:pool": "h200"},
    )  # fmt: skip


def _job(number: int, slot: str, told: str) -> SlurmJob:
    words = {"starts": {"RUNNING", "CONFIGURING"}, "runs": {"RUNNING"}, "sleeps": {"SUSPENDED"}}[told]
    return SlurmJob(
        id=number, states=frozenset(words), nodes=(slot,), node_count=1, partitions=("gpu",), requeueable=number % 2 == 0,
        batch=True, priority=5, started_at=NOW - 20,
    )  # fmt: skip


def _harmless(stand: Stand, row: Row) -> None:
    said = (row.name, sorted(stand.node.states), stand.fate, stand.node.whose)
    assert (row is UNKNOWN) == (stand.phase is Phase.ODD), said
    if row.do in TAKES and stand.runs:
        assert stand.fate in LOST, said
    if stand.theirs:
        powered_down = stand.phase in (Phase.OFF, Phase.ENDING, Phase.DOWN_OFF)
        assert row.do not in TAKES or (row.do is Do.END and powered_down), said
        assert row.do not in (Do.LIFT, Do.HOLD), said
    if stand.kept and stand.fate is Fate.LIVES and stand.phase is not Phase.FUTURE:
        assert row.do not in TAKES - {Do.SET_DOWN}, said
    bound = row.by(stand)
    assert bound is None or 0 < bound < 10_000, said
    assert row.sentence(stand).isprintable()


def _touched(actions: tuple[Action, ...], memory: Memory) -> Iterator[tuple[str, Action]]:
    owner = {life.instance: slot for slot, life in memory.lives.items() if life.instance}
    for action in actions:
        if isinstance(action, MarkDown | PowerDown | ResetDown | Unblock):
            yield from ((slot, action) for slot in action.slots)
        elif isinstance(action, Terminate):
            yield from ((owner[i], action) for i in action.instances if i in owner)


def _phases(row: Row) -> tuple[Phase, ...]:
    return row.phases if isinstance(row.phases, tuple) else (row.phases,)


def _words(line: dict[str, dict[str, object]]) -> Iterator[list[str]]:
    for side in ("before", "after"):
        nodes: dict[str, dict[str, list[str]]] = line[side].get("nodes", {})  # type: ignore[assignment]
        yield from (node["states"] for node in nodes.values() if "states" in node)


# --- one by one -----------------------------------------------------------------------------------------
A1, A2 = "h200-2a-1", "h200-2a-2"
SMALL = a_plan()


def see(
    words: str, known: Memory | None = None, now: float = NOW, plan: ClusterPlan = SMALL, **changes: object
) -> tuple[World, Observation, Memory]:
    """One node in this state, all others off."""
    node = SlurmNode(name=A1, states=canonical(frozenset(words.split())), address=A1, reason_at=now - 5000)
    node = replace(node, **changes)  # type: ignore[arg-type]
    off = frozenset({"IDLE", "CLOUD", "POWERED_DOWN"})
    shown = {n: SlurmNode(name=n, states=off) for n in slots_of(plan)} | {A1: node}
    slurm = SlurmView(at=now, nodes=shown, jobs=())
    memory = known or Memory(epoch="e")
    machines = {"i-1": _machine("i-1", InstanceState.RUNNING)} if memory.lives else {}
    cloud = CloudView(at=now, instances=machines)
    world = World.of(plan, some_bindings(plan), memory, now, slurm=slurm, cloud=cloud, reports={})
    return world, Observation(slurm=slurm, cloud=cloud), memory


def steps(words: str, known: Memory | None = None, now: float = NOW, **changes: Any) -> list[type[Action]]:
    world, seen, memory = see(words, known, now, **changes)
    actions = decide(SMALL, world.bindings, seen, memory, now)
    return [type(a) for a in actions if not isinstance(a, Remember)]


def events(words: str, known: Memory, now: float = NOW) -> list[Event]:
    world, seen, memory = see(words, known, now)
    actions = decide(SMALL, world.bindings, seen, memory, now)
    return [e.event for a in actions if isinstance(a, Remember) for e in a.entries]


def living(shape: str = "up", **changes: object) -> Memory:
    life = _life(shape, "i-1", NOW - 5000)
    assert life is not None
    return replace(Memory(epoch="e", lives={A1: replace(life, idle_at=NOW - 5000, booted_at=1.0)}), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "words", ["IDLE CLOUD POWER", "IDLE CLOUD POWERING_UP POWERING_DOWN", "MIXED IDLE CLOUD"]
)
def test_a_state_that_no_row_has_is_told_once_and_left_alone(words: str) -> None:
    assert steps(words, living()) == []
    (told,) = [e for e in events(words, living()) if isinstance(e, Unknown)]
    assert told == Unknown(slot=A1, states=tuple(sorted(words.split())))
    after = fold(living(), [Entry(at=NOW, event=told)])
    assert not [e for e in events(words, after) if isinstance(e, Unknown)]
    assert Unknown(slot=A1, states=()) in events("IDLE CLOUD", after)
    world, _, _ = see(words, living())
    assert row_of(world, A1) is UNKNOWN
    assert "no row" in sentence_of(world, A1)


def test_a_slot_that_slurm_does_not_know_has_a_row_of_its_own() -> None:
    world, _, _ = see("IDLE CLOUD")
    assert row_of(world, "h200-9z-1") is ABSENT
    assert "older than the plan" in sentence_of(world, "h200-9z-1")


@pytest.mark.parametrize(
    ("reason", "by", "drained", "owner"),
    [
        ("", "", False, Stranger.NOBODY),
        ("", "", True, Stranger.SLURM),  # scontrol takes no drain without a reason: slurmctld dropped it
        ("broken fan", "root", True, Stranger.PERSON),
        ("Prolog error", "root", True, Stranger.PERSON),  # a person who says it in Slurm's words
        ("Prolog error", "slurm", True, Stranger.SLURM),
        ("gpucluster: no h200", "slurm", True, Owner.CAPACITY),
        ("gpucluster: [trouble] spot", "slurm", True, Owner.TROUBLE),
        ("gpucluster: [order] kept", "slurm", True, Owner.ORDER),
        ("gpucluster: [of a later version] x", "slurm", True, Stranger.PERSON),
        (
            "gpucluster: no h200 : Prolog error",
            "slurm",
            True,
            Stranger.SLURM,
        ),  # what is left over is no drain
        ("broken fan : Not responding", "slurm", True, Stranger.PERSON),
        ("broken fan : ResumeTimeout reached", "slurm", False, Stranger.SLURM),  # 24.11, seen
        ("gpucluster: no h200 : ResumeTimeout reached", "slurm", False, Stranger.SLURM),
        ("ResumeTimeout reached", "", False, Stranger.SLURM),
    ],
)
def test_only_who_wrote_a_reason_owns_it(reason: str, by: str, drained: bool, owner: object) -> None:
    assert whose(reason, by, drained=drained) is owner


@pytest.mark.parametrize(
    ("words", "reason", "by", "lifted"),
    [
        ("IDLE CLOUD DRAIN", "gpucluster: no h200", "slurm", True),
        ("IDLE CLOUD DRAIN", "gpucluster: [order] kept", "slurm", True),  # and no order stands
        ("MIXED CLOUD DRAIN", "gpucluster: no h200", "slurm", True),
        (
            "IDLE CLOUD DRAIN",
            "gpucluster: [trouble] words",
            "slurm",
            False,
        ),  # until its agent says all is well
        ("IDLE CLOUD DRAIN", "gpucluster: [later] words", "slurm", False),
        ("IDLE CLOUD DRAIN", "broken fan", "root", False),
        ("IDLE CLOUD FAIL", "gpucluster: no h200", "slurm", False),  # only a person sets FAIL
        ("IDLE CLOUD DRAIN POWERED_DOWN", "gpucluster: [order] kept", "slurm", True),
        ("IDLE CLOUD DRAIN POWERED_DOWN", "gpucluster: [later] words", "slurm", False),
    ],
)
def test_a_drain_is_lifted_by_its_owner_alone(words: str, reason: str, by: str, lifted: bool) -> None:
    known = Memory(epoch="e") if "POWERED_DOWN" in words else living()
    assert (Unblock in steps(words, known, reason=reason, reason_by=by)) is lifted


def test_what_slurm_should_leave_by_itself_is_waited_for_and_then_moved() -> None:
    """idle~ with a power-down pending: for a second on 24.11, for ever in ParallelCluster's node #402."""
    words, known = "IDLE CLOUD POWERED_DOWN POWER_DOWN", Memory(epoch="e")
    assert steps(words, known) == []
    (since,) = events(words, known)
    known = fold(known, [Entry(at=NOW, event=since)])
    assert steps(words, known, NOW + 59) == []
    assert events(words, known, NOW + 59) == []
    assert steps(words, known, NOW + 61) == [MarkDown, PowerDown]
    assert Lingers(slot=A1, phase="", bound_s=0.0) in events("IDLE CLOUD POWERED_DOWN", known, NOW + 61)


@pytest.mark.parametrize("words", ["FUTURE", "FUTURE CLOUD NOT_RESPONDING"])
def test_a_node_in_future_is_brought_back(words: str) -> None:
    """POWERING_UP -> FUTURE on 22.05's reconfigure, CLOUD -> FUTURE on 25.05's restart: no job ever, and hidden."""
    assert steps(words) == [ResetDown]
    assert steps(words + " DRAIN", reason="broken fan", reason_by="root") == []


@pytest.mark.parametrize("words", ["IDLE CLOUD POWER_UP", "IDLE CLOUD POWERING_DOWN POWER_UP"])
def test_a_power_up_that_slurm_kept_is_not_served_with_a_machine_for_nobody(words: str) -> None:
    """A real run ended so: its job done, all off, and one node woken by a request that was served forty seconds before."""
    (told,) = [e for e in events(words, living()) if isinstance(e, PowerUpStays)]
    known = fold(living(), [Entry(at=NOW, event=told)])
    assert not [e for e in events(words, known) if isinstance(e, PowerUpStays)]
    gone = replace(known.lives[A1], instance=None, open=False)
    off, wakes = replace(known, lives={A1: gone}, endings={"i-1": NOW}), "IDLE CLOUD POWERED_DOWN POWER_UP"
    assert steps(wakes, off) == []  # a power-down before Slurm's scan would be overtaken by it
    assert steps("IDLE CLOUD POWERING_UP NOT_RESPONDING", off) == [MarkDown, PowerDown]
    assert events("IDLE CLOUD POWERED_DOWN", off) == [PowerUpStays(slot=A1, stays=False)]
    by_hand = replace(off, lives={A1: replace(gone, relapses=False, jobs=())})
    assert steps(wakes, by_hand) == [LaunchGang]


@pytest.mark.parametrize(("reason", "done"), [("broken fan", []), ("", [MarkDown, PowerDown])])
def test_what_a_person_drained_and_powered_up_is_not_powered_down_where_no_machine_can_be_had(
    reason: str, done: list[type[Action]]
) -> None:
    """A power-down would lift the drain (idle_on_node_suspend)."""
    known = Memory(epoch="e", orders=order(Verb.POOL_PAUSE, "h200"))
    words = f"IDLE CLOUD {'DRAIN' if reason else ''} POWERING_UP NOT_RESPONDING"
    assert [a for a in steps(words, known, reason=reason, reason_by="root") if a is not Block] == done


@pytest.mark.parametrize(
    ("reason", "since", "done"),
    [
        ("gpucluster: [trouble] words", 5000.0, [MarkDown, PowerDown]),
        ("gpucluster: [trouble] words", 10.0, []),
        ("gpucluster: [trouble] words", 5000.0, []),
    ],
    ids=["for long", "just now", "a job is suspended there"],
)
def test_a_machine_that_we_drained_and_whose_agent_is_mute_is_not_paid_for_ever(
    request: pytest.FixtureRequest, reason: str, since: float, done: list[type[Action]]
) -> None:
    """A journal that was lost, an agent that died: the drain stood, nobody could lift it, and the node idled on."""
    world, seen, memory = see(
        "IDLE CLOUD DRAIN", living(), reason=reason, reason_by="slurm", reason_at=NOW - since
    )
    assert seen.slurm is not None
    jobs = (_job(1, A1, "sleeps"),) if "suspended" in request.node.name else ()
    seen = replace(seen, slurm=replace(seen.slurm, jobs=jobs))
    actions = decide(SMALL, world.bindings, seen, memory, NOW)
    assert [type(a) for a in actions if not isinstance(a, Remember)] == done


@pytest.mark.parametrize("words", ["IDLE CLOUD", "IDLE CLOUD DRAIN"])
def test_a_node_on_which_a_job_is_suspended_is_not_idle(words: str) -> None:
    """Slurm shows it as IDLE; what is set down there dies."""
    world, seen, memory = see(
        words, living(), reason="Prolog error" if "DRAIN" in words else "", reason_by="slurm"
    )
    assert seen.slurm is not None
    for told, done in (("", True), ("sleeps", False)):
        jobs = (_job(1, A1, told),) if told else ()
        actions = decide(
            SMALL, world.bindings, replace(seen, slurm=replace(seen.slurm, jobs=jobs)), memory, NOW
        )
        assert any(isinstance(a, PowerDown) for a in actions) is done


# --- orders ------------------------------------------------------------------------------------------------
def order(verb: Verb, target: str = A1, **changes: object) -> dict[str, Order]:
    return {target: replace(Order(verb=verb, at=NOW - 100, by="anna", words="look at it"), **changes)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "shape", "reason", "done"),
    [
        ("IDLE CLOUD", "up", "", []),  # idle for long
        ("IDLE CLOUD POWERING_DOWN", "up", "", []),  # Slurm's own SuspendTime: its machine stays
        ("IDLE CLOUD POWERED_DOWN", "up", "", [PowerUp]),  # and serves the next life
        (
            "IDLE CLOUD POWERED_DOWN",
            "failed",
            "",
            [Drain],
        ),  # held, and never powered up again: no loop (CC #230)
        ("IDLE CLOUD POWERED_DOWN DRAIN", "failed", "gpucluster: [order] kept", []),
        ("MIXED CLOUD POWERING_UP NOT_RESPONDING", "failed", "", [MarkDown]),  # its job goes on elsewhere
        ("DOWN CLOUD POWERING_UP NOT_RESPONDING", "failed", "gpucluster: [order] kept", []),
        ("DOWN CLOUD POWERED_DOWN", "failed", "gpucluster: [order] kept : ResumeTimeout reached", []),
        ("DOWN CLOUD NOT_RESPONDING", "up", "Not responding", []),
    ],
)
def test_what_is_kept_is_not_ended_whatever_becomes_of_its_node(
    words: str, shape: str, reason: str, done: list[type[Action]]
) -> None:
    kept = living(shape, orders=order(Verb.NODE_KEEP))
    assert steps(words, kept, reason=reason, reason_by="slurm") == done
    over = living(shape, orders=order(Verb.NODE_KEEP, until=NOW - 1))
    assert Served(verb=Verb.NODE_KEEP, target=A1) in events(words, over)
    if shape == "failed":
        assert Terminate in steps(words, over, reason=reason, reason_by="slurm")


def test_when_the_keep_is_over_its_drain_is_lifted() -> None:
    words, reason = "IDLE CLOUD POWERED_DOWN DRAIN", "gpucluster: [order] kept"
    held = replace(living("failed", orders=order(Verb.NODE_KEEP)), lives={})
    assert Unblock not in steps(words, held, reason=reason, reason_by="slurm")
    assert steps(words, replace(held, orders={}), reason=reason, reason_by="slurm") == [Unblock]


def test_a_drained_pool_lets_its_idle_nodes_go_at_once_always_on_ones_too_and_a_kept_one_stays() -> None:
    fresh = {"last_busy": NOW - 1}
    assert steps("IDLE CLOUD", living(), **fresh) == []
    emptied = order(Verb.POOL_DRAIN, "h200")
    assert PowerDown in steps("IDLE CLOUD", living(orders=emptied), **fresh)
    assert PowerDown not in steps("MIXED CLOUD", living(orders=emptied), **fresh)
    assert PowerDown not in steps("IDLE CLOUD", living(orders=emptied | order(Verb.NODE_KEEP)), **fresh)
    plan = a_plan(("{min: 0, max: 16}", "{min: 2, max: 16}"))
    world, seen, memory = see("IDLE CLOUD", living(orders=emptied), plan=plan, **fresh)
    actions = decide(plan, world.bindings, seen, memory, NOW)
    assert [a.slots for a in actions if isinstance(a, PowerDown)] == [(A1,)]
    assert not [a for a in actions if isinstance(a, PowerUp)]


@pytest.mark.parametrize(("launched_at", "served"), [(NOW - 5000, False), (NOW - 50, True)])
def test_a_replace_is_served_by_another_machine(launched_at: float, served: bool) -> None:
    known = living(orders=order(Verb.NODE_REPLACE))
    known = replace(known, lives={A1: replace(known.lives[A1], launched_at=launched_at)})
    assert (Served(verb=Verb.NODE_REPLACE, target=A1) in events("IDLE CLOUD", known)) is served


# --- spares --------------------------------------------------------------------------------------------------
def with_spares(count: int, **changes: object) -> ClusterPlan:
    (pool,) = SMALL.pools
    return replace(SMALL, pools=(replace(pool, spares=count, **changes),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spares", "words", "up", "down"),
    [
        (1, "MIXED CLOUD", 1, False),
        (2, "MIXED CLOUD", 2, False),
        (1, "IDLE CLOUD", 0, False),  # idle for long, and stays
        (2, "IDLE CLOUD", 1, False),
        (0, "IDLE CLOUD", 0, True),
        (1, "IDLE CLOUD DRAIN", 1, False),  # not healthy, so none
    ],
)
def test_so_many_idle_nodes_stay_up_beside_those_that_work(
    spares: int, words: str, up: int, down: bool
) -> None:
    plan = with_spares(spares)
    world, seen, memory = see(words, living(), plan=plan, reason="fan" if "DRAIN" in words else "")
    actions = decide(plan, world.bindings, seen, memory, NOW)
    assert sum(len(a.slots) for a in actions if isinstance(a, PowerUp)) == up
    assert any(isinstance(a, PowerDown) for a in actions) is down


def test_spares_stay_within_max_and_wait_while_the_pool_is_paused() -> None:
    plan = with_spares(3, max=2)
    world, seen, memory = see("MIXED CLOUD", living(), plan=plan)
    actions = decide(plan, world.bindings, seen, memory, NOW)
    assert sum(len(a.slots) for a in actions if isinstance(a, PowerUp)) == 1
    paused = living(orders=order(Verb.POOL_PAUSE, "h200"))
    actions = decide(plan, world.bindings, seen, paused, NOW)
    assert not [a for a in actions if isinstance(a, PowerUp)]


def test_a_spare_is_up_before_anybody_asks_takes_the_job_of_a_lost_node_at_once_and_is_made_up_for(
    tmp_path: Path,
) -> None:
    f = Fleet(with_spares(1), tmp_path)
    idle = lambda: [n.name for n in f.slurm.nodes.values() if n.up and not n.used]  # noqa: E731
    f.until(lambda: len(idle()) == 1, 120)
    job = f.slurm.submit(1, lasts=5000)
    f.until(lambda: job.state == "RUNNING", 5)
    f.until(lambda: len(idle()) == 1, 120)
    f.interrupt(f.journal.memory.lives[job.nodes[0]].instance or "")
    f.until(lambda: len(job.runs) == 2, f.plan.times.cred_expire_s + 30)
    assert not set(job.runs[0]) & set(job.runs[1])
    f.until(lambda: len(idle()) == 1 and len(f.living()) == 2, 600)
    f.run(3600)
    assert (len(idle()), len(f.living()), job.restarts) == (1, 2, 1)


# --- by when ---------------------------------------------------------------------------------------------------
ODD_STATES = st.tuples(
    st.sampled_from(["IDLE", "DOWN"]),
    st.sampled_from([p for p in POWER if "DRAIN" not in p and p != "POWERED_DOWN POWERING_UP"]),
    st.sampled_from(["", "DRAIN"]),
    st.sampled_from(["", "NOT_RESPONDING"]),
    st.sampled_from([r for r in REASONS if "later" not in r[0] and r[1] != "root"]),
)


@given(
    first=ODD_STATES, second=ODD_STATES, off=ODD_STATES, version=st.sampled_from(["22.05", "24.11", "26.05"])
)
@settings(max_examples=15)
def test_every_state_is_left_within_its_bound_and_the_fleet_comes_to_rest(
    tmp_path_factory: pytest.TempPathFactory,
    first: tuple[Any, ...],
    second: tuple[Any, ...],
    off: tuple[Any, ...],
    version: str,
) -> None:
    """Two nodes with machines and one without, set to whatever Slurm could show."""
    f = Fleet(a_plan(("idle: 5m", "idle: 1m")), tmp_path_factory.mktemp("f"), boot_s=10.0)
    f.slurm.dialect = DIALECTS[version]
    job = f.slurm.submit(2, lasts=5.0)
    f.until(lambda: job.state == "COMPLETED", 200)
    for slot, odd in zip((*job.runs[0], "h200-2b-3"), (first, second, off), strict=True):
        _set(f, slot, odd)
    since: dict[str, tuple[str, float]] = {}
    began = f.now
    while not _at_rest(f):
        assert f.now - began < 3 * 3600, f.story()
        f.run(5.0)
        _in_time(f, since)


def _set(f: Fleet, slot: str, odd: tuple[Any, ...]) -> None:
    base, power, held, mark, (reason, by) = odd
    node = f.slurm.nodes[slot]
    if held and (not reason or reason.startswith("broken fan")):
        reason = "gpucluster: no h200"  # else the drain would be a person's
    node.base, node.flags = base, {"CLOUD", *power.split(), *held.split(), *mark.split()}
    node.reason, node.reason_by, node.reason_at, node.since = reason, by, f.now, f.now
    if not mark and not power and not f.slurm.nodes[slot].slurmd:
        node.flags.add("NOT_RESPONDING")  # nobody is there


def _in_time(f: Fleet, since: dict[str, tuple[str, float]]) -> None:
    world = World.of(
        f.plan,
        f.bindings,
        f.journal.memory,
        f.now,
        slurm=f.slurm.look(f.now),
        cloud=CloudView(at=f.now, instances={i.id: i for i in f.cloud.instances(f.plan.name)}),
        reports={},
    )
    lives = Lives(world)
    for slot in world.phases:
        stand = lives.stand(slot)
        row = row_for(stand)
        state = f"{row.name} {f.slurm.nodes[slot].since}"  # powered down anew is another time
        before, at = since.get(slot, ("", f.now))
        since[slot] = (state, at if before == state else f.now)
        bound = row.by(stand)
        assert bound is None or f.now - since[slot][1] <= bound + 15, (slot, row.name, bound, f.story())


def _at_rest(f: Fleet) -> bool:
    plain = {"CLOUD", "POWERED_DOWN"}
    return not f.living() and all(n.base == "IDLE" and n.flags == plain for n in f.slurm.nodes.values())
