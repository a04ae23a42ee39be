"""Debian trees with Slurm, one for each version, from the host's own mirrors. Built once, kept in the cache."""

import hashlib
import json
from pathlib import Path

from gpucluster import shell
from gpucluster.sandbox import paths
from gpucluster.sandbox.images import bootstrap, layers

RELEASES = {**layers.RELEASES, "22.05": layers.Release(suite="bookworm", python="3.11")}
PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurmdbd", "munge"),
    *("mariadb-server", "procps", "logrotate"),  # the database of slurmdbd; rotation of the logs
    *("python3", "lmod"),  # hooks, health programs and stand-in programs of jobs; modules
)
SACKD = "sackd"  # a package of its own since 23.11
CACHE = paths.CACHE / "slurm"


def tree(version: str) -> Path:
    """Return the tree of this version; make it first if it is missing. Raise GpuclusterError if its packages cannot be had."""
    release = RELEASES[version]
    packages = (*PACKAGES, SACKD) if version >= "23.11" else PACKAGES
    digest = hashlib.sha256(json.dumps((release.name, release.preferences(), packages)).encode()).hexdigest()[
        :12
    ]
    root = CACHE / f"{version}-{digest}"
    with layers.locked(CACHE, print):
        layers.remove_unfinished(CACHE)
        if not root.exists():
            print(f"making a tree of {release.name}", flush=True)
            layers.build(root, lambda scratch: _make(release, packages, scratch), keep=("root",))
    return root / "root"


def _make(release: layers.Release, packages: tuple[str, ...], scratch: Path) -> None:
    debs = CACHE / "debs" / (release.slurm_from or release.suite)
    debs.mkdir(parents=True, exist_ok=True)
    argv = bootstrap.mmdebstrap_argv(
        suite=release.suite,
        packages=packages,
        lines=release.lines(),
        options=release.options(),
        preferences=release.preferences(),
        debs=debs,
        root=scratch / "root",
    )
    shell.run(argv, timeout_s=1800)
    layers.scrub(scratch / "root")
