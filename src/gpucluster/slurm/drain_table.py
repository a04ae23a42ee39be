"""The reasons that Slurm's daemons write on nodes, by version, as recorded from real runs (`catalog/data/slurm-drains-*.json`).

A reason is a whole text and the user who sent it: slurmctld is SlurmUser, slurmd and slurmstepd are root. A version has its own
rows and those of older versions, because a slurmd may be older than slurmctld, and a reason outlives an upgrade.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from gpucluster.catalog.data_files import read_data
from gpucluster.slurm.recorded import RECORDED, recorded_until
from gpucluster.slurm.states import NodeState

SLURM_USER = "slurm"  # SlurmUser; a person drains as root or as an operator
APPENDED = " : "  # slurmctld appends its own text to a reason with it
_DOWN = frozenset({NodeState.DOWN, NodeState.FUTURE})
_JOINED = ", "  # of all that a registration lacks
_PLACEHOLDERS = {
    "gres": r"[\w-]+",
    "job": r"(?P<job>\d+)",
    "node": r"[\w.-]+",
    "number": r"\d+(?:\.\d+)?",
    "step": r"[\w+]+",
    "type": r"[\w.+-]+",
    "words": r".+",
}


class Sender(StrEnum):
    """The program that sent a reason."""

    SLURMCTLD = "slurmctld"
    SLURMD = "slurmd"
    SLURMSTEPD = "slurmstepd"
    SCONTROL = "scontrol"  # for a person or a program of the site


_DAEMONS = (Sender.SLURMCTLD, Sender.SLURMD, Sender.SLURMSTEPD)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownReason:
    """A row of the table. Its text may be one of several in a reason if a registration lacks something."""

    text: re.Pattern[str]
    sender: Sender
    user: str
    down: bool  # slurmctld sets the node DOWN with it, or lists it as FUTURE
    hardware: bool  # the registration lacks something of slurm.conf
    ordered: bool  # slurmctld carries out the order of a person
    function: str = ""  # of Slurm's source, for a row that was only read

    def job_in(self, text: str) -> str:
        """The job's number in a reason that begins with this row; empty if the row names none."""
        found = self.text.match(text)
        return "" if found is None else found.groupdict("").get("job", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainTable:
    """The rows that hold for one version."""

    version: str  # the newest recorded one of them; empty: none was recorded
    recorded: tuple[KnownReason, ...]
    read: tuple[KnownReason, ...]

    def find(self, text: str, user: str) -> KnownReason | None:
        """The recorded row of a daemon for this whole text from this user; of a registration, the row of its first lack."""
        rows = [self._of_piece(piece, user) for piece in text.split(_JOINED)]
        return rows[0] if all(row is not None and (row.hardware or len(rows) == 1) for row in rows) else None

    def find_read(self, text: str) -> KnownReason | None:
        """The row of a text that is in Slurm's source and that no run has recorded."""
        return next((row for row in self.read if row.text.fullmatch(text)), None)

    def _of_piece(self, text: str, user: str) -> KnownReason | None:
        return next((row for row in self.recorded if row.user == user and row.text.fullmatch(text)), None)


@cache
def table_of(version: str) -> DrainTable:
    """The table of a version of Slurm such as `25.05`: its own rows and those of older ones. Empty: of every version."""
    chosen = recorded_until(version or RECORDED[-1])
    tables = [read_data(f"slurm-drains-{known}.json") for known in chosen]
    rows = [_row(row) for table in tables for row in table["rows"]]
    return DrainTable(
        version=next(iter(chosen), ""),
        recorded=tuple(row for row in rows if row.sender in _DAEMONS),
        read=tuple(_row(row) for table in tables for row in table["read"]),
    )


def _row(row: Mapping[str, Any]) -> KnownReason:
    marks: Iterable[str] = row.get("marks", ())
    return KnownReason(
        text=re.compile(_pattern(row["text"])),
        sender=Sender(row["sender"]),
        user=row["user"],
        down=not _DOWN.isdisjoint(marks),
        hardware=NodeState.INVALID_REG in marks,
        ordered=row.get("ordered", False),
        function=row.get("function", ""),
    )


def _pattern(text: str) -> str:
    """The regular expression of a text with placeholders."""
    parts = re.split(r"\{(\w+)\}", text)
    return "".join(_PLACEHOLDERS[part] if n % 2 else re.escape(part) for n, part in enumerate(parts))
