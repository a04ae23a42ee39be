"""What a daemon may do now. A lost dependency stops some acts, and the others go on (decision 0003). Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# What only the journal and its copy have.
ORDERS_LOST = (
    "pauses and drains of pools, orders to keep or replace nodes, the month's spend and the budget's stop"
)
CONFIRM = "gpucluster pool confirm -c {cluster}"  # permits launches without them
NO_QUEUE = ("NonExistentQueue", "QueueDoesNotExist")  # SQS has both codes
UNRESTORED = f"{ORDERS_LOST} are lost with the journal, and no operator has confirmed it"


class Ability(StrEnum):
    """A kind of act. Each action of the daemon needs one; facts are always recorded."""

    LAUNCH = "launch"
    TERMINATE = "terminate"
    END_STRAY = "end-stray"  # terminate an instance that no slot owns
    UPDATE = "update"  # every update of Slurm but those of the next row
    EVACUATE = "evacuate"  # drain, signal and requeue because an instance ends; drain by order
    END_IDLE = "end-idle"  # power down idle nodes


class Dependency(StrEnum):
    """What the daemon reads before it acts."""

    EC2 = "EC2"
    CONTROL = "the control object"  # in the bucket; it names the daemon that may act
    LEASE = "the lease"  # in the control object; it is over, and another daemon may hold it
    JOURNAL = "its journal of before, nor the copy of it in the bucket"
    SLURMCTLD = "slurmctld"
    QUEUE = "the queue of interruption notices"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A dependency that cannot be read. The lease is one that cannot be renewed, and the control object may be."""

    since: float | None  # None: it is not known since when
    words: str  # its error; empty: it gave no answer in time


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRow:
    """What a loss stops, and what goes on; both for people."""

    denied: frozenset[Ability]
    stops: str
    goes_on: tuple[tuple[Ability | None, str], ...]  # what each needs; None: nothing that a loss denies
    fails: str = "read"  # what the daemon cannot do with the dependency
    remedies: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # part of the error -> the command of an operator

    def still(self, denied: frozenset[Ability]) -> str:
        """Return what goes on without the denied abilities. A second loss may deny what this one leaves."""
        parts = [words for needs, words in self.goes_on if needs not in denied]
        return ", and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)

    def remedy(self, error: str, cluster: str) -> str:
        """Return the command that helps against this error; empty: none is known."""
        found = (command for part, command in self.remedies.items() if part in error)
        return next(found, "").format(cluster=cluster)


# AWS refuses a signature whose time is wrong: S3's code, and those of other services.
CLOCK_OFF = ("RequestTimeTooSkewed", "RequestExpired")
SET_CLOCK = "chronyc makestep; chronyc -n tracking"
_CLOCK: Mapping[str, str] = dict.fromkeys(CLOCK_OFF, SET_CLOCK)
_JOBS = (None, "jobs run")
_EVACUATIONS = (Ability.EVACUATE, "a notice of a known instance still drains, signals and requeues")
LOSSES: Mapping[Dependency, LossRow] = {
    Dependency.EC2: LossRow(
        denied=frozenset(Ability) - {Ability.EVACUATE},
        stops="the daemon launches, terminates and powers down nothing",
        goes_on=(_JOBS, _EVACUATIONS),
        remedies=_CLOCK,
    ),
    Dependency.CONTROL: LossRow(
        fails="read or renew",
        denied=frozenset(Ability) - {Ability.EVACUATE, Ability.END_IDLE},
        stops="the daemon launches and terminates nothing",
        goes_on=(_JOBS, _EVACUATIONS, (Ability.END_IDLE, "idle machines end themselves")),
        remedies=_CLOCK,
    ),
    Dependency.LEASE: LossRow(
        fails="renew",
        denied=frozenset(Ability),
        stops="the daemon does nothing, because another one may hold it",
        goes_on=(_JOBS,),
        remedies=_CLOCK,
    ),
    Dependency.JOURNAL: LossRow(
        denied=frozenset({Ability.LAUNCH, Ability.END_STRAY}),
        stops=f"{ORDERS_LOST} are lost, and until the copy can be read or an operator confirms it the daemon launches nothing, and terminates no instance without a node",
        goes_on=(_JOBS, (Ability.END_IDLE, "idle nodes end")),
        remedies={"": CONFIRM},
    ),
    Dependency.SLURMCTLD: LossRow(
        denied=frozenset(Ability),
        stops="the daemon does nothing",
        goes_on=(_JOBS, (None, "a notice waits for slurmctld")),
    ),
    Dependency.QUEUE: LossRow(
        denied=frozenset(),
        stops="notices come only from the nodes' agents",
        goes_on=((None, "this loss stops nothing else"),),
        remedies=dict.fromkeys(NO_QUEUE, "pulumi up --refresh --stack {cluster}"),
    ),
}


def denied(lost: Mapping[Dependency, Loss]) -> frozenset[Ability]:
    """Return what the daemon may not do while these dependencies are lost."""
    return frozenset(ability for dependency in lost for ability in LOSSES[dependency].denied)
