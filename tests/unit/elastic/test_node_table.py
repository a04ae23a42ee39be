"""The node table: every state has a row, no row ends a job, and each bounded state ends in time."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_plan
from support.cluster_states import world_of
from support.fleet import Fleet, some_bindings
from support.slurm_model import DIALECTS

from gpucluster import catalog
from gpucluster.cloud.port import Instance, InstanceState
from gpucluster.cost import estimate
from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.node_context import NodeContext
from gpucluster.elastic.decide.node_table import (
    ROWS,
    UNKNOWN,
    Decision,
    NodeTable,
    Row,
    row_for,
)
from gpucluster.elastic.decide.world import InstanceStatus, World, slots_of
from gpucluster.elastic.events import (
    Entry,
    Event,
    InterruptionKind,
    OrderCompleted,
    PowerUpMarkStays,
    StateLingers,
    UnknownState,
    Verb,
)
from gpucluster.elastic.memory import (
    Incarnation,
    Interruption,
    Memory,
    OperatorOrder,
    RefusedEnd,
    SeenDrain,
    fold,
)
from gpucluster.elastic.model import (
    Action,
    Block,
    CloudView,
    Drain,
    LaunchGang,
    MarkDown,
    Observation,
    PowerDown,
    PowerUp,
    RecordEvents,
    ResetDown,
    Terminate,
    Undrain,
)
from gpucluster.plan.messages import HeldBundle
from gpucluster.plan.model import Market, SlurmOnAws
from gpucluster.slurm.drains import DrainOwner, drain_owner
from gpucluster.slurm.states import BASES, SlurmPhase, canonical, classify
from gpucluster.slurm.values import SlurmJob, SlurmNode, SlurmView

NOW = 2_000_000.0
RECORDED = Path(__file__).parents[2] / "recorded" / "transitions"
TAKES = frozenset(
    {Decision.TERMINATE, Decision.OFF, Decision.DOWN_AND_OFF, Decision.RESET, Decision.SET_DOWN}
)

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
    ("gpucluster: no h200", "slurm"), ("gpucluster: [evacuation] spot", "slurm"), ("gpucluster: [operator] kept", "slurm"),
    ("gpucluster: [bundle] removed", "slurm"), ("gpucluster: [termination] i-1 cannot be terminated", "slurm"), ("gpucluster: [later] words", "slurm"), ("broken fan : ResumeTimeout reached", "slurm"),
    ("gpucluster: no h200 : Prolog error", "slurm"), ("gpucluster: [health] gpu.ecc: GPU 3", "root"),
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
LOST = (InstanceStatus.NONE, InstanceStatus.ENDED, InstanceStatus.HALTED)
SIZE, EACH = 4000, 2500
REMOVED = 0.1  # of all slots: removed by a held bundle
REFUSED = 0.2  # of all instances: EC2 refuses to terminate them


def states() -> Iterator[frozenset[str]]:
    """Every set of words that a node can show."""
    for base, *flags in product(sorted(BASES), POWER, HELD, SICK, REBOOT, BESIDE):
        yield frozenset({base, "CLOUD", *" ".join(flags).split()})


SHOWN = sorted(set(states()), key=sorted)


def test_every_state_has_a_phase_and_each_phase_has_a_last_row() -> None:
    assert {classify(words) for words in states()} == set(SlurmPhase)
    for phase in SlurmPhase:
        last = [row for row in ROWS if phase in _phases(row)][-1]
        assert last.when(None), phase  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["22.05", "24.11", "26.05"])
def test_recorded_states_of_slurmctld_have_rows(version: str) -> None:
    lines = (RECORDED / f"{version}.jsonl").read_text().splitlines()
    shown = {frozenset(words) for line in lines for words in _words(json.loads(line))}
    assert len(shown) > 30
    assert not [words for words in shown if classify(canonical(words)) is SlurmPhase.UNKNOWN]


def test_no_row_harms_a_job_or_a_persons_drain() -> None:
    """The product of all that a node can show and every fate of its machine, in lots of slots; the rest by lot."""
    chance, seen = Random(5), set[str]()  # noqa: S311 -- the same each time
    points = list(_points(chance))
    assert len(points) > 25_000
    for start in range(0, len(points), SIZE):
        world = _lot(points[start : start + SIZE], chance)
        table = NodeTable(world)
        for slot in world.phases:
            context = table.context(slot)
            row = row_for(context)
            assert row is _first(context), (row.name, _first(context).name)
            seen.add(row.name)
            _harmless(context, row)
    never = {row.name for row in ROWS} - seen
    assert never <= {
        "awaited",
        "expected",
        "off-spare",
        "spare",
        "off-always-on",
        "always-on",
        "pool-drained",
    }, never


def _first(context: NodeContext) -> Row:
    """Search the whole table, also the rows that `row_for` leaves out by `if_instance` and `if_drained`."""
    return next(row for row in ROWS_OF[context.phase] if row.when(context))


def test_no_other_rule_harms_a_job_or_a_persons_drain() -> None:
    """What `decide` does to such a lot: what the table says, and what gangs, blocks and troubles add."""
    chance = Random(6)  # noqa: S311 -- the same each time
    points: list[tuple[frozenset[str], object]] = [
        (words, chance.choice(MACHINES)) for words in chance.sample(SHOWN, 1500)
    ]
    world = _lot(points, chance)
    seen = Observation(slurm=world.slurm, cloud=world.cloud, held=world.observation.held)
    actions = decide(PLAN, world.bindings, seen, world.memory, NOW)
    after = fold(world.memory, [e for a in actions if isinstance(a, RecordEvents) for e in a.entries])
    assert {a.slots for a in actions if isinstance(a, MarkDown | PowerDown | ResetDown)}
    table = NodeTable(world)
    for slot, action in _touched(actions, after):
        context = table.context(slot)
        incarnation = after.incarnations.get(slot)
        if incarnation is not None and incarnation.interruption is not None:
            continue  # its machine goes at a known time, or by a person's order: see test_troubles
        if not isinstance(action, Undrain):
            assert not context.runs or context.instance_status in LOST, (slot, context.node, action)
        if context.starts:
            continue  # a job that waits for what a person has drained meanwhile is sent back whole
        alone = context.drained_by_person and context.phase not in (
            SlurmPhase.OFF,
            SlurmPhase.POWERING_DOWN,
            SlurmPhase.DOWN_OFF,
        )
        assert not alone, (slot, context.node, action)


# --- the lots ------------------------------------------------------------------------------------------
def _points(chance: Random) -> Iterator[tuple[frozenset[str], object]]:
    """As many of each phase, and of an idle node that is up all."""
    by_phase: dict[SlurmPhase, list[tuple[frozenset[str], object]]] = {}
    for words, machine in product(SHOWN, MACHINES):
        by_phase.setdefault(classify(words), []).append((words, machine))
    for phase, points in by_phase.items():
        yield from chance.sample(points, min(len(points), EACH))
        if phase is SlurmPhase.UP:
            yield from (
                p for p in points if "IDLE" in p[0] and not p[0] & {"DRAIN", "FAIL"} for _ in range(9)
            )
            yield from (p for p in points if "IDLE" in p[0] and "FAIL" not in p[0] for _ in range(3))


def _lot(points: list[tuple[frozenset[str], object]], chance: Random) -> World:
    names = list(slots_of(PLAN))[: len(points)]
    nodes: dict[str, SlurmNode] = {}
    lives: dict[str, Incarnation] = {}
    jobs: list[SlurmJob] = []
    machines: dict[str, Instance] = {}
    orders: dict[str, OperatorOrder] = {}
    absent: dict[str, float] = {}
    refused: dict[str, RefusedEnd] = {}
    for number, (slot, (words, state)) in enumerate(zip(names, points, strict=True)):
        reason, by = chance.choice(REASONS)
        at = NOW - chance.choice((10.0, 5000.0))
        nodes[slot] = SlurmNode(
            name=slot, states=words, reason=reason, reason_by=by, reason_at=at, last_busy=at, address=slot
        )
        incarnation = _life(chance.choice(SHAPES), f"i-{number}" if state else None, at)
        if incarnation is not None:
            begun = at if number % 3 == 0 else None
            lives[slot] = replace(incarnation, relapses=number % 2 == 0, replaced_at=begun)
        if incarnation is not None and incarnation.instance:
            if isinstance(state, InstanceState):
                machines[incarnation.instance] = _machine(incarnation.instance, state)
            else:
                absent[incarnation.instance] = NOW - chance.choice((10.0, 5000.0))
            if chance.random() < REFUSED:
                refused[incarnation.instance] = RefusedEnd(
                    since=at, at=at, until=at + 20, times=1, words="UnauthorizedOperation", refused=True
                )
        if told := chance.choice(JOBS):
            jobs.append(_job(number + 1, slot, told))
        if verb := chance.choice(ORDERS):
            orders[slot] = OperatorOrder(
                verb=verb, at=at, by="anna", words="look", until=NOW + chance.choice((-1, 60))
            )
    removed = tuple(slot for slot in names if chance.random() < REMOVED)
    observation = Observation(
        held=HeldBundle(bundle="b" * 64, nodes=removed),
        slurm=SlurmView(at=NOW, nodes=nodes, jobs=tuple(jobs)),
        cloud=CloudView(at=NOW, instances=machines, absent_since=absent),
    )
    memory = Memory(
        epoch="e",
        incarnations=lives,
        orders=orders,
        refused_ends=refused,
        replaced={PLAN.pools[0].name: (NOW,) * 10_000},
        drains={
            slot: SeenDrain(drained=False, blocked=True, since=NOW - 30)
            for slot in names[::3]
            if not nodes[slot].drained
        },
    )
    return world_of(PLAN, BINDINGS, observation, memory, NOW)


def _life(shape: str, machine: str | None, at: float) -> Incarnation | None:
    if shape == "none":
        return None
    incarnation = Incarnation(
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
        return replace(incarnation, request="r1") if shape == "asked" else incarnation
    interruption = Interruption(
        kind=InterruptionKind.FAULT, since=at, words="a GPU of it failed", source="node"
    )
    return {
        "asked": replace(incarnation, instance=None, request="r1"),
        "booting": incarnation,
        "up": replace(incarnation, up_at=at),
        "failed": replace(incarnation, failed="step mount: no such host", failed_boots=1),
        "unneeded": replace(incarnation, unneeded_at=at),
        "troubled": replace(incarnation, up_at=at, interruption=interruption),
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


def _harmless(context: NodeContext, row: Row) -> None:
    said = (row.name, sorted(context.node.states), context.instance_status, context.node.drain_owner)
    assert (row is UNKNOWN) == (context.phase is SlurmPhase.UNKNOWN), said
    if row.decision in TAKES and context.runs:
        assert context.instance_status in LOST, said
    if context.drained_by_person:
        powered_down = context.phase in (SlurmPhase.OFF, SlurmPhase.POWERING_DOWN, SlurmPhase.DOWN_OFF)
        assert row.decision not in TAKES or (row.decision is Decision.TERMINATE and powered_down), said
        assert row.decision not in (Decision.UNDRAIN, Decision.DRAIN), said
    if (
        context.kept
        and context.instance_status is InstanceStatus.ALIVE
        and context.phase is not SlurmPhase.FUTURE
    ):
        assert row.decision not in TAKES - {Decision.SET_DOWN}, said
    bound = row.bound(context)
    assert bound is None or 0 < bound < 10_000, said
    assert row.sentence(context).isprintable()


def _touched(actions: tuple[Action, ...], memory: Memory) -> Iterator[tuple[str, Action]]:
    owner = {
        incarnation.instance: slot
        for slot, incarnation in memory.incarnations.items()
        if incarnation.instance
    }
    for action in actions:
        if isinstance(action, MarkDown | PowerDown | ResetDown | Undrain):
            yield from ((slot, action) for slot in action.slots)
        elif isinstance(action, Terminate):
            yield from ((owner[i], action) for i in action.instances if i in owner)


def _phases(row: Row) -> tuple[SlurmPhase, ...]:
    return row.phases if isinstance(row.phases, tuple) else (row.phases,)


ROWS_OF = {phase: tuple(row for row in ROWS if phase in _phases(row)) for phase in SlurmPhase}


def _words(line: dict[str, dict[str, object]]) -> Iterator[list[str]]:
    for side in ("before", "after"):
        nodes: dict[str, dict[str, list[str]]] = line[side].get("nodes", {})  # type: ignore[assignment]
        yield from (node["states"] for node in nodes.values() if "states" in node)


# --- one by one -----------------------------------------------------------------------------------------
A1, A2 = "h200-2a-1", "h200-2a-2"
SMALL = a_plan()


def see(
    words: str, known: Memory | None = None, now: float = NOW, plan: SlurmOnAws = SMALL, **changes: object
) -> tuple[World, Observation, Memory]:
    """One node in this state, all others off."""
    node = SlurmNode(name=A1, states=canonical(frozenset(words.split())), address=A1, reason_at=now - 5000)
    node = replace(node, **changes)  # type: ignore[arg-type]
    off = frozenset({"IDLE", "CLOUD", "POWERED_DOWN"})
    shown = {n: SlurmNode(name=n, states=off) for n in slots_of(plan)} | {A1: node}
    slurm = SlurmView(at=now, nodes=shown, jobs=())
    memory = known or Memory(epoch="e")
    machines = {"i-1": _machine("i-1", InstanceState.RUNNING)} if memory.incarnations else {}
    cloud = CloudView(at=now, instances=machines)
    observation = Observation(slurm=slurm, cloud=cloud)
    return world_of(plan, some_bindings(plan), observation, memory, now), observation, memory


def steps(words: str, known: Memory | None = None, now: float = NOW, **changes: Any) -> list[type[Action]]:
    world, seen, memory = see(words, known, now, **changes)
    actions = decide(SMALL, world.bindings, seen, memory, now)
    return [type(a) for a in actions if not isinstance(a, RecordEvents)]


def events(words: str, known: Memory, now: float = NOW) -> list[Event]:
    world, seen, memory = see(words, known, now)
    actions = decide(SMALL, world.bindings, seen, memory, now)
    return [e.event for a in actions if isinstance(a, RecordEvents) for e in a.entries]


def living(shape: str = "up", **changes: object) -> Memory:
    incarnation = _life(shape, "i-1", NOW - 5000)
    assert incarnation is not None
    return replace(
        Memory(epoch="e", incarnations={A1: replace(incarnation, idle_at=NOW - 5000, booted_at=1.0)}),
        **changes,
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "words", ["IDLE CLOUD POWER", "IDLE CLOUD POWERING_UP POWERING_DOWN", "MIXED IDLE CLOUD"]
)
def test_unknown_state_is_recorded_once_without_an_action(words: str) -> None:
    assert steps(words, living()) == []
    (told,) = [e for e in events(words, living()) if isinstance(e, UnknownState)]
    assert told == UnknownState(slot=A1, states=tuple(sorted(words.split())))
    after = fold(living(), [Entry(at=NOW, event=told)])
    assert not [e for e in events(words, after) if isinstance(e, UnknownState)]
    assert UnknownState(slot=A1, states=()) in events("IDLE CLOUD", after)
    world, _, _ = see(words, living())
    assert row_for(NodeTable(world).context(A1)) is UNKNOWN


@pytest.mark.parametrize(
    ("reason", "by", "drained", "owner"),
    [
        ("", "", False, DrainOwner.NONE),
        ("", "", True, DrainOwner.SLURM),  # scontrol takes no drain without a reason: slurmctld dropped it
        ("broken fan", "root", True, DrainOwner.PERSON),
        ("Prolog error", "root", True, DrainOwner.PERSON),  # a person who says it in Slurm's words
        ("Prolog error", "slurm", True, DrainOwner.SLURM),
        ("Kill task failed", "root", True, DrainOwner.SLURM),  # slurmstepd
        ("Kill task failed (JobId=12 StepId=batch)", "root", True, DrainOwner.SLURM),  # 26.05
        ("Kill task failed (JobId=12 StepId=0+1)", "root", True, DrainOwner.SLURM),
        ("Job step not running", "root", True, DrainOwner.PERSON),  # read, and never recorded
        ("SlurmdSpoolDir is full", "root", True, DrainOwner.SLURM),  # slurmd
        ("switch_g_job_postfini failed", "root", True, DrainOwner.PERSON),
        ("Kill task failed : Not responding", "slurm", True, DrainOwner.SLURM),  # slurmctld appended
        ("Kill task failed: looking", "root", True, DrainOwner.PERSON),
        ("Kill task failed (JobId=12 StepId=batch) looking", "root", True, DrainOwner.PERSON),
        ("kill task failed", "root", True, DrainOwner.PERSON),
        ("SlurmdSpoolDir is full again", "root", True, DrainOwner.PERSON),
        ("Kill task failed", "alice", True, DrainOwner.PERSON),
        ("gpucluster: no h200", "slurm", True, DrainOwner.CAPACITY),
        ("gpucluster: [evacuation] spot", "slurm", True, DrainOwner.EVACUATION),
        ("gpucluster: [operator] kept", "slurm", True, DrainOwner.OPERATOR),
        ("gpucluster: [bundle] removed", "slurm", True, DrainOwner.BUNDLE),
        ("gpucluster: [of a later version] x", "slurm", True, DrainOwner.PERSON),
        (
            "gpucluster: no h200 : Prolog error",
            "slurm",
            True,
            DrainOwner.SLURM,
        ),  # what is left over is no drain
        ("broken fan : Not responding", "slurm", True, DrainOwner.PERSON),
        ("broken fan : ResumeTimeout reached", "slurm", False, DrainOwner.SLURM),  # 24.11, seen
        ("gpucluster: no h200 : ResumeTimeout reached", "slurm", False, DrainOwner.SLURM),
        ("ResumeTimeout reached", "slurm", False, DrainOwner.SLURM),
        ("ResumeTimeout reached", "root", False, DrainOwner.PERSON),  # a person in Slurm's words
        ("Prolog error: looking", "slurm", True, DrainOwner.PERSON),
        ("Low CPUs, Low TmpDisk", "slurm", True, DrainOwner.SLURM),  # of one registration
        ("Low CPUs, and a broken fan", "slurm", True, DrainOwner.PERSON),
        ("Prolog error : broken fan", "slurm", True, DrainOwner.PERSON),  # only a person writes so
        ("Kill task failed : Not responding", "root", True, DrainOwner.PERSON),
        ("Reboot ASAP : reboot issued : reboot timed out", "slurm", True, DrainOwner.PERSON),
        ("reboot requested : reboot complete", "slurm", False, DrainOwner.PERSON),  # nextstate=down
        ("reboot requested : reboot issued : reboot timed out", "slurm", False, DrainOwner.SLURM),
    ],
)
def test_writer_of_a_reason_is_its_owner(reason: str, by: str, drained: bool, owner: object) -> None:
    assert drain_owner(reason, by, drained=drained) is owner


@pytest.mark.parametrize(
    ("words", "reason", "by", "lifted"),
    [
        ("IDLE CLOUD DRAIN", "gpucluster: no h200", "slurm", True),
        ("IDLE CLOUD DRAIN", "gpucluster: [operator] kept", "slurm", True),  # and no order stands
        ("MIXED CLOUD DRAIN", "gpucluster: no h200", "slurm", True),
        (
            "IDLE CLOUD DRAIN",
            "gpucluster: [evacuation] words",
            "slurm",
            False,
        ),  # until its agent says all is well
        ("IDLE CLOUD DRAIN", "gpucluster: [later] words", "slurm", False),
        ("IDLE CLOUD DRAIN", "broken fan", "root", False),
        ("IDLE CLOUD DRAIN", "gpucluster: do not touch", "ada", False),  # a person in our words
        ("IDLE CLOUD FAIL", "gpucluster: no h200", "slurm", False),  # only a person sets FAIL
        ("IDLE CLOUD DRAIN POWERED_DOWN", "gpucluster: [operator] kept", "slurm", True),
        ("IDLE CLOUD DRAIN POWERED_DOWN", "gpucluster: [later] words", "slurm", False),
    ],
)
def test_drain_is_removed_only_by_its_owner(words: str, reason: str, by: str, lifted: bool) -> None:
    known = Memory(epoch="e") if "POWERED_DOWN" in words else living()
    assert (Undrain in steps(words, known, reason=reason, reason_by=by)) is lifted


def test_state_that_slurm_should_leave_is_changed_after_its_bound() -> None:
    """idle~ with a power-down pending: for a second on 24.11, for ever in ParallelCluster's node #402."""
    words, known = "IDLE CLOUD POWERED_DOWN POWER_DOWN", Memory(epoch="e")
    assert steps(words, known) == []
    (since,) = events(words, known)
    known = fold(known, [Entry(at=NOW, event=since)])
    assert steps(words, known, NOW + 59) == []
    assert events(words, known, NOW + 59) == []
    assert steps(words, known, NOW + 61) == [MarkDown, PowerDown]
    assert StateLingers(slot=A1, phase="", bound_s=0.0) in events("IDLE CLOUD POWERED_DOWN", known, NOW + 61)


