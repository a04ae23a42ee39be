"""Tests on a real Kubernetes control plane. `make test-kubernetes` builds it and runs them.

`--tests-at-least N` fails a run in which fewer tests passed.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from real_kubernetes import Kubernetes, started
from support import floors

from gpucluster.sandbox.kubernetes import programs


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tests-at-least", type=int, default=0, help="tests that must pass")


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """One control plane for all tests of a process; each test has namespaces and names of its own."""
    folder: Path = tmp_path_factory.mktemp("kubernetes")
    with started(programs.find_or_build(print), folder) as plane:
        yield plane


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if words := too_few(terminalreporter):
        terminalreporter.write_line(words)


def pytest_sessionfinish(session: pytest.Session) -> None:
    floors.end(session, too_few)


def too_few(reporter: pytest.TerminalReporter) -> str:
    """Say that too few tests passed; an empty text if enough did."""
    least = int(reporter.config.getoption("--tests-at-least") or 0)
    passed = len(reporter.stats.get("passed", []))
    return f"{passed} tests passed, expected at least {least}" if passed < least else ""
