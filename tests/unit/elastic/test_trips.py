"""A rehearsal's kill: at the pass that was asked for, once, and never on AWS."""

from pathlib import Path

import pytest

from gpucluster.elastic.act import Failpoint
from gpucluster.elastic.trips import MARKER, trip_of
from gpucluster.errors import StateError

ENDPOINT = {"AWS_ENDPOINT_URL": "http://10.0.0.1"}


class Life:
    """A daemon's life: passes until it is killed."""

    def __init__(self, root: Path, wish: str, environ: dict[str, str] | None = None) -> None:
        self.kills: list[int] = []
        self.passes = 0
        environ = ENDPOINT if environ is None else environ
        trip = trip_of(
            {**environ, "GPUCLUSTER_TRIP": wish},
            root / "agent.env",
            root,
            lambda: self.kills.append(self.passes),
        )
        for _ in range(4):
            self.passes += 1
            trip(Failpoint.BEFORE_INTENT)
            trip(Failpoint.AFTER_INTENT)


@pytest.fixture
def rehearsal(tmp_path: Path) -> Path:
    (tmp_path / "agent.env").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("wish", "kills"), [("after-intent", [1]), ("after-intent:3", [3]), ("after-end", []), ("", [])]
)
def test_it_kills_at_the_pass_that_was_asked_for(rehearsal: Path, wish: str, kills: list[int]) -> None:
    assert Life(rehearsal, wish).kills == kills


def test_the_next_life_goes_on_and_another_wish_kills_again(rehearsal: Path) -> None:
    assert Life(rehearsal, "after-intent").kills == [1]
    assert (rehearsal / MARKER).read_text() == "after-intent"
    assert Life(rehearsal, "after-intent").kills == []
    assert Life(rehearsal, "after-intent:2").kills == [2]


def test_without_the_rehearsals_file_or_endpoint_nothing_is_killed(tmp_path: Path) -> None:
    assert Life(tmp_path, "after-intent").kills == []
    (tmp_path / "agent.env").touch()
    assert Life(tmp_path, "after-intent", {}).kills == []


@pytest.mark.parametrize("wish", ["after-lunch", "after-intent:x", ":1", "after-intent:-1"])
def test_a_wish_that_names_no_failpoint_is_refused(rehearsal: Path, wish: str) -> None:
    with pytest.raises(StateError, match="names no failpoint"):
        Life(rehearsal, wish)
