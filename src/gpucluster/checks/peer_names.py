"""Check that a machine has its host name, and that its /etc/hosts gives each name of the plan its address alone.

The resolver takes the first line with a name. On AWS only the agent knows the address of a node, and writes it into its
own block: there a line elsewhere is wrong. A name that is missing is no fault: a node knows the nodes that run.
"""

import re
import shlex
from dataclasses import dataclass

from gpucluster.checks import remedies
from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, listed, passed
from gpucluster.plan.names import ROLE_HEAD
from gpucluster.text import short

HOSTS, HOSTNAME = "/etc/hosts", "/etc/hostname"
BEGIN, END = "# gpucluster: begin", "# gpucluster: end"  # the agent's own block
_LOOPBACK = "127."


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Name of a machine -> its address in the plan; empty: the plan does not say it.

    `heads`: the host names of whatever machine answers as the head; a standby that took over keeps its own.
    """

    addresses: dict[str, str]
    heads: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsLine:
    """A line of /etc/hosts. `ours`: in the agent's block."""

    address: str
    names: tuple[str, ...]
    ours: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsFile:
    """The machine's host name, the name by which it was asked, and its /etc/hosts."""

    own: str
    asked: str
    lines: tuple[HostsLine, ...]


def query_hosts(_want: Names) -> tuple[Query, ...]:
    return (
        Query(argv=("sh", "-c", 'hostname --short && echo "$1"', "sh", "{machine}")),
        Query(argv=("cat", HOSTS)),
    )


def parse_hosts(got: tuple[QueryOutput, ...]) -> HostsFile:
    """The lines with an address and names, in their order."""
    called, text = got[0].text(), got[1].text()
    row = re.fullmatch(r"([A-Za-z0-9.-]{1,253})\n(\S+)\n", called)
    if row is None:
        raise ParseError(f"hostname printed {short(called, 40)!r}")
    lines: list[HostsLine] = []
    inside = False
    for line in text.splitlines():
        if line in (BEGIN, END):
            inside = line == BEGIN
        fields = line.partition("#")[0].split()
        if len(fields) > 1:
            lines.append(HostsLine(address=fields[0], names=tuple(fields[1:]), ours=inside))
    return HostsFile(own=row[1], asked=row[2], lines=tuple(lines))


def evaluate_hosts(found: HostsFile, want: Names) -> CheckResult:
    """Culprits are the names."""
    own = want.heads if found.asked == ROLE_HEAD else (found.asked,)
    expected = (
        f"the host name {' or '.join(own)}, and only the plan's addresses for {len(want.addresses)} names"
    )
    wrong = [(line, name) for line in found.lines for name in line.names if _is_wrong(line, name, own, want)]
    renamed = found.own not in own
    if not wrong and not renamed:
        return passed(expected)
    called = f"the host name is {short(found.own, 60)}, not {' or '.join(own)}"
    words = [f"{name} is {short(line.address, 40)}{_instead(line, name, want)}" for line, name in wrong]
    faults = (*((called,) if renamed else ()), *((f"{HOSTS}: {listed(words, 4)}",) if words else ()))
    culprits = tuple(dict.fromkeys([*(own if renamed else ()), *(name for _, name in wrong)]))
    return failed("; ".join(faults), expected, culprits, _remedy(wrong, own if renamed else ()))


def _is_wrong(line: HostsLine, name: str, own: tuple[str, ...], want: Names) -> bool:
    """The machine's own name may have a loopback address, as Debian's installer writes it."""
    if name not in want.addresses or (name in own and line.address.startswith(_LOOPBACK)):
        return False
    address = want.addresses[name]
    return line.address != address if address else not line.ours


def _instead(line: HostsLine, name: str, want: Names) -> str:
    address = want.addresses[name]
    return f", not {address}" if address else " outside the block of gpucluster"


def _remedy(wrong: list[tuple[HostsLine, str]], own: tuple[str, ...]) -> str:
    """Take the name out of lines by hand; the agent writes its own block again. `own`: what the host name must be.

    Which of two heads the machine is, its agent knows.
    """
    commands = [f"echo {name} >{HOSTNAME}; hostname {name}" for name in own] if len(own) == 1 else []
    commands += [_removed(line.address, name) for line, name in wrong if not line.ours]
    if len(own) > 1 or any(line.ours for line, _ in wrong):
        commands.append(remedies.restart("gpucluster-agent"))
    return "on {machine}: " + "; ".join(dict.fromkeys(commands))


def _removed(address: str, name: str) -> str:
    """A line whose last name is removed has no meaning, and is deleted."""
    at, called = (re.sub(r"([^A-Za-z0-9-])", r"\\\1", word) for word in (address, name))
    script = rf"/^\s*{at}\s/{{s/\s{called}(\s|$)/\1/g;/^\s*{at}\s*$/d}}"
    return f"sed -Ei {shlex.quote(script)} {HOSTS}"
