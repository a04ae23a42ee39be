"""What an XID of NVIDIA's driver means for its machine. Standard library only: the daemon on the head asks it too.

A second time within 24 h of its remedy the same XID takes the next rung; on a cloud the last rung is another machine.
"""

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parent / "data" / "xids.json"
_BY_TEXT = "by-text"
_VERDICT = re.compile(r"\(([^()]{1,64})\)\W*$")  # `... changed from 0x0 (None) to 0x2 (Node Reboot Required)`


class Severity(StrEnum):
    """The rungs, from nothing to another machine."""

    MONITOR = "monitor"  # the job's own fault, or nothing: the machine stays
    RESET = "reset"  # the GPU is reset while no job has it
    REBOOT = "reboot"
    ISOLATE = "isolate"  # never again; on a cloud the machine is replaced

    @property
    def next(self) -> "Severity":
        """The rung above, for the same XID again soon after its remedy."""
        rungs = tuple(Severity)
        return rungs[min(rungs.index(self) + 1, len(rungs) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is to be done about a machine with an XID, and what people should know."""

    severity: Severity
    bucket: str  # NVIDIA's word for the immediate action; "": it has none
    note: str
    told: bool  # nobody's table says what to do: people are told
    replace_when_idle: bool  # it works, and another will be better


def severity_of(xid: int, text: str = "") -> Severity:
    """How bad it is; `text` is the kernel's line, by which 154 is judged. MONITOR for what nobody knows."""
    return verdict_of(xid, text).severity


def known(xid: int) -> bool:
    """Whether the table has it; what a node writes into its kernel log is any number at all."""
    return xid in _rows()


def verdict_of(xid: int, text: str = "") -> Verdict:
    """All that is known of an XID; one that no table has is only watched, and told."""
    row = _rows().get(xid)
    if row is None:
        return Verdict(
            severity=Severity.MONITOR,
            bucket="",
            note="no table has it",
            told=True,
            replace_when_idle=False,
        )
    said = _said_by(text) if row["severity"] == _BY_TEXT else Severity(row["severity"])
    return Verdict(
        severity=said or Severity.MONITOR,
        bucket=row["bucket"],
        note=row["note"],
        told=said is None or row["bucket"] == "CONTACT_SUPPORT",
        replace_when_idle=xid in _table()["replace_when_idle"],
    )


def _said_by(text: str) -> Severity | None:
    """The driver's own verdict: the last words in brackets, the state that it changed *to*."""
    found = _VERDICT.search(text.strip())
    words = found[1].lower() if found else ""
    return next((Severity(does) for word, does in _table()["texts_of_154"] if word in words), None)


@cache
def _rows() -> dict[int, dict[str, Any]]:
    return {xid: row for row in _table()["rows"] for xid in row["xids"]}


@cache
def _table() -> dict[str, Any]:
    return json.loads(_DATA.read_text(encoding="utf-8"))
