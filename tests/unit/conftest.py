"""Unit tests open no socket but Unix ones; `@pytest.mark.loopback` allows 127.0.0.1 to a test that is about it."""

import gc
import os

import pytest
import pytest_socket
from support.planner_answers import Answers

from gpucluster.engine.offline import planner

# Where it is set, the standard error of a child is not buffered, as that of users is: a line that no reader took stays there
# until Python ends.
os.environ.pop("PYTHONUNBUFFERED", None)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "loopback: the test listens or connects on 127.0.0.1")


def pytest_collection_finish() -> None:
    """Exempt the imported modules and the collected tests from garbage collection.

    They live until the end. Without this, each full collection walks all of them: 13 of 17 s in validate/test_run.py.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True)
def _no_network(request: pytest.FixtureRequest) -> None:
    """pytest-socket takes its own restrictions away after each test."""
    if request.node.get_closest_marker("loopback"):
        pytest_socket.socket_allow_hosts(["127.0.0.1", "::1", "localhost"], allow_unix_socket=True)
    else:
        pytest_socket.disable_socket(allow_unix_socket=True)


@pytest.fixture(scope="session")
def _planner_answers() -> Answers:
    return Answers()


@pytest.fixture(autouse=True)
def _planner_asks_once(
    request: pytest.FixtureRequest, _planner_answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plan each order once, but where the planner is the subject."""
    if "unit/engine/offline" not in request.node.nodeid:
        monkeypatch.setattr(planner, "_answer", _planner_answers.answer)
