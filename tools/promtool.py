"""Find promtool, which checks monitoring/rules.yml: on PATH, in the cache, or in Debian's package, which is unpacked and not installed.

`python tools/promtool.py` prints where it is.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import debian_packages

from gpucluster.sandbox import paths

PACKAGE, IN_IT = (
    "prometheus",
    "usr/bin/promtool",
)  # the other files of the package, such as the server, are deleted


def find(cache: Path = paths.CACHE) -> Path | None:
    """Return its path without a download; None if it is missing."""
    there = shutil.which("promtool")
    kept = cache / "promtool"
    return Path(there) if there else kept if kept.is_file() else None


def find_or_fetch(progress: Callable[[str], None], *, cache: Path = paths.CACHE) -> Path:
    """Return its path; download it with apt-get if it is missing."""
    found = find(cache)
    if found is not None:
        return found
    progress("fetching promtool out of Debian's package prometheus")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="promtool-") as folder:
        (package,) = debian_packages.download([PACKAGE], Path(folder))
        debian_packages.unpack(package, Path(folder) / "tree")
        (Path(folder) / "tree" / IN_IT).rename(
            cache / "promtool"
        )  # the rename makes the file appear complete
    return cache / "promtool"


if __name__ == "__main__":
    print(find_or_fetch(lambda words: print(words, file=sys.stderr)))
