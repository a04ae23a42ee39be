"""A held bundle removes slots: the daemon drains them, launches nothing there, and lifts its drains when the hold is over."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.cluster_states import BUSY, NOW, OFF, UP, WAKING, burst, instance, job, living, node, sight

from gpucluster.elastic import bundle_order
from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.bundle_drains import words_for_jobs
from gpucluster.elastic.decide.world import slots_of
from gpucluster.elastic.events import Event, NodeNeeded
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.inspect.why import text, why
from gpucluster.elastic.model import (
    Action,
    Block,
    Comment,
    Drain,
    LaunchGang,
    MarkDown,
    PowerDown,
    PowerUp,
    ResetDown,
    Undrain,
)
from gpucluster.elastic.status_endpoint import read_held
from gpucluster.plan import codec, names
from gpucluster.plan.messages import BundleRelease, HeldBundle
from gpucluster.plan.model import SlurmOnAws
from gpucluster.slurm import drains
from gpucluster.slurm.drains import DrainOwner

DIGEST = "ab" * 32
SLOT, NEXT = "h200-2a-15", "h200-2a-16"
HELD = HeldBundle(bundle=DIGEST, nodes=(SLOT, NEXT), waits_for="bundle abab is held: job 41 must end")
REASON = drains.reason(DrainOwner.BUNDLE, HELD.reason)
OURS = {"reason": REASON, "reason_by": "slurm"}


def actions(seen: ClusterSnapshot) -> tuple[Action, ...]:
    return decide(seen.plan, seen.bindings, seen.observation, seen.memory, NOW)


def on(found: tuple[Action, ...], slot: str) -> set[type[Action]]:
    kinds = (Block, Drain, Undrain, MarkDown, PowerDown, PowerUp)
    return {type(a) for a in found if isinstance(a, kinds) and slot in a.slots}


def test_every_removed_slot_is_drained_once_with_its_own_owner():
    found = actions(sight(burst(), held=HELD))
    assert [a for a in found if isinstance(a, Drain)] == [Drain(slots=(SLOT, NEXT), reason=REASON)]
    drained = [node(slot, f"{OFF} DRAIN", **OURS) for slot in (SLOT, NEXT)]
    assert actions(sight(burst(), nodes=drained, held=HELD)) == ()


@pytest.mark.parametrize(
    ("states", "reason", "by", "jobs", "kinds"),
    [
        # a drain of the daemon for capacity is taken over, because the daemon lifts it
        (f"{OFF} DRAIN", "gpucluster: no h200", "slurm", (), {Drain}),
        (f"{OFF} DRAIN", "broken fan", "root", (), set()),
        (f"{UP} DRAIN", "broken fan", "root", (), set()),
        (f"{OFF} DRAIN", "gpucluster: [operator] kept", "slurm", (), set()),
        (UP, "", "", (), {Drain}),
        (BUSY, "", "", (job(41, SLOT),), {Drain}),
        (f"{BUSY} DRAIN", REASON, "slurm", (job(41, SLOT),), set()),
        (f"{UP} DRAIN", REASON, "slurm", (), {PowerDown}),
        (f"{UP} DRAIN", "gpucluster: no h200", "slurm", (job(41, SLOT),), {Drain}),
    ],
)  # fmt: skip
def test_rows_of_a_removed_slot(states, reason, by, jobs, kinds):
    held = replace(HELD, nodes=(SLOT,))
    up = "POWERED_DOWN" not in states
    shown = [node(SLOT, states, reason=reason, reason_by=by, last_busy=NOW)]
    events = living(SLOT) if up else ()
    seen = sight(burst(), *events, nodes=shown, jobs=jobs, instances=[instance(0)] if up else [], held=held)
    assert on(actions(seen), SLOT) == kinds


@pytest.mark.parametrize(
    "states", ["DOWN CLOUD POWERED_DOWN", "DOWN CLOUD POWERED_DOWN DRAIN", "FUTURE CLOUD"], ids=str
)
def test_removed_slot_that_is_resumed_is_drained_directly_after(states: str) -> None:
    """A resume lifts a drain: until the next pass, Slurm placed jobs on a slot for which nothing is launched."""
    shown = node(SLOT, states, reason=REASON if "DRAIN" in states else "")
    found = actions(sight(burst(), nodes=[shown], held=replace(HELD, nodes=(SLOT,))))
    touched = [a for a in found if SLOT in getattr(a, "slots", ())]
    assert [type(a) for a in touched] == [ResetDown, Drain]


def test_the_drains_are_lifted_when_the_hold_is_over_and_kept_while_that_is_not_known():
    drained = [
        node(SLOT, f"{OFF} DRAIN", **OURS),
        node(NEXT, f"{OFF} DRAIN", reason="mine", reason_by="root"),
    ]
    over = actions(sight(burst(), nodes=drained))
    assert [a.slots for a in over if isinstance(a, Undrain)] == [(SLOT,)]
    assert actions(sight(burst(), nodes=drained, held=None)) == ()
    up = [node(SLOT, f"{UP} DRAIN", **OURS, last_busy=NOW)]
    lifted = actions(sight(burst(), *living(SLOT), nodes=up, instances=[instance(0)]))
    assert on(lifted, SLOT) == {Undrain}


def waking(*slots: str) -> tuple[tuple[float, Event], ...]:
    return tuple((5.0, NodeNeeded(slot=slot, incarnation=1, jobs=(41,))) for slot in slots)


def test_nothing_is_launched_for_a_removed_slot_and_its_job_is_sent_back():
    seen = sight(
        burst(),
        *waking(SLOT, "h200-2a-1"),
        nodes=[node(SLOT, WAKING), node("h200-2a-1", WAKING)],
        jobs=[job(41, SLOT, "h200-2a-1", starts=True)],
    )
    assert any(isinstance(a, LaunchGang) for a in actions(seen))
    found = actions(replace(seen, observation=replace(seen.observation, held=HELD)))
    assert not any(isinstance(a, LaunchGang) for a in found)
    (down,) = [a for a in found if isinstance(a, MarkDown)]
    assert (set(down.slots), "nothing is launched for it" in down.reason) == ({SLOT, "h200-2a-1"}, True)


def test_an_always_on_slot_that_is_removed_is_not_powered_up():
    plan = always_on()
    slots = plan.pools[0].always_on()
    held = replace(HELD, nodes=slots)
    assert any(isinstance(a, PowerUp) for a in actions(sight(plan)))
    found = actions(sight(plan, held=held))
    assert not any(isinstance(a, PowerUp) for a in found)


def always_on() -> SlurmOnAws:
    plan = burst()
    return replace(plan, pools=(replace(plan.pools[0], min=2),))


def test_a_job_without_another_slot_gets_the_reason():
    plan = burst()
    every = tuple(slot for span in plan.pools[0].slots for slot in span)
    waits = job(50, reason="Resources", begins_at=NOW - 60)
    held = replace(HELD, nodes=every)
    seen = sight(plan, jobs=[waits], held=held)
    (comment,) = [a for a in actions(seen) if isinstance(a, Comment)]
    assert comment.reason == (
        f"gpucluster: [bundle] all nodes of its partitions are drained: bundle {DIGEST[:12]} removes or changes them"
    )
    page = text(why(seen, "50"), NOW)
    assert "job 50 waits: all nodes of its partitions are drained" in page
    assert HELD.waits_for in page
    some = sight(plan, jobs=[waits], held=HELD)
    assert not [a for a in actions(some) if isinstance(a, Comment)]


def test_the_file_of_the_agent_is_read_and_a_broken_one_is_unknown(tmp_path: Path):
    file = tmp_path / "held.json"
    assert read_held(file) == HeldBundle()
    file.write_text(codec.dumps(HELD))
    assert read_held(file) == HELD
    file.write_text("{")
    assert read_held(file) is None


# --- the operator's order --------------------------------------------------------------------------
@pytest.fixture
def head(tmp_path: Path) -> Path:
    """The agent's folder on a head that holds DIGEST."""
    tree = tmp_path / "bundles" / ("cd" * 32)
    tree.mkdir(parents=True)
    (tree / names.PLAN_FILE).write_text(codec.dumps(burst()))
    (tmp_path / "bundle").symlink_to(f"bundles/{'cd' * 32}")
    (tmp_path / Path(names.HELD_BUNDLE).name).write_text(codec.dumps(HELD))
    return tmp_path


