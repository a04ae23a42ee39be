"""A real mount with one empty folder whose server can stop answering: then a program that asks for the file system waits.

The server speaks FUSE 7.31 to the kernel (linux/fuse.h).
"""

import ctypes
import errno
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpucluster.sandbox.capsule import private_mounts

_FORCE, _DETACH = 1, 2  # flags of umount2; with the first one all who wait for an answer go on with an error
LOOKUP, _GETATTR, STATFS, _INIT = 1, 3, 17, 26
_LATE = (LOOKUP, STATFS)
_ASKED = struct.Struct("<IIQQIIII")  # length, opcode, unique, node, user, group, process, padding
_ANSWER = struct.Struct("<IiQ")  # length, error, unique
_REQUEST = 1 << 17  # bytes
# valid for no time; inode 1, a folder with mode 0755 and two links, of root
_FOLDER = struct.pack("<QII", 0, 0, 0) + struct.pack("<6Q10I", 1, *[0] * 8, 0o40755, 2, 0, 0, 0, 4096, 0)
_BODIES = {
    _INIT: struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, 0),
    _GETATTR: _FOLDER,
    STATFS: struct.pack("<5Q4I24x", 0, 0, 0, 0, 0, 4096, 255, 4096, 0),
}


class FuseFolder:
    """Not safe for two threads that call `hanging`."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._hangs = False
        self._waiting: list[tuple[int, int]] = []  # opcode, unique

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Answer no statfs and no lookup: SIGKILL does not end who waits. On exit those that wait have their answers."""
        with self._lock:
            self._hangs = True
        try:
            yield
        finally:
            with self._lock:
                self._hangs = False
                waiting, self._waiting = self._waiting, []
            for what, unique in waiting:
                self._answer(what, unique)

    def is_asked(self, what: int) -> bool:
        """Whether somebody waits for the answer to such a request."""
        with self._lock:
            return any(what == other for other, _ in self._waiting)

    def serve(self) -> None:
        """Answer until the mount ends."""
        while True:
            try:
                asked = os.read(self._device, _REQUEST)
            except OSError:
                return
            _, what, unique, *_ = _ASKED.unpack_from(asked)
            with self._lock:
                late = self._hangs and what in _LATE
                if late:
                    self._waiting.append((what, unique))
            if not late:
                self._answer(what, unique)

    def _answer(self, what: int, unique: int) -> None:
        body = _BODIES.get(what, b"")
        error = 0 if body else -errno.ENOSYS
        with suppress(FileNotFoundError):  # nobody waits for it any more, or it wants no answer
            os.write(self._device, _ANSWER.pack(_ANSWER.size + len(body), error, unique) + body)


@contextmanager
def mounted(path: Path) -> Iterator[FuseFolder]:
    """Mount it on the folder. On exit every program that waits for it goes on, with an error."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    private_mounts.mount("fuse-folder", path, "fuse", options)
    made = FuseFolder(device)
    server = threading.Thread(target=made.serve, daemon=True)
    server.start()
    try:
        yield made
    finally:
        ctypes.CDLL(None).umount2(bytes(path), _FORCE | _DETACH)
        server.join()
        os.close(device)