@pytest.mark.parametrize("words", ["FUTURE", "FUTURE CLOUD NOT_RESPONDING"])
def test_node_in_future_is_resumed(words: str) -> None:
    """POWERING_UP -> FUTURE on 22.05's reconfigure, CLOUD -> FUTURE on 25.05's restart: no job ever, and hidden."""
    assert steps(words) == [ResetDown]
    assert steps(words + " DRAIN", reason="broken fan", reason_by="root") == []


@pytest.mark.parametrize("words", ["IDLE CLOUD POWER_UP", "IDLE CLOUD POWERING_DOWN POWER_UP"])
def test_repeated_power_up_by_slurm_launches_nothing(words: str) -> None:
    """A real run ended so: its job done, all off, and one node woken by a request that was served forty seconds before."""
    (told,) = [e for e in events(words, living()) if isinstance(e, PowerUpMarkStays)]
    known = fold(living(), [Entry(at=NOW, event=told)])
    assert not [e for e in events(words, known) if isinstance(e, PowerUpMarkStays)]
    gone = replace(known.incarnations[A1], instance=None, open=False)
    off, wakes = (
        replace(known, incarnations={A1: gone}, endings={"i-1": NOW}),
        "IDLE CLOUD POWERED_DOWN POWER_UP",
    )
    assert steps(wakes, off) == []  # a power-down before Slurm's scan would be overtaken by it
    assert steps("IDLE CLOUD POWERING_UP NOT_RESPONDING", off) == [MarkDown, PowerDown]
    marks = [e for e in events("IDLE CLOUD POWERED_DOWN", off) if isinstance(e, PowerUpMarkStays)]
    assert marks == [PowerUpMarkStays(slot=A1, stays=False)]
    by_hand = replace(off, incarnations={A1: replace(gone, relapses=False, jobs=())})
    assert steps(wakes, by_hand) == [LaunchGang]


