"""Locks of test runs beside each other: a process waits, and says so; the end of the holder is the end of the lock."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import prepare
from support.machine_locks import LEAST, Ledger, one_of, room, slots
from support.waiting import BOUND_S

HOLDER = """
import sys
from pathlib import Path
from support.machine_locks import one_of
with one_of([sys.argv[2]], "it", folder=Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
TESTS = Path(__file__).parents[2]


def holder(folder: Path, name: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", HOLDER, str(folder), name]
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=TESTS, env={"PYTHONPATH": "."}
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_second_run_waits_until_the_first_is_killed_and_says_so(tmp_path: Path) -> None:
    with holder(tmp_path, "burst") as first:
        said = list[str]()

        def say(words: str) -> None:
            said.append(words)
            first.kill()

        with one_of(["burst"], "the sandboxes of burst", folder=tmp_path, say=say) as name:
            assert name == "burst"
        assert said == ["waiting for the sandboxes of burst: another run of the tests on this machine has it"]


def test_next_free_slot_is_taken_without_waiting(tmp_path: Path) -> None:
    def say(words: str) -> None:
        raise AssertionError(words)

    names = ["slot-0", "slot-1"]
    with holder(tmp_path, "slot-0") as first:
        with one_of(names, "room", folder=tmp_path, say=say) as name:
            assert name == "slot-1"
        first.kill()


def test_locks_are_given_in_the_order_of_arrival(tmp_path: Path) -> None:
    """A run that gives its lock back and wants another one at once waits behind those that waited before."""
    order, one_waits = list[str](), threading.Event()
    with holder(tmp_path, "slot-0") as first:

        def wait(name: str, say: Callable[[str], None]) -> None:
            with one_of(["slot-0"], "room", folder=tmp_path, say=say):
                order.append(name)

        early = threading.Thread(target=wait, args=("early", lambda _: one_waits.set()))
        early.start()
        assert one_waits.wait(BOUND_S)
        said = threading.Event()
        late = threading.Thread(target=wait, args=("late", lambda _: said.set()))
        late.start()
        assert said.wait(BOUND_S)
        first.kill()
        for thread in (early, late):
            thread.join(BOUND_S)
    assert order == ["early", "late"]


def test_machine_has_at_least_one_slot() -> None:
    assert slots()[0] == "slot-0"
    assert len(slots()) <= 6


def test_ledger_outlives_its_process_until_it_is_cleared(tmp_path: Path) -> None:
    Ledger("burst", tmp_path).add("burst")
    Ledger("burst", tmp_path).add("burst")
    Ledger("burst", tmp_path).add("burst2")
    assert Ledger("burst", tmp_path).names() == ["burst", "burst2"]
    Ledger("burst", tmp_path).clear()
    assert Ledger("burst", tmp_path).names() == []


def test_prepare_sees_that_other_tests_run(tmp_path: Path) -> None:
    assert not prepare.other_tests_run(tmp_path)
    with holder(tmp_path, "slot-1") as first:
        assert prepare.other_tests_run(tmp_path)
        first.kill()
    assert not prepare.other_tests_run(tmp_path)


def test_room_waits_until_inotify_instances_are_free(tmp_path: Path) -> None:
    free, said = iter([LEAST - 1, LEAST - 1, LEAST - 1, LEAST]), list[str]()
    with room("a cluster", folder=tmp_path, free=lambda: next(free, LEAST), say=said.append):
        assert next(free, None) is None
    assert said == [f"waiting for {LEAST} inotify instances for a cluster: {LEAST - 1} are free"]
