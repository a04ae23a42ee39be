"""Run the suite in this process: pytest without the user's configuration, plugins or terminal."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gpucluster.checks.model import listed, short
from gpucluster.errors import GpuclusterError
from gpucluster.validate.expect import Expectation
from gpucluster.validate.reach import Reach
from gpucluster.validate.results import Result, Run, find
from gpucluster.validate.stage import Scene, Stage
from gpucluster.validate.suite import plugin

Told = Callable[[Expectation, Result | None], None]  # asked (None), then answered


def run(
    scene: Scene,
    ways: Reach,
    selection: Sequence[Expectation],
    *,
    told: Told = lambda _expectation, _result: None,
    junit: Path | None = None,
) -> Run:
    """Ask all of `selection`. Our jobs are gone when this returns, however it does."""
    began = time.monotonic()
    stage = Stage(scene, ways, selection)
    hooks = _Hooks(stage, selection, told)
    try:
        code = _pytest(hooks, junit)
    finally:
        stage.close()
    if code == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise GpuclusterError(f"pytest could not run the checks: {pytest.ExitCode(code).name}")
    told_of = {result.id for result in stage.results}
    if lost := [expectation.id for expectation in selection if expectation.id not in told_of]:
        raise GpuclusterError(  # a check that broke off must not leave a run that looks whole
            f"no result of {listed(lost)}: {hooks.broke}",
            next_step="report it: it is a mistake of gpucluster's own",
        )
    return Run(name=scene.plan.name, results=tuple(stage.results), seconds=time.monotonic() - began)


class _Hooks:
    """Hands the stage in, and tells of each item."""

    def __init__(self, stage: Stage, selection: Sequence[Expectation], told: Told) -> None:
        self._stage, self._selection, self._told = stage, tuple(selection), told
        self.broke = "it was not asked"

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[plugin.STAGE], config.stash[plugin.SELECTION] = self._stage, self._selection

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._told(item.stash[plugin.EXPECTATION], None)

    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        result = find(self._stage.results, item.stash[plugin.EXPECTATION].id)
        if result is not None:
            self._told(item.stash[plugin.EXPECTATION], result)

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
        ]
        return pytest.main([*argv, *report, str(suite)], plugins=[hooks, plugin])
