#!/usr/bin/python3 -IS
# ruff: noqa: PTH103, PTH104, PTH108, PTH110, PTH118, PTH119, PTH120, PTH123
# importing pathlib would take longer than the rest of this file
"""ResumeProgram, SuspendProgram and ResumeFailProgram: write a request into the spool and return at once.

One standard-library file under three names; argv[0] selects the program. Slurm gives it no PATH and no HOME, and
before 23.02 not even open descriptors (S03), so it uses only its argument and one variable.
The call is only a hint and a wake-up: the daemon reads from Slurm which nodes are needed.
"""

from __future__ import annotations  # takes no time: the types below are never evaluated

import json
import os
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SPOOL = "/var/spool/gpucluster"  # = plan.names.SPOOL; a test compares
WAKE_SOCKET = "/run/gpucluster/wake"  # = plan.names.WAKE_SOCKET
KINDS = ("resume", "suspend", "resume_fail")
MAX_RESUME_BYTES = 64 * 1024 * 1024  # thousands of jobs need about 1 MiB; a larger file is cut off here


def main(
    argv: Sequence[str], environ: Mapping[str, str], spool: str = SPOOL, wake_socket: str = WAKE_SOCKET
) -> int:
    """Write one request. Return 0 if it is on disk, 1 if the spool cannot be written, 2 for a wrong call."""
    resume_file = _resume_file(environ)  # read first: slurmctld may delete the file
    kind = os.path.basename(argv[0])
    if kind not in KINDS or len(argv) < 2:
        sys.stderr.write("gpucluster hook: want resume|suspend|resume_fail HOSTLIST\n")
        return 2
    now = time.time_ns()
    request = {
        "kind": kind,
        "hostlist": argv[1],
        "resume_file": resume_file,
        "pid": os.getpid(),
        "time": now / 1e9,
    }
    try:
        _deliver(spool, f"{now}.{os.getpid()}.{kind}", json.dumps(request).encode())
    except OSError as error:
        sys.stderr.write(f"gpucluster hook: {kind} {argv[1][:200]} is not in the spool: {error}\n")
        return 1
    _wake(wake_socket)
    return 0


def _resume_file(environ: Mapping[str, str]) -> str | None:
    """Return slurmctld's job map; None without one (a manual power_up) or if it is already deleted."""
    path = environ.get("SLURM_RESUME_FILE")
    if not path:
        return None
    try:
        with open(path, "rb") as stream:
            return stream.read(MAX_RESUME_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


def _deliver(spool: str, name: str, content: bytes) -> None:
    """Write the file as a maildir does: it is complete and on disk, or missing. After an error the draft is removed."""
    draft, ready = os.path.join(spool, "tmp", name), os.path.join(spool, "new", name)
    for folder in (draft, ready):
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    written = False
    try:
        _write(draft, content)
        os.rename(draft, ready)
        written = True
    finally:
        if not written and os.path.exists(draft):
            os.unlink(draft)
    folder = os.open(os.path.dirname(ready), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _write(path: str, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _wake(path: str) -> None:
    """Send one datagram. Without a listener, or with a full queue, do nothing: the daemon scans each second."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            sender.sendto(b"spool", path)
    except OSError:
        pass


def _open_standard_descriptors() -> None:
    """Open descriptors 0 to 2. Otherwise the spool file could get number 2, and a traceback would be written into it."""
    while True:
        handle = os.open("/dev/null", os.O_RDWR)
        if handle > 2:
            os.close(handle)
            return


if __name__ == "__main__":
    _open_standard_descriptors()
    sys.exit(main(sys.argv, os.environ))
