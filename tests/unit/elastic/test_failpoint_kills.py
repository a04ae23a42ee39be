"""A rehearsal's kill: at the pass that was asked for, once, and never on AWS."""

from pathlib import Path

import pytest

from gpucluster.elastic.act import Failpoint
from gpucluster.elastic.failpoints import MARKER, failpoint_hits
from gpucluster.errors import StateError

ENDPOINT = {"AWS_ENDPOINT_URL": "http://10.0.0.1"}


class Incarnation:
    """One run of the daemon: passes until it is killed."""

    def __init__(self, root: Path, wish: str, environ: dict[str, str] | None = None) -> None:
        self.kills: list[int] = []
        self.passes = 0
        environ = ENDPOINT if environ is None else environ
        hit = failpoint_hits(
            {**environ, "GPUCLUSTER_FAILPOINT": wish},
            root / "agent.env",
            root,
            lambda: self.kills.append(self.passes),
        )
        for _ in range(4):
            self.passes += 1
            hit(Failpoint.BEFORE_INTENT)
            hit(Failpoint.AFTER_INTENT)


@pytest.fixture
def rehearsal(tmp_path: Path) -> Path:
    (tmp_path / "agent.env").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("wish", "kills"), [("after-intent", [1]), ("after-intent:3", [3]), ("after-end", []), ("", [])]
)
def test_daemon_is_killed_at_the_requested_pass(rehearsal: Path, wish: str, kills: list[int]) -> None:
    assert Incarnation(rehearsal, wish).kills == kills


def test_next_start_continues_and_a_new_value_kills_again(rehearsal: Path) -> None:
    assert Incarnation(rehearsal, "after-intent").kills == [1]
    assert (rehearsal / MARKER).read_text() == "after-intent"
    assert Incarnation(rehearsal, "after-intent").kills == []
    assert Incarnation(rehearsal, "after-intent:2").kills == [2]


def test_nothing_is_killed_without_the_sandbox_file_and_endpoint(tmp_path: Path) -> None:
    assert Incarnation(tmp_path, "after-intent").kills == []
    (tmp_path / "agent.env").touch()
    assert Incarnation(tmp_path, "after-intent", {}).kills == []


@pytest.mark.parametrize("wish", ["after-lunch", "after-intent:x", ":1", "after-intent:-1"])
def test_unknown_failpoint_is_refused(rehearsal: Path, wish: str) -> None:
    with pytest.raises(StateError, match="names no failpoint"):
        Incarnation(rehearsal, wish)
