"""The meaning of NVIDIA's XID errors for a machine. Standard library only, because the daemon on the head imports it.

If an XID comes again within 24 h of its remedy, the next remedy applies. On a cloud the last remedy is another machine.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from gpucluster.catalog.data_files import read_data

_BY_TEXT = "by-text"
_VERDICT = re.compile(r"\(([^()]{1,64})\)\W*$")  # `... changed from 0x0 (None) to 0x2 (Node Reboot Required)`


class Severity(StrEnum):
    """The remedies in order, from none to another machine."""

    MONITOR = "monitor"  # an error of the job, or no error: the machine stays
    RESET = "reset"  # reset the GPU when no job uses it
    REBOOT = "reboot"
    ISOLATE = "isolate"  # do not use the machine again; on a cloud it is replaced

    @property
    def next(self) -> "Severity":
        """Return the next remedy, for the same XID soon after the first remedy."""
        remedies = tuple(Severity)
        return remedies[min(remedies.index(self) + 1, len(remedies) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The remedy for a machine with an XID, and the text for people."""

    severity: Severity
    bucket: str  # NVIDIA's name of the immediate action; "": none
    note: str
    notify: bool  # no table gives an action: people get a message
    replace_when_idle: bool  # the machine works, but another one is better


def severity_of(xid: int, text: str = "") -> Severity:
    """Return the remedy. `text` is the kernel's line; it decides about 154. Unknown XIDs give MONITOR."""
    return verdict_of(xid, text).severity


def known(xid: int) -> bool:
    """Return whether the table has the XID. The kernel log can contain any number."""
    return xid in _rows()


def of_machines() -> tuple[int, ...]:
    """Return the XIDs whose remedy is another than the end of a job."""
    return tuple(sorted(xid for xid in _rows() if severity_of(xid) is not Severity.MONITOR))


def verdict_of(xid: int, text: str = "") -> Verdict:
    """Return the facts of an XID. An unknown XID is monitored and reported."""
    row = _rows().get(xid)
    if row is None:
        return Verdict(
            severity=Severity.MONITOR,
            bucket="",
            note="no table has it",
            notify=True,
            replace_when_idle=False,
        )
    severity = _severity_in(text) if row["severity"] == _BY_TEXT else Severity(row["severity"])
    return Verdict(
        severity=severity or Severity.MONITOR,
        bucket=row["bucket"],
        note=row["note"],
        notify=severity is None or row["bucket"] == "CONTACT_SUPPORT",
        replace_when_idle=xid in _table()["replace_when_idle"],
    )


def _severity_in(text: str) -> Severity | None:
    """Return the driver's recovery action: the last words in brackets, the state after *to*."""
    found = _VERDICT.search(text.strip())
    words = found[1].lower() if found else ""
    return next((Severity(does) for word, does in _table()["texts_of_154"] if word in words), None)


@cache
def _rows() -> dict[int, dict[str, Any]]:
    return {xid: row for row in _table()["rows"] for xid in row["xids"]}


@cache
def _table() -> dict[str, Any]:
    return read_data("xids.json")
