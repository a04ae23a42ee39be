"""Bind-mount a folder into a running machine. The rehearsal uses it for network file systems.

`python -I -S bind_mounts.py SOURCE_PID PATH TARGET_PID TARGET`. Standard library only. It is a process of its own, because a process
with threads cannot change its mount namespace. A PID (or `self`) names the namespace.
"""

import ctypes
import os
import sys

_SETNS, _OPEN_TREE, _MOVE_MOUNT = (
    0x00020000,
    428,
    429,
)  # CLONE_NEWNS; numbers are the same on every architecture
_CLONE, _CLOEXEC, _EMPTY_PATH = 1, 0o2000000, 4
_HERE = -100

_libc = ctypes.CDLL(None, use_errno=True)


def main(source_pid: str, path: str, target_pid: str, target: str) -> None:
    """Clone the mount in its namespace, and attach it in the other."""
    there, here = (os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY) for pid in (source_pid, target_pid))
    _enter(there)
    tree = _call(_OPEN_TREE, _HERE, os.fsencode(path), _CLONE | _CLOEXEC)
    _enter(here)
    _call(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(target), _EMPTY_PATH)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _SETNS) != 0:
        _fail()


def _call(number: int, *words: object) -> int:
    found = int(_libc.syscall(number, *words))
    if found < 0:
        _fail()
    return found


def _fail() -> None:
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:5])
    except OSError as error:
        sys.exit(os.strerror(error.errno or 0))
