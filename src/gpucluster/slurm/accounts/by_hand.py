"""Settings of QOS and places that gpucluster never sets, as `sacctmgr --json` shows them. Pure.

sacctmgr(1) has the options, and what clears them. Limits that the checks ask for by name are not here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.slurm.accounts.json_values import at, real, shown, tres, words
from gpucluster.slurm.accounts.records import NO_DECAY, OtherLimit

_USERS_ARE_COORDINATORS = "UsersAreCoords"


@dataclass(frozen=True, slots=True)
class _Setting:
    """An option of sacctmgr, its place in the JSON, the value of a new record, and the word that sets it again."""

    name: str
    keys: tuple[str, ...]
    default: float | None = None
    clear: str = "-1"


_OF_QOS = (
    _Setting("GraceTime", ("limits", "grace_time"), 0, "0"),
    _Setting("GrpJobsAccrue", ("limits", "max", "active_jobs", "accruing")),
    _Setting("MaxJobsAccruePA", ("limits", "max", "accruing", "per", "account")),
    _Setting("MaxJobsAccruePU", ("limits", "max", "accruing", "per", "user")),
    _Setting("LimitFactor", ("limits", "factor")),
    _Setting("MinPrioThreshold", ("limits", "min", "priority_threshold")),
    _Setting("PreemptExemptTime", ("preempt", "exempt_time")),
    _Setting("UsageFactor", ("usage_factor",), 1, "1"),
    _Setting("UsageThreshold", ("usage_threshold",)),
)
_OF_PLACE = (
    _Setting("GrpJobsAccrue", ("max", "jobs", "per", "accruing")),
    _Setting("MaxJobsAccrue", ("max", "jobs", "accruing")),
    _Setting("MinPrioThreshold", ("min", "priority_threshold")),
    _Setting("Priority", ("priority",)),
)
_OF_OPEN_PLACE = (_Setting("GrpSubmitJobs", ("max", "jobs", "per", "submitted")),)
_RUN_MINUTES = {"MaxTRESRunMinsPA": "account", "MaxTRESRunMinsPU": "user"}
_PREEMPT_MODE = ("DISABLED",)  # the cluster's


def of_qos(qos: Mapping[str, Any], name: str) -> Iterator[OtherLimit]:
    """What this QOS has beside the settings of a plan."""
    for one in _OF_QOS:
        yield from _set(qos, one, "qos", name)
    for limit, whose in _RUN_MINUTES.items():
        if limits := shown(tres(qos, "limits", "max", "tres", "minutes", "per", whose)):
            yield OtherLimit(kind="qos", name=name, limit=limit, value=limits)
    modes, flags = tuple(words(at(qos, "preempt", "mode"))), tuple(words(qos.get("flags")))
    if modes and modes != _PREEMPT_MODE:
        yield _named("qos", name, "PreemptMode", modes, "PreemptMode=cluster")
    if others := tuple(flag for flag in flags if flag != NO_DECAY):
        kept = "NoDecay" if NO_DECAY in flags else "-1"
        yield _named("qos", name, "Flags", others, f"Flags={kept}")


def of_place(place: Mapping[str, Any], kind: str, name: str, *, closed: bool) -> Iterator[OtherLimit]:
    """What this account, or user in an account, has beside the settings of a plan. A closed one takes no job, by the plan or by hand."""
    for one in (*_OF_PLACE, *(() if closed else _OF_OPEN_PLACE)):
        yield from _set(place, one, kind, name)
    flags = tuple(flag for flag in words(place.get("flags")) if flag == _USERS_ARE_COORDINATORS)
    if flags:
        yield _named(kind, name, "Flags", flags, f"Flags=No{_USERS_ARE_COORDINATORS}")


def _set(record: Mapping[str, Any], one: _Setting, kind: str, name: str) -> Iterator[OtherLimit]:
    value = real(at(record, *one.keys))
    if value is not None and value != one.default:
        undo = f"{one.name}={one.clear}"
        yield OtherLimit(kind=kind, name=name, limit=one.name, value=f"{value:g}", undo=undo)


def _named(kind: str, name: str, limit: str, found: tuple[str, ...], undo: str) -> OtherLimit:
    return OtherLimit(kind=kind, name=name, limit=limit, value=",".join(found), undo=undo)
