"""Whose a node's reason is: only the owner lifts it.

`gpucluster: WORDS` is the capacity's (nothing can be had); `gpucluster: [notice] WORDS` and the like another part's of
ours; any other reason is Slurm's own or a person's.
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
