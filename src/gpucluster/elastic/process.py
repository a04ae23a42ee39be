"""Which process a lease's holder is, `HOST/BOOT/PID/NONCE`, and what can be known of one on this machine.

BOOT is the kernel's boot and the PID namespace, PID the number and when it started: no process ever has both again.
"""

import contextlib
import os
import secrets
import signal
import socket
from pathlib import Path

PROC = Path("/proc")
MOST_PID = 1 << 22  # the kernel's own
PROGRAM = b"gpucluster.elastic.daemon"


def me() -> str:
    """This process."""
    return f"{socket.gethostname().replace('/', '_')}/{_boot()}/{os.getpid()}.{_started(os.getpid())}/{secrets.token_hex(4)}"


def is_over(holder: str) -> bool:
    """Whether it was a process of this machine and boot, and is gone; an unknown form is never over."""
    pid, started = _here(holder)
    return pid > 0 and _started(pid) != started and not _is_hidden(pid)


def end(holder: str) -> None:
    """Kill it, if it is a daemon on this machine: it was silent too long, and holds the port that nodes ask."""
    pid, started = _here(holder)
    if pid <= 0 or pid == os.getpid():
        return
    with contextlib.suppress(OSError):  # gone, or another user's: its time is over in any case
        handle = os.pidfd_open(pid)
        try:
            if _started(pid) == started and PROGRAM in (PROC / str(pid) / "cmdline").read_bytes():
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _here(holder: str) -> tuple[int, str]:
    """(pid, when it started) of a holder of this boot; (0, '') of any other."""
    parts = holder.split("/")
    if len(parts) != 4 or parts[1] != _boot():
        return 0, ""
    pid, _, started = parts[2].partition(".")
    known = pid.isdecimal() and started.isdecimal() and len(pid) < 10 and int(pid) <= MOST_PID
    return (int(pid), started) if known else (0, "")


def _is_hidden(pid: int, proc: Path = PROC) -> bool:
    """Whether it lives and /proc does not show it to us: mounted with hidepid, and another user's."""
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
    """Its start in the kernel's ticks; '' when there is none, or only what is left of one."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]
