"""Enter control groups, then become the program: `enter.py PROCS... -- ARGV...`. Standard library only.

A machine must be in its own groups before systemd-nspawn starts. A preexec function in a process with threads may hang.
"""

import ctypes
import fcntl
import os
import sys
from contextlib import suppress
from pathlib import Path

CLONE_NEWNS = 0x00020000
NS_GET_MNTNS_ID = 0x8008B705  # linux/nsfs.h, since 6.11


def main(argv: list[str]) -> None:
    """Write our PID to each `cgroup.procs` before the `--`, then exec the program after it."""
    cut = argv.index("--")
    for procs in argv[:cut]:
        Path(procs).write_text(str(os.getpid()))
    pin_to_lowest_ids()
    os.execvp(argv[cut + 1], argv[cut + 1 :])  # noqa: S606  we become the program: no shell is meant


def pin_to_lowest_ids() -> None:
    """Run on the CPU that gives the next mount namespace the lowest id, so that the machine's id is below those of its jobs.

    Slurm's job_container/tmpfs holds the mount namespace of a job by a bind mount. The kernel refuses it if the id of the
    job's namespace is not above that of the machine (`mnt_ns_loop`), and since 6.18 each CPU draws ids from a range of its
    own. A real machine has the first id of all. The machine's systemd lifts the pin again (sandbox.yml, bare.yml).
    """
    found: dict[int, int] = {}
    for cpu in os.sched_getaffinity(0):
        with suppress(OSError, ValueError):  # no such request before 6.11: ids then rise over all CPUs
            found[next_id(cpu)] = cpu
    if found:
        os.sched_setaffinity(0, {found[min(found)]})


def next_id(cpu: int) -> int:
    """Return the id of a new mount namespace that a short-lived process makes on this CPU."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        with suppress(OSError):
            os.sched_setaffinity(0, {cpu})
            if ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0:
                answer = bytearray(8)
                with Path("/proc/self/ns/mnt").open("rb") as namespace:
                    fcntl.ioctl(namespace, NS_GET_MNTNS_ID, answer)
                os.write(writing, answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    if len(answer) != 8:
        raise ValueError("the kernel shows no id of a mount namespace")
    return int.from_bytes(answer, sys.byteorder)


if __name__ == "__main__":
    main(sys.argv[1:])
