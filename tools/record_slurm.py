"""Record what real Slurm daemons do: tests/recorded/transitions/VERSION.jsonl, one change a line.

    .venv/bin/python tools/record_slurm.py 24.11              # root; makes a Debian tree the first time
    .venv/bin/python tools/record_slurm.py 24.11 --only down  # the cases with that word, to look at

All runs in mount, PID, network and UTS namespaces of its own over an overlay of the tree: one slurmctld, munge,
slurmds as they are asked for, hooks that only note their call. Nothing of it stays when the program ends.
"""

import argparse
import os
import sys
from pathlib import Path

from slurm_lab.lab import VERSIONS, Lab
from slurm_lab.record import Recorder

from gpucluster import shell
from gpucluster.sandbox import bootstrap, images, mirrors

CACHE = Path("/var/cache/gpucluster/recorder")
OUT = Path(__file__).parent.parent / "tests/recorded/transitions"
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge", "procps")
_INSIDE = "GPUCLUSTER_RECORDER"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", choices=sorted(VERSIONS))
    parser.add_argument("--only", default="", help="cases with this word in their name")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    version = VERSIONS[args.version]
    if os.environ.get(_INSIDE) is None:
        _tree(version.suite)
        _enter()
    out = args.out or OUT / f"{version.name}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_suffix(".part")
    part.unlink(missing_ok=True)
    lab = Lab(version, CACHE / version.suite / "root")
    recorder = Recorder(lab, part)
    try:
        lab.start()
        recorder.run(args.only)
        recorder.run_whole(args.only)
    finally:
        lab.stop()
    part.rename(out)
    print(f"{recorder.written} transitions in {out}")


def _enter() -> None:
    """Become a process in namespaces of its own; what is started there ends with it."""
    flags = ["--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
    argv = ["unshare", *flags, sys.executable, *sys.argv]
    os.execvpe("unshare", argv, {**os.environ, _INSIDE: "1"})  # noqa: S606, S607 -- found on PATH


def _tree(suite: str) -> None:
    """The Debian tree with Slurm, made once from this host's own mirrors."""
    root = CACHE / suite
    if root.exists():
        return
    debs = CACHE / "debs" / suite
    debs.mkdir(parents=True, exist_ok=True)
    lines = mirrors.debian_lines(mirrors.APT, suite=suite)
    lines = tuple(line for line in lines if suite != "sid" or f" {suite} " in line)  # sid has no -updates
    options = (
        *mirrors.apt_options(),
        'Acquire::Check-Valid-Until "false"',
    )  # sid's Release can be past its date

    def make(scratch: Path) -> None:
        argv = bootstrap.mmdebstrap_argv(
            suite=suite, packages=PACKAGES, lines=lines, options=options, debs=debs, root=scratch / "root"
        )
        shell.run(argv, timeout_s=1800)
        images.scrub(scratch / "root")

    images.build(root, make, keep=("root",))


if __name__ == "__main__":
    main()
