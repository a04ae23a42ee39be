"""What Slurm does to jobs when what they ask for leaves, by version, as recorded from real runs (`catalog/data/slurm-requests-*.json`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from gpucluster.catalog.data_files import read_data
from gpucluster.slurm.recorded import RECORDED, recorded_until


class Outcome(StrEnum):
    """What becomes of a job."""

    STARTS = "starts"
    STARTS_WITHOUT = "starts without it"
    WAITS = "waits"
    GOES_ON = "goes on"
    REQUEUED = "requeued"
    ENDED = "ended"
    TAKEN = "taken"  # by sbatch
    TAKEN_ELSEWHERE = "taken by another partition"
    REFUSED = "refused"  # by sbatch


class Way(StrEnum):
    """How slurmctld gets the change."""

    RECONFIGURE = "reconfigure"
    RESTART = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of one job, and the reason in Slurm's word."""

    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """What becomes of a running, a queued and a new job. `running`: None if none can run before the change.

    `released`: of a queued job that Slurm holds, when an operator releases it; None: Slurm does not hold it.
    """

    running: Fate | None
    queued: Fate
    new: Fate
    released: Fate | None = None


def fates_of(row: str, version: str, way: Way) -> Fates:
    """Return what was recorded with the newest version that is not newer than this one, or with the oldest."""
    found: Mapping[str, Any] = _rows(next(iter(recorded_until(version)), RECORDED[0]))[row][way.value]
    running, released = found["running"], found.get("released")
    return Fates(
        running=None if running is None else _fate(running),
        queued=_fate(found["queued"]),
        new=_fate(found["new"]),
        released=None if released is None else _fate(released),
    )


def ids(version: str) -> tuple[str, ...]:
    """Return the ids of all rows of a recorded version."""
    return tuple(_rows(version))


@cache
def _rows(recorded: str) -> Mapping[str, Mapping[str, Any]]:
    return {row["id"]: row for row in read_data(f"slurm-requests-{recorded}.json")["rows"]}


def _fate(values: Mapping[str, str]) -> Fate:
    return Fate(outcome=Outcome(values["outcome"]), reason=values.get("reason", ""))
