"""The machine's host name, and the names of its peers in a block of /etc/hosts. All other lines stay unchanged."""

import re
from collections.abc import Iterable, Set

from gpucluster.agent.boot import boot_state
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.machine import Machine, StepError
from gpucluster.plan import names
from gpucluster.plan.model import SlurmPlan

HOSTS, HOSTNAME, KERNEL_HOSTNAME = "/etc/hosts", "/etc/hostname", "/proc/sys/kernel/hostname"
BEGIN, END = "# gpucluster: begin", "# gpucluster: end"
LINE = re.compile(r"[0-9A-Fa-f.:]+(?:\s+[A-Za-z0-9][A-Za-z0-9.-]*)+")


def for_node(machine: Machine, state: BootState) -> BootState:
    """Set the node name from the controller's answer, and write the hosts lines of the heads and the running nodes."""
    me, answer, plan = require(state.identity), require(state.answer), require(state.bundle).plan
    _hostname(machine, answer.node)
    _hosts(machine, (*_heads(plan), f"{me.address} {answer.node}", *answer.hosts))
    if boot_state.load(machine).node != answer.node:
        boot_state.update(machine, node=answer.node)
    return state


def for_head(machine: Machine, state: BootState) -> BootState:
    """Set the head's host name, and write the hosts lines of the bundle."""
    plan, tree = require(state.bundle).plan, require(state.bundle).tree
    _hostname(machine, plan.head.name)
    lines = (tree / names.HOSTS_FILE).read_text().splitlines()
    _hosts(machine, (*_heads(plan), *lines))
    return state


def for_standby(machine: Machine, state: BootState) -> BootState:
    """Set the standby's host name, and write the hosts lines of the bundle."""
    plan, tree = require(state.bundle).plan, require(state.bundle).tree
    me = _standby(plan)
    if me is None:
        raise StepError("the plan has no standby")
    _hostname(machine, me[1])
    _hosts(machine, (*_heads(plan), *(tree / names.HOSTS_FILE).read_text().splitlines()))
    return state


def for_login(machine: Machine, state: BootState) -> BootState:
    """Set the host name from user data, and write the hosts lines of the bundle."""
    me, plan = require(state.identity), require(state.bundle).plan
    planned = plan.login.names if plan.login else ()
    if not planned:
        raise StepError("the plan has no login machine, and this machine has the role login")
    name = me.name or planned[0]
    if name not in planned:
        raise StepError(f"{names.USER_DATA_FILE}: name is {name!r}, expected one of {', '.join(planned)}")
    _hostname(machine, name)
    lines = (require(state.bundle).tree / names.HOSTS_FILE).read_text().splitlines()
    _hosts(machine, (*_heads(plan), f"{me.address} {name}", *lines))
    if boot_state.load(machine).node != name:
        boot_state.update(machine, node=name)
    return state


def for_host(machine: Machine, state: BootState) -> BootState:
    """Check that an existing host has its planned name, and write the hosts lines of the bundle.

    The check finds two addresses that are swapped in a spec.
    """
    me, called = require(state.identity), machine.read(KERNEL_HOSTNAME).strip().split(".")[0]
    if called != me.instance_id:
        raise StepError(
            f"the host name is {called!r}, expected {me.instance_id!r} for the host at {me.address}"
        )
    lines = (require(state.bundle).tree / names.HOSTS_FILE).read_text().splitlines()
    ours = {name for line in lines for name in line.split("#")[0].split()[1:]}
    text = without_loopback(machine.read(HOSTS), ours)
    _hosts(machine, lines, text)
    if boot_state.load(machine).node != me.instance_id:
        boot_state.update(machine, node=me.instance_id)
    return state


def with_block(text: str, lines: Iterable[str]) -> str:
    """Return `text` with our block replaced, or appended. All other lines stay unchanged."""
    saved: list[str] = []
    inside = False
    for line in text.splitlines():
        if line in (BEGIN, END):
            inside = line == BEGIN
        elif not inside:
            saved.append(line)
    return "\n".join([*saved, BEGIN, *lines, END]) + "\n"


def without_loopback(text: str, names: Set[str]) -> str:
    """Remove these names from the loopback lines of `text`: peers cannot use the `127.0.1.1 NAME` of Debian's installer."""
    return "".join(
        f"{saved}\n" for line in text.splitlines() if (saved := _without_names(line, names)) is not None
    )


def known_names(machine: Machine) -> frozenset[str]:
    """Return every name in /etc/hosts."""
    lines = (line.split("#")[0].split() for line in machine.read(HOSTS).splitlines())
    return frozenset(name for fields in lines for name in fields[1:])


def _heads(plan: SlurmPlan) -> tuple[str, ...]:
    """Return the hosts lines of the controllers."""
    head, standby = plan.head, _standby(plan)
    return (f"{head.address} {head.name}", *(() if standby is None else (" ".join(standby),)))


def _standby(plan: SlurmPlan) -> tuple[str, str] | None:
    """Return address and name of the standby; None if the plan has none."""
    head = plan.head
    return None if head.standby is None else (head.standby.address, names.standby_name(plan.name))


def _without_names(line: str, names: Set[str]) -> str | None:
    """Return the line without these names; None if no name is left."""
    fields = line.split("#", maxsplit=1)[0].split()
    if not fields or not fields[0].startswith("127.") or not names & set(fields[1:]):
        return line
    left = [name for name in fields[1:] if name not in names]
    return "\t".join((fields[0], " ".join(left))) if left else None


def _hosts(machine: Machine, lines: Iterable[str], text: str | None = None) -> None:
    """Write /etc/hosts: `text`, or its current text, with our block of these lines."""
    wanted = [line for line in dict.fromkeys(lines) if line.strip() and not line.lstrip().startswith("#")]
    for line in wanted:
        if not LINE.fullmatch(line.strip()):
            raise StepError(f"not a line of {HOSTS}: {line!r}")
    machine.write(HOSTS, with_block(machine.read(HOSTS) if text is None else text, wanted))


def _hostname(machine: Machine, name: str) -> None:
    if machine.write(HOSTNAME, f"{name}\n") or machine.read(KERNEL_HOSTNAME).strip() != name:
        machine.run(["hostname", name])
