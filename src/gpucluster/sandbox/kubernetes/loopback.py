"""Free ports of 127.0.0.1, reserved among the processes of this machine."""

import os
import socket

_FIRST, _END = (
    20000,
    32768,
)  # below the ports that Linux gives to clients, which could take one before a server does
_OFFSET = os.getpid() * 32 % (_END - _FIRST)  # two control planes at once begin at different ports
SERVER_PORTS = (*range(_FIRST + _OFFSET, _END), *range(_FIRST, _FIRST + _OFFSET))


def reserved(port: int) -> socket.socket | None:
    """Reserve the port until the returned socket is closed; None if somebody listens on it or has reserved it.

    A server may listen only seconds after it got its port. The reservation is the name of an abstract socket: the kernel keeps one
    set of names for each network, and frees a name when its process ends.
    """
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        mark.bind(f"\0gpucluster-port-{port}")
    except OSError:
        mark.close()
        return None
    if is_free(port):
        return mark
    mark.close()
    return None


def is_free(port: int) -> bool:
    """Return whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an old connection does not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
