"""What worlds have found: each a story of a few steps, with the fault that it showed."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from worlds import Step, Story, tell

FOUND = [
    (
        "slots that a restart of slurmctld shut, beside an idle node: the model's Slurm said of no job that it waits for nodes",
        Story(
            (
                Step("xid", 2, 20),
                Step("refuse a", 6, 1),
                Step("submit", 6, 90),
                Step("kill slurmctld", 1, 1),
                Step("reclaim", 3, 1),
                Step("outage", 2, 1),
                Step("reclaim", 1, 1),
                Step("submit", 1, 1),
            ),
            plan="tight",
            version="24.11",
        ),
    ),
    (
        "a slot held back, forgotten to be up, whose node registers unasked: its drain lost its reason, and nobody lifted it",
        Story(
            (Step("swarm", 6, 45), Step("reclaim", 1, 5), Step("kill slurmctld", 6, 1)),
            plan="tight",
            version="26.05",
        ),
    ),
    (
        "a rebalance hint for a node that Slurm has drained: it was neither moved nor replaced",
        Story(
            (
                Step("rebalance", 1, 200),
                Step("slurmctld away", 1, 1),
                Step("rebalance", 1, 1),
                Step("prolog fails", 1, 1),
            ),
            plan="tight",
        ),
    ),
    (
        "a person's drain that Slurm signs anew when the node falls silent: the world's person no longer knew it and lifted it never",
        Story(
            (
                Step("no requeue", 5, 1),
                Step("outage", 1, 1),
                Step("storm", 6, 1),
                Step("person drains", 5, 1),
                Step("keep", 1, 20),
                Step("lose end", 1, 200),
            ),
            plan="tight",
        ),
    ),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.parametrize("story", [story for _, story in FOUND], ids=[words for words, _ in FOUND])
def test_it_ends_well(story: Story, folder: Path) -> None:
    tell(story, folder)
