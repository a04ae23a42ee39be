"""Move slurmctld's state and the daemon's journal from the head's root disk to storage that survives the head.

A marker on that storage says how far the move is. Until it says IN_USE, the folders of the root disk are in use; then those
of the storage are. The agent can be killed at any point: the next run starts the copy again, or goes on after it. The old
folders stay beside the mount points, with the suffix ASIDE.
"""

import hashlib
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from gpucluster.agent.machine import StepError
from gpucluster.plan import codec

MARKER = ".gpucluster-state.json"
INCOMING = ".gpucluster-incoming"
ASIDE = ".before-move"
CLUSTER_NAME = "slurmctld/clustername"  # slurmctld writes the name of its cluster there
CHUNK = 1 << 20
SPARE_BYTES = 64 << 20  # that stay free after the copy
IGNORED = frozenset({"lost+found"})

Checkpoint = Callable[[str], None]
log = logging.getLogger(__name__)


class Phase(StrEnum):
    """How far the move to the storage is."""

    COPYING = "copying"  # a copy may be there in part
    COMPLETE = "complete"  # the copy is whole and verified, and was never in use
    IN_USE = "in-use"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The file MARKER on the storage."""

    cluster: str
    phase: Phase
    copied: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # digests of the copied folders, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """The storage, and the folders on the root disk that are bound to it: name on the storage -> path."""

    cluster: str
    root: Path
    local: Mapping[str, Path]

    @property
    def has_local(self) -> bool:
        return any(has_content(path) for path in self.local.values())

    @property
    def has_stored(self) -> bool:
        return any(has_content(self.root / name) for name in self.local)


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemons:
    """The daemons that write the folders."""

    running: Callable[[], bool]
    stop: Callable[[], None]


def prepare(folders: Folders, daemons: Daemons, at: Checkpoint = lambda _: None) -> None:
    """Bring the state to the storage, so that it can be bound. StepError: the storage has other state; nothing is changed."""
    marker = read_marker(folders)
    if folders.has_local:
        _with_local(folders, marker, daemons, at)
    elif marker is None:
        _check_name(folders)
    elif marker.phase is Phase.COPYING:
        raise StepError(
            f"the copy of Slurm's state on {folders.root} is not complete, and this machine does not have its source; to start "
            f"with an empty queue, remove {folders.root / MARKER} and {folders.root / INCOMING}"
        )
    at("checked")
    if (marker := read_marker(folders)) is None or marker.phase is not Phase.IN_USE:
        copied: Mapping[str, str] = marker.copied if marker else {}
        _write_marker(folders, Marker(cluster=folders.cluster, phase=Phase.IN_USE, copied=copied))
    at("in use")
    for path in folders.local.values():
        if has_content(path):
            _set_aside(path)
            at("set aside")


def in_use(folders: Folders) -> bool:
    """Return whether the head has put its state on the storage."""
    marker = read_marker(folders)
    return marker is not None and marker.phase is Phase.IN_USE


def read_marker(folders: Folders) -> Marker | None:
    """Return the marker; None if there is none. StepError: it is damaged, or of another cluster."""
    path = folders.root / MARKER
    try:
        marker = codec.loads(Marker, path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StepError(f"{path} cannot be read: {error}") from error
    if marker.cluster != folders.cluster:
        raise _other_cluster(folders, marker.cluster)
    return marker


def has_content(folder: Path) -> bool:
    """Return whether the folder has a file, at any depth."""
    return folder.is_dir() and any(not path.is_dir() or path.is_symlink() for path in _walk(folder))


def digests(folders: Mapping[str, Path]) -> dict[str, str]:
    """Return one hash a folder, over the names, kinds, modes, sizes and contents below it."""
    return {name: _digest(folder) for name, folder in folders.items()}


def _with_local(folders: Folders, marker: Marker | None, daemons: Daemons, at: Checkpoint) -> None:
    """The root disk has state: copy it, unless the storage has a whole copy, or newer state of this cluster."""
    if marker is None and folders.has_stored:
        _check_name(folders)
        raise StepError(
            f"{folders.root} has state of Slurm, and so has the root disk of this head: one of them is lost if the other is used. "
            f"Empty {folders.root} to move the state of this head there, or stop slurmctld and gpucluster-elastic and move "
            f"{', '.join(map(str, folders.local.values()))} away to use the state on {folders.root}"
        )
    if marker is not None and marker.phase is Phase.IN_USE:
        _check_older(folders, marker, daemons)
        return
    _check_room(folders)
    daemons.stop()
    at("stopped")
    source = digests(folders.local)
    if marker is None or marker.phase is Phase.COPYING or marker.copied != source:
        _copy(folders, source, at)


def _check_older(folders: Folders, marker: Marker, daemons: Daemons) -> None:
    """The storage is in use, and the root disk has state, too: that may only be the source of the copy, or older."""
    if not daemons.running():
        other = {
            name: path
            for name, path in folders.local.items()
            if has_content(path) and marker.copied.get(name) != _digest(path)
        }
        if _newest(other) <= _newest({name: folders.root / name for name in folders.local}):
            return
    raise StepError(
        f"{folders.root} has older state of this cluster than the root disk of this head, so it is not mounted over it. To use "
        f"the state of this head, empty {folders.root}; to use the older one, stop slurmctld and gpucluster-elastic and move "
        f"{', '.join(map(str, folders.local.values()))} away"
    )


def _check_name(folders: Folders) -> None:
    """Storage without a marker: slurmctld's own file names its cluster."""
    try:
        text = (folders.root / CLUSTER_NAME).read_text(errors="replace")
    except OSError:
        return
    found = text.strip().partition("|")[0].strip()
    if found and found != folders.cluster:
        raise _other_cluster(folders, found)


