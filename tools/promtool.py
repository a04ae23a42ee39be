"""Find promtool, which checks monitoring/rules.yml: on PATH, in the cache, or in Debian's package, which is unpacked and not installed.

`python tools/promtool.py` prints where it is.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from gpucluster.errors import GpuclusterError
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
        argv = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", PACKAGE]
        try:
            _run(argv, folder)
        except GpuclusterError:  # the lists of packages are missing or old
            _run(["apt-get", "update", "-qq"], folder)
            _run(argv, folder)
        package = next(Path(folder).glob("*.deb"))
        _run(["dpkg-deb", "--extract", str(package), "tree"], folder)
        (Path(folder) / "tree" / IN_IT).rename(
            cache / "promtool"
        )  # the rename makes the file appear complete
    return cache / "promtool"


def _run(argv: list[str], folder: str) -> None:
    env = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no words"]
        raise GpuclusterError(f"{' '.join(argv[:2])}: {lines[0]}", next_step="apt-get update, and again")


if __name__ == "__main__":
    print(find_or_fetch(lambda words: print(words, file=sys.stderr)))
