"""What the journal holds: facts that were seen and steps that were taken, one small value each.

A new kind of event is a class here, a word in `Event`, and its fold in `memory`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.plan.model import Market


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One RunInstances, complete: a repeat is made from this alone, so it is identical (T01)."""

    request: str  # r1, r2 ... in the order of the journal
    token: str
    pool: str
    source: int
    slots: tuple[str, ...]
    zone: str
    machine: str
    market: Market
    template_id: str
    template_version: int
    subnet_id: str

    @property
    def offer(self) -> str:
        """What a refusal is remembered under; pools share it."""
        return offer(self.market, self.machine, self.zone)


def offer(market: Market, machine: str, zone: str) -> str:
    """`spot/p5en.48xlarge/us-east-1a`."""
    return f"{market.value}/{machine}/{zone}"


def source_key(pool: str, position: int) -> str:
    """What a stopped source is remembered under: a quota or a configuration fault is not the zone's."""
    return f"source/{pool}/{position}"


# --- events ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Born:
    """A new journal. `epoch` goes into every token, so a rebuilt cluster never gets its forerunner's instances."""

    epoch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The daemon started; what was refused for this run may be tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCalled:
    """A hook's request was taken from the spool."""

    kind: str
    hostlist: str
    called_at: float
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlaced:
    """Slurm gave a job our slots."""

    job: int
    slots: tuple[str, ...]
    submitted_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRunning:
    """The job left CONFIGURING."""

    job: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLeft:
    """The job holds our slots no more: it ended, or was requeued."""

    job: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """Slurm wants the slot: a new life. A living instance of the slot serves it."""

    slot: str
    life: int
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """Slurm still waits for a boot that the node already made: the same need, a new number, so slurmd starts anew."""

    slot: str
    life: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAsked:
    """Written and synced before the call."""

    ask: Ask


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDone:
    """The cloud gave these, in the order of the request's slots."""

    request: str
    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRefused:
    """Nothing was launched. `refusals` are remembered: (offer or source) -> until."""

    request: str
    key: str | None  # None: only the token was spent
    words: str
    until: float
    for_this_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDeferred:
    """No outcome yet: lost or throttled. The identical call is repeated from `retry_at` on."""

    request: str
    retry_at: float
    words: str
    pace_all: bool  # throttled: no other launch before that, either


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDropped:
    """A request that nobody needs any more, unseen in the cloud for long."""

    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An offer is bad for another reason than the cloud's no: its boots fail."""

    key: str
    words: str
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgot:
    """Refusals that ran out while no job waited."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Booted:
    """The cloud showed the instance running for the first time."""

    slot: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The instance's agent asked for its name."""

    slot: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CameUp:
    """Slurm took the node."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BecameIdle:
    """Slurm shows the node idle."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BecameBusy:
    """The node has a job again."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unneeded:
    """Slurm shows the slot off, and its instance lives: kept for the grace, in case Slurm only forgot."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BootFailed:
    """The boot will not become a node; `words` are the node's own last step, or the cloud's reason."""

    slot: str
    instance: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAsked:
    """The end of these instances was asked for."""

    instances: tuple[str, ...]
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceGone:
    """The slot's instance is at least shutting down; the slot may get another."""

    slot: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeOver:
    """Slurm does not want the slot, and it has no instance."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSeen:
    """Instances whose end we asked for are ended; nothing more to remember of them."""

    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A living instance of ours that Slurm already uses as this slot, and no request of ours knows."""

    slot: str
    instance: str
    machine: str
    market: Market


Event = (
    Born | Started | HookCalled | JobPlaced | JobRunning | JobLeft | Needed | Renewed | LaunchAsked | LaunchDone
    | LaunchRefused | LaunchDeferred | LaunchDropped | Refused | Forgot | Booted | Registered | CameUp | BecameIdle
    | BecameBusy | Unneeded | BootFailed | EndAsked | InstanceGone | LifeOver | EndSeen | Adopted
)  # fmt: skip
EVENTS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in Event.__args__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An event and when it was written."""

    at: float
    event: Event