@pytest.mark.parametrize(("reason", "done"), [("broken fan", []), ("", [MarkDown, PowerDown])])
def test_node_that_a_person_drained_and_powered_up_stays_without_capacity(
    reason: str, done: list[type[Action]]
) -> None:
    """A power-down would lift the drain (idle_on_node_suspend)."""
    known = Memory(epoch="e", orders=order(Verb.POOL_PAUSE, "h200"))
    words = f"IDLE CLOUD {'DRAIN' if reason else ''} POWERING_UP NOT_RESPONDING"
    assert [a for a in steps(words, known, reason=reason, reason_by="root") if a is not Block] == done


@pytest.mark.parametrize(
    ("reason", "since", "done"),
    [
        ("gpucluster: [evacuation] words", 5000.0, [MarkDown, PowerDown]),
        ("gpucluster: [evacuation] words", 10.0, []),
        ("gpucluster: [evacuation] words", 5000.0, []),
    ],
    ids=["for long", "just now", "a job is suspended there"],
)
def test_drained_node_with_a_silent_agent_is_replaced(
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
    assert [type(a) for a in actions if not isinstance(a, RecordEvents)] == done


@pytest.mark.parametrize("words", ["IDLE CLOUD", "IDLE CLOUD DRAIN"])
def test_node_with_a_suspended_job_is_not_idle(words: str) -> None:
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
def order(verb: Verb, target: str = A1, **changes: object) -> dict[str, OperatorOrder]:
    return {target: replace(OperatorOrder(verb=verb, at=NOW - 100, by="anna", words="look at it"), **changes)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "shape", "reason", "done"),
    [
        ("IDLE CLOUD", "up", "", []),  # idle for long
        ("IDLE CLOUD POWERING_DOWN", "up", "", []),  # Slurm's own SuspendTime: its machine stays
        ("IDLE CLOUD POWERED_DOWN", "up", "", [PowerUp]),  # and serves the next incarnation
        (
            "IDLE CLOUD POWERED_DOWN",
            "failed",
            "",
            [Drain],
        ),  # held, and never powered up again: no loop (CC #230)
        ("IDLE CLOUD POWERED_DOWN DRAIN", "failed", "gpucluster: [operator] kept", []),
        ("MIXED CLOUD POWERING_UP NOT_RESPONDING", "failed", "", [MarkDown]),  # its job goes on elsewhere
        ("DOWN CLOUD POWERING_UP NOT_RESPONDING", "failed", "gpucluster: [operator] kept", []),
        ("DOWN CLOUD POWERED_DOWN", "failed", "gpucluster: [operator] kept : ResumeTimeout reached", []),
        ("DOWN CLOUD NOT_RESPONDING", "up", "Not responding", []),
    ],
)
def test_kept_instance_is_not_terminated_in_any_state(
    words: str, shape: str, reason: str, done: list[type[Action]]
) -> None:
    kept = living(shape, orders=order(Verb.NODE_KEEP))
    assert steps(words, kept, reason=reason, reason_by="slurm") == done
    over = living(shape, orders=order(Verb.NODE_KEEP, until=NOW - 1))
    assert OrderCompleted(verb=Verb.NODE_KEEP, target=A1) in events(words, over)
    if shape == "failed":
        assert Terminate in steps(words, over, reason=reason, reason_by="slurm")


