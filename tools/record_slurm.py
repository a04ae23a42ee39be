"""Record what real Slurm daemons do: tests/recorded/transitions/VERSION.jsonl, one change a line; with --drains their reasons;
with --requests what becomes of jobs.

    .venv/bin/python tools/record_slurm.py 24.11              # root; makes a Debian tree the first time
    .venv/bin/python tools/record_slurm.py 24.11 --only down  # the cases with that word, to look at
    .venv/bin/python tools/record_slurm.py 24.11 --drains     # src/gpucluster/catalog/data/slurm-drains-24.11.json
    .venv/bin/python tools/record_slurm.py 24.11 --requests   # src/gpucluster/catalog/data/slurm-requests-24.11.json

The programs run in mount, PID, network and UTS namespaces over an overlay of the tree: one slurmctld, munge, slurmds on
request, and hooks that only record their call. Everything is removed when the program ends.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from slurm_lab import trees
from slurm_lab.drains import CASES, DrainLab
from slurm_lab.lab import VERSIONS, Lab, Version
from slurm_lab.read_drains import read_rows
from slurm_lab.record import Recorder
from slurm_lab.requests import WAYS, RequestLab, groups, table

OUT = Path(__file__).parent.parent / "tests/recorded/transitions"
DATA = Path(__file__).parent.parent / "src/gpucluster/catalog/data"
SIDE_BY_SIDE = 2
_INSIDE = "GPUCLUSTER_RECORDER"
_UNSHARE = (
    *("unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"),
    sys.executable,
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", choices=sorted(VERSIONS))
    parser.add_argument("--only", default="", help="cases with this word in their name")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--drains", action="store_true", help="the reasons of drains instead")
    parser.add_argument("--requests", action="store_true", help="what becomes of jobs whose request leaves")
    args = parser.parse_args()
    version = VERSIONS[args.version]
    if args.requests:
        _record_requests(version, args.only, args.out or DATA / f"slurm-requests-{version.name}.json")
        return
    if os.environ.get(_INSIDE) is None:
        trees.tree(version.name)
        _enter()
    if args.drains:
        _record_drains(version, args.only, args.out or DATA / f"slurm-drains-{version.name}.json")
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


def _record_requests(version: Version, only: str, out: Path) -> None:
    """Write the rows of all cases. Each group of cases and each way has namespaces of its own."""
    if (inside := os.environ.get(_INSIDE)) is not None:
        way, number = inside.split()
        lab = RequestLab(version, trees.tree(version.name), groups(only)[int(number)], way)
        try:
            lab.start()
            out.write_text(json.dumps(lab.record()))
        finally:
            lab.stop()
        return
    trees.tree(version.name)
    wanted = [(way, number) for number in range(len(groups(only))) for way in WAYS]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        files = {one: Path(folder, f"{one[0]}-{one[1]}.json") for one in wanted}
        for code in pool.map(lambda one: _inside(f"{one[0]} {one[1]}", "--out", str(files[one])), wanted):
            if code:
                raise SystemExit(code)
        found = {
            way: [json.loads(files[way, n].read_text()) for n in range(len(groups(only)))] for way in WAYS
        }
    made = table(found, version.name)
    out.write_text(json.dumps(made, indent=1) + "\n")
    print(f"{len(made['rows'])} cases in {out}")


def _inside(part: str, *more: str) -> int:
    """Run this program for one part in its own namespaces."""
    return subprocess.run(
        [*_UNSHARE, *sys.argv, *more], env={**os.environ, _INSIDE: part}, check=False
    ).returncode


def _enter() -> None:
    """Run this program in its own namespaces. Its child processes end with it."""
    os.execvpe("unshare", [*_UNSHARE, *sys.argv], {**os.environ, _INSIDE: "1"})  # noqa: S606, S607 -- found on PATH


if __name__ == "__main__":
    main()
