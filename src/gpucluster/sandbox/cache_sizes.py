"""The size of everything in the cache, for `sandbox status`."""

import os
from pathlib import Path

from gpucluster.sandbox import paths


def cached(cache: Path = paths.CACHE) -> tuple[tuple[str, int], ...]:
    """Return (name, bytes) of everything in the cache, for `sandbox status`."""
    parts = [p for kind in ("images", "debs", "wheels") for p in _children(cache / kind)]
    others = [p for p in _children(cache) if p.is_dir() and p.name not in ("images", "debs", "wheels")]
    return tuple((str(p.relative_to(cache)), _size(p)) for p in (*parts, *others))


def _children(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(f.lstat().st_size for d, _, files in os.walk(path) for f in (Path(d) / n for n in files))
