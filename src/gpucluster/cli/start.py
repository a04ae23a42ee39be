"""The program's first instructions: nothing heavy is imported before a signal can be answered with a sentence.

SIGTERM is taken as Ctrl-C, so that what cleans up after the one cleans up after the other.
"""

import contextlib
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

INTERRUPTED = 128 + signal.SIGINT  # as a shell says it


def main() -> NoReturn:
    """Run the command line and exit."""
    got = [signal.SIGINT]

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        got[0] = signal.SIGTERM
        raise KeyboardInterrupt

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us: nobody reads
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
    try:
        signal.signal(signal.SIGTERM, end)
        from gpucluster.cli.main import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        _leave(128 + got[0])
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """At once: one more signal in Python's own ending would be a traceback."""
    with contextlib.suppress(OSError, KeyboardInterrupt):
        sys.stdout.flush()
        sys.stderr.write("interrupted\n  next: give the same command again; it starts clean\n")
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
