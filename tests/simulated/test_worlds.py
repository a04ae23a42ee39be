"""500 worlds in which anything happens: safe at every moment, and quiet within bounds once the world is kind again.

`make soak` lives through 10,000. What hypothesis shrinks a failure to is a `Story`: write it down in test_stories.py.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from worlds import STORIES, Story, tell

SHARDS, EACH = 10, 50
IN_MEMORY = Path("/dev/shm")  # each world has a journal, and waits for the disk at every entry


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_whatever_happens_all_is_safe_and_in_the_end_quiet(shard: int, folder: Path) -> None:
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
    @given(story=STORIES)
    def any_world(story: Story) -> None:
        tell(story, Path(tempfile.mkdtemp(dir=folder)))

    any_world()
