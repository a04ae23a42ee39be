"""Tests on real Slurm daemons. real_slurm.py says how to write one; `make test-slurm` runs them as root on Debian.

`--plans-at-least N` fails a run in which fewer plans of a version passed, also if the version was skipped.
`--default-job-specs N` tries the default jobs of N generated specs of each version.
"""

import re
from collections import Counter
from typing import Any

import pytest
from support import floors

DEFAULT_JOB_SPECS = 8
_PLAN = re.compile(r"test_plans\.py::\w+\[([0-9.]+)-")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--plans-at-least", type=int, default=0, help="plans of each version that must pass")
    parser.addoption("--default-job-specs", type=int, default=DEFAULT_JOB_SPECS, help="generated specs of each version whose default jobs are tried (default: %(default)s)")  # fmt: skip


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Below a folder above, pytest has read its options before this file."""
    if "spec_number" in metafunc.fixturenames:
        count: Any = metafunc.config.getoption("--default-job-specs", default=DEFAULT_JOB_SPECS)
        metafunc.parametrize("spec_number", range(count))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print how many plans each version took, and why a version was skipped."""
    for version, (taken, skipped) in sorted(counted(terminalreporter).items()):
        reason = f"; skipped: {skipped}" if skipped else ""
        terminalreporter.write_line(f"Slurm {version}: {taken} plans were taken{reason}")
    if config.getoption("--plans-at-least"):
        terminalreporter.write_line(too_few(terminalreporter) or "every version took enough plans")


def pytest_sessionfinish(session: pytest.Session) -> None:
    floors.end(session, too_few)


def counted(reporter: pytest.TerminalReporter) -> dict[str, tuple[int, str]]:
    """Version -> the number of plans that passed, and the reason of a skip."""
    passed: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    for report in reporter.stats.get("passed", []):
        if report.when == "call" and (match := _PLAN.search(report.nodeid)):
            passed[match[1]] += 1
    for report in reporter.stats.get("skipped", []):
        if match := _PLAN.search(report.nodeid):
            reasons[match[1]] = str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else "")
    return {v: (passed[v], reasons.get(v, "")) for v in passed.keys() | reasons.keys()}


def too_few(reporter: pytest.TerminalReporter) -> str:
    """Say which version took too few plans; an empty text if none did."""
    least = int(reporter.config.getoption("--plans-at-least") or 0)
    found = counted(reporter) if least else {}
    short = [f"{v}: {n}" for v, (n, _) in sorted(found.items()) if n < least]
    if least and not any(n for n, _ in found.values()):
        return f"no version took a plan; expected {least} of each"
    return f"too few plans were taken, expected {least}: {', '.join(short)}" if short else ""
