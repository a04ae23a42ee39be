"""The limits of slurmd and of jobs, read from real processes, and the remedy's drop-in."""

import configparser
import resource
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.waiting import BOUND_S

from gpucluster.checks import limits
from gpucluster.checks.check import CheckResult, CheckStatus, ParseError, QueryOutput

UNIT = Path(limits.__file__).parents[1] / "agent/units/etc/systemd/system/slurmd.service.d/gpucluster.conf"
MEMORY = "MemTotal:       24684084 kB\n"
SHM = "1K-blocks\n 12342040\n"
WANT = limits.LimitsWant(open_files=4096, as_machine=True)  # this machine's own limits may be low


def of_process(change: Callable[[], None] = lambda: None) -> str:
    """/proc/PID/limits of a process after `change`."""
    done = subprocess.run(
        ["/usr/bin/cat", "/proc/self/limits"],
        preexec_fn=change,
        capture_output=True,
        text=True,
        check=True,
        timeout=BOUND_S,
    )
    return done.stdout


def said(*texts: str) -> tuple[QueryOutput, ...]:
    return tuple(QueryOutput(code=0, stdout=text) for text in texts)


def of_slurmd(own: str, first: str = "") -> CheckResult:
    got = said("42\n", own, first or of_process(), SHM, MEMORY)
    return limits.evaluate_slurmd(limits.parse_slurmd(got), WANT)


def of_job(own: str) -> CheckResult:
    got = said("\n".join((own, of_process(), SHM, MEMORY)))
    return limits.evaluate_job(limits.parse_job(got), WANT)


LOWERED = (
    (resource.RLIMIT_FSIZE, 1 << 30, "fsize", "file size is limited to 1048576 KiB"),
    (resource.RLIMIT_NPROC, 64, "nproc", "processes are limited to 64"),
    (resource.RLIMIT_CPU, 3600, "cpu", "cpu time is limited to 3600 s"),
    (resource.RLIMIT_DATA, 1 << 33, "data", "data size is limited to 8388608 KiB"),
    (resource.RLIMIT_AS, 1 << 34, "as", "address space is limited to 16777216 KiB"),
    (resource.RLIMIT_STACK, 1 << 23, "stack", "stack size is limited to 8192 KiB"),
    (resource.RLIMIT_NOFILE, 1024, "nofile", "open files are limited to 1024"),
    (resource.RLIMIT_MEMLOCK, 65536, "memlock", "locked memory is limited to 64 KiB"),
)


@pytest.mark.parametrize(("which", "most", "name", "words"), LOWERED, ids=[row[2] for row in LOWERED])
def test_lower_limit_is_found_on_slurmd_and_in_a_job(which, most, name, words):
    """V5: slurmd with limits of fsize and nproc was healthy, because two of its ten limits were read."""
    own = of_process(partial(resource.setrlimit, which, (most, most)))
    for result in (of_slurmd(own), of_job(own)):
        assert (result.verdict, result.culprits, result.found) == (CheckStatus.FAIL, (name,), words)


def test_limits_of_this_process_pass():
    assert of_slurmd(of_process()).verdict is CheckStatus.PASS
    assert of_job(of_process()).verdict is CheckStatus.PASS


def test_soft_limits_of_who_submits_are_the_users_own():
    """slurm.conf propagates the soft limits but those of locked memory and processes."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    own = of_process(partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1 << 30, most)))
    assert of_job(own).verdict is CheckStatus.PASS
    assert of_slurmd(own).culprits == ("fsize",), "what slurmd has is nobody's choice"


def test_remedy_sets_every_limit_to_that_of_the_unit_and_starts_slurmd_again(tmp_path):
    own = of_process(partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1 << 30, 1 << 30)))
    commands = of_slurmd(own).remedy.removeprefix("on {machine}: ")
    drop_in = tmp_path / "slurmd.service.d/zz.conf"
    typed = (
        commands.replace(limits.DROP_IN, str(drop_in))
        .replace(limits.DROP_IN.rpartition("/")[0], str(drop_in.parent))
        .replace("systemctl", "echo systemctl")
    )
    done = subprocess.run(
        ["/bin/sh", "-ec", typed], capture_output=True, text=True, check=True, timeout=BOUND_S
    )
    assert done.stdout == "systemctl daemon-reload\nsystemctl restart slurmd\n"
    written, unit = (configparser.ConfigParser(strict=False) for _ in range(2))
    written.read(drop_in)
    unit.read(UNIT)
    values = dict(written["Service"])
    assert values == {
        "limitcpu": "infinity", "limitfsize": "infinity", "limitdata": "infinity", "limitstack": "8M:infinity",
        "limitnproc": "65536", "limitnofile": "131072", "limitmemlock": "infinity", "limitas": "infinity", "limitlocks": "infinity",
    }  # fmt: skip
    ours = {key: value for key, value in unit["Service"].items() if key.startswith("limit")}
    assert ours.items() <= values.items(), "the limits of our unit"


def test_machine_without_a_low_limit_needs_those_of_the_unit():
    """`as_machine` is of rehearsals alone."""
    own = of_process(partial(resource.setrlimit, resource.RLIMIT_NPROC, (64, 64)))
    got = limits.parse_slurmd(said("42\n", own, own, SHM, MEMORY))
    assert "nproc" not in limits.evaluate_slurmd(got, WANT).culprits
    assert "nproc" in limits.evaluate_slurmd(got, replace(WANT, as_machine=False)).culprits


def test_text_that_lacks_a_limit_is_no_answer():
    text = "".join(line for line in of_process().splitlines(keepends=True) if "file size" not in line)
    with pytest.raises(ParseError, match="limits of a process"):
        limits.parse_slurmd(said("42\n", text, of_process(), SHM, MEMORY))
