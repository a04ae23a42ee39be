"""Bytes through the door of a capsule, in both directions and to their end."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from gpucluster.sandbox.capsule import relay

pytestmark = pytest.mark.loopback


def echo_backwards(server: socket.socket) -> None:
    """Read to the end of one connection, then answer the bytes in reverse."""
    connection, _ = server.accept()
    with connection:
        text = b"".join(iter(lambda: connection.recv(65536), b""))
        connection.sendall(text[::-1])


def asked(port: int, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
        client.sendall(text)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))


@contextmanager
def door_to(target: relay.Target) -> Generator[socket.socket]:
    """A listening socket that is relayed. Its thread has ended when it is closed."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = relay.serve(door, target)
        yield door
        door.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_bytes_go_there_and_back_to_their_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, door_to(server.getsockname) as door:
        threading.Thread(target=echo_backwards, args=(server,), daemon=True).start()
        text = bytes(range(256)) * 8192  # more than any buffer
        assert asked(door.getsockname()[1], text) == text[::-1]


def test_connection_ends_while_nothing_is_behind_the_door() -> None:
    with door_to(lambda: None) as door, socket.create_connection(door.getsockname(), timeout=120) as client:
        assert client.recv(1) == b""


def test_server_that_is_gone_ends_the_connection_and_the_next_one_works() -> None:
    places = [("127.0.0.1", 1)]
    with socket.create_server(("127.0.0.1", 0)) as server, door_to(lambda: places.pop(0)) as door:
        places.append(server.getsockname())
        with socket.create_connection(door.getsockname(), timeout=120) as client:
            assert client.recv(1) == b""
        threading.Thread(target=echo_backwards, args=(server,), daemon=True).start()
        assert asked(door.getsockname()[1], b"abc") == b"cba"
