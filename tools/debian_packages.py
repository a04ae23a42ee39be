"""Download Debian's packages without installing them."""

from collections.abc import Sequence
from pathlib import Path

from gpucluster.shell import CommandError, run

LIMIT_S = 600.0


def download(packages: Sequence[str], folder: Path) -> list[Path]:
    """Download them into the folder, and return the files. A machine whose lists of packages are missing or old gets new ones."""
    argv = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *packages]
    try:
        run(argv, cwd=folder, timeout_s=LIMIT_S)
    except CommandError:
        run(["apt-get", "update", "-qq"], timeout_s=LIMIT_S)
        run(argv, cwd=folder, timeout_s=LIMIT_S)
    return sorted(folder.glob("*.deb"))


def unpack(package: Path, target: Path) -> None:
    """Unpack it into the folder."""
    run(["dpkg-deb", "--extract", str(package), str(target)], timeout_s=LIMIT_S)
