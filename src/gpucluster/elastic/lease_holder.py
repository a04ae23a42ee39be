"""The name of a lease's holder, `HOST/BOOT/PID/NONCE`, and checks of such a process on this machine.

BOOT is the boot id and the PID namespace. PID is the number and the start time, so that no later process has the same.
"""

import contextlib
import os
import secrets
import signal
import socket
from pathlib import Path

PROC = Path("/proc")
MOST_PID = 1 << 22  # the kernel's limit
PROGRAM = b"gpucluster.elastic.daemon"


def me() -> str:
    """Return the name of this process."""
    return f"{socket.gethostname().replace('/', '_')}/{_boot()}/{os.getpid()}.{_started(os.getpid())}/{secrets.token_hex(4)}"


def is_over(holder: str) -> bool:
    """Return whether the holder was a process of this machine and boot, and has ended. False for a name of unknown form."""
    pid, started = _here(holder)
    return pid > 0 and _started(pid) != started and not _is_hidden(pid)


def end(holder: str) -> None:
    """Kill the holder if it is a daemon on this machine. It has not renewed in time, and still has the registration port."""
    pid, started = _here(holder)
    if pid <= 0 or pid == os.getpid():
        return
    with contextlib.suppress(
        OSError
    ):  # it has ended, or belongs to another user; its lease is over in both cases
        handle = os.pidfd_open(pid)
        try:
            if _started(pid) == started and PROGRAM in (PROC / str(pid) / "cmdline").read_bytes():
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _here(holder: str) -> tuple[int, str]:
    """Return (pid, start time) of a holder of this boot; (0, '') for any other."""
    parts = holder.split("/")
    if len(parts) != 4 or parts[1] != _boot():
        return 0, ""
    pid, _, started = parts[2].partition(".")
    known = pid.isdecimal() and started.isdecimal() and len(pid) < 10 and int(pid) <= MOST_PID
    return (int(pid), started) if known else (0, "")


def _is_hidden(pid: int, proc: Path = PROC) -> bool:
    """Return whether the process runs, but /proc hides it: with hidepid, /proc hides processes of other users."""
    if os.access(proc / str(pid) / "stat", os.R_OK):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _boot() -> str:
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{(PROC / 'self/ns/pid').readlink().name}"


def _started(pid: int) -> str:
    """Return the start time of the process in kernel ticks; empty if it does not exist or is a zombie."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]
