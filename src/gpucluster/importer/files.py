"""The files of an import: those that the user names, and those beside slurm.conf that it includes. Nothing else is read."""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from gpucluster.errors import GpuclusterError
from gpucluster.importer.lines import NotReadableError

MAX_BYTES = 4 << 20  # of one file
MAX_TOTAL = 32 << 20  # of all files; one file may be included many times


@dataclass(slots=True)
class Folder:
    """The folder of slurm.conf, and the files that the user names. An absolute include is searched here by its name."""

    root: Path
    named: tuple[Path, ...] = ()
    _read: int = 0
    used: set[Path] = field(default_factory=set[Path])

    def read(self, name: str) -> tuple[str, str]:
        """The text of an included file. NotReadableError for a path outside the folder that the user has not named."""
        if any(char in name for char in "*?["):
            raise NotReadableError("Slurm does not expand wildcards in an Include")
        wanted = PurePosixPath(name)
        for file in self.named:
            if file.name == wanted.name:
                return str(file), self.text(file)
        for file in self._beside(wanted):
            if _is_file(file) and self._inside(file):
                return str(file), self.text(file)
        if wanted.is_absolute() or ".." in wanted.parts:
            raise NotReadableError(f"it is not beside slurm.conf; copy it there, or name it: {wanted.name}")
        raise NotReadableError("there is no such file beside slurm.conf")

    def text(self, file: Path) -> str:
        """The text of a file. NotReadableError if it is no plain file, too large, or not readable."""
        self.used.add(file)
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as stream:
                if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                    raise NotReadableError("it is not a plain file")
                raw = stream.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "its name is no path"
            raise NotReadableError(f"it cannot be read: {why}") from None
        self._read += len(raw)
        if len(raw) > MAX_BYTES:
            raise NotReadableError(f"it is larger than {MAX_BYTES >> 20} MiB")
        if self._read > MAX_TOTAL:
            raise NotReadableError(f"all files together are larger than {MAX_TOTAL >> 20} MiB")
        return raw.decode("utf-8-sig", "replace").replace("\0", "\ufffd")

    def _beside(self, wanted: PurePosixPath) -> tuple[Path, ...]:
        """An absolute path is tried with its last parts, because the files were copied from elsewhere."""
        if not wanted.is_absolute():
            return (self.root / wanted,)
        parts = wanted.parts[1:]
        return tuple(self.root.joinpath(*parts[at:]) for at in range(len(parts)))

    def _inside(self, file: Path) -> bool:
        return file.resolve().is_relative_to(self.root.resolve())


def _is_file(file: Path) -> bool:
    """A name that is too long for the file system is none."""
    try:
        return file.is_file()
    except (OSError, ValueError):
        return False


def require_text(folder: Folder, file: Path) -> str:
    """The text of a file that the user names. GpuclusterError if it cannot be read."""
    try:
        return folder.text(file)
    except NotReadableError as error:
        raise GpuclusterError(
            f"{file}: {error}", next_step="name the slurm.conf of the site, then its other files"
        ) from None
