"""Unit tests open no socket but Unix ones; `@pytest.mark.loopback` allows 127.0.0.1 to a test that is about it."""

import pytest
import pytest_socket


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "loopback: the test listens or connects on 127.0.0.1")


@pytest.fixture(autouse=True)
def _no_network(request: pytest.FixtureRequest) -> None:
    """pytest-socket takes its own restrictions away after each test."""
    if request.node.get_closest_marker("loopback"):
        pytest_socket.socket_allow_hosts(["127.0.0.1", "::1", "localhost"], allow_unix_socket=True)
    else:
        pytest_socket.disable_socket(allow_unix_socket=True)