def _other_cluster(folders: Folders, found: str) -> StepError:
    return StepError(
        f"{folders.root} has state of the cluster {found[:64]!r}, expected {folders.cluster!r}; nothing is changed. Give this "
        "cluster a volume of its own, or empty this one"
    )


def _check_room(folders: Folders) -> None:
    size = sum(
        path.lstat().st_size for folder in folders.local.values() if folder.is_dir() for path in _walk(folder)
    )
    found = os.statvfs(folders.root)
    free = found.f_bavail * found.f_frsize
    if free < size + SPARE_BYTES:
        raise StepError(
            f"{folders.root} has {free >> 20} MiB free, expected {(size + SPARE_BYTES) >> 20} MiB for the state of Slurm"
        )


def _copy(folders: Folders, source: dict[str, str], at: Checkpoint) -> None:
    """Copy into INCOMING, verify, then rename. The marker says COPYING until all of it is on the disk."""
    incoming = folders.root / INCOMING
    _write_marker(folders, Marker(cluster=folders.cluster, phase=Phase.COPYING))
    at("marked")
    for stale in (incoming, *(folders.root / name for name in folders.local)):
        shutil.rmtree(stale, ignore_errors=True)  # of an earlier copy that was never in use
    incoming.mkdir(mode=0o700)
    for name, folder in folders.local.items():
        _copy_tree(folder, incoming / name, at)
    at("copied")
    copied = digests({name: incoming / name for name in folders.local})
    if copied != source or digests(folders.local) != source:
        raise OSError(f"the copy of Slurm's state on {folders.root} differs from its source")
    for name in folders.local:
        (incoming / name).rename(folders.root / name)
        at("renamed")
    incoming.rmdir()
    _sync(folders.root)
    _write_marker(folders, Marker(cluster=folders.cluster, phase=Phase.COMPLETE, copied=source))
    at("complete")
    log.info("the state of Slurm was copied to %s and verified", folders.root)


def _copy_tree(source: Path, target: Path, at: Checkpoint) -> None:
    """Copy owners, modes and contents, and write all of it to the disk. The copies are newer than their sources."""
    if not source.is_dir():
        target.mkdir(mode=0o700)
        return
    for path in _walk(source):
        found, there = path.lstat(), target / path.relative_to(source)
        if stat.S_ISDIR(found.st_mode):
            there.mkdir(mode=0o700)
        elif stat.S_ISLNK(found.st_mode):
            there.symlink_to(path.readlink())
        elif stat.S_ISREG(found.st_mode):
            shutil.copyfile(path, there, follow_symlinks=False)
        elif stat.S_ISSOCK(found.st_mode):
            continue  # a daemon makes its socket again
        else:
            raise OSError(f"{path} is neither a file nor a folder")
        os.chown(there, found.st_uid, found.st_gid, follow_symlinks=False)
        if not stat.S_ISLNK(found.st_mode):
            there.chmod(stat.S_IMODE(found.st_mode))
            _sync(there)
        at("one copied")
    for path in _walk(target):
        if path.is_dir() and not path.is_symlink():
            _sync(path)


def _set_aside(path: Path) -> None:
    """Move the old content beside the mount point, so that it is never taken for the present state.

    The storage is in use already, so a failure is only logged: the content then stays below the mount. The folder itself is
    not renamed: overlayfs cannot rename a folder of a lower layer.
    """
    aside = path.with_name(f"{path.name}{ASIDE}")
    try:
        aside.mkdir(mode=0o700, exist_ok=True)
        for child in sorted(path.iterdir()):
            target = aside / child.name
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            child.rename(target)
        _sync(aside)
        _sync(path)
    except OSError as error:
        log.warning("the old state in %s cannot be moved away: %s", path, error)
        return
    log.warning("the old state stays in %s; it is not used any more", aside)


def _write_marker(folders: Folders, marker: Marker) -> None:
    folders.root.mkdir(mode=0o755, parents=True, exist_ok=True)
    path = folders.root / MARKER
    fresh = path.with_name(f"{MARKER}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(codec.dumps(marker))
        file.flush()
        os.fsync(descriptor)
    fresh.replace(path)
    _sync(folders.root)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the folder and all below it, folders before their contents, in a fixed order. No link is followed."""
    yield folder
    for path in sorted(folder.iterdir()):
        if path.name in IGNORED:
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        else:
            yield path


def _digest(folder: Path) -> str:
    seen = hashlib.sha256()
    for path in _walk(folder) if folder.is_dir() else ():
        found = path.lstat()
        kind = stat.S_IFMT(found.st_mode)
        if kind == stat.S_IFSOCK:
            continue
        size = found.st_size if kind == stat.S_IFREG else 0
        seen.update(f"{path.relative_to(folder)}\0{found.st_mode:o}\0{size}\0".encode())
        if kind == stat.S_IFREG:
            seen.update(_hash(path))
        elif kind == stat.S_IFLNK:
            seen.update(os.fsencode(path.readlink()))
    return seen.hexdigest()


def _newest(folders: Mapping[str, Path]) -> float:
    times = (
        path.lstat().st_mtime for folder in folders.values() if folder.is_dir() for path in _walk(folder)
    )
    return max(times, default=0.0)


def _hash(path: Path) -> bytes:
    """Return the hash of a file as the disk has it: its pages are dropped from memory first."""
    seen = hashlib.sha256()
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while chunk := file.read(CHUNK):
            seen.update(chunk)
    return seen.digest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
