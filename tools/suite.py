"""Run every stage of a suite, and once more what failed: `python tools/suite.py check|gate|all`. Standard library only.

The lanes of a suite run side by side, the stages of a lane one after the other. A stage that fails stops only those
that need it, so that one run shows all that is red. Tests that failed run once more after all stages, alone. A test
that passes then is called unstable and does not fail the run. The last lines list both.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent  # of the venv
OUTPUT = ROOT / "build" / "suite"  # reports of pytest, logs of the builds, and the result
IN_ORDER = "in_order"  # the marker of files whose tests build on each other
TOO_MANY = 60  # so many failed tests have one cause: they are not tried again
REASON = 200  # characters of a reason in the last lines
_DOTS = r"[.sxXFE]+ +\[ *[0-9]+%\]|bringing up nodes\.\.\.|-+ generated report log file: .* -+"
SEED = int(os.environ.get("SUITE_SEED", time.time()))  # of the order of tests; the log of the stage names it
ELSEWHERE = {
    "LC_ALL": "C",
    "TZ": "Asia/Kolkata",
    "PYTHONHASHSEED": str(SEED % 2**32),
    "HYPOTHESIS_PROFILE": "other",
}
PROGRESS_S = 60.0
TAIL = 30  # lines of a failed build's log
HANGS_S = 3600  # only a command that hangs takes so long


@dataclass(frozen=True, kw_only=True)
class CommandStage:
    """A stage that is no test. Its output is printed at its end, that of a `quiet` one only if it fails.

    A stage that `downloads` runs once more at once if it fails: a mirror can refuse a request.
    """

    name: str
    argv: tuple[str, ...]
    quiet: bool = False
    downloads: bool = False


@dataclass(frozen=True, kw_only=True)
class PytestStage:
    """A stage of tests. `options` are those of the first run; `after` is an earlier stage of its lane that it needs.

    Fewer than `least` tests that pass fail the run: a wrong option or a skip can leave tests out.
    With `elsewhere`, the tests run as on a machine with another locale, time zone, home folder and umask.
    """

    name: str
    tests: tuple[str, ...]
    options: tuple[str, ...] = ()
    after: str = ""
    least: int = 1
    elsewhere: bool = False


Lane = tuple[CommandStage | PytestStage, ...]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A test, or a stage that is no test. `reason` is one line."""

    stage: str
    test: str = ""
    reason: str = ""
    in_order: bool = False

    @property
    def title(self) -> str:
        return self.test or self.stage

    @property
    def again(self) -> str:
        """What pytest runs for the second try: the test, or its whole file."""
        return self.test.partition("::")[0] if self.in_order else self.test


@dataclass(kw_only=True)
class Result:
    """What a run found."""

    seconds: dict[str, int] = field(default_factory=dict)
    failed: list[Failure] = field(default_factory=list)
    unstable: list[Failure] = field(default_factory=list)
    skipped: list[Failure] = field(default_factory=list)


ENGINE = (  # the real engine makes, changes and deletes one stack; the offline plan; the policy packs
    "tests/engine/test_engine.py::test_only_drift_is_shown_and_destroy_removes_everything",
    "tests/engine/test_offline.py::test_planner_equals_engine",
    "tests/engine/test_policy.py",
)
LONG = ("tests/engine", "tests/guest", "tests/judges", "tests/monitoring", "tests/simulated", "tests/sandbox")
BUILD, KUBERNETES = "build", "build of kubernetes"
STATIC = (
    CommandStage(name="format", argv=("ruff", "format", "--check", "--quiet", ".")),
    CommandStage(name="lint", argv=("ruff", "check", "--quiet", ".")),
    CommandStage(name="imports", argv=("lint-imports",), quiet=True),
    CommandStage(name="types", argv=("pyright",)),
    CommandStage(name="fixtures", argv=("pytest", "--setup-plan", "-q", *LONG, "tests/slurm"), quiet=True),
)
UNIT = 12_000  # tests
TWO = ("-n", "2", "--dist", "worksteal")  # by default one worker may end minutes before the other
CHECK = (*STATIC, PytestStage(name="unit", tests=("tests/unit",), options=TWO, least=UNIT))
SUITES: dict[str, tuple[Lane, ...]] = {
    "check": (CHECK,),
    "gate": (
        CHECK,
        (
            CommandStage(name=BUILD, argv=("python", "tools/warm.py", "gate"), quiet=True, downloads=True),
            PytestStage(name="journey", tests=("tests/sandbox/test_journey.py",), after=BUILD, least=6),
            PytestStage(name="engine", tests=ENGINE, after=BUILD, least=4),
        ),
    ),
    "all": (
        (
            *STATIC,  # the gate has run the unit tests in the tree's order
            PytestStage(name="unit in another order", tests=("tests/unit",), elsewhere=True, least=UNIT,
                        options=(*TWO, "-p", "randomly", f"--randomly-seed={SEED}")),
            PytestStage(name="slurm", tests=("tests/slurm",), options=("-n", "3", "--plans-at-least", "44")),
            CommandStage(name=KUBERNETES, argv=("python", "tools/warm.py", "kubernetes"), quiet=True, downloads=True),
            PytestStage(name="kubernetes", tests=("tests/kubernetes",),
                        options=("-n", "2", "--dist", "loadfile", "--tests-at-least", "230"),
                        after=KUBERNETES),
        ),
        (
            CommandStage(name=BUILD, argv=("python", "tools/warm.py", "all"), quiet=True, downloads=True),
            PytestStage(name="long", tests=LONG, options=("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"),
                        after=BUILD, least=540),
        ),
    ),
}  # fmt: skip


