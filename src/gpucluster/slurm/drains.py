"""Drain reasons of nodes, and the owner of each: only the owner removes a drain.

`gpucluster: WORDS` belongs to the capacity part of the daemon; `[evacuation]`, `[operator]`, `[bundle]` and `[termination]` after the colon
to other parts of it, and `[health]` to the health program of the node. Every other reason is from Slurm or from a person.
A reason stays after its drain ends, and slurmctld appends its own text: `broken fan : ResumeTimeout reached`
(24.11 and 26.05, observed).
"""

import re
from enum import StrEnum

from gpucluster.plan.names import REASON_PREFIX


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


def reason(owner: DrainOwner, words: str) -> str:
    """The text for Slurm's Reason field."""
    bracket = "" if owner is DrainOwner.CAPACITY else f"[{owner.value}] "
    return f"{REASON_PREFIX} {bracket}{words}"


def owner_of(text: str) -> DrainOwner | None:
    """The part of the daemon that wrote the reason; None for any other text, and for an unknown bracket."""
    if not text.startswith(REASON_PREFIX):
        return None
    rest = text.removeprefix(REASON_PREFIX).lstrip()
    if not rest.startswith("["):
        return DrainOwner.CAPACITY
    word = rest[1:].partition("]")[0]
    return next((owner for owner in _DAEMON if owner.value == word), None)


def health_words(text: str) -> str:
    """The words of a health program in a reason or a Comment; empty for any other text."""
    return text.removeprefix(reason(DrainOwner.HEALTH, "")) if owner_of(text) is DrainOwner.HEALTH else ""


SLURM_USER = "slurm"  # SlurmUser; a person drains as root or as an operator
SLURM_PROGRAM_REASONS = (
    "Prolog error",
    "Epilog error",
)  # a program failed, or reached its time limit (S30, S42)
SLURM_DRAIN_REASONS = (  # slurmctld writes these when it drains a node (24.11)
    "Low ",  # RealMemory, CPUs, TmpDisk, socket*core*thread count: less than slurm.conf says
    "gres/",
    *SLURM_PROGRAM_REASONS,
    "Duplicate jobid",
    "batch job complete failure",
)
SLURM_DOWN_REASONS = (  # slurmctld writes these when it sets a node DOWN (24.11)
    "ResumeTimeout reached",
    "Not responding",
    "Node unexpectedly rebooted",
    "NO NETWORK ADDRESS FOUND",
    "reboot timed out",
)
_APPENDED = " : "
_NODE_DAEMONS = "root"  # the user of slurmd and slurmstepd
_NODE_REASONS = re.compile(  # the whole texts with which they drain their own node (24.11 and 26.05; S46)
    r"(?:Kill task failed|Job step not running)(?: \(JobId=\d+ StepId=[\w+]+\))?"
    r"|SlurmdSpoolDir is full"
    r"|switch_g_job_postfini failed"
)


def drain_owner(reason: str, by: str, *, drained: bool) -> DrainOwner:
    """The owner of a node's reason. `by` is the user who set it.

    The first writer owns a drain. Two exceptions: when Slurm drains after a reason of ours, Slurm owns the drain;
    when the node is down, the last writer counts.
    """
    last, owner = reason.rpartition(_APPENDED)[2], owner_of(reason)
    if not drained and last.startswith(SLURM_DOWN_REASONS):
        return DrainOwner.SLURM
    if drained and owner is not None and last.startswith(SLURM_DRAIN_REASONS):
        return DrainOwner.SLURM
    if owner is not None:
        return owner
    drained_itself = by == SLURM_USER and reason.startswith(SLURM_DRAIN_REASONS)
    if drained_itself or reason.startswith(SLURM_DOWN_REASONS) or _sent_by_node(reason, by):
        return DrainOwner.SLURM
    if (
        drained and not reason
    ):  # scontrol needs a reason to drain; slurmctld lost it (22.05 and 26.05, observed)
        return DrainOwner.SLURM
    return DrainOwner.PERSON if reason else DrainOwner.NONE


def is_fault_of_node(reason: str) -> bool:
    """Whether Slurm drained the node because something on it failed that can fail on every node at once: the hourly limit counts it."""
    return reason.startswith(SLURM_PROGRAM_REASONS) or _NODE_REASONS.fullmatch(_first(reason)) is not None


def _sent_by_node(reason: str, by: str) -> bool:
    """Whether slurmd or slurmstepd wrote the reason. slurmctld appends its own text, and then it is the user."""
    first = _first(reason)
    user = _NODE_DAEMONS if first == reason else SLURM_USER
    return by == user and _NODE_REASONS.fullmatch(first) is not None


def _first(reason: str) -> str:
    return reason.partition(_APPENDED)[0]


def is_forged(reason: str, by: str) -> bool:
    """Whether a person wrote a reason of gpucluster's. The daemon is SlurmUser; agents and health programs are root."""
    if not reason.startswith(REASON_PREFIX) or by in ("", SLURM_USER):
        return False
    return not (by == "root" and owner_of(reason) in (DrainOwner.HEALTH, DrainOwner.BUNDLE))