def order(head: Path, *words: str) -> int:
    return bundle_order.main([*words, "--bundle", str(head / "bundle")])


def released(head: Path) -> BundleRelease | None:
    file = head / Path(names.BUNDLE_RELEASE).name
    return codec.loads(BundleRelease, file.read_text()) if file.exists() else None


def test_show_prints_what_is_held(head, capsys):
    assert order(head, "show") == 0
    assert capsys.readouterr().out == f"{HELD.waits_for}\n"
    assert order(head, "show", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["held"], shown["applied"], shown["nodes"]) == (DIGEST, "cd" * 32, "h200-2a-[15-16]")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("apply", DIGEST), "--now does not wait"),
        (("apply", DIGEST[:11], "--now"), "is not a digest"),
        (("apply", "", "--now"), "is not a digest"),
        (("apply", "../" * 6, "--now"), "is not a digest"),
        (("apply", "12" * 32, "--now"), f"the head holds bundle {DIGEST[:12]}, not 121212121212"),
    ],
)
def test_an_order_for_another_bundle_is_refused(head, capsys, words, said):
    assert order(head, *words) == 1
    assert said in capsys.readouterr().err
    assert released(head) is None


def test_an_order_names_one_bundle_and_may_be_repeated(head, capsys):
    for _ in range(2):
        assert order(head, "apply", DIGEST[:12], "--now", "--by=anna") == 0
    found = released(head)
    assert found is not None
    assert (found.bundle, found.by) == (DIGEST, "anna")
    assert "Slurm ends the jobs" in capsys.readouterr().out
    assert order(head, "apply", "cd" * 6, "--now") == 0
    assert capsys.readouterr().out == f"bundle {'cd' * 6} is applied\n"
    (head / Path(names.HELD_BUNDLE).name).unlink()
    assert order(head, "apply", DIGEST, "--now") == 1
    assert "no bundle is held" in capsys.readouterr().err


def test_job_without_another_slot_gets_one_comment():
    """The comment for capacity and that of the bundle replaced each other in every second pass."""
    plan = burst()
    everywhere = replace(HELD, nodes=tuple(slots_of(plan)))
    seen = sight(plan, jobs=[job(1)], held=everywhere, halted="launches are stopped, by down")
    comments = [a.reason for a in actions(seen) if isinstance(a, Comment)]
    assert comments == [drains.reason(DrainOwner.BUNDLE, words_for_jobs(everywhere))]
