"""Whose a node's reason is: only the owner lifts it.

`gpucluster: WORDS` is the capacity's (nothing can be had); `gpucluster: [trouble] WORDS` and the like another part's of
ours; any other reason is Slurm's own or a person's. A reason outlives the drain that it was written for, and slurmctld
appends its own to it: `broken fan : ResumeTimeout reached` (24.11 and 26.05, seen).
"""

from enum import StrEnum

from gpucluster.plan.names import REASON_PREFIX


class Owner(StrEnum):
    """A part of the daemon that drains."""

    CAPACITY = "capacity"  # without a bracket, as the first versions wrote it
    TROUBLE = "trouble"  # the machine is to be left
    ORDER = "order"  # an operator's order through us


def reason(owner: Owner, words: str) -> str:
    """The reason as it stands in Slurm."""
    return (
        f"{REASON_PREFIX} {words}" if owner is Owner.CAPACITY else f"{REASON_PREFIX} [{owner.value}] {words}"
    )


def owner_of(text: str) -> Owner | None:
    """The part of ours that wrote it; None for Slurm's or a person's. An unknown bracket is nobody's to lift."""
    if not text.startswith(REASON_PREFIX):
        return None
    rest = text.removeprefix(REASON_PREFIX).lstrip()
    if not rest.startswith("["):
        return Owner.CAPACITY
    word = rest[1:].partition("]")[0]
    return next((owner for owner in Owner if owner.value == word), None)


class Stranger(StrEnum):
    """Whose a reason is that none of ours wrote."""

    SLURM = "slurm"
    PERSON = "person"
    NOBODY = "nobody"  # there is none


SLURM_USER = "slurm"  # SlurmUser; a person drains as root or as an operator
SLURMS_DRAINS = (  # what slurmctld writes when it drains a node by itself (24.11)
    "Low ",  # RealMemory, CPUs, TmpDisk, socket*core*thread count: less than slurm.conf says
    "gres/",
    "Prolog error",
    "Epilog error",
    "Kill task failed",
    "Duplicate jobid",
    "batch job complete failure",
)
SLURMS_DOWNS = (  # and when it takes one down (24.11)
    "ResumeTimeout reached",
    "Not responding",
    "Node unexpectedly rebooted",
    "NO NETWORK ADDRESS FOUND",
    "reboot timed out",
)
_APPENDED = " : "


def whose(reason: str, by: str, *, drained: bool) -> Owner | Stranger:
    """Whose a node's reason is. Who drained it first owns the drain, but what was left over from us is none of ours
    any more when Slurm drains after it; one that is down is so for what was said last.
    """
    last, owner = reason.rpartition(_APPENDED)[2], owner_of(reason)
    if not drained and last.startswith(SLURMS_DOWNS):
        return Stranger.SLURM
    if drained and owner is not None and last.startswith(SLURMS_DRAINS):
        return Stranger.SLURM
    if owner is not None:
        return owner
    if reason.startswith(SLURMS_DOWNS) or (by == SLURM_USER and reason.startswith(SLURMS_DRAINS)):
        return Stranger.SLURM
    if (
        drained and not reason
    ):  # scontrol takes no drain without one: slurmctld dropped it (22.05 and 26.05, seen)
        return Stranger.SLURM
    return Stranger.PERSON if reason else Stranger.NOBODY
