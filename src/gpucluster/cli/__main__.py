"""The entry point. It handles signals before it imports anything large.

SIGTERM is handled like Ctrl-C, so the same code cleans up after both.
"""

import contextlib
import gc
import os
import signal
import sys
from types import FrameType, ModuleType
from typing import NoReturn

from gpucluster.errors import INTERRUPTED
from gpucluster.text import escape_what_streams_lack

PLUGIN_LOADER = "pydantic.plugin._loader"


def main() -> NoReturn:
    """Run the command line and exit."""
    _disable_pydantic_plugins()
    gc.set_threshold(50_000)  # imports create many objects and no garbage
    got = [signal.SIGINT]

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        got[0] = signal.SIGTERM
        raise KeyboardInterrupt

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the parent closed the stream: no reader is left
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
    escape_what_streams_lack()
    try:
        signal.signal(signal.SIGTERM, end)
        code = _run(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        _leave(128 + got[0])
    sys.exit(code)


def _run(argv: list[str]) -> int:
    """Import typer only for a command line that needs it: it takes a sixth of a short verb's time."""
    from gpucluster.cli.checked import check_plain

    gc.disable()  # a check lives for a third of a second and leaves little garbage
    code = check_plain(argv)
    if code is not None:
        _exit_at_once(code)
    gc.enable()
    from gpucluster.cli.main import run

    return run(argv)


def _disable_pydantic_plugins() -> None:
    """Set pydantic's own variable, and give it its loader of plugins without one.

    Otherwise pydantic searches all installed packages. Even if it must not, its loader imports importlib.metadata, which
    takes as long as pydantic's models.
    """
    if os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__") == "__all__":
        loader = ModuleType(PLUGIN_LOADER)
        vars(loader)["get_plugins"] = tuple  # of no plugins: ()
        sys.modules[PLUGIN_LOADER] = loader


def _exit_at_once(code: int) -> NoReturn:
    """Exit without Python's shutdown, which frees every object of every module. Nothing is open after a check."""
    with contextlib.suppress(OSError):  # a closed pipe: the check has reported it
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _leave(code: int) -> NoReturn:
    """Exit at once: a second signal during Python's own shutdown would print a traceback."""
    with contextlib.suppress(OSError, KeyboardInterrupt):
        sys.stdout.flush()
        sys.stderr.write("interrupted\n  next: repeat the command; it starts from the beginning\n")
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
