"""Check that a machine exports by NFS what the plan says, and to no other client."""

import ipaddress
import re
import shlex
from dataclasses import dataclass

from gpucluster.checks.check import (
    CheckResult,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
    warned,
)
from gpucluster.text import Form, short

_ETAB = "/var/lib/nfs/etab"  # exportfs(8) and the NFS server read this file
_ASK = f"test ! -e {_ETAB} || cat {_ETAB}; echo --"
_LINE = re.compile(r"(/\S*)\s+([^\s()]+)\(([^()]*)\)")
_SAFE = Form(r"[\w./*:@-]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportsWant:
    """Folder -> its clients. `scripts`: the site's own run at boot, and what is added may be theirs: a warning."""

    exports: dict[str, tuple[str, ...]]
    scripts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A folder, a client, and whether the client's root is root of the folder."""

    path: str
    client: str
    as_root: bool


def query_exports(_want: ExportsWant) -> tuple[Query, ...]:
    return (Query(argv=("sh", "-c", _ASK)),)


def parse_exports(got: tuple[QueryOutput, ...]) -> tuple[Export, ...]:
    """Lines of etab: `FOLDER<tab>CLIENT(OPTIONS)`, then `--`. Blanks of a folder are written as \\040."""
    text = got[0].text()
    if not text.endswith("--\n"):
        raise ParseError("the answer has no end")
    found: list[Export] = []
    for line in text.splitlines()[:-1]:
        row = _LINE.fullmatch(line.strip())
        if row is None:
            raise ParseError(f"{_ETAB} has the line {short(line, 80)!r}")
        found.append(Export(path=row[1], client=row[2], as_root="no_root_squash" in row[3].split(",")))
    return tuple(found)


def evaluate_exports(found: tuple[Export, ...], want: ExportsWant) -> CheckResult:
    """Culprits are the folders. A missing export is the fault of fs.mount."""
    expected = f"exported as in the plan: {listed(tuple(want.exports)) or 'nothing'}, and nothing else"
    bad = [one for one in found if _fault(one, want)]
    if not bad:
        return passed(expected)
    words = [
        f"{short(one.path, 80)} is exported to {short(one.client, 80)}{_fault(one, want)}" for one in bad
    ]
    remedy = "on {machine}: " + "; ".join(dict.fromkeys(_undo(one, want) for one in bad))
    if want.scripts:
        return warned(listed(words, 4), expected, remedy)
    return failed(listed(words, 4), expected, tuple(dict.fromkeys(one.path for one in bad)), remedy)


def _fault(one: Export, want: ExportsWant) -> str:
    """What is wrong with an export; empty for one of the plan."""
    if one.path not in want.exports:
        return ", which no plan exports"
    if _network(one.client) not in map(_network, want.exports[one.path]):
        return ", which is no client of the plan"
    return ", whose root is root of the folder" if one.as_root else ""


def _network(client: str) -> str:
    """One form of a network: exportfs keeps the mask as it was typed."""
    try:
        return str(ipaddress.ip_network(client))
    except ValueError:
        return client


def _undo(one: Export, want: ExportsWant) -> str:
    """exportfs forgets an export until it reads the files again, where a line may be."""
    if _network(one.client) in map(_network, want.exports.get(one.path, ())):
        return "exportfs -r -a"
    if not _SAFE.fullmatch(one.path) or not _SAFE.fullmatch(one.client):
        return "exportfs -v; grep . /etc/exports /etc/exports.d/*"
    lines = f"grep --line-regexp --files-with-matches '{one.path}[[:blank:]].*' /etc/exports /etc/exports.d/* || true"
    return f"exportfs -u {shlex.quote(f'{one.client}:{one.path}')}; {lines}"
