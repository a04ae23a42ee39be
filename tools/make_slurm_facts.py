"""Write src/gpucluster/catalog/data/slurm-VERSION.json: what one Slurm version knows.

    .venv/bin/python tools/make_slurm_facts.py 24.11 --keys slurm-keys.json --tree TREE

Keys come from the project's table of parser options (`--keys`, read from SchedMD's sources, one branch a version);
tokens from slurm.conf(5) and plugins from the shared objects of Debian's packages, unpacked in TREE
(`mmdebstrap --variant=minbase --include=slurmctld,slurm-client,slurmd
--dpkgopt='path-include=/usr/share/man/man5/*' trixie TREE`).
"""

import argparse
import gzip
import json
import re
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "src/gpucluster/catalog/data"
READ_ON = "2026-11-21"
FILES = ("slurm.conf", "node", "partition", "gres.conf", "cgroup.conf", "topology.conf")
TOKEN_KEYS = (  # the comma lists that we emit; most ignore an unknown word in silence
    "AuthInfo", "DebugFlags", "LaunchParameters", "PrologFlags", "SchedulerParameters", "SelectTypeParameters",
    "SlurmctldParameters", "SlurmdParameters",
)  # fmt: skip


def build(version: str, keys: Path, tree: Path) -> dict[str, Any]:
    """The whole file as JSON values."""
    table = json.loads(keys.read_text())
    with gzip.open(tree / "usr/share/man/man5/slurm.conf.5.gz", "rt") as stream:
        page = stream.read().splitlines()
    package = re.search(
        r"Package: slurmctld\n.*?\nVersion: (\S+)", (tree / "var/lib/dpkg/status").read_text(), re.S
    )
    if package is None:
        raise SystemExit(f"{tree} has no slurmctld")
    return {
        "source": f"keys: the parser tables of SchedMD's sources; tokens: slurm.conf(5), plugins: the packages of "
        f"Debian's slurm-wlm {package[1]}",
        "date": READ_ON,
        "version": version,
        "keys": {
            name: sorted(k for k, state in table[version][name].items() if state == "ok") for name in FILES
        },
        "tokens": {key: _tokens(page, key) for key in TOKEN_KEYS},
        "plugins": _plugins(tree),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version")
    parser.add_argument("--keys", type=Path, required=True)
    parser.add_argument("--tree", type=Path, required=True)
    args = parser.parse_args()
    facts = build(args.version, args.keys, args.tree)
    (DATA / f"slurm-{args.version}.json").write_text(json.dumps(facts, indent=1) + "\n")
    known = {
        "source": "slurm-keys.json of this project",
        "versions": sorted(json.loads(args.keys.read_text())),
    }
    (DATA / "slurm-versions.json").write_text(json.dumps(known, indent=1) + "\n")


def _tokens(page: list[str], key: str) -> list[str]:
    """The words that the manual page lists one level below `key`, without their `=value`."""
    start = next(
        n for n, line in enumerate(page) if line.startswith(rf"\fB{key}\fR") and page[n - 1].startswith(".TP")
    )
    depth, found = 0, set[str]()
    for before, line in zip(page[start:], page[start + 1 :], strict=False):
        depth += line.startswith(".RS") - line.startswith(".RE")
        if line.startswith(".TP") and depth <= 0:
            break
        if depth == 1 and before.startswith(".TP"):
            found.add(re.split(r"[=\s]", re.sub(r"\\f[BIR]|\\", "", line))[0])
    return sorted(found)


def _plugins(tree: Path) -> list[str]:
    """`task/cgroup` for task_cgroup.so: the file's first underscore that makes a kind we name."""
    kinds = (
        "accounting_storage",
        "auth",
        "cgroup",
        "cred",
        "jobacct_gather",
        "mpi",
        "proctrack",
        "sched",
        "select",
    )
    names = sorted(path.stem for path in (tree / "usr/lib").glob("*/slurm-wlm/*.so"))
    return sorted(
        f"{kind}/{name.removeprefix(kind + '_')}"
        for name in names
        for kind in (*kinds, "task", "topology")
        if name.startswith(kind + "_")
    )


if __name__ == "__main__":
    main()
