"""The decisions over a table of worlds, compared whole: each action, reason, event and row, and the second at which they change.

`--update-golden` writes the files of tests/golden/decisions; then read `git diff`: each changed line must be intended.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support.decision_timelines import timeline
from support.worlds import WORLDS

from gpucluster.elastic.inspect.snapshot import ClusterSnapshot

FOLDER = Path(__file__).parents[2] / "golden" / "decisions"


def _page(worlds: Mapping[str, Callable[[], ClusterSnapshot]]) -> str:
    return "\n".join(f"## {name}\n{timeline(build())}" for name, build in worlds.items())


@pytest.mark.parametrize("topic", sorted(WORLDS))
def test_golden_file_has_each_world(topic: str, request: pytest.FixtureRequest) -> None:
    path = FOLDER / f"{topic}.txt"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(_page(WORLDS[topic]))
    named = [line.removeprefix("## ") for line in path.read_text().splitlines() if line.startswith("## ")]
    assert named == list(WORLDS[topic])


@pytest.mark.parametrize(
    ("topic", "name"), [(topic, name) for topic in sorted(WORLDS) for name in WORLDS[topic]]
)
def test_decisions_of_the_world_are_as_recorded(topic: str, name: str) -> None:
    sections = (FOLDER / f"{topic}.txt").read_text().split("## ")[1:]
    expected = next(text for title, _, text in (part.partition("\n") for part in sections) if title == name)
    assert timeline(WORLDS[topic][name]()).splitlines() == expected.strip().splitlines()
