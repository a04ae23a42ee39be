"""A person drains a busy node, and slurmstepd writes its own reason over the person's: the node stays the person's."""

from dataclasses import replace

import pytest
from support.cluster_states import BUSY, NOW, UP, node
from support.worlds.scene import A1, A2, scene, up

from gpucluster.elastic.decide import decide
from gpucluster.elastic.events import Entry, Event, PersonDrained, PersonDrainLifted
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.inspect.why import text, why
from gpucluster.elastic.memory import PersonDrain, fold
from gpucluster.elastic.model import MarkDown, PowerDown, RecordEvents
from gpucluster.slurm.values import SlurmNode

LOOK = {"reason": "look at its fan", "reason_by": "root", "reason_at": NOW - 5000}
OVER = {"reason": "Kill task failed", "reason_by": "root", "reason_at": NOW - 4000}


def passed(
    nodes: tuple[SlurmNode, ...], before: ClusterSnapshot | None = None
) -> tuple[list[str], list[Event], ClusterSnapshot]:
    """The slots that this pass sets down or powers down, the recorded drains, and the moment after it."""
    moment = scene(nodes=nodes, lives={one.name: up(one.name, 9000) for one in nodes})
    if before is not None:
        moment = replace(moment, memory=before.memory)
    actions = decide(moment.plan, moment.bindings, moment.observation, moment.memory, moment.now)
    entries = [entry for a in actions if isinstance(a, RecordEvents) for entry in a.entries]
    ended = [slot for a in actions if isinstance(a, MarkDown | PowerDown) for slot in a.slots]
    told: list[Event] = [e.event for e in entries if isinstance(e.event, PersonDrained | PersonDrainLifted)]
    return ended, told, replace(moment, memory=fold(moment.memory, entries))


def drained(*slots: str) -> PersonDrained:
    return PersonDrained(slots=slots, reason="look at its fan", by="root", at=NOW - 5000)


def test_node_that_a_person_drained_is_not_replaced_after_a_kill_that_failed() -> None:
    """The reason of a person was lost, so the machine that the person wanted to see was replaced."""
    _, told, moment = passed((node(A1, f"{BUSY} DRAIN", **LOOK),))
    assert told == [drained(A1)]
    ended, told, after = passed((node(A1, f"{UP} DRAIN", **OVER),), moment)
    assert (ended, told) == ([], [])
    assert after.memory.person_drains == {A1: PersonDrain(reason="look at its fan", by="root", at=NOW - 5000)}
    shown = text(why(after, A1), after.now)
    assert "drained by a person; only a person can resume it" in shown
    assert "look at its fan (by root" in shown


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ("DOWN CLOUD", "set DOWN by a person; it is up again once its slurmd registers, and only a drain would stay"),
        ("DOWN CLOUD DRAIN", "DOWN, and drained by a person; only a person can resume it"),
    ],
)  # fmt: skip
def test_only_a_drain_is_promised_to_stay(states: str, words: str) -> None:
    """E6: `state=down` of a running cloud node lasts 23 ms (S48), and `why` promised that only a person resumes it."""
    ended, _, moment = passed((node(A1, states, **LOOK),))
    assert ended == []
    assert words in text(why(moment, A1), moment.now)


@pytest.mark.parametrize("state", ["DOWN CLOUD", "DOWN CLOUD NOT_RESPONDING", "DOWN CLOUD POWERED_DOWN"])
def test_down_is_not_the_persons_who_drained_the_node_and_lifted_the_drain(state: str) -> None:
    """Slurm keeps the reason of a drain that is lifted while the node is DOWN (S49), so its machine was paid without a bound."""
    _, told, moment = passed((node(A1, f"{state} DRAIN", **LOOK),))
    assert told == [replace(drained(A1), was_down=True)]
    ended, told, lifted = passed((node(A1, state, **LOOK),), moment)
    assert told == [PersonDrainLifted(slots=(A1,))]
    ended, told, after = passed((node(A1, state, **LOOK),), lifted)
    assert told == []
    shown = text(why(after, A1), after.now)
    assert "by a person" not in shown
    assert "look at its fan" not in shown
    assert (A1 in ended) is ("POWERED_DOWN" not in state)


