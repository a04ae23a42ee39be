"""What a daemon may do now. A lost dependency stops some acts, and the others go on (decision 0003). Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

# What only the journal and its copy have.
ORDERS_LOST = (
    "pauses and drains of pools, orders to keep or replace nodes, the month's spend and the budget's stop"
)
CONFIRM = "gpucluster pool confirm -c {cluster}"  # permits launches without them
UNRESTORED = f"{ORDERS_LOST} are lost with the journal, and no operator has confirmed it"


class Ability(StrEnum):
    """A kind of act. Each action of the daemon needs one; facts are always recorded."""

    LAUNCH = "launch"
    TERMINATE = "terminate"
    UPDATE = "update"  # every update of Slurm but those of the next row
    EVACUATE = "evacuate"  # drain, signal and requeue, because an instance ends


class Dependency(StrEnum):
    """What the daemon reads before it acts."""

    EC2 = "EC2"
    CONTROL = "the control object"  # in the bucket; it names the daemon that may act
    JOURNAL = "its journal of before, nor the copy of it in the bucket"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A dependency that cannot be read."""

    since: float | None  # None: it is not known since when
    words: str  # its error; empty: it gave no answer in time


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRow:
    """What a loss stops, and what goes on; both for people."""

    denied: frozenset[Ability]
    stops: str
    goes_on: str
    remedy: str = ""  # the command of an operator, with {cluster}


_ALL_BUT_EVACUATION = frozenset(Ability) - {Ability.EVACUATE}
_EVACUATION = "jobs run, and a notice still drains, signals and requeues"
LOSSES: Mapping[Dependency, LossRow] = {
    Dependency.EC2: LossRow(
        denied=_ALL_BUT_EVACUATION,
        stops="the daemon launches, terminates and powers down nothing",
        goes_on=_EVACUATION,
    ),
    Dependency.CONTROL: LossRow(
        denied=_ALL_BUT_EVACUATION,
        stops="the daemon launches, terminates and powers down nothing",
        goes_on=_EVACUATION,
    ),
    Dependency.JOURNAL: LossRow(
        denied=frozenset({Ability.LAUNCH}),
        stops=f"{ORDERS_LOST} are lost, and the daemon launches nothing until an operator confirms it",
        goes_on="jobs run, and idle nodes end",
        remedy=CONFIRM,
    ),
}


def denied(lost: Mapping[Dependency, Loss]) -> frozenset[Ability]:
    """Return what the daemon may not do while these dependencies are lost."""
    return frozenset(ability for dependency in lost for ability in LOSSES[dependency].denied)
