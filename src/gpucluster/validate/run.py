"""Run the suite in this process: pytest without the user's configuration, plugins or terminal."""

import os
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpucluster.checks.check import listed
from gpucluster.checks.kubernetes.table import KUBERNETES
from gpucluster.errors import GpuclusterError
from gpucluster.text import short
from gpucluster.validate.boots import OnWait, await_boots, boot_limit_s, nodes_to_await
from gpucluster.validate.expectation import Expectation
from gpucluster.validate.hybrid_session import HybridSession
from gpucluster.validate.reach import Reach
from gpucluster.validate.results import Result, Run, find
from gpucluster.validate.session import AnySession, RunContext, Session
from gpucluster.validate.suite import plugin

_USERS_OPTIONS = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
OnProgress = Callable[[Expectation, Result | None], None]  # called before the check (None) and after it


def run(
    context: RunContext,
    ways: Reach,
    selection: Sequence[Expectation],
    *,
    kubernetes: AnySession | None = None,
    on_progress: OnProgress = lambda _expectation, _result: None,
    on_wait: OnWait = lambda _words: None,
    junit: Path | None = None,
) -> Run:
    """Run the checks of `selection`, after always-on nodes that boot are up. All our jobs are cancelled when this returns or raises.

    `kubernetes` runs the checks of a hybrid cluster's Kubernetes.
    """
    machines = Session(context, ways, [one for one in selection if one.check not in KUBERNETES])
    session = machines if kubernetes is None else HybridSession(machines, kubernetes)

    def await_nodes() -> None:
        nodes, limit_s = nodes_to_await(context.plan, selection), boot_limit_s(context.plan)
        await_boots(nodes, machines.nodes, limit_s, on_wait=on_wait)

    return run_session(
        context.plan.name, session, selection, before=await_nodes, on_progress=on_progress, junit=junit
    )


def run_session(
    name: str,
    session: AnySession,
    selection: Sequence[Expectation],
    *,
    before: Callable[[], None] = lambda: None,
    on_progress: OnProgress = lambda _expectation, _result: None,
    junit: Path | None = None,
) -> Run:
    """Run the checks of `selection` in a session, after `before`, and close it."""
    began = time.monotonic()
    hooks = _Hooks(session, selection, on_progress)
    try:
        before()
        code = _pytest(hooks, junit)
    finally:
        session.close()
    if code == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise GpuclusterError(f"pytest could not run the checks: {pytest.ExitCode(code).name}")
    with_result = {result.id for result in session.results}
    if lost := [expectation.id for expectation in selection if expectation.id not in with_result]:
        raise GpuclusterError(  # an exception in a check must not look like a complete run
            f"no result of {listed(lost)}: {hooks.broke}",
            next_step="please report it: this is a bug of gpucluster",
        )
    return Run(name=name, results=tuple(session.results), seconds=time.monotonic() - began)


class _Hooks:
    """A pytest plugin that provides the session and reports the progress of each item."""

    def __init__(
        self, session: AnySession, selection: Sequence[Expectation], on_progress: OnProgress
    ) -> None:
        self._session, self._selection, self._on_progress = session, tuple(selection), on_progress
        self.broke = "the check did not run"

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[plugin.SESSION], config.stash[plugin.SELECTION] = self._session, self._selection

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._on_progress(item.stash[plugin.EXPECTATION], None)

    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        result = find(self._session.results, item.stash[plugin.EXPECTATION].id)
        if result is not None:
            self._on_progress(item.stash[plugin.EXPECTATION], result)

    def pytest_exception_interact(self, call: pytest.CallInfo[object]) -> None:
        if call.excinfo is not None and not call.excinfo.errisinstance(pytest.fail.Exception):
            self.broke = short(call.excinfo.exconly())


def _pytest(hooks: _Hooks, junit: Path | None) -> int:
    suite = Path(plugin.__file__).with_name("test_cluster.py")
    with tempfile.TemporaryDirectory(prefix="gpucluster-validate-") as folder:
        ini = Path(folder, "pytest.ini")
        ini.write_text("[pytest]\njunit_family = xunit1\n")  # the family whose cases have properties
        report = (
            [] if junit is None else [f"--junitxml={junit}", "-o", "junit_suite_name=gpucluster validate"]
        )
        argv = [
            "-c",
            str(ini),
            "--rootdir",
            str(suite.parent),
            "--noconftest",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:terminal",
            "-p",
            "no:unraisableexception",  # it collects garbage, which takes seconds beside a large heap
            "--disable-plugin-autoload",
        ]
        with _without(*_USERS_OPTIONS):
            return pytest.main([*argv, *report, str(suite)], plugins=[hooks, plugin])


@contextmanager
def _without(*variables: str) -> Generator[None]:
    """The environment lacks these variables during the block."""
    kept = {name: value for name in variables if (value := os.environ.pop(name, None)) is not None}
    try:
        yield
    finally:
        os.environ.update(kept)
