"""Whose is the other end of a connection over loopback? The kernel's table of sockets says it."""

import socket
import sys
from collections.abc import Iterator

from gpucluster.node.machine import Machine

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
ESTABLISHED = "01"  # a socket that is being closed shows uid 0 (proc(5) of the kernel's net/ipv4/tcp_ipv4.c)
NOBODY = -1
LOCAL, REMOTE, STATE, UID = 1, 2, 3, 7


def owner(machine: Machine, client: tuple[str, int], server: tuple[str, int]) -> int:
    """The user of the client's socket; NOBODY if no open one is in the table."""
    return next((uid for table in TABLES for uid in owners(machine.read(table), client, server)), NOBODY)


def owners(table: str, client: tuple[str, int], server: tuple[str, int]) -> Iterator[int]:
    """In the text of one table; IPv4 stands in that of IPv6 as a mapped address."""
    mine, theirs = _written(client), _written(server)
    for line in table.splitlines()[1:]:
        row = line.split()
        if len(row) > UID and row[LOCAL] in mine and row[REMOTE] in theirs and row[STATE] == ESTABLISHED:
            yield int(row[UID])


def _written(end: tuple[str, int]) -> tuple[str, str]:
    """As the kernel writes it: words of the machine's own byte order, in hexadecimal."""
    packed = socket.inet_aton(end[0])
    plain, mapped = _words(packed), _words(bytes(10) + b"\xff\xff" + packed)
    return f"{plain}:{end[1]:04X}", f"{mapped}:{end[1]:04X}"


def _words(packed: bytes) -> str:
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
