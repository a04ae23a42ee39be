"""Run one program in its own mount namespace. The mounts end with the program.

`within(...)` returns the argv of an `unshare`. Its child is this module, run by path with the standard library only; it mounts
and then becomes the program. Killing the `unshare` ends everything inside.
"""

import ctypes
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """An overlay mount: `lower` from top to bottom; missing folders are created."""

    lower: tuple[Path, ...]
    upper: Path
    work: Path
    at: Path

    @property
    def options(self) -> str:
        lower = ":".join(map(str, self.lower))
        return f"lowerdir={lower},upperdir={self.upper},workdir={self.work}"


def within(
    argv: Sequence[str],
    *,
    tmpfs: tuple[Path, ...] = (),
    overlay: Overlay | None = None,
    proc: Path | None = None,
) -> list[str]:
    """Return the argv that runs `argv` with these mounts, in its own mount and PID namespaces."""
    wanted = {"tmpfs": tmpfs, "overlay": None if overlay is None else asdict(overlay), "proc": proc}
    # a killed `up` must not leave a build running that writes into the next one's folder
    orphaned = ["setpriv", "--pdeathsig", "KILL", "--"]
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
    return [*orphaned, *unshare, sys.executable, "-I", "-S", __file__, json.dumps(wanted, default=str), *argv]


def mount(source: str, target: Path, kind: str, options: str = "") -> None:
    """Mount by system call: the tree that is mounted over may lack the mount program."""
    libc = ctypes.CDLL(None, use_errno=True)
    target.mkdir(parents=True, exist_ok=True)
    if libc.mount(source.encode(), os.fsencode(target), kind.encode(), 0, options.encode()) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount of {kind}: {os.strerror(code)}", str(target))


def unmount(target: Path) -> None:
    """Detach the mount; it ends with its last user."""
    libc = ctypes.CDLL(None, use_errno=True)
    detach = 2
    if libc.umount2(os.fsencode(target), detach) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"umount: {os.strerror(code)}", str(target))


def overlay_mount(overlay: Overlay) -> None:
    """Create the folders and the mount."""
    for folder in (overlay.upper, overlay.work):
        folder.mkdir(parents=True, exist_ok=True)
    mount("overlay", overlay.at, "overlay", overlay.options)


def _main(text: str, argv: list[str]) -> None:
    os.umask(0o022)  # the files of machines have Debian's modes, whatever the caller's mask is
    wanted = json.loads(text)
    for path in wanted["tmpfs"]:
        mount("tmpfs", Path(path), "tmpfs", "mode=755")
    if wanted["overlay"] is not None:
        raw = wanted["overlay"]
        lower = tuple(Path(p) for p in raw["lower"])
        overlay_mount(
            Overlay(lower=lower, upper=Path(raw["upper"]), work=Path(raw["work"]), at=Path(raw["at"]))
        )
    if wanted["proc"] is not None:
        mount("proc", Path(wanted["proc"]), "proc")
    os.execvp(argv[0], argv)  # noqa: S606  we become the program: no shell is meant


if __name__ == "__main__":
    try:
        _main(sys.argv[1], sys.argv[2:])
    except OSError as error:
        sys.exit(str(error))
