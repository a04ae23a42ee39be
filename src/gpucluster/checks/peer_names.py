"""Check that /etc/hosts of a machine gives each name of the plan its address alone.

The resolver takes the first line with a name. On AWS only the agent knows the address of a node, and writes it into its
own block: there a line elsewhere is wrong. A name that is missing is no fault: a node knows the nodes that run.
"""

import re
import shlex
from dataclasses import dataclass

from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, listed, passed
from gpucluster.text import short

HOSTS = "/etc/hosts"
BEGIN, END = "# gpucluster: begin", "# gpucluster: end"  # the agent's own block
_LOOPBACK = "127."


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Name of a machine -> its address in the plan; empty: the plan does not say it."""

    addresses: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsLine:
    """A line of /etc/hosts. `ours`: in the agent's block."""

    address: str
    names: tuple[str, ...]
    ours: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsFile:
    """The machine's own name, and its /etc/hosts."""

    own: str
    lines: tuple[HostsLine, ...]


def query_hosts(_want: Names) -> tuple[Query, ...]:
    return (Query(argv=("hostname", "--short")), Query(argv=("cat", HOSTS)))


def parse_hosts(got: tuple[QueryOutput, ...]) -> HostsFile:
    """The lines with an address and names, in their order."""
    own, text = got[0].text().strip(), got[1].text()
    if not re.fullmatch(r"[A-Za-z0-9.-]{1,253}", own):
        raise ParseError(f"hostname printed {short(own, 40)!r}")
    lines: list[HostsLine] = []
    inside = False
    for line in text.splitlines():
        if line in (BEGIN, END):
            inside = line == BEGIN
        fields = line.partition("#")[0].split()
        if len(fields) > 1:
            lines.append(HostsLine(address=fields[0], names=tuple(fields[1:]), ours=inside))
    return HostsFile(own=own, lines=tuple(lines))


def evaluate_hosts(found: HostsFile, want: Names) -> CheckResult:
    """Culprits are the names."""
    expected = f"only the plan's addresses for {len(want.addresses)} names"
    wrong = [
        (line, name) for line in found.lines for name in line.names if _is_wrong(line, name, found.own, want)
    ]
    if not wrong:
        return passed(expected)
    words = [f"{name} is {short(line.address, 40)}{_instead(line, name, want)}" for line, name in wrong]
    culprits = tuple(dict.fromkeys(name for _, name in wrong))
    return failed(f"{HOSTS}: {listed(words, 4)}", expected, culprits, _remedy(wrong))


def _is_wrong(line: HostsLine, name: str, own: str, want: Names) -> bool:
    """The machine's own name may have a loopback address, as Debian's installer writes it."""
    if name not in want.addresses or (name == own and line.address.startswith(_LOOPBACK)):
        return False
    address = want.addresses[name]
    return line.address != address if address else not line.ours


def _instead(line: HostsLine, name: str, want: Names) -> str:
    address = want.addresses[name]
    return f", not {address}" if address else " outside the block of gpucluster"


def _remedy(wrong: list[tuple[HostsLine, str]]) -> str:
    """Take the name out of lines by hand; the agent writes its own block again."""
    commands = [_removed(line.address, name) for line, name in wrong if not line.ours]
    if any(line.ours for line, _ in wrong):
        commands.append("systemctl restart gpucluster-agent")
    return "on {machine}: " + "; ".join(dict.fromkeys(commands))


def _removed(address: str, name: str) -> str:
    """A line whose last name is removed has no meaning, and is deleted."""
    at, called = (re.sub(r"([^A-Za-z0-9-])", r"\\\1", word) for word in (address, name))
    script = rf"/^\s*{at}\s/{{s/\s{called}(\s|$)/\1/g;/^\s*{at}\s*$/d}}"
    return f"sed -Ei {shlex.quote(script)} {HOSTS}"