def main(argv: Sequence[str]) -> int:
    if len(argv) != 1 or argv[0] not in SUITES:
        print(f"usage: suite.py {'|'.join(SUITES)}", file=sys.stderr)
        return 2
    OUTPUT.mkdir(parents=True, exist_ok=True)
    began, result = time.monotonic(), Result()
    run(SUITES[argv[0]], result)
    lines = last_lines(argv[0], result, time.monotonic() - began)
    (OUTPUT / f"{argv[0]}.json").write_text(json.dumps(asdict(result), indent=1) + "\n")
    say("\n".join(lines))
    return 1 if result.failed else 0


def run(lanes: Sequence[Lane], result: Result) -> None:
    """Run all stages, and the failed tests once more."""
    with ThreadPoolExecutor(max_workers=len(lanes)) as beside:
        list(beside.map(lambda lane: run_lane(lane, result), lanes))
    try_again([stage for lane in lanes for stage in lane], result)


def run_lane(lane: Lane, result: Result) -> None:
    """Run the stages in order."""
    broken = set[str]()
    for stage in lane:
        if isinstance(stage, CommandStage):
            if not run_command(stage, result):
                broken.add(stage.name)
        elif stage.after in broken:
            reason = f"not run: the stage '{stage.after}' has failed"
            result.failed.append(Failure(stage=stage.name, reason=reason))
        else:
            result.failed += run_tests(stage, result)


def run_command(stage: CommandStage, result: Result) -> bool:
    """Return whether it passed, at the second try at the latest."""
    began = begin(stage.name)
    code, first = ended(stage), ""
    if code and stage.downloads:
        first = failure_of(stage, code)
        say(f"== {stage.name}: {first}; once more")
        code = ended(stage)
    if code or not stage.quiet:
        say("\n".join(lines_of(stage)[-TAIL:]))
    if code:
        result.failed.append(Failure(stage=stage.name, reason=failure_of(stage, code)))
    elif first:
        result.unstable.append(Failure(stage=stage.name, reason=first))
    end(stage.name, began, result, failed=code != 0)
    return code == 0


