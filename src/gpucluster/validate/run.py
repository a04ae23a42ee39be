"""Run the suite in this process: pytest without the user's configuration, plugins or terminal."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gpucluster.errors import GpuclusterError
from gpucluster.validate.expect import Expectation
from gpucluster.validate.reach import Reach
from gpucluster.validate.results import Result, Run
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
    try:
        code = _pytest(_Hooks(stage, selection, told), junit)
    finally:
        stage.close()
    if code == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise GpuclusterError(f"pytest could not run the checks: {pytest.ExitCode(code).name}")
    return Run(name=scene.plan.name, results=tuple(stage.results), seconds=time.monotonic() - began)


class _Hooks:
    """Hands the stage in, and tells of each item."""

    def __init__(self, stage: Stage, selection: Sequence[Expectation], told: Told) -> None:
        self._stage, self._selection, self._told = stage, tuple(selection), told

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[plugin.STAGE], config.stash[plugin.SELECTION] = self._stage, self._selection

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        asked = len(self._stage.results)
        if nodeid.endswith(self._selection[asked].id):
            self._told(self._selection[asked], None)

    def pytest_runtest_logfinish(self) -> None:
        self._told(self._selection[len(self._stage.results) - 1], self._stage.results[-1])


def _pytest(hooks: _Hooks, junit: Path | None) -> int:
    suite = Path(plugin.__file__).with_name("test_cluster.py")
    with tempfile.TemporaryDirectory(prefix="gpucluster-validate-") as folder:
        ini = Path(folder, "pytest.ini")
        ini.write_text("[pytest]\njunit_family = xunit1\n")  # the family whose cases have properties
        report = (
            [] if junit is None else [f"--junitxml={junit}", "-o", "junit_suite_name=gpucluster validate"]
        )
        argv = ["-c", str(ini), "--rootdir", str(suite.parent), "-p", "no:cacheprovider", "-p", "no:terminal"]
        return pytest.main([*argv, *report, str(suite)], plugins=[hooks, plugin])
