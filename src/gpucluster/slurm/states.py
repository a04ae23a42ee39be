"""Slurm's words for the states of nodes and jobs, in the spellings of 22.05 to 26.05, and their meaning for the daemon.

No other module contains a state word. An unknown word or combination is `SlurmPhase.UNKNOWN`:
the daemon takes no action then.
Source: slurmctld 22.05.8, 24.11.5 and 26.05.5 as recorded (tests/recorded/transitions), and slurm_defs.h.
"""

from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache


class NodeState(StrEnum):
    """A word in the `state` list of a node: a node has one base state and any number of flags."""

    IDLE = "IDLE"
    ALLOCATED = "ALLOCATED"
    MIXED = "MIXED"
    DOWN = "DOWN"
    ERROR = "ERROR"
    UNKNOWN = "UNKNOWN"
    FUTURE = "FUTURE"
    # flags
    POWERED_DOWN = "POWERED_DOWN"
    POWERING_UP = "POWERING_UP"
    POWERING_DOWN = "POWERING_DOWN"
    POWER_DOWN = "POWER_DOWN"
    POWER_UP = "POWER_UP"
    POWER_DRAIN = "POWER_DRAIN"
    POWER_DOWN_FORCE = "POWER_DOWN_FORCE"  # since 26.05, beside POWER_DOWN on a node that is off
    DRAIN = "DRAIN"
    FAIL = "FAIL"
    UNDRAIN = "UNDRAIN"
    RESUME = "RESUME"
    NOT_RESPONDING = "NOT_RESPONDING"
    INVALID_REG = "INVALID_REG"
    REBOOT_REQUESTED = "REBOOT_REQUESTED"
    REBOOT_ISSUED = "REBOOT_ISSUED"
    REBOOT_CANCELED = "REBOOT_CANCELED"
    CLOUD = "CLOUD"
    COMPLETING = "COMPLETING"
    MAINTENANCE = "MAINTENANCE"
    RESERVED = "RESERVED"
    PLANNED = "PLANNED"
    DYNAMIC_NORM = "DYNAMIC_NORM"  # since 22.05
    DYNAMIC_FUTURE = "DYNAMIC_FUTURE"  # since 22.05
    BLOCKED = "BLOCKED"  # since 25.05


class PartitionState(StrEnum):
    """The State of a partition (slurm.conf(5))."""

    UP = "UP"
    DOWN = "DOWN"
    DRAIN = "DRAIN"
    INACTIVE = "INACTIVE"


