"""Slurm's words for a node's state, in every version's spelling (22.05 to 26.05), and where Slurm stands with it.

A word that is not here, or words that cannot stand together, are `Phase.ODD`: nothing is concluded from them.
Source of the words: slurmctld 22.05.8, 24.11.5 and 26.05.5 as recorded (tests/recorded/transitions), and slurm_defs.h.
"""

from gpucluster.elastic.model import Phase

BASES = frozenset({"IDLE", "ALLOCATED", "MIXED", "DOWN", "ERROR", "UNKNOWN", "FUTURE"})
FLAGS = frozenset({
    "POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "POWER_DOWN", "POWER_UP", "POWER_DRAIN",
    "DRAIN", "FAIL", "UNDRAIN", "RESUME",
    "NOT_RESPONDING", "INVALID_REG",
    "REBOOT_REQUESTED", "REBOOT_ISSUED", "REBOOT_CANCELED",
    "CLOUD", "COMPLETING", "MAINTENANCE", "RESERVED", "PLANNED",
    "DYNAMIC_NORM", "DYNAMIC_FUTURE",  # since 22.05
    "BLOCKED",  # since 25.05
    "POWER_DOWN_FORCE",  # since 26.05 beside POWER_DOWN on a node that is off
})  # fmt: skip
SPELLINGS = {  # other versions' and other views' words for the same
    "NO_RESPOND": "NOT_RESPONDING",
    "MAINT": "MAINTENANCE",
    "REBOOT_CANCEL": "REBOOT_CANCELED",
    "CANCEL_REBOOT": "REBOOT_CANCELED",
    "REBOOT": "REBOOT_REQUESTED",
    "ALLOC": "ALLOCATED",
    "MIX": "MIXED",
    "INVAL": "INVALID_REG",
    "COMP": "COMPLETING",
    "RESV": "RESERVED",
    "PLND": "PLANNED",
    "FAILING": "FAIL",
}
_AT_ODDS = (
    frozenset({"POWERING_UP", "POWERING_DOWN"}),
    frozenset({"FUTURE", "POWERING_DOWN"}),
)

# The first row whose words are all there counts, and no row means UP.
PHASES: tuple[tuple[frozenset[str], Phase], ...] = (
    (frozenset({"FUTURE"}), Phase.FUTURE),
    (frozenset({"POWERING_DOWN"}), Phase.ENDING),
    (frozenset({"POWERED_DOWN", "DOWN"}), Phase.DOWN_OFF),
    (frozenset({"POWERED_DOWN", "ERROR"}), Phase.DOWN_OFF),
    (frozenset({"POWERED_DOWN", "POWER_DOWN"}), Phase.STRANDED),  # for a second on 24.11, for ever elsewhere
    (frozenset({"POWERED_DOWN", "POWER_DRAIN"}), Phase.STRANDED),
    (frozenset({"POWERED_DOWN", "ALLOCATED"}), Phase.WANTED),  # before the power thread's next scan
    (frozenset({"POWERED_DOWN", "MIXED"}), Phase.WANTED),
    (frozenset({"POWERED_DOWN", "POWER_UP"}), Phase.WANTED),
    (frozenset({"POWERED_DOWN", "POWERING_UP"}), Phase.WANTED),
    (frozenset({"POWERED_DOWN"}), Phase.OFF),
    (frozenset({"DOWN"}), Phase.DOWN),
    (frozenset({"ERROR"}), Phase.DOWN),
    (frozenset({"POWERING_UP", "POWER_DOWN"}), Phase.STRANDED),  # ignored until ResumeTimeout (24.11, seen)
    (frozenset({"POWERING_UP", "POWER_DRAIN"}), Phase.STRANDED),
    (frozenset({"POWERING_UP"}), Phase.WANTED),
    # Alone it is left over: slurmd registered before the power thread's next scan, and jobs run there (24.11, seen).
    (frozenset({"POWER_UP", "NOT_RESPONDING"}), Phase.WANTED),
    (frozenset({"POWER_DOWN"}), Phase.LEAVING),
    (frozenset({"POWER_DRAIN"}), Phase.LEAVING),
    (frozenset({"NOT_RESPONDING"}), Phase.SILENT),
    (frozenset({"UNKNOWN"}), Phase.SILENT),
)


def canonical(words: frozenset[str]) -> frozenset[str]:
    """The same in one spelling; a word that is unknown stays as it is."""
    return frozenset(SPELLINGS.get(word, word) for word in words)


def classify(states: frozenset[str]) -> Phase:
    """The phase that Slurm's words, in one spelling, mean."""
    if not states <= BASES | FLAGS or len(states & BASES) != 1 or any(pair <= states for pair in _AT_ODDS):
        return Phase.ODD
    return next((phase for words, phase in PHASES if words <= states), Phase.UP)