def test_drain_of_a_keep_order_is_removed_after_it() -> None:
    words, reason = "IDLE CLOUD POWERED_DOWN DRAIN", "gpucluster: [operator] kept"
    held = replace(living("failed", orders=order(Verb.NODE_KEEP)), incarnations={})
    assert Undrain not in steps(words, held, reason=reason, reason_by="slurm")
    assert steps(words, replace(held, orders={}), reason=reason, reason_by="slurm") == [Undrain]


def test_drained_pool_powers_down_idle_nodes_except_kept_ones() -> None:
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
def test_replace_order_launches_another_instance(launched_at: float, served: bool) -> None:
    known = living(orders=order(Verb.NODE_REPLACE))
    known = replace(known, incarnations={A1: replace(known.incarnations[A1], launched_at=launched_at)})
    assert (OrderCompleted(verb=Verb.NODE_REPLACE, target=A1) in events("IDLE CLOUD", known)) is served


# --- spares --------------------------------------------------------------------------------------------------
def with_spares(count: int, **changes: object) -> SlurmOnAws:
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
def test_number_of_spares_stays_up(spares: int, words: str, up: int, down: bool) -> None:
    plan = with_spares(spares)
    world, seen, memory = see(words, living(), plan=plan, reason="fan" if "DRAIN" in words else "")
    actions = decide(plan, world.bindings, seen, memory, NOW)
    assert sum(len(a.slots) for a in actions if isinstance(a, PowerUp)) == up
    assert any(isinstance(a, PowerDown) for a in actions) is down


