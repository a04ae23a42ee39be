"""Record what real Slurm daemons do: tests/recorded/transitions/VERSION.jsonl, one change a line; with --drains their reasons.

    .venv/bin/python tools/record_slurm.py 24.11              # root; makes a Debian tree the first time
    .venv/bin/python tools/record_slurm.py 24.11 --only down  # the cases with that word, to look at
    .venv/bin/python tools/record_slurm.py 24.11 --drains     # src/gpucluster/catalog/data/slurm-drains-24.11.json

The programs run in mount, PID, network and UTS namespaces over an overlay of the tree: one slurmctld, munge, slurmds on
request, and hooks that only record their call. Everything is removed when the program ends.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from slurm_lab import trees
from slurm_lab.drains import CASES, DrainLab
from slurm_lab.lab import VERSIONS, Lab, Version
from slurm_lab.read_drains import read_rows
from slurm_lab.record import Recorder

OUT = Path(__file__).parent.parent / "tests/recorded/transitions"
DRAINS = Path(__file__).parent.parent / "src/gpucluster/catalog/data"
_INSIDE = "GPUCLUSTER_RECORDER"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", choices=sorted(VERSIONS))
    parser.add_argument("--only", default="", help="cases with this word in their name")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--drains", action="store_true", help="the reasons of drains instead")
    args = parser.parse_args()
    version = VERSIONS[args.version]
    if os.environ.get(_INSIDE) is None:
        trees.tree(version.name)
        _enter()
    if args.drains:
        _record_drains(version, args.only, args.out or DRAINS / f"slurm-drains-{version.name}.json")
        return
    out = args.out or OUT / f"{version.name}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_suffix(".part")
    part.unlink(missing_ok=True)
    lab = Lab(version, trees.tree(version.name))
    recorder = Recorder(lab, part)
    try:
        lab.start()
        recorder.run(args.only)
        recorder.run_whole(args.only)
    finally:
        lab.stop()
    part.rename(out)
    print(f"{recorder.written} transitions in {out}")


def _record_drains(version: Version, only: str, out: Path) -> None:
    """Write the rows that were recorded, and those that were only read."""
    lab = DrainLab(version, trees.tree(version.name), [case for case in CASES if only in case.node])
    try:
        lab.start()
        table = lab.record()
    finally:
        lab.stop()
    read = list(read_rows(version.name, [row["text"] for row in table["rows"]]))
    out.write_text(json.dumps({**table, "read": read}, indent=1) + "\n")
    print(f"{len(table['rows'])} reasons in {out}, and {len(read)} that were read")


def _enter() -> None:
    """Run this program in its own namespaces. Its child processes end with it."""
    flags = ["--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
    argv = ["unshare", *flags, sys.executable, *sys.argv]
    os.execvpe("unshare", argv, {**os.environ, _INSIDE: "1"})  # noqa: S606, S607 -- found on PATH


if __name__ == "__main__":
    main()
