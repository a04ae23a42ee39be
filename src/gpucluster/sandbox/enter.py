"""Enter control groups, then become the program: `enter.py PROCS... -- ARGV...`, standard library only.

A machine must be in its own groups before systemd-nspawn starts; a preexec function in a process with threads may hang.
"""

import os
import sys
from pathlib import Path


def main(argv: list[str]) -> None:
    """Write our PID to each `cgroup.procs` before the `--`, then exec what stands after it."""
    cut = argv.index("--")
    for procs in argv[:cut]:
        Path(procs).write_text(str(os.getpid()))
    os.execvp(argv[cut + 1], argv[cut + 1 :])  # noqa: S606  we become the program: no shell is meant


if __name__ == "__main__":
    main(sys.argv[1:])
