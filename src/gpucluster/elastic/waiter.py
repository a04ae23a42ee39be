#!/usr/bin/python3 -IS
# ruff: noqa: PTH105, PTH110, PTH116, PTH123
# Importing pathlib in each of a thousand waiters would take longer than the rest of this file.
"""PrologSlurmctld: wait until the job's nodes are ready; its exit makes slurmctld check the job at once (S05).

Without it a job stays CONFIGURING for up to 30 s after its last node registered. There is one process per starting job.
All of them share one query of Slurm: the first process that finds the last result too old takes the lock and queries.
A waiting process costs two stat calls a poll. It exits with 0 in every case: it never fails a job.
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

STATE_FILE = "/var/spool/gpucluster/waiter"  # names.SPOOL; a test compares
SLURM_BIN = "/usr/bin"
# names.STANDBY_CONF: with slurm.conf a call would wait for a head that is off.
STANDBY_CONF = "/etc/slurm/standby.conf"
POLL_S = 0.25
# A job not in CONFIGURING this long after our start is gone; it cannot start again while we run.
GONE_AFTER_S = 1.0
CALL_S = 10.0
LOCK_S = 3 * CALL_S  # a query is two calls; a process that holds the lock for longer is suspended
BOUND_S = 60.0  # if ResumeTimeout cannot be read: slurmctld requeues or kills a job whose PrologSlurmctld reaches its limit (S42)


def main(
    environ: Mapping[str, str],
    slurm_bin: str = SLURM_BIN,
    state_file: str = STATE_FILE,
    *,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    fresh_s: float = POLL_S,
) -> None:
    """Wait for the job that the environment names."""
    job, hostlist = environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_JOB_NODELIST", "")
    if not job.isdigit() or not hostlist:
        return
    mine = frozenset(_lines(slurm_bin, "scontrol", "show", "hostnames", hostlist))
    began = clock()
    until = began + _bound(slurm_bin)
    shared = SharedQuery(state_file, slurm_bin, fresh_s)
    while clock() < until:
        seen = shared.read()
        if seen is not None:
            waiting, configuring = seen
            gone = job not in configuring and clock() > began + GONE_AFTER_S
            if gone or not mine & waiting:
                break
        pause(POLL_S)


class SharedQuery:
    """The nodes that are not ready and the jobs in CONFIGURING, as one file that all waiters share."""

    def __init__(self, path: str, slurm_bin: str, fresh_s: float, lock_s: float = LOCK_S) -> None:
        self._path, self._slurm_bin, self._fresh_s, self._lock_s = path, slurm_bin, fresh_s, lock_s
        self._seen = 0
        self._known: tuple[frozenset[str], frozenset[str]] | None = None

    def read(self) -> tuple[frozenset[str], frozenset[str]] | None:
        """Return (node names, job ids); None until the first answer of slurmctld."""
        try:
            self._refresh()
            changed = os.stat(self._path).st_mtime_ns
            if changed != self._seen:
                with open(self._path, encoding="utf-8") as stream:
                    self._known = _parse(stream.read())
                self._seen = changed
        except subprocess.SubprocessError:
            pass  # use the last result
        except OSError:
            self._known = self._directly()
        return self._known

    def _directly(self) -> tuple[frozenset[str], frozenset[str]] | None:
        """Query Slurm without the shared file, if the spool cannot be written."""
        try:
            return _parse(_ask(self._slurm_bin))
        except (OSError, subprocess.SubprocessError):
            return self._known

    def _refresh(self) -> None:
        """Query Slurm if the result is old. `PATH.at` is touched at each query; `PATH` changes only with the result."""
        stamp = self._path + ".at"
        handle = os.open(stamp, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if self._is_fresh(handle):
                return
            _lock(handle, self._lock_s)
            if self._is_fresh(handle):
                return  # another process queried while we waited
            self._store(_ask(self._slurm_bin))
            os.utime(handle)
        finally:
            os.close(handle)

    def _is_fresh(self, handle: int) -> bool:
        """Return whether the result is fresh. A time in the future means that the clock was set back: not fresh."""
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
    """Wait for the lock, at most `seconds`. A killed process releases its lock; a suspended process does not."""

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
    """Query only nodes that are not ready, so that the answer is short when few nodes start."""
    states = "powering_up,powered_down,no_respond"
    nodes = _lines(slurm_bin, "sinfo", "-h", "-N", "-t", states, "-o", "%n")
    jobs = _lines(slurm_bin, "squeue", "-h", "-t", "CF", "-o", "%A")
    return "\n".join(sorted(set(nodes))) + "\n\n" + "\n".join(sorted(jobs)) + "\n"


def _parse(text: str) -> tuple[frozenset[str], frozenset[str]]:
    nodes, _, jobs = text.partition("\n\n")
    return frozenset(nodes.split()), frozenset(jobs.split())


def _bound(slurm_bin: str) -> float:
    """Return ResumeTimeout in seconds. After it, slurmctld has given up the node."""
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
    env = {**os.environ, "SLURM_CONF": STANDBY_CONF} if os.path.exists(STANDBY_CONF) else None
    done = subprocess.run(
        argv, capture_output=True, timeout=CALL_S, stdin=subprocess.DEVNULL, env=env, check=True
    )
    return done.stdout.decode("utf-8", "replace").splitlines()


if __name__ == "__main__":
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        main(os.environ)
    sys.exit(0)  # a failing PrologSlurmctld would requeue the job
