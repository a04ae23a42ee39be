"""Write the facts of Slurm in src/gpucluster/catalog/data: keys of all versions, tokens and plugins of the supported ones.

    .venv/bin/python tools/make_slurm_facts.py --repository GIT --tree 24.11=TREE --tree 26.05=TREE

GIT is a git directory of SchedMD's repository with its tags. Keys, types and tokens are those of the newest tag of each
version: the parser tables in the sources, and slurm.conf(5). The keys of some other files come from `tools/slurm-keys.json`,
read from the same sources. Plugins are the shared objects of Debian's packages (trees of `tools/slurm_lab/trees.py`).
"""

import argparse
import json
import re
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "src/gpucluster/catalog/data"
OTHER_FILES = Path(__file__).with_name("slurm-keys.json")
READ_ON = "2026-11-23"
VERSIONS = ("22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05")
DEFAULT = "26.05"
END_OF_SUPPORT = {  # SchedMD's upgrade guide, the table of the compatibility window
    "23.02": "2024-11", "23.11": "2025-05", "24.05": "2025-11", "24.11": "2026-05", "25.05": "2026-11",
    "25.11": "2027-05", "26.05": "2027-11",
}  # fmt: skip
LEAST = {  # the release of a version that mends its last published faults of security, and what it mends
    "23.11": ("23.11.11", "CVE-2025-43904"), "24.05": ("24.05.8", "CVE-2025-43904"), "24.11": ("24.11.5", "CVE-2025-43904"),
    "25.05": ("25.05.9", "CVE-2026-65107 and others"), "25.11": ("25.11.8", "CVE-2026-65107 and others"),
    "26.05": ("26.05.4", "CVE-2026-65107 and others"),
}  # fmt: skip
LEAST_SOURCE = (
    "`least`: the CHANGELOG of each version in SchedMD's repository, read on 2026-11-30; from 25.05 on SchedMD's releases of "
    "2026-09-02 (github.com/SchedMD/slurm/releases, tags slurm-25-05-9-1, slurm-25-11-8-1, slurm-26-05-4-1)"
)
SUPPORT_SOURCE = (
    "SchedMD's upgrade guide (doc/html/upgrades.shtml of slurm-26-05-3-1; 23.02: of 24.11). It writes `November 2028 "
    "(18 months)` for 26.05; 18 months after May 2026 is November 2027, so this is the earlier of the two. 22.05 is older than the table"
)
TABLES = {  # where the parser's table of a kind begins in read_config.c
    "slurm.conf": "s_p_options_t slurm_conf_options",
    "node": "static int _parse_nodename(",
    "partition": "static int _parse_partitionname(",
}
FROM_OTHER_FILES = ("gres.conf", "cgroup.conf", "topology.conf", "slurmdbd.conf", "nodeset", "downnodes")
REMOVED = re.compile(
    r'fatal\("(?:The )?(\w+) (?:option )?has been removed'
)  # the parser takes the key, and then ends
TMPFS = {
    False: "src/plugins/job_container/tmpfs/read_jcconf.c",
    True: "src/plugins/namespace/tmpfs/read_jcconf.c",
}
TYPES = {
    "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "BOOLEAN": "yes-no", "STRING": "text", "PLAIN_STRING": "text",
    "ARRAY": "line", "LINE": "line", "IGNORE": "text", "POINTER": "text", "EXPLINE": "line",
}  # fmt: skip
TOKEN_KEYS = (  # comma-separated lists; most ignore an unknown word without an error
    "AccountingStorageEnforce", "AccountingStoreFlags", "AuthInfo", "CommunicationParameters", "DebugFlags",
    "LaunchParameters", "PreemptParameters", "PriorityFlags", "PrivateData", "PrologFlags", "ReconfigFlags",
    "SchedulerParameters", "SelectTypeParameters", "SlurmctldParameters", "SlurmdParameters", "TaskPluginParam",
    "TopologyParam",
)  # fmt: skip
MORE_WORDS = {  # words that the sources take and slurm.conf(5) does not list one level below the key
    "PriorityFlags": ("FAIR_TREE",),  # once a word, now the default: slurmctld ignores it
    "PrivateData": ("all",),
    "SchedulerParameters": ("bf_yield_rpc_count", "max_rpc_count"),
    "SelectTypeParameters": ("CR_Memory",),
}
PLUGIN_KINDS = (
    "accounting_storage", "acct_gather_energy", "acct_gather_filesystem", "acct_gather_interconnect",
    "acct_gather_profile", "auth", "cgroup", "cli_filter", "cred", "hash", "http_parser", "job_container", "job_submit", "jobacct_gather", "jobcomp",
    "mcs", "metrics", "mpi", "namespace", "preempt", "prep", "priority", "proctrack", "sched", "select", "site_factor", "switch", "task", "tls",
    "topology", "url_parser",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--tree", action="append", default=[], metavar="VERSION=TREE")
    args = parser.parse_args()
    tags = {version: newest_tag(args.repository, version) for version in VERSIONS}
    write("slurm-versions.json", versions())
    write("slurm-keys.json", keys(args.repository, tags))
    for version, tree in (word.split("=", 1) for word in args.tree):
        write(f"slurm-{version}.json", of_version(args.repository, version, tags[version], Path(tree)))


def versions() -> dict[str, Any]:
    rows = [{"version": v, "end_of_support": END_OF_SUPPORT.get(v)} for v in VERSIONS]
    source = f"{SUPPORT_SOURCE}. {LEAST_SOURCE}"
    return {"source": source, "date": READ_ON, "default": DEFAULT, "versions": rows, "least": LEAST}


def keys(repository: Path, tags: dict[str, str]) -> dict[str, Any]:
    """Return each key with its type, the versions that accept it, and those that only log an error for it (defunct)."""
    read = {v: show(repository, tag, "src/common/read_config.c") for v, tag in tags.items()}
    found = {kind: merged({v: table(read[v], start) for v in VERSIONS}) for kind, start in TABLES.items()}
    tmpfs = {v: show(repository, tag, TMPFS[v >= "25.11"]) for v, tag in tags.items()}
    found["job_container.conf"] = merged({v: rows_of(text) for v, text in tmpfs.items()})
    others = json.loads(OTHER_FILES.read_text())
    for kind in FROM_OTHER_FILES:
        rows = {v: {k: ("text", s) for k, s in others[v].get(kind, {}).items()} for v in VERSIONS}
        found[kind] = merged(rows)
    source = "the parser tables of SchedMD's sources at " + ", ".join(tags.values())
    return {"source": source, "date": READ_ON, "keys": {k: found[k] for k in sorted(found)}}


def table(text: str, start: str) -> dict[str, tuple[str, str]]:
    """Return key -> (type, `ok` or `defunct`) of the first table after `start`, without the keys that end the program."""
    begin = text.index("s_p_options_t", text.rindex(start))
    found, removed = rows_of(text[begin : text.index("{NULL}", begin)]), set(REMOVED.findall(text))
    return {key: row for key, row in found.items() if key not in removed}


def rows_of(text: str) -> dict[str, tuple[str, str]]:
    rows = re.findall(r'\{\s*"(\w+)"\s*,\s*S_P_(\w+)([^}]*)\}', text)
    return {k: (TYPES[kind], "defunct" if "_defunct" in rest else "ok") for k, kind, rest in rows}


def merged(rows: dict[str, dict[str, tuple[str, str]]]) -> dict[str, Any]:
    """Return key -> {type, ok: [first, last], defunct: [first, last]}; a last version of null is the newest known."""
    spelled: dict[str, str] = {}
    for row in rows.values():
        spelled |= {name.lower(): name for name in row}
    found: dict[str, Any] = {}
    for low, name in sorted(spelled.items()):
        of = {v: next((s for k, s in row.items() if k.lower() == low), None) for v, row in rows.items()}
        one: dict[str, Any] = {"type": next(s[0] for s in reversed(list(of.values())) if s)}
        for state in ("ok", "defunct"):
            having = [v for v in VERSIONS if (s := of[v]) is not None and s[1] == state]
            if having:
                first, last = VERSIONS.index(having[0]), VERSIONS.index(having[-1])
                if having != list(VERSIONS[first : last + 1]):
                    raise SystemExit(f"{name} comes and goes: {having}")
                one[state] = [having[0], None if last == len(VERSIONS) - 1 else having[-1]]
        found[name] = one
    return found


def of_version(repository: Path, version: str, tag: str, tree: Path) -> dict[str, Any]:
    """Return tokens and plugins of one version."""
    known = table(show(repository, tag, "src/common/read_config.c"), TABLES["slurm.conf"])
    page = show(repository, tag, "doc/man/man5/slurm.conf.5").splitlines()
    status = (tree / "var/lib/dpkg/status").read_text()
    package = re.search(r"Package: slurmctld\n.*?\nVersion: (\S+)", status, re.S)
    if package is None:
        raise SystemExit(f"{tree} has no slurmctld")
    return {
        "source": f"tokens: slurm.conf(5) of {tag}; plugins: the packages of Debian's slurm-wlm {package[1]}",
        "date": READ_ON,
        "version": version,
        "tokens": {key: tokens(page, key, known) for key in TOKEN_KEYS},
        "plugins": plugins(tree),
    }


def tokens(page: list[str], key: str, known: Collection[str]) -> list[str]:
    """Return the words that the manual page lists one level below `key`, without their `=value`. The next of the known keys ends the list."""
    start = next(
        n for n, line in enumerate(page) if line.startswith(rf"\fB{key}\fR") and page[n - 1].startswith(".TP")
    )
    later = sorted((k for k in known if k.lower() > key.lower()), key=str.lower)
    depth, found, ends = 0, set[str](), set(later[:3])  # some tokens have the names of keys
    for before, line in zip(page[start:], page[start + 1 :], strict=False):
        depth += line.startswith(".RS") - line.startswith(".RE")
        following = re.match(r"\\fB(\w+)\\fR", line) if before.startswith(".TP") else None
        if (line.startswith(".TP") and depth <= 0) or (following and following[1] in ends):
            break
        if depth == 1 and before.startswith(".TP"):
            found.add(re.split(r"[=\s]", re.sub(r"\\f[BIR]|\\", "", line))[0])
    return sorted(found | set(MORE_WORDS.get(key, ())))


def plugins(tree: Path) -> list[str]:
    """`task/cgroup` for task_cgroup.so: split at the first underscore that gives a known kind."""
    names = sorted(path.stem for path in (tree / "usr/lib").glob("*/slurm-wlm/*.so"))
    return sorted(
        f"{kind}/{name.removeprefix(kind + '_')}"
        for name in names
        for kind in PLUGIN_KINDS
        if name.startswith(kind + "_")
    )


def newest_tag(repository: Path, version: str) -> str:
    form = re.compile(rf"slurm-{version.replace('.', '-')}-(\d+)-1")
    found = [m for m in map(form.fullmatch, git(repository, "tag").split()) if m]
    return max(found, key=lambda m: int(m[1]))[0]


def show(repository: Path, tag: str, path: str) -> str:
    return git(repository, "show", f"{tag}:{path}")


def git(repository: Path, *argv: str) -> str:
    argv = ("git", "--git-dir", str(repository), *argv)
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def write(name: str, table: dict[str, Any]) -> None:
    text = json.dumps(table, indent=1)
    small = re.compile(r"\[\s*([^\[\]{}]{0,60}?)\s*\]|\{\s*([^{}]{0,100}?)\s*\}")
    for _ in range(2):  # one row a line
        text = small.sub(lambda m: re.sub(r"\s*\n\s*", " ", m[0]), text)
    text = re.sub(r"([\[{]) (?=[^\n])|(?<=[^\n]) ([\]}])", r"\1\2", text)
    (DATA / name).write_text(text + "\n")


if __name__ == "__main__":
    main()
