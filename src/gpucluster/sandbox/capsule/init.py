"""PID 1 of the capsule: starts the supervisor, reaps orphans, and exits with the supervisor.

It runs by path with the standard library only. When this process ends, the kernel ends all others.
"""

import os
import sys


def main(argv: list[str]) -> int:
    """Run `argv` to its end and return its exit code."""
    child = os.fork()
    if child == 0:
        os.umask(0o022)  # machines have Debian's modes, whatever the caller's mask is
        os.execv(argv[0], argv)  # noqa: S606  the child becomes the supervisor: no shell is meant
    while True:
        pid, status = os.wait()
        if pid == child:
            return abs(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
