"""Run 200 random scenarios: each moment is safe, and after the faults end the cluster becomes quiet in bounded time.

`make soak` runs 10,000. Write a failing `Scenario` that hypothesis has shrunk into tests/unit/elastic/test_scenarios.py.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from support.scenarios import SCENARIOS, Scenario, simulate

SHARDS, EACH = 8, 25
IN_MEMORY = Path("/dev/shm")  # each simulation has a journal, and waits for the disk at every entry


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_random_scenarios_are_safe_and_become_quiet(shard: int, folder: Path) -> None:
    @seed(shard)
    @settings(
        max_examples=EACH,
        database=None,
        deadline=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.large_base_example,
        ],
    )
    @given(scenario=SCENARIOS)
    def any_scenario(scenario: Scenario) -> None:
        simulate(scenario, Path(tempfile.mkdtemp(dir=folder)))

    any_scenario()
