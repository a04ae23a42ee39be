#!/usr/bin/python3 -IS
# ruff: noqa: PTH105, PTH110, PTH116, PTH123
# Importing pathlib would cost each of a thousand waiters more than all that they do.
"""PrologSlurmctld: wait until the job's nodes are ready; its exit makes slurmctld look at once (slurm.md 3.5).

Without it a job stays CONFIGURING for up to 30 s after its last node registered. One process a starting job, so all
of them share one look at Slurm: whoever finds the last look too old takes the lock and makes the next. A waiter that
only waits costs two stat calls a poll. It ends with 0 in every case: it may make a job early, never break one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LOOK = "/var/spool/gpucluster/waiter"  # names.SPOOL; a test compares
SLURM_BIN = "/usr/bin"
NEAR = "/etc/slurm/near.conf"  # names.NEAR_CONF: on the second head, which else asks a head first that is off
POLL_S = 0.25
ALONE_S = 1.0  # a job not in CONFIGURING so long after our start is gone; it cannot start anew while we run
CALL_S = 10.0
LOCK_S = 3 * CALL_S  # a look is two calls; whoever holds the lock for longer is frozen
BOUND_S = 3600.0  # when ResumeTimeout cannot be read


def main(
    environ: Mapping[str, str],
    slurm_bin: str = SLURM_BIN,
    look: str = LOOK,
    *,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    fresh_s: float = POLL_S,
) -> None:
    """Wait for the job of the environment."""
    job, hostlist = environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_JOB_NODELIST", "")
    if not job.isdigit() or not hostlist:
        return
    mine = frozenset(_lines(slurm_bin, "scontrol", "show", "hostnames", hostlist))
    began = clock()
    until = began + _bound(slurm_bin)
    shared = Look(look, slurm_bin, fresh_s)
    while clock() < until:
        seen = shared.read()
        if seen is not None:
            waiting, configuring = seen
            gone = job not in configuring and clock() > began + ALONE_S
            if gone or not mine & waiting:
                break
        pause(POLL_S)


class Look:
    """The nodes that are not ready and the jobs that configure, as one file that all waiters share."""

    def __init__(self, path: str, slurm_bin: str, fresh_s: float, lock_s: float = LOCK_S) -> None:
        self._path, self._slurm_bin, self._fresh_s, self._lock_s = path, slurm_bin, fresh_s, lock_s
        self._seen = 0
        self._known: tuple[frozenset[str], frozenset[str]] | None = None

    def read(self) -> tuple[frozenset[str], frozenset[str]] | None:
        """Return (node names, job ids); None while slurmctld has not answered yet."""
        try:
            self._refresh()
            changed = os.stat(self._path).st_mtime_ns
            if changed != self._seen:
                with open(self._path, encoding="utf-8") as stream:
                    self._known = _parse(stream.read())
                self._seen = changed
        except subprocess.SubprocessError:
            pass  # what was seen last stands
        except OSError:
            self._known = self._directly()
        return self._known

    def _directly(self) -> tuple[frozenset[str], frozenset[str]] | None:
        """A spool that cannot be written only makes it dearer."""
        try:
            return _parse(_ask(self._slurm_bin))
        except (OSError, subprocess.SubprocessError):
            return self._known

    def _refresh(self) -> None:
        """`PATH.at` is touched at each look; `PATH` itself changes only with what it says."""
        stamp = self._path + ".at"
        handle = os.open(stamp, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if self._is_fresh(handle):
                return
            _lock(handle, self._lock_s)
            if self._is_fresh(handle):
                return  # another one looked while we waited
            self._store(_ask(self._slurm_bin))
            os.utime(handle)
        finally:
            os.close(handle)

    def _is_fresh(self, handle: int) -> bool:
        """A look that is still to come is of a clock that was set back: it would stand until then."""
        age = time.time() - os.fstat(handle).st_mtime
        return 0 <= age < self._fresh_s and os.path.exists(self._path)

    def _store(self, text: str) -> None:
        try:
            with open(self._path, encoding="utf-8") as stream:
                if stream.read() == text:
                    return
        except FileNotFoundError:
            pass
        draft = f"{self._path}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(draft, self._path)


def _lock(handle: int, seconds: float) -> None:
    """Wait for the lock, but not for ever; a kill of its holder frees it, and nothing frees it from a frozen one."""

    def give_up(*_: object) -> None:
        raise subprocess.TimeoutExpired("flock", seconds)

    old = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def _ask(slurm_bin: str) -> str:
    """Only what is not ready is asked for, so the answer is short when the fleet is quiet."""
    states = "powering_up,powered_down,no_respond"
    nodes = _lines(slurm_bin, "sinfo", "-h", "-N", "-t", states, "-o", "%n")
    jobs = _lines(slurm_bin, "squeue", "-h", "-t", "CF", "-o", "%A")
    return "\n".join(sorted(set(nodes))) + "\n\n" + "\n".join(sorted(jobs)) + "\n"


def _parse(text: str) -> tuple[frozenset[str], frozenset[str]]:
    nodes, _, jobs = text.partition("\n\n")
    return frozenset(nodes.split()), frozenset(jobs.split())


def _bound(slurm_bin: str) -> float:
    """ResumeTimeout: after it slurmctld has given the node up."""
    try:
        lines = _lines(slurm_bin, "scontrol", "show", "config")
    except (OSError, subprocess.SubprocessError):
        return BOUND_S
    for line in lines:
        key, _, value = line.partition("=")
        words = value.split()
        if key.strip() == "ResumeTimeout" and words and words[0].isdigit():
            return float(words[0])
    return BOUND_S


def _lines(slurm_bin: str, program: str, *arguments: str) -> list[str]:
    argv = [f"{slurm_bin}/{program}", *arguments]
    env = {**os.environ, "SLURM_CONF": NEAR} if os.path.exists(NEAR) else None
    done = subprocess.run(
        argv, capture_output=True, timeout=CALL_S, stdin=subprocess.DEVNULL, env=env, check=True
    )
    return done.stdout.decode("utf-8", "replace").splitlines()


if __name__ == "__main__":
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        main(os.environ)
    sys.exit(0)  # a failing PrologSlurmctld would requeue the job
