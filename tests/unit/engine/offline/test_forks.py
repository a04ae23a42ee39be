"""Every program of a process of ours is forked from one process, which has imported the SDK."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.builders import a_plan

from gpucluster.engine.offline import ProgramError, planner, run

STACKS = Path(__file__).parents[4] / "stacks"
COUNTED_DIFF = """
import json, sys
started = []
sys.addaudithook(lambda event, args: started.append(args[0]) if event == "subprocess.Popen" else None)
from gpucluster.cli.__main__ import main
sys.argv[:] = ["gpucluster", "diff", *sys.argv[1:], "--resources", "-o", "json"]
try:
    main()
finally:
    print(json.dumps(started), file=sys.stderr)
"""
ALONE = """
import sys
from support.builders import a_plan
from gpucluster.engine.offline import run
run("support.planned_programs:hangs_aloud", a_plan(), report=lambda line: print(line, flush=True))
"""


def said_by(program: str) -> list[str]:
    said: list[str] = []
    run(f"support.planned_programs:{program}", a_plan(), report=said.append)
    return said


def family() -> tuple[int, int]:
    """The process that the program is forked from, and its own."""
    (line,) = said_by("says_its_processes")
    found = re.fullmatch(r"from (\d+) in (\d+)", line)
    assert found
    return int(found[1]), int(found[2])


def gone(process: int) -> bool:
    """Whether the process ended, or waits for its parent to read that it ended."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def wait_until_gone(*processes: int) -> None:
    pause = threading.Event()
    for _ in range(100):
        if all(map(gone, processes)):
            return
        pause.wait(0.1)
    pytest.fail(f"of {processes} one still runs after 10 s")


def test_each_program_has_its_own_process_and_all_have_one_parent() -> None:
    (parent, one), (same, other) = family(), family()
    assert parent == same != os.getpid()
    assert one != other


def test_diff_with_resources_starts_one_process(tmp_path: Path) -> None:
    """It runs four programs: two specs, each with unknown values and with placeholders."""
    new = tmp_path / "burst.yaml"
    new.write_text(
        (STACKS / "burst.yaml").read_text().replace("machine: m7i.2xlarge", "machine: m7i.4xlarge", 1)
    )
    done = subprocess.run(
        [sys.executable, "-c", COUNTED_DIFF, str(STACKS / "burst.yaml"), str(new)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["diff"]["resources"]
    assert json.loads(done.stderr.splitlines()[-1]) == [sys.executable]


def test_failure_of_a_program_is_its_own() -> None:
    parent, _ = family()
    for program, code in (("is_killed", -signal.SIGKILL), ("dies", 7)):
        with pytest.raises(ProgramError, match=f"it ended its process with code {code}\n"):
            said_by(program)
    assert family()[0] == parent


def test_program_that_ends_the_common_process_fails_no_other() -> None:
    parent, _ = family()
    assert parent != os.getpid()
    said_by("kills_its_parent")
    assert gone(parent)
    assert family()[0] != parent


def test_what_a_program_started_ends_with_it() -> None:
    (line,) = said_by("leaves_a_process")
    wait_until_gone(int(line.removeprefix("left ")))


def test_what_one_program_loads_of_the_sdk_the_next_one_finds() -> None:
    assert int(said_by("says_how_much_it_loads")[0]) > 0
    assert said_by("says_how_much_it_loads") == ["0"]


def test_process_that_stops_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "GRACE_S", 0.5)
    with pytest.raises(ProgramError, match="it ended its process with code -9\n"):
        run("support.planned_programs:stops", a_plan(), limit_s=0.5)


def test_module_that_is_missing_is_named() -> None:
    with pytest.raises(ProgramError, match=r"ModuleNotFoundError: No module named 'gpucluster\.nowhere'"):
        run("gpucluster.nowhere:declare", a_plan())


def test_program_ends_when_the_process_that_asked_is_killed() -> None:
    asking = subprocess.Popen(
        [sys.executable, "-c", ALONE],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert asking.stdout is not None
    with asking.stdout as told:
        processes = [int(word) for word in told.readline().split()]
    asking.kill()
    asking.wait()
    assert len(processes) == 2
    wait_until_gone(*processes)
