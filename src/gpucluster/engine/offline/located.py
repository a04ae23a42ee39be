"""Find source positions: `gpucluster/aws/network.py:37`, relative to the import path, so equal on all machines."""

import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType, TracebackType
from urllib.parse import unquote, urlparse


def from_uri(uri: str, line: int) -> str:
    """Return a position from the SDK's URI."""
    path = unquote(urlparse(uri).path)
    return f"{shortened(path)}:{line}" if path and line else ""


def from_traceback(trace: TracebackType | None, package: str) -> str:
    """Return the innermost line in the program's own package."""
    return _innermost(list(traceback.walk_tb(trace)), package)


def from_thread(frame: FrameType | None, package: str) -> str:
    """Return a thread's current line, if it is in the program's own package."""
    return _innermost(reversed(list(traceback.walk_stack(frame))), package)


def shortened(path: str) -> str:
    """Return the path relative to its import folder."""
    roots = sorted((root for root in sys.path if root), key=len, reverse=True)
    for root in roots:
        if Path(path).is_relative_to(root):
            return str(Path(path).relative_to(root))
    return path


def _innermost(frames: Iterable[tuple[FrameType, int]], package: str) -> str:
    own = [(frame.f_code.co_filename, line) for frame, line in frames if _is_of(frame, package)]
    return f"{shortened(own[-1][0])}:{own[-1][1]}" if own else ""


def _is_of(frame: FrameType, package: str) -> bool:
    """Return whether the module belongs to the program and not to the planner, which can be in the same package."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] == package and not module.startswith("gpucluster.engine.offline")
