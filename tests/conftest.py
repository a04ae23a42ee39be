"""What all tests share: the golden fixture and the profiles of hypothesis."""

import gc
import os
from collections.abc import Mapping

import hypothesis
import pytest
from support.golden_tree import GOLDEN, Golden, compare, rewrite

from gpucluster.gc_control import freeze_loaded

# How many examples a property gets; HYPOTHESIS_PROFILE names the row. No deadline, and no check that reads a clock:
# other programs may run on this machine.
EXAMPLES = {"check": 25, "other": 25, "test": 100, "soak": 2000, "mutants": 25}
SAME = {"check", "mutants"}  # the same examples in each run: an old fault turns no other commit red
for _name, _count in EXAMPLES.items():
    hypothesis.settings.register_profile(
        _name,
        max_examples=_count,
        deadline=None,
        derandomize=_name in SAME,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "check"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden trees instead of comparing"
    )


def pytest_collection_finish() -> None:
    """Leave the imported modules and the collected tests out of every collection of garbage."""
    gc.collect()
    freeze_loaded()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(name, {path: content})` compares a whole tree: missing, stale and empty files fail."""

    def check(name: str, files: Mapping[str, bytes]) -> None:
        __tracebackhide__ = True
        if request.config.getoption("--update-golden"):
            rewrite(GOLDEN / name, files)
        if complaint := compare(GOLDEN / name, files):
            pytest.fail(f"{complaint}\nIf it is meant: make golden, then read git diff")

    return check