def test_down_of_a_person_after_a_drain_is_the_persons() -> None:
    _, _, moment = passed((node(A1, "DOWN CLOUD DRAIN", **LOOK),))
    _, _, lifted = passed((node(A1, "DOWN CLOUD", **LOOK),), moment)
    ended, told, after = passed((node(A1, "DOWN CLOUD", **LOOK | {"reason_at": NOW - 100}),), lifted)
    assert ended == []
    assert told == [replace(drained(A1), at=NOW - 100, drained=False)]
    assert "set DOWN by a person" in text(why(after, A1), after.now)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((f"{UP} DRAIN", "DOWN CLOUD DRAIN"), id="same words change neither text nor time (S49)"),
        pytest.param(("DOWN CLOUD DRAIN", ("DOWN CLOUD DRAIN", NOW - 100)), id="DOWN with other words"),
        pytest.param(("DOWN CLOUD", ("DOWN CLOUD DRAIN", NOW - 100)), id="drain after the DOWN"),
        pytest.param(("DOWN CLOUD DRAIN", "DOWN CLOUD", ("DOWN CLOUD", NOW - 200), ("DOWN CLOUD DRAIN", NOW - 100)),
                     id="a DOWN of Slurm's, then a person's, then a drain"),
    ],
)  # fmt: skip
def test_down_of_a_person_stays_after_a_drain_that_is_lifted(
    steps: tuple[str | tuple[str, float], ...],
) -> None:
    """The machine that a person had set DOWN was ended: its reason was taken for that of the lifted drain."""
    moment, states, at = None, "", LOOK["reason_at"]
    for step in steps:
        states, at = (step, LOOK["reason_at"]) if isinstance(step, str) else step
        _, _, moment = passed((node(A1, states, **LOOK | {"reason_at": at}),), moment)
    for _ in range(3):
        ended, _, moment = passed((node(A1, "DOWN CLOUD", **LOOK | {"reason_at": at}),), moment)
        assert ended == []
        assert "set DOWN by a person" in text(why(moment, A1), moment.now)
    assert passed((node(A1, "DOWN CLOUD", **LOOK | {"reason_at": at}),), moment)[1] == []


def test_down_of_a_person_is_no_drain_that_slurm_writes_over() -> None:
    """A running node leaves it at once (S48); a later drain by Slurm is Slurm's."""
    _, _, moment = passed((node(A1, "DOWN CLOUD", **LOOK),))
    assert A1 in passed((node(A1, f"{UP} DRAIN", **OVER),), moment)[0]


def test_drain_by_slurm_after_a_lifted_drain_is_slurms() -> None:
    _, _, moment = passed((node(A1, "DOWN CLOUD DRAIN", **LOOK),))
    _, _, lifted = passed((node(A1, "DOWN CLOUD", **LOOK),), moment)
    ended, told, _ = passed((node(A1, f"{UP} DRAIN", **OVER),), lifted)
    assert A1 in ended
    assert told == [PersonDrained(slots=(A1,), reason="", by="")]


def test_node_that_slurm_drained_first_is_replaced() -> None:
    assert A1 in passed((node(A1, f"{UP} DRAIN", **OVER),))[0]


@pytest.mark.parametrize("states", [UP, BUSY])
def test_drain_that_is_over_is_forgotten(states: str) -> None:
    _, _, moment = passed((node(A1, f"{BUSY} DRAIN", **LOOK), node(A2, f"{BUSY} DRAIN", **LOOK)))
    _, told, after = passed((node(A1, states), node(A2, f"{BUSY} DRAIN", **LOOK)), moment)
    assert told == [PersonDrained(slots=(A1,), reason="", by="")]
    assert set(after.memory.person_drains) == {A2}


