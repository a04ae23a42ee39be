"""Check that Slurm has the plan's reservations, and report others."""

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
from gpucluster.checks.slurmctld import parsed, without_nodes
from gpucluster.plan.model import SiteReservation
from gpucluster.plan.names import RESERVATION_PREFIX
from gpucluster.slurm import client, hostlist, parse, reservations
from gpucluster.slurm.values import SlurmReservation
from gpucluster.text import short

_UTC = " ".join(f"{key}={value}" for key, value in reservations.IN_ENVIRONMENT.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """The reservations of the plan, and partition -> its nodes."""

    planned: tuple[SiteReservation, ...]
    partitions: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """Every reservation of slurmctld, and the head's time (Unix)."""

    now_s: float
    found: tuple[SlurmReservation, ...]


def query_reservations(_want: Reservations) -> tuple[Query, ...]:
    return (Query(argv=("date", "--utc", "+%s.%N")), Query(argv=client.SHOW_RESERVATIONS))


def parse_reservations(got: tuple[QueryOutput, ...]) -> Reserved:
    """Every reservation; ParseError if slurmctld does not list them."""
    now = got[0].text().strip()
    if not re.fullmatch(r"[0-9]{1,12}\.[0-9]{1,9}", now):
        raise ParseError(f"date printed {short(now, 40)!r}")
    return Reserved(now_s=float(now), found=parsed(got[1], parse.parse_reservations))


def evaluate_reservations(found: Reserved, want: Reservations) -> CheckResult:
    """Culprits are the plan's. One of a person is a warning: maintenance is made by hand, and it keeps jobs off its nodes until it ends.

    Work stops where those of now hold every node of a partition.
    """
    expected = f"the {len(want.planned)} reservations of the plan, and none by hand"
    changes = reservations.difference(want.planned, found.found, found.now_s)
    if changes:
        known = {one.name for one in found.found}
        planned = {reservations.slurm_name(one) for one in want.planned}
        words = [_words(change.name, known, planned) for change in changes]
        return failed(listed(words, 4), expected, tuple(one.name for one in changes), _remedy(changes))
    others = [one for one in found.found if not one.name.startswith(RESERVATION_PREFIX)]
    by_hand = [
        f"{short(one.name, 40)} holds {short(hostlist.fold(one.nodes), 60) or 'no node'}" for one in others
    ]
    if not by_hand:
        return passed(f"{len(found.found)} reservations", expected)
    now = [one for one in others if one.whole and one.starts_at <= found.now_s < one.ends_at]
    closed = without_nodes(want.partitions, {node for one in now for node in one.nodes})
    commands = [f"scontrol delete reservation={shlex.quote(one.name)}" for one in others]
    remedy = f"on {{machine}}: {'; '.join(commands)}  # when it is no longer needed"
    return warned(listed([*by_hand, *closed], 4), expected, remedy, stops_work=bool(closed))


def _words(name: str, known: set[str], planned: set[str]) -> str:
    if name not in planned:
        return f"{short(name, 60)} is not in the plan"
    return f"{name} is {'another than in the plan' if name in known else 'missing'}"


def _remedy(changes: tuple[reservations.Change, ...]) -> str:
    """The commands that the head's agent runs, too."""
    commands = (f"{_UTC} {shlex.join(command)}" for change in changes for command in change.commands)
    return "on {machine}: " + "; ".join(commands)
