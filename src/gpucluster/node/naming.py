"""The machine's name, and the names of its peers: our own block in /etc/hosts, the rest is left as it is."""

import re
from collections.abc import Iterable, Set

from gpucluster.node import state
from gpucluster.node.known import Known, of
from gpucluster.node.machine import Machine, StepError
from gpucluster.plan import names
from gpucluster.plan.model import ClusterPlan, there

HOSTS, HOSTNAME, NOW = "/etc/hosts", "/etc/hostname", "/proc/sys/kernel/hostname"
BEGIN, END = "# gpucluster: begin", "# gpucluster: end"
LINE = re.compile(r"[0-9A-Fa-f.:]+(?:\s+[A-Za-z0-9][A-Za-z0-9.-]*)+")


def node(machine: Machine, known: Known) -> Known:
    """Take the name that the controller gave, and know the head and the living nodes by theirs."""
    me, answer, plan = of(known.identity), of(known.answer), of(known.bundle).plan
    _hostname(machine, answer.node)
    _hosts(machine, (*_heads(plan), f"{me.address} {answer.node}", *answer.hosts))
    if state.load(machine).node != answer.node:
        state.change(machine, node=answer.node)
    return known


def head(machine: Machine, known: Known) -> Known:
    """Take the head's name, and write the bundle's hosts lines."""
    plan, tree = of(known.bundle).plan, of(known.bundle).tree
    _hostname(machine, there(plan.head).name)
    lines = (tree / names.HOSTS_FILE).read_text().splitlines()
    _hosts(machine, (*_heads(plan), *lines))
    return known


def standby(machine: Machine, known: Known) -> Known:
    """The second head's name beside the first's, and the bundle's hosts lines."""
    plan, tree = of(known.bundle).plan, of(known.bundle).tree
    me = _standby(plan)
    if me is None:
        raise StepError("the plan has no standby")
    _hostname(machine, me[1])
    _hosts(machine, (*_heads(plan), *(tree / names.HOSTS_FILE).read_text().splitlines()))
    return known


def login(machine: Machine, known: Known) -> Known:
    """A login machine's own name, which user data says, and the controllers'."""
    me, plan = of(known.identity), of(known.bundle).plan
    planned = there(plan.login).names
    name = me.name or planned[0]
    if name not in planned:
        raise StepError(f"{names.USER_DATA_FILE}: name is {name!r}, the plan's are {', '.join(planned)}")
    _hostname(machine, name)
    lines = (of(known.bundle).tree / names.HOSTS_FILE).read_text().splitlines()
    _hosts(machine, (*_heads(plan), f"{me.address} {name}", *lines))
    if state.load(machine).node != name:
        state.change(machine, node=name)
    return known


def host(machine: Machine, known: Known) -> Known:
    """A host that exists keeps its name, which must be the plan's, and knows all others by theirs.

    Two addresses swapped in a spec would else make two hosts each other.
    """
    me, called = of(known.identity), machine.read(NOW).strip().split(".")[0]
    if called != me.instance_id:
        raise StepError(
            f"this host is called {called!r}; the plan calls the one at {me.address} {me.instance_id!r}"
        )
    lines = (of(known.bundle).tree / names.HOSTS_FILE).read_text().splitlines()
    ours = {name for line in lines for name in line.split("#")[0].split()[1:]}
    text = without_loopback(machine.read(HOSTS), ours)
    _hosts(machine, lines, text)
    if state.load(machine).node != me.instance_id:
        state.change(machine, node=me.instance_id)
    return known


def with_block(text: str, lines: Iterable[str]) -> str:
    """`text` with our block replaced, or put at its end; every other line is as it was."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        if line in (BEGIN, END):
            inside = line == BEGIN
        elif not inside:
            kept.append(line)
    return "\n".join([*kept, BEGIN, *lines, END]) + "\n"


def without_loopback(text: str, names: Set[str]) -> str:
    """`text` without these names on loopback's lines: Debian's installer writes `127.0.1.1 NAME`, where no peer finds it."""
    return "".join(f"{kept}\n" for line in text.splitlines() if (kept := _kept(line, names)) is not None)


def known_names(machine: Machine) -> frozenset[str]:
    """Every name that /etc/hosts resolves."""
    lines = (line.split("#")[0].split() for line in machine.read(HOSTS).splitlines())
    return frozenset(name for fields in lines for name in fields[1:])


def _heads(plan: ClusterPlan) -> tuple[str, ...]:
    """The controllers' lines."""
    head, standby = there(plan.head), _standby(plan)
    return (f"{head.address} {head.name}", *(() if standby is None else (" ".join(standby),)))


def _standby(plan: ClusterPlan) -> tuple[str, str] | None:
    """Its address and name."""
    head = there(plan.head)
    return None if head.standby is None else (head.standby.address, names.standby_name(plan.name))


def _kept(line: str, names: Set[str]) -> str | None:
    """The line less these names; None if no name is left."""
    fields = line.split("#", maxsplit=1)[0].split()
    if not fields or not fields[0].startswith("127.") or not names & set(fields[1:]):
        return line
    left = [name for name in fields[1:] if name not in names]
    return "\t".join((fields[0], " ".join(left))) if left else None


def _hosts(machine: Machine, lines: Iterable[str], text: str | None = None) -> None:
    """Our block in `text`, which is what stands there if nothing else is said."""
    wanted = [line for line in dict.fromkeys(lines) if line.strip() and not line.lstrip().startswith("#")]
    for line in wanted:
        if not LINE.fullmatch(line.strip()):
            raise StepError(f"this is no line for {HOSTS}: {line!r}")
    machine.write(HOSTS, with_block(machine.read(HOSTS) if text is None else text, wanted))


def _hostname(machine: Machine, name: str) -> None:
    if machine.write(HOSTNAME, f"{name}\n") or machine.read(NOW).strip() != name:
        machine.run(["hostname", name])