class JobState(StrEnum):
    """A word in the `job_state` list of a job: one base state and any number of flags."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    # flags
    CONFIGURING = "CONFIGURING"
    COMPLETING = "COMPLETING"
    POWER_UP_NODE = "POWER_UP_NODE"  # the job waits for the boot of its nodes; not on 22.05


class SlurmPhase(StrEnum):
    """The step of the power-saving cycle that a node is in, as the daemon sees it."""

    OFF = "off"  # IDLE+POWERED_DOWN, drained or not
    POWERING_UP = "powering-up"  # or allocated and not yet powered up
    UP = "up"
    NOT_RESPONDING = "not-responding"
    POWER_DOWN_PENDING = "power-down-pending"
    POWERING_DOWN = "powering-down"  # SuspendTimeout runs
    DOWN = "down"
    DOWN_OFF = "down-off"  # DOWN+POWERED_DOWN: a resume failed
    STUCK = "stuck"  # a power-up and a power-down at once: Slurm does not end this state by itself
    FUTURE = "future"  # no job uses the node, and `scontrol show nodes` without --future hides it
    UNKNOWN = "unknown"  # an unknown word or combination


_S, _P = NodeState, SlurmPhase
BASES = frozenset({_S.IDLE, _S.ALLOCATED, _S.MIXED, _S.DOWN, _S.ERROR, _S.UNKNOWN, _S.FUTURE})
FLAGS = frozenset(NodeState) - BASES
SPELLINGS = {  # words of other versions and other views
    "NO_RESPOND": _S.NOT_RESPONDING,
    "MAINT": _S.MAINTENANCE,
    "REBOOT_CANCEL": _S.REBOOT_CANCELED,
    "CANCEL_REBOOT": _S.REBOOT_CANCELED,
    "REBOOT": _S.REBOOT_REQUESTED,
    "ALLOC": _S.ALLOCATED,
    "MIX": _S.MIXED,
    "INVAL": _S.INVALID_REG,
    "COMP": _S.COMPLETING,
    "RESV": _S.RESERVED,
    "PLND": _S.PLANNED,
    "FAILING": _S.FAIL,
}

DRAIN_FLAGS = frozenset({_S.DRAIN, _S.FAIL})
UNHEALTHY = DRAIN_FLAGS | {
    _S.DOWN,
    _S.INVALID_REG,
    _S.ERROR,
    _S.UNKNOWN,
    _S.FUTURE,
}  # a node that must take jobs has none of these
POWER_SAVING = frozenset(
    {_S.POWERED_DOWN, _S.POWERING_DOWN, _S.POWERING_UP}
)  # off, or about to be, or booting
POWERED_DOWN = frozenset({_S.POWERED_DOWN, _S.POWERING_DOWN})  # off, or about to be
JOB_ENDED = frozenset({
    JobState.COMPLETED, JobState.CANCELLED, JobState.FAILED, JobState.TIMEOUT, JobState.NODE_FAIL,
    JobState.PREEMPTED, JobState.BOOT_FAIL, JobState.DEADLINE, JobState.OUT_OF_MEMORY,
})  # fmt: skip

_CONTRADICTIONS = (
    frozenset({_S.POWERING_UP, _S.POWERING_DOWN}),
    frozenset({_S.FUTURE, _S.POWERING_DOWN}),
)

# The first row with all its words in the state applies. No row: UP.
PHASES: tuple[tuple[frozenset[str], SlurmPhase], ...] = (
    (frozenset({_S.FUTURE}), _P.FUTURE),
    (frozenset({_S.POWERING_DOWN}), _P.POWERING_DOWN),
    (frozenset({_S.POWERED_DOWN, _S.DOWN}), _P.DOWN_OFF),
    (frozenset({_S.POWERED_DOWN, _S.ERROR}), _P.DOWN_OFF),
    (
        frozenset({_S.POWERED_DOWN, _S.POWER_DOWN}),
        _P.STUCK,
    ),  # one second on 24.11, without end on other versions
    (frozenset({_S.POWERED_DOWN, _S.POWER_DRAIN}), _P.STUCK),
    (frozenset({_S.POWERED_DOWN, _S.ALLOCATED}), _P.POWERING_UP),  # before the power thread's next scan
    (frozenset({_S.POWERED_DOWN, _S.MIXED}), _P.POWERING_UP),
    (frozenset({_S.POWERED_DOWN, _S.POWER_UP}), _P.POWERING_UP),
    (frozenset({_S.POWERED_DOWN, _S.POWERING_UP}), _P.POWERING_UP),
    (frozenset({_S.POWERED_DOWN}), _P.OFF),
    (frozenset({_S.DOWN}), _P.DOWN),
    (frozenset({_S.ERROR}), _P.DOWN),
    (frozenset({_S.POWERING_UP, _S.POWER_DOWN}), _P.STUCK),  # ignored until ResumeTimeout (24.11, observed)
    (frozenset({_S.POWERING_UP, _S.POWER_DRAIN}), _P.STUCK),
    (frozenset({_S.POWERING_UP}), _P.POWERING_UP),
    # POWER_UP alone is stale: slurmd registered before the power thread's next scan, and jobs run (24.11, observed).
    (frozenset({_S.POWER_UP, _S.NOT_RESPONDING}), _P.POWERING_UP),
    (frozenset({_S.POWER_DOWN}), _P.POWER_DOWN_PENDING),
    (frozenset({_S.POWER_DRAIN}), _P.POWER_DOWN_PENDING),
    (frozenset({_S.NOT_RESPONDING}), _P.NOT_RESPONDING),
    (frozenset({_S.UNKNOWN}), _P.NOT_RESPONDING),
)

# What `gpucluster validate` shows of a node's power-saving cycle: the first word that the state has.
CYCLE: tuple[tuple[NodeState, str], ...] = (
    (_S.POWERING_UP, _S.POWERING_UP),
    (_S.POWERING_DOWN, _S.POWERING_DOWN),
    (_S.POWERED_DOWN, _S.POWERED_DOWN),
    (_S.DOWN, _S.DOWN),
    (_S.ALLOCATED, JobState.RUNNING),
    (_S.MIXED, JobState.RUNNING),
    (_S.COMPLETING, _S.COMPLETING),
    (_S.IDLE, _S.IDLE),
)


def canonical(words: Iterable[str]) -> frozenset[str]:
    """Return the words in one spelling; an unknown word stays unchanged."""
    return _canonical(tuple(words))


def classify(states: frozenset[str]) -> SlurmPhase:
    """Return the phase of canonical words."""
    if (
        not states <= BASES | FLAGS
        or len(states & BASES) != 1
        or any(pair <= states for pair in _CONTRADICTIONS)
    ):
        return SlurmPhase.UNKNOWN
    return next((phase for words, phase in PHASES if words <= states), SlurmPhase.UP)


def cycle_step(states: frozenset[str]) -> str:
    """The step of the power-saving cycle, in Slurm's words, of canonical words."""
    return next((step for word, step in CYCLE if word in states), NodeState.UNKNOWN)


@lru_cache(maxsize=1024)  # 10,000 nodes have about a dozen different states
def _canonical(words: tuple[str, ...]) -> frozenset[str]:
    return frozenset(SPELLINGS.get(word.upper(), word.upper()) for word in words)