def test_spares_respect_max_and_a_paused_pool() -> None:
    plan = with_spares(3, max=2)
    world, seen, memory = see("MIXED CLOUD", living(), plan=plan)
    actions = decide(plan, world.bindings, seen, memory, NOW)
    assert sum(len(a.slots) for a in actions if isinstance(a, PowerUp)) == 1
    paused = living(orders=order(Verb.POOL_PAUSE, "h200"))
    actions = decide(plan, world.bindings, seen, paused, NOW)
    assert not [a for a in actions if isinstance(a, PowerUp)]


@pytest.mark.parametrize(("always_on", "spares"), [(0, 1), (0, 3), (2, 1), (1, 2), (2, 2), (2, 0)])
def test_machines_of_an_idle_pool_are_those_of_the_estimate(
    tmp_path: Path, always_on: int, spares: int
) -> None:
    """An idle always-on node is a spare. The spares are of the pool, which has two zones."""
    f = Fleet(with_spares(spares, min=always_on), tmp_path)
    f.run(2 * 3600)
    (line,) = [one for one in estimate(f.plan, catalog.prices()).lines if one.kind == "pool"]
    assert (len(f.plan.pools[0].slots), len(f.living())) == (2, line.stays)


def test_spare_takes_the_job_of_a_lost_node_and_is_replaced(
    tmp_path: Path,
) -> None:
    f = Fleet(with_spares(1), tmp_path)
    idle = lambda: [n.name for n in f.slurm.nodes.values() if n.up and not n.used]  # noqa: E731
    f.until(lambda: len(idle()) == 1, 120)
    job = f.slurm.submit(1, lasts=5000)
    f.until(lambda: job.state == "RUNNING", 5)
    f.until(lambda: len(idle()) == 1, 120)
    f.interrupt(f.journal.memory.incarnations[job.nodes[0]].instance or "")
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
def test_every_state_ends_within_its_bound(
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
        assert f.now - began < 3 * 3600, f.report()
        f.run(5.0)
        _in_time(f, since)


def _set(f: Fleet, slot: str, odd: tuple[Any, ...]) -> None:
    base, power, held, mark, (reason, by) = odd
    node = f.slurm.nodes[slot]
    if held and (not reason or reason.startswith("broken fan")):
        reason, by = "gpucluster: no h200", "slurm"  # else the drain would be a person's
    node.base, node.flags = base, {"CLOUD", *power.split(), *held.split(), *mark.split()}
    node.reason, node.reason_by, node.reason_at, node.since = reason, by, f.now, f.now
    if not mark and not power and not f.slurm.nodes[slot].slurmd:
        node.flags.add("NOT_RESPONDING")  # nobody is there


def _in_time(f: Fleet, since: dict[str, tuple[str, float]]) -> None:
    observation = Observation(
        slurm=f.slurm.read(f.now),
        cloud=CloudView(at=f.now, instances={i.id: i for i in f.cloud.instances(f.plan.name)}),
    )
    world = world_of(f.plan, f.bindings, observation, f.journal.memory, f.now)
    table = NodeTable(world)
    for slot in world.phases:
        context = table.context(slot)
        row = row_for(context)
        state = f"{row.name} {f.slurm.nodes[slot].since}"  # powered down anew is another time
        before, at = since.get(slot, ("", f.now))
        since[slot] = (state, at if before == state else f.now)
        bound = row.bound(context)
        assert bound is None or f.now - since[slot][1] <= bound + 15, (slot, row.name, bound, f.report())


def _at_rest(f: Fleet) -> bool:
    plain = {"CLOUD", "POWERED_DOWN"}
    return not f.living() and all(n.base == "IDLE" and n.flags == plain for n in f.slurm.nodes.values())
