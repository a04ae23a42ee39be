"""Rendered files, and the only archive (the bundle) that carries them.

The bundle is a gzip'd tar. Its members are sorted by path, with owner root and time 0. The first member is
`manifest.json`, with sha256 by path. The same artifacts give the same bytes.
"""

import errno
import gzip
import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import cast

from gpucluster.json_text import parse_json

MANIFEST = "manifest.json"
MAX_BUNDLE_BYTES = 64 * 1024 * 1024  # far above any real bundle; stops a hostile archive from filling a disk


@dataclass(frozen=True, slots=True, order=True)
class Artifact:
    """One rendered file: `path` relative to the bundle's root, POSIX, no `..`."""

    path: str
    content: bytes
    mode: int = 0o644

    def __post_init__(self) -> None:
        pure = PurePosixPath(self.path)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            raise ValueError(f"an artifact's path stays below the root: {self.path!r}")


def pack(artifacts: Iterable[Artifact]) -> bytes:
    """Return the bundle's bytes; two artifacts with one path are a ValueError."""
    ordered = sorted(artifacts)
    paths = [a.path for a in ordered]
    if len(set(paths)) != len(paths):
        raise ValueError("two artifacts have the same path")
    manifest = {a.path: hashlib.sha256(a.content).hexdigest() for a in ordered}
    head = Artifact(MANIFEST, (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for artifact in (head, *ordered):
            info = tarfile.TarInfo(artifact.path)
            info.size, info.mode, info.mtime = len(artifact.content), artifact.mode, 0
            tar.addfile(info, io.BytesIO(artifact.content))
    return gzip.compress(raw.getvalue(), mtime=0)


def unpack(bundle: bytes) -> tuple[Artifact, ...]:
    """Return the artifacts of a bundle, checked against its manifest; ValueError if they differ, or if it is no bundle."""
    try:
        found = {artifact.path: artifact for artifact in _members(bundle)}
    except (EOFError, OSError, RecursionError, tarfile.TarError, zlib.error) as error:
        # tarfile calls itself for each header of a long name
        raise ValueError(f"it is no whole archive: {type(error).__name__}") from error
    manifest = parse_json(found.pop(MANIFEST, Artifact(MANIFEST, b"{}")).content)
    seen = {path: hashlib.sha256(a.content).hexdigest() for path, a in found.items()}
    if seen != manifest:
        named: Mapping[str, object] = (
            cast("Mapping[str, object]", manifest) if isinstance(manifest, dict) else {}
        )
        wrong = sorted(p for p in seen.keys() | named.keys() if seen.get(p) != named.get(p))
        raise ValueError(f"the bundle's files differ from its manifest: {', '.join(wrong)}")
    return tuple(sorted(found.values()))


def _members(bundle: bytes) -> Iterator[Artifact]:
    """Each member as it is archived: tarfile would also unpack another archive, and make the zeros of a sparse file."""
    with gzip.GzipFile(fileobj=io.BytesIO(bundle)) as stream:
        raw = stream.read(MAX_BUNDLE_BYTES + 1)
    if len(raw) > MAX_BUNDLE_BYTES:
        raise ValueError(f"the bundle is larger than {MAX_BUNDLE_BYTES} bytes")
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as tar:
        for info in tar:
            plain = info.isreg() and not info.issparse()
            member = tar.extractfile(info) if plain else None  # never follow a link
            if member is None:
                raise ValueError(f"{info.name}: only plain files belong in a bundle")
            yield Artifact(info.name, member.read(), info.mode & 0o777)


def digest(bundle: bytes) -> str:
    """Return the bundle's name in logs and status: sha256, hex."""
    return hashlib.sha256(bundle).hexdigest()


def write_tree(artifacts: Iterable[Artifact], root: Path) -> None:
    """Write the artifacts below `root`, which is created if it is missing. A link below it is an OSError, and nothing is written."""
    ordered = sorted(artifacts)
    for artifact in ordered:
        _refuse_links(root, artifact.path)
    for artifact in ordered:
        target = root / artifact.path
        target.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(target, flags, artifact.mode), "wb") as file:
            file.write(artifact.content)
            os.fchmod(file.fileno(), artifact.mode)


def _refuse_links(root: Path, path: str) -> None:
    for place in (root / path, *(root / folder for folder in PurePosixPath(path).parents[:-1])):
        if place.is_symlink():
            raise OSError(
                errno.ELOOP, f"{place} is a symbolic link; remove it, or name another folder", str(place)
            )
