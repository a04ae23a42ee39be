"""One line a step, for the log and for people."""

import logging
from collections.abc import Iterable
from dataclasses import fields
from typing import cast

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet  # pyright: ignore[reportMissingTypeStubs] -- ships none

from gpucluster.elastic.events import Event, HookCalled
from gpucluster.elastic.model import Action, Comment, LaunchGang, Remember, Terminate


class OneLine(logging.Formatter):
    """The cloud's texts, Slurm's and a node's stand in what is logged: none may look like a line of ours, or act in a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        lines = (line.strip() for line in super().format(record).splitlines())
        return "".join(c if c.isprintable() else "?" for c in "; ".join(line for line in lines if line))


def fold(names: Iterable[str]) -> str:
    """Node names as Slurm writes them: `h200-1a-[1-2]`."""
    return str(cast(object, NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP)))  # pyright: ignore[reportUnknownMemberType]


def describe(what: Action | Event) -> str:
    """Say an action or an event in one line."""
    match what:
        case LaunchGang(ask=ask, repeat=repeat, reason=reason):
            again = "again " if repeat else ""
            many = f"{len(ask.slots)} x {ask.market.value} {ask.machine}"
            return f"launch {again}{ask.request}: {many} in {ask.zone} as {fold(ask.slots)}: {reason}"
        case Terminate(instances=instances, reason=reason):
            return f"end {' '.join(instances)}: {reason}"
        case Comment(jobs=jobs, reason=reason, again=again):
            which = f"job {', '.join(map(str, jobs))}"
            return f"have slurmctld save the start of {which}" if again else f"tell {which}: {reason}"
        case Remember(entries=entries):
            return f"remember {len(entries)} facts"
        case HookCalled(kind=kind, hostlist=hostlist, jobs=jobs):
            return f"hook {kind} {hostlist[:200]} jobs {list(jobs)}"
        case _:
            return _plain(what)


def told(events: Iterable[Event]) -> tuple[str, ...]:
    """Events as lines; those that say the same of many slots are one."""
    found: dict[tuple[str, str], list[str]] = {}
    for event in events:
        name, values = _parts(event)
        slot = values.pop("slot", "")
        rest = " ".join(f"{key}={_shown(value)}" for key, value in values.items())
        found.setdefault((name, rest), []).extend([str(slot)] if slot else [])
    return tuple(
        " ".join(part for part in (name, fold(slots) if slots else "", rest) if part)
        for (name, rest), slots in found.items()
    )


def _plain(what: Action | Event) -> str:
    """`power-down h200-1a-[1-2]: idle for 300 s`, and for events `launch-done request=r1 instances=...`."""
    name, values = _parts(what)
    slots, reason = values.pop("slots", None), values.pop("reason", None)
    rest = " ".join(f"{key}={_shown(value)}" for key, value in values.items())
    parts = (name, fold(cast(Iterable[str], slots)) if slots else "", rest)
    return " ".join(part for part in parts if part) + (f": {reason}" if reason else "")


def _parts(what: Action | Event) -> tuple[str, dict[str, object]]:
    name = "".join(f"-{c.lower()}" if c.isupper() else c for c in type(what).__name__).lstrip("-")
    return name, {f.name: getattr(what, f.name) for f in fields(what)}


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(str(item) for item in cast(tuple[object, ...], value))
    return str(value)
