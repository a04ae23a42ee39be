"""Apptainer of Debian unstable, unpacked beside the trees: Debian 13 and testing have none. Fetched once, kept in the cache."""

import shutil
from pathlib import Path

from gpucluster import shell
from gpucluster.sandbox.images import layers, mirrors
from slurm_lab import trees

_FROM = layers.Release(suite="sid", python="-")
_FOLDER = trees.CACHE / "apptainer"


def folder() -> Path:
    """Return the files of the package below a folder; GpuclusterError if it cannot be had."""
    with layers.locked(trees.CACHE, print):
        layers.remove_unfinished(trees.CACHE)
        if not _FOLDER.exists():
            print("fetching Apptainer of Debian unstable", flush=True)
            layers.build(_FOLDER, _make, keep=("root",))
    return _FOLDER / "root"


def _make(scratch: Path) -> None:
    """Fetch the package with package lists of its own: those of this host stay."""
    apt = scratch / "apt"
    for part in ("lists/partial", "cache/archives/partial"):
        (apt / part).mkdir(parents=True)
    lines = mirrors.debian_lines(mirrors.APT, suite=_FROM.suite)
    (apt / "sources.list").write_text("".join(f"{line}\n" for line in lines if f" {_FROM.suite} " in line))
    (apt / "status").touch()
    settings = {
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferencesparts": "-",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Check-Valid-Until": "false",
    }
    options = [f"--option={key}={value}" for key, value in settings.items()]
    shell.run(["apt-get", *options, "update"], timeout_s=300)
    shell.run(["apt-get", *options, "download", "apptainer"], cwd=apt, timeout_s=300)
    (package,) = apt.glob("apptainer_*.deb")
    shell.run(["dpkg-deb", "--extract", str(package), str(scratch / "root")])
    shutil.rmtree(apt)
