"""Free ports of 127.0.0.1."""

import os
import socket

_FIRST, _END = (
    20000,
    32768,
)  # below the ports that Linux gives to clients, which could take one before a server does
_OFFSET = os.getpid() * 32 % (_END - _FIRST)  # two control planes at once begin at different ports
SERVER_PORTS = (*range(_FIRST + _OFFSET, _END), *range(_FIRST, _FIRST + _OFFSET))


def free(port: int) -> bool:
    """Say whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an old connection does not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
