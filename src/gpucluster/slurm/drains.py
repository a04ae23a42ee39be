"""Drain reasons of nodes, and the owner of each: only the owner removes a drain.

The owner is read from the text and its user. `gpucluster: WORDS` belongs to the capacity part of the daemon; `[evacuation]`,
`[operator]`, `[bundle]` and `[termination]` after the colon to other parts of it, and `[health]` to the health program of the node.
From another user these are a person's. Every other reason is from Slurm (`drain_table.py`) or from a person. A reason stays after its drain ends, and slurmctld appends its own text: `broken fan : ResumeTimeout reached`
(24.11 and 26.05, observed).
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from gpucluster.plan.names import REASON_PREFIX
from gpucluster.slurm.drain_table import APPENDED, SLURM_USER, KnownReason, Sender, table_of


class DrainOwner(StrEnum):
    """The writer of a node's reason."""

    CAPACITY = "capacity"  # the daemon: the cloud has no capacity for the slot; its reasons have no bracket
    EVACUATION = "evacuation"  # the daemon: jobs must leave the machine
    OPERATOR = "operator"  # an operator, through `gpucluster node`
    BUNDLE = (
        "bundle"  # the daemon, or the agent of an existing head: a new bundle removes or changes the node
    )
    TERMINATION = "termination"  # the daemon: the slot's old instance cannot be terminated
    HEALTH = "health"  # the health program of the node: a check failed; the daemon replaces the instance
    SLURM = "slurm"
    PERSON = "person"  # a person, with scontrol
    NONE = "none"  # no reason is set

    @property
    def is_daemon(self) -> bool:
        """Whether a part of gpucluster wrote the reason."""
        return self in _DAEMON


_DAEMON = (
    DrainOwner.CAPACITY,
    DrainOwner.EVACUATION,
    DrainOwner.OPERATOR,
    DrainOwner.BUNDLE,
    DrainOwner.TERMINATION,
    DrainOwner.HEALTH,
)
_OF_ROOT = (DrainOwner.HEALTH, DrainOwner.BUNDLE)


def reason(owner: DrainOwner, words: str) -> str:
    """The text for Slurm's Reason field."""
    bracket = "" if owner is DrainOwner.CAPACITY else f"[{owner.value}] "
    return f"{REASON_PREFIX} {bracket}{words}"


def owner_of(text: str, by: str = SLURM_USER) -> DrainOwner | None:
    """The part of gpucluster that wrote a reason; None for any other writer, and for an unknown bracket.

    `by` is the user. Slurm keeps none for a Comment and an AdminComment, which only its operators write.
    """
    return None if is_forged(text, by) else _part_in(text)


def is_forged(text: str, by: str) -> bool:
    """Whether a person wrote a reason of gpucluster's. The daemon is SlurmUser; agents and health programs are root."""
    if not text.startswith(REASON_PREFIX) or by == SLURM_USER:
        return False
    return not (by == "root" and _part_in(text) in _OF_ROOT)


def _part_in(text: str) -> DrainOwner | None:
    """The part of gpucluster that the text names."""
    if not text.startswith(REASON_PREFIX):
        return None
    rest = text.removeprefix(REASON_PREFIX).lstrip()
    if not rest.startswith("["):
        return DrainOwner.CAPACITY
    word = rest[1:].partition("]")[0]
    return next((owner for owner in _DAEMON if owner.value == word), None)


def health_words(text: str) -> str:
    """The words of a health program in its reason or in a Comment; empty for any other text."""
    return text.removeprefix(reason(DrainOwner.HEALTH, "")) if owner_of(text) is DrainOwner.HEALTH else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """What a reason says of its writer. `version` is that of slurmctld; empty: unknown."""

    text: str
    by: str  # the last user who wrote
    version: str = ""

    @property
    def first(self) -> KnownReason | None:
        """The row of Slurm's daemon that wrote it first; None for any other writer."""
        table, (first, *rest) = table_of(self.version), self.text.split(APPENDED)
        if not rest:
            return table.find(first, self.by)
        if self.by != SLURM_USER or any(table.find(part, SLURM_USER) is None for part in rest):
            return None  # only slurmctld appends
        return next((row for user in _DAEMON_USERS if (row := table.find(first, user)) is not None), None)

    @property
    def last(self) -> KnownReason | None:
        """The row of slurmctld that wrote last of its own accord; None for any other writer."""
        row = table_of(self.version).find(self.text.rpartition(APPENDED)[2], self.by)
        return row if row is not None and row.user == SLURM_USER and not row.ordered else None

    @property
    def replaces(self) -> bool:
        """Whether the writer may have written over the reason of a drain.

        slurmctld drains no drained node, but its words for a registration replace each reason (S46). Empty: it lost the reason.
        """
        row = self.first
        return not self.text or (row is not None and (row.hardware or row.sender is not Sender.SLURMCTLD))

    @property
    def cause(self) -> tuple[str, str]:
        """The row of the first writer and the job in it; the whole text if Slurm did not write first."""
        row = self.first
        return (self.text, "") if row is None else (row.text.pattern, row.job_in(self.text))


_DAEMON_USERS = (SLURM_USER, "root")  # slurmctld; slurmd and slurmstepd


@lru_cache(maxsize=4096)
def drain_owner(reason: str, by: str, *, drained: bool, version: str = "") -> DrainOwner:
    """The owner of a node's reason. `by` is the user who set it, `version` that of slurmctld.

    The first writer owns a drain. Two exceptions: when Slurm drains after a reason of ours, Slurm owns the drain;
    when the node is down, the last writer counts. What no run of Slurm has recorded is a person's.
    """
    if not reason:  # scontrol needs a reason to drain; slurmctld lost it (22.05 and 26.05, observed)
        return DrainOwner.SLURM if drained else DrainOwner.NONE
    told, owner = Reason(text=reason, by=by, version=version), owner_of(reason, by)
    last = told.last
    if last is not None and (owner is not None if drained else last.down):
        return DrainOwner.SLURM
    if owner is not None:
        return owner
    return DrainOwner.PERSON if told.first is None else DrainOwner.SLURM


@lru_cache(maxsize=4096)
def is_lack_of_hardware(reason: str, by: str, version: str = "") -> bool:
    """Whether slurmctld drained the node because its registration lacks something of slurm.conf."""
    first = Reason(text=reason, by=by, version=version).first
    return first is not None and first.hardware


def may_be_slurms(by: str) -> bool:
    """Whether a daemon of Slurm is this user. Empty: the user is unknown."""
    return by in ("", *_DAEMON_USERS)
