"""Actions and events as lines, for the log and for people."""

import logging
from collections.abc import Iterable
from dataclasses import fields
from typing import cast

from gpucluster.elastic.events import Event, HookCalled
from gpucluster.elastic.model import Action, Comment, LaunchGang, RecordEvents, Requeue, Terminate
from gpucluster.slurm.hostlist import fold
from gpucluster.text import printable


class OneLine(logging.Formatter):
    """Write each record as one printable line. Texts of the cloud, of Slurm and of nodes must not look like a line of ours."""

    def format(self, record: logging.LogRecord) -> str:
        block = record.args[0] if isinstance(record.args, tuple) and record.args else None
        if isinstance(block, Lines):
            return "\n".join(map(_one_line, block))
        return _one_line(super().format(record))


class Lines(tuple[str, ...]):
    """Lines of one log record. A record for each of a thousand lines takes 0.1 s."""

    def __str__(self) -> str:
        return "\n".join(self)


def _one_line(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    return printable("; ".join(line for line in lines if line))


def describe(what: Action | Event) -> str:
    """Return an action or an event as one line."""
    match what:
        case LaunchGang(request=request, repeat=repeat, reason=reason):
            again = "again " if repeat else ""
            many = f"{len(request.slots)} x {request.spec.market.value} {request.spec.machine}"
            return f"launch {again}{request.id}: {many} in {request.spec.zone} as {fold(request.slots)}: {reason}"
        case Terminate(instances=instances, reason=reason):
            return f"terminate {' '.join(instances)}: {reason}"
        case Comment() | Requeue():
            return _of_jobs(what)
        case RecordEvents(entries=entries):
            return f"record {len(entries)} events"
        case HookCalled(kind=kind, hostlist=hostlist, jobs=jobs):
            return f"hook {kind} {hostlist[:200]} jobs {list(jobs)}"
        case _:
            return _plain(what)


def event_lines(events: Iterable[Event]) -> tuple[str, ...]:
    """Return events as lines. Equal events of several slots are one line."""
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


def _of_jobs(action: Comment | Requeue) -> str:
    which = f"job {', '.join(map(str, action.jobs))}"
    if isinstance(action, Comment):
        again = f"have slurmctld save the start of {which}"
        return again if action.again else f"comment {which}: {action.reason}"
    which = which if action.runs else "no job, because another run of each has begun"
    return f"requeue {'and hold ' if action.held else ''}{which}: {action.reason}"


def _plain(what: Action | Event) -> str:
    """Return `power-down h200-1a-[1-2]: idle for 300 s`, and for events `launch-done request=r1 instances=...`."""
    name, values = _parts(what)
    slots, reason = values.pop("slots", None), values.pop("reason", None)
    rest = " ".join(f"{key}={_shown(value)}" for key, value in values.items())
    parts = (name, fold(cast(Iterable[str], slots)) if slots else "", rest)
    return " ".join(part for part in parts if part) + (f": {reason}" if reason else "")


def action_name(what: Action | Event) -> str:
    """Return the kind of the action or event as the log writes it: `power-down`."""
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in type(what).__name__).lstrip("-")


def _parts(what: Action | Event) -> tuple[str, dict[str, object]]:
    return action_name(what), {f.name: getattr(what, f.name) for f in fields(what)}


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(str(item) for item in cast(tuple[object, ...], value))
    return str(value)
