"""A second reader of Slurm's files, for tests of the import: short, without bounds, and with ClusterShell's hostlists.

It shares no code with `gpucluster.importer`. It reads files without mistakes only.
"""

import re
from pathlib import Path

from ClusterShell.NodeSet import NodeSet

OLD = {  # the names that have taken the place of others, by kind
    "slurm.conf": {
        "controlmachine": "slurmctldhost",
        "cryptotype": "credtype",
        "jobcontainertype": "namespacetype",
    },
    "node": {"procs": "cpus", "feature": "features", "sockets": "socketsperboard"},
    "partition": {"shared": "oversubscribe"},
}
_PAIR = re.compile(r'([\w.]+)=(?:"([^"]*)"|(\S*))')


def settings(folder: Path) -> set[tuple[str, str, str]]:
    """(kind, name, key) of every setting of slurm.conf and cgroup.conf: one for each node that a line is for."""
    found = set[tuple[str, str, str]]()
    defaults: dict[str, set[str]] = {"node": set(), "partition": set()}
    for pairs in _lines(folder, "slurm.conf"):
        (first, value), rest = pairs[0], pairs[1:]
        kind = {
            "nodename": "node",
            "partitionname": "partition",
            "nodeset": "nodeset",
            "downnodes": "downnodes",
        }.get(first)
        if kind is None:
            found |= {("slurm.conf", "", key) for key in _renamed("slurm.conf", [k for k, _ in pairs])}
            continue
        keys = set(_renamed(kind, [k for k, _ in rest]))
        if value == "DEFAULT":
            defaults[kind] |= keys
            continue
        names = map(str, NodeSet(value)) if kind == "node" else [value]
        found |= {(kind, name, key) for name in names for key in {first, *keys, *defaults.get(kind, ())}}
    found |= {("cgroup.conf", "", k) for pairs in _lines(folder, "cgroup.conf") for k, _ in pairs}
    return found


def _renamed(kind: str, keys: list[str]) -> list[str]:
    return [OLD.get(kind, {}).get(key, key) for key in keys]


def _lines(folder: Path, name: str) -> list[list[tuple[str, str]]]:
    file = folder / name
    if not file.exists():
        return []
    text = re.sub(r"#.*", "", file.read_text())
    text = re.sub(r"\\[ \t]*\n", "", text)
    made = list[list[tuple[str, str]]]()
    for line in text.splitlines():
        if line.lower().startswith("include"):
            made += _lines(folder, _place_of(folder, line.split()[1]))
        elif pairs := [(key.lower(), quoted or plain) for key, quoted, plain in _PAIR.findall(line)]:
            made.append(pairs)
    return made


def _place_of(folder: Path, name: str) -> str:
    return str(next(path for path in folder.rglob(Path(name).name)).relative_to(folder))