def ended(stage: CommandStage) -> int:
    """Run the command, and return its exit code; 124 if it hangs."""
    name, *words = stage.argv
    argv = [sys.executable if name == "python" else str(BIN / name), *words]
    with output_of(stage.name, "log").open("w") as output:
        try:
            return subprocess.run(
                argv, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, timeout=HANGS_S, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return 124


def lines_of(stage: CommandStage) -> list[str]:
    return output_of(stage.name, "log").read_text(errors="replace").strip().splitlines()


def failure_of(stage: CommandStage, code: int) -> str:
    return reason_of(lines_of(stage)) or f"exit {code}"


def reason_of(lines: Sequence[str]) -> str:
    """The first line of an output that speaks of an error, or the last line."""
    errors = (line.strip() for line in lines if re.search(r"\berror\b|^E  |Traceback", line, re.IGNORECASE))
    return next(errors, lines[-1] if lines else "")[:REASON]


def run_tests(
    stage: PytestStage, result: Result, *, name: str = "", tests: Sequence[str] = ()
) -> list[Failure]:
    """Run the stage, or `tests` of it alone under another name; return what failed."""
    began = begin(name or stage.name)
    report, log, listed = (output_of(name or stage.name, kind) for kind in ("jsonl", "log", "tests"))
    report.unlink(missing_ok=True)
    listed.write_text("\n".join(tests))
    what = [f"@{listed}"] if tests else [*stage.options, *stage.tests]
    argv = [str(BIN / "pytest"), "-q", f"--report-log={report}", *what]
    with log.open("w") as output, TemporaryDirectory() as home:
        here = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        env = {"PATH": os.environ["PATH"], "HOME": home, **ELSEWHERE} if stage.elsewhere else here
        mask = 0o077 if stage.elsewhere else -1
        process = subprocess.Popen(
            argv, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, env=env, umask=mask
        )
        code = awaited(process, name or stage.name, report)
    say("\n".join(without_dots(log.read_text(errors="replace"))))
    failed = list(failures(stage.name, report))
    result.skipped += [] if tests else skips(stage.name, report)
    if code and not failed:
        failed = [Failure(stage=stage.name, reason=f"pytest ended with exit code {code} and names no test")]
    elif code not in (0, 1):  # 1 means that tests failed, and no more
        failed.append(
            Failure(stage=stage.name, reason=f"pytest ended with exit code {code}: too few tests have run")
        )
    if not tests and (good := len(passed(report))) + len(failed) < stage.least:
        reason = f"{good} tests have passed, at least {stage.least} expected"
        failed.append(Failure(stage=stage.name, reason=reason))
    end(name or stage.name, began, result, failed=bool(failed))
    return failed


def awaited(process: subprocess.Popen[bytes], name: str, report: Path) -> int:
    """Return its exit code; say once a minute how many tests have ended, and what they wait for."""
    began, told = time.monotonic(), 0
    while True:
        try:
            return process.wait(timeout=PROGRESS_S)
        except subprocess.TimeoutExpired:
            text = report.read_text() if report.exists() else ""
            ended, failed = text.count('"when": "call"'), text.count('"outcome": "failed"')
            say(f"== {name}: {ended} tests have run, {failed} failed, {time.monotonic() - began:.0f} s")
            log = output_of(name, "log").read_text(errors="replace")
            new, told = log[told:], len(log)
            say("\n".join(line for line in new.splitlines() if line.startswith("waiting for ")))


def without_dots(text: str) -> list[str]:
    """Pytest's output without the lines that only count tests."""
    return [line for line in text.splitlines() if line.strip() and not re.fullmatch(_DOTS, line)]


def output_of(name: str, kind: str) -> Path:
    """The file of a stage in our output folder."""
    return OUTPUT / f"{name.replace(' ', '-')}.{kind}"


def entries(report: Path) -> Iterator[dict[str, Any]]:
    """The entries of a report of pytest-reportlog. A pytest that was killed leaves half a line."""
    for line in report.read_text().splitlines() if report.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def passed(report: Path) -> set[str]:
    """The tests that ran and passed; a skipped one did not."""
    called = (one for one in entries(report) if one.get("when") == "call")
    return {one["nodeid"] for one in called if one["outcome"] == "passed"}


def failures(stage: str, report: Path) -> Iterator[Failure]:
    """The tests that failed, each once; also files that could not be collected."""
    seen = set[str]()
    for entry in entries(report):
        if entry.get("outcome") == "failed" and entry["nodeid"] not in seen:
            seen.add(entry["nodeid"])
            keywords = entry.get("keywords") or {}
            reason = first_line(entry.get("longrepr"))
            yield Failure(stage=stage, test=entry["nodeid"], reason=reason, in_order=IN_ORDER in keywords)


def skips(stage: str, report: Path) -> Iterator[Failure]:
    """The tests that were skipped. A test that is known to fail is none."""
    for entry in entries(report):
        if entry.get("outcome") == "skipped" and "wasxfail" not in entry:
            place = entry.get("longrepr")
            reason = str(place[-1] if isinstance(place, list) and place else place)
            yield Failure(stage=stage, test=entry["nodeid"], reason=reason[:REASON])


def first_line(longrepr: Any) -> str:
    """The first line of the message of a failed test."""
    text = longrepr if isinstance(longrepr, str) else ""
    if isinstance(longrepr, dict):
        text = str((longrepr.get("reprcrash") or {}).get("message", ""))
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:REASON]


def try_again(stages: Iterable[CommandStage | PytestStage], result: Result) -> None:
    """Run what failed once more, stage by stage, with one worker."""
    for stage in stages:
        first = [f for f in result.failed if f.stage == stage.name and f.test]
        if not isinstance(stage, PytestStage) or not 0 < len(first) <= TOO_MANY:
            continue
        again = sorted({failure.again for failure in first})
        name = f"second try of {stage.name}"
        second = run_tests(stage, result, name=name, tests=again)
        settle(first, second, passed(output_of(name, "jsonl")), result)


def settle(first: Sequence[Failure], second: Sequence[Failure], passed: set[str], result: Result) -> None:
    """Move the tests that passed at the second try from `failed` to `unstable`."""
    if any(not failure.test for failure in second):
        return  # the second run itself failed, and proves nothing
    still = {failure.test for failure in second}
    files = {failure.again for failure in second if failure.in_order}
    for failure in first:
        if failure.test in passed - still and failure.again not in files:
            result.failed.remove(failure)
            result.unstable.append(failure)


def say(text: str) -> None:
    """Print in one write: a build prints from its own thread."""
    if text:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def begin(name: str) -> float:
    say(f"== {name}: begins")
    return time.monotonic()


def end(name: str, began: float, result: Result, *, failed: bool) -> None:
    result.seconds[name] = round(time.monotonic() - began)
    say(f"== {name}: {'FAILED' if failed else 'passed'}, {result.seconds[name]} s")


def last_lines(suite: str, result: Result, seconds: float) -> Iterator[str]:
    """The summary: each stage's seconds, then one line for each failed and each unstable test."""
    stages = ", ".join(f"{name} {took}" for name, took in result.seconds.items())
    yield f"== {suite}: {seconds:.0f} s at load {os.getloadavg()[1]:.1f}; {stages}"
    for failure in result.failed:
        yield f"FAILED {failure.title}: {failure.reason}"
    yield f"failed: {len(result.failed)}"
    yield f"unstable: {len(result.unstable)}"
    for failure in result.unstable:
        yield f"unstable {failure.title}: {failure.reason}"
    yield f"skipped: {len(result.skipped)}"
    for failure in result.skipped:
        yield f"skipped {failure.title}: {failure.reason}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