def test_drains_of_one_command_are_one_event_and_are_recorded_once() -> None:
    nodes = tuple(node(slot, f"{BUSY} DRAIN", **LOOK) for slot in (A1, A2))
    _, told, moment = passed(nodes)
    assert told == [drained(A1, A2)]
    assert passed(nodes, moment)[1] == []


def test_idle_node_that_a_person_drained_is_not_replaced_after_its_disk_is_full() -> None:
    """slurmd wrote its own reason over the person's, and the machine that the person wanted to see was replaced."""
    _, told, moment = passed((node(A1, f"{UP} DRAIN", **LOOK),))
    assert told == [drained(A1)]
    full = OVER | {"reason": "SlurmdSpoolDir is full"}
    ended, told, _ = passed((node(A1, f"{UP} DRAIN", **full),), moment)
    assert (ended, told) == ([], [])


@pytest.mark.parametrize("reason", ["Prolog error", "Epilog error", "batch job complete failure"])
def test_drain_of_slurmctld_follows_the_end_of_a_persons_drain(reason: str) -> None:
    """slurmctld drains no drained node: after a resume that no pass saw, the node was `drained by a person` and never replaced."""
    _, _, moment = passed((node(A1, f"{UP} DRAIN", **LOOK),))
    failed = {"reason": reason, "reason_by": "slurm", "reason_at": NOW - 4000}
    ended, told, after = passed((node(A1, f"{UP} DRAIN", **failed),), moment)
    assert A1 in ended
    assert told == [PersonDrained(slots=(A1,), reason="", by="")]
    shown = text(why(after, A1), after.now)
    assert f"{reason} (by Slurm itself" in shown
    assert "look at its fan" not in shown


@pytest.mark.parametrize(
    "over",
    [
        {"reason": "Low CPUs", "reason_by": "slurm"},  # a registration
        {"reason": "Low CPUs, Low RealMemory (reported:1 < 50.00% of configured:2)", "reason_by": "slurm"},
        {"reason": "SlurmdSpoolDir is full : Not responding", "reason_by": "slurm"},
        {"reason": "", "reason_by": ""},  # slurmctld lost it
    ],
)
def test_persons_drain_that_slurm_writes_over_stays(over: dict[str, object]) -> None:
    _, _, moment = passed((node(A1, f"{UP} DRAIN", **LOOK),))
    ended, told, _ = passed((node(A1, f"{UP} DRAIN", **{**OVER, **over}),), moment)
    assert (ended, told) == ([], [])


def test_persons_drain_in_our_words_that_slurmctld_continues_stays() -> None:
    """slurmctld appends with the daemon's user, so the text alone would be the daemon's."""
    words = LOOK | {"reason": "gpucluster: [health] do not touch", "reason_by": "ada"}
    _, told, moment = passed((node(A1, f"{BUSY} DRAIN", **words),))
    assert told == [
        PersonDrained(slots=(A1,), reason="gpucluster: [health] do not touch", by="ada", at=NOW - 5000)
    ]
    more = OVER | {"reason": "gpucluster: [health] do not touch : Not responding", "reason_by": "slurm"}
    ended, told, _ = passed((node(A1, f"{UP} DRAIN", **more),), moment)
    assert (ended, told) == ([], [])


def test_slot_that_is_off_is_not_recorded() -> None:
    """Without a slurmd nobody writes over the reason."""
    assert passed((node(A1, f"{UP} POWERED_DOWN DRAIN", **LOOK),))[1] == []


def test_fold_of_the_event() -> None:
    events = (
        PersonDrained(slots=(A1, A2), reason="x", by="root"),
        PersonDrainLifted(slots=(A1,)),
        PersonDrained(slots=(A2,), reason="", by=""),
    )
    memory = fold(scene().memory, [Entry(at=NOW, event=e) for e in events])
    assert memory.person_drains == {A1: PersonDrain(reason="x", by="root", lifted=True)}
