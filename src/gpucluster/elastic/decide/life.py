"""The life of a node as one table: Slurm's state, the machine's fate, the owner of the reason, and orders.

First match wins; every state has a row, and the last ones say that nothing is to be done. A row's words are what
people read, in `why` and, where the node is drained or set down for it, as its reason. `by` is when the state is left
whatever happens, in seconds from its beginning; None: as long as a job, a person or the lack of capacity holds it.

What takes a node away (END, OFF, DOWN_AND_OFF, RESET, SET_DOWN) is never done to one on which a job runs, unless its
machine is lost, and never to what a person drained, unless Slurm itself has powered it down.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from gpucluster.elastic.decide.stand import Moment, Stand
from gpucluster.elastic.decide.world import Fate, World
from gpucluster.elastic.events import Event, Lingers, Unknown
from gpucluster.elastic.model import Phase
from gpucluster.elastic.owners import Owner, Stranger

UNMOVED_S = 60.0  # twice the power thread's slowest scan, and slurmctld's own delays (slurm.md 3.2)
SLURMD_TIMEOUT_S = 300.0  # SlurmdTimeout and the pings before it, at most 1.4 of it (slurm.md 3.6)


class Do(StrEnum):
    """What is to be done; who does it is in brackets."""

    NOTHING = "nothing"
    WAIT = "wait"  # it changes by itself
    LAUNCH = "launch"  # [gangs]
    CAPACITY = "capacity"  # drained or lifted as capacity comes and goes [blocked]
    LEAVE = "leave"  # its machine is to be left [troubles]
    POWER_UP = "power-up"  # [idle]
    END = "end"  # the machine [endings]
    OFF = "off"  # powered down, pending [repair]
    DOWN_AND_OFF = "down-and-off"  # [repair]
    SET_DOWN = "set-down"  # by order, and it stays down [repair]
    RESET = "reset"  # DOWN~ or FUTURE back to IDLE [repair]
    HOLD = "hold"  # drained by order [repair]
    LIFT = "lift"  # our drain is lifted [repair]
    TELL = "tell"  # no row has it [repair]


By = Callable[[Stand], float | None]
When = Callable[[Stand], bool]


@dataclass(frozen=True, slots=True)
class Row:
    """One state of a node's life."""

    name: str
    phases: Phase | tuple[Phase, ...]
    when: When
    do: Do
    by: By
    says: str
    adds: Callable[[Stand], str] | None = None  # to `says`, of this very node
    patience: By | None = (
        None  # Slurm should leave it by itself so soon; it is remembered since when it stands
    )

    def sentence(self, stand: Stand) -> str:
        return self.says if self.adds is None else f"{self.says}{self.adds(stand)}"


# --- by when -----------------------------------------------------------------------------------------
def _held(_: Stand) -> None:
    return None


def _next_look(s: Stand) -> float:
    return 2 * s.times.reconcile_s


def _slurms_move(s: Stand) -> float:
    return UNMOVED_S


def _suspend(s: Stand) -> float:
    return s.times.suspend_timeout_s + UNMOVED_S


def _off(s: Stand) -> float:
    """Powered down by us: Slurm's scan, SuspendTimeout, and the machine's end meanwhile."""
    return 2 * s.times.reconcile_s + _suspend(s)


def _boot(s: Stand) -> float:
    """Slurm's own ResumeTimeout is a little later than ours."""
    return s.place.pool.boot_timeout_s + 2 * UNMOVED_S


def _reboot(s: Stand) -> float | None:
    """Of one that works only when its jobs are over."""
    return None if s.busy else _boot(s)


def _grace_and_off(s: Stand) -> float:
    return s.times.orphan_grace_s + _off(s)


def _idle(s: Stand) -> float:
    return s.place.pool.idle_s + _off(s)


def _silent(_: Stand) -> float:
    return SLURMD_TIMEOUT_S


# --- what is added to the words ----------------------------------------------------------------------
def _for_idle(s: Stand) -> str:
    return f" for {s.place.pool.idle_s} s"


def _why_drained(s: Stand) -> str:
    return f": {plain(s.node.reason)}"


def _by_whom(s: Stand) -> str:
    order = s.moment.world.memory.orders.get(s.slot) or s.moment.world.memory.orders.get(s.place.pool.name)
    if order is None:
        return ""
    return f" by {plain(order.by)}" + (f": {plain(order.words)}" if order.words else "")


def _why_left(s: Stand) -> str:
    trouble = s.life.trouble if s.life is not None else None
    return f": {plain(trouble.words)}" if trouble is not None else ""


def plain(text: str) -> str:
    """Others' words: printable, short."""
    return "".join(c for c in text if c.isprintable())[:120]


def _always(_: Stand) -> bool:
    return True


_ANY = tuple(p for p in Phase if p not in (Phase.ODD, Phase.FUTURE))
_ON = (Phase.UP, Phase.SILENT, Phase.LEAVING)
_MARKED_OFF = (
    "powered down, and Slurm's mark NOT_RESPONDING is left on it: after a restart no job would get it"
)


ROWS: tuple[Row, ...] = (
    Row("unknown", Phase.ODD, _always, Do.TELL, _held,
         "its state is in no row of the daemon's table: nothing is done to it"),
    # --- machines that are of no use -------------------------------------------------------------------
    Row("kept-failed", Phase.WANTED, lambda s: s.kept and s.failed and not s.runs and not s.theirs, Do.SET_DOWN, _next_look,
         "kept though its boot failed", adds=_by_whom),
    Row("kept-down", (Phase.DOWN, Phase.DOWN_OFF), lambda s: s.kept, Do.NOTHING, _held,
         "kept as it is by order", adds=_by_whom),
    Row("kept-off-failed", Phase.OFF, lambda s: s.kept and s.failed and not s.node.drained, Do.HOLD, _next_look,
         "kept though its boot failed", adds=_by_whom),
    Row("kept-off-held", Phase.OFF, lambda s: s.kept and s.node.drained, Do.NOTHING, _held,
         "kept as it is by order", adds=_by_whom),
    Row("kept-off", Phase.OFF, lambda s: s.kept, Do.POWER_UP, _boot,
         "kept by order: powered up again, its machine lives"),
    Row("kept-ending", Phase.ENDING, lambda s: s.kept, Do.WAIT, _suspend,
         "kept by order: Slurm powers its node down, its machine stays"),
    Row("halted", _ANY, lambda s: s.fate is Fate.HALTED and not s.kept and not s.theirs_alone, Do.END, _off, "it is stopped"),
    Row("failed", tuple(p for p in _ANY if p not in _ON), lambda s: s.failed and s.ends and not (s.runs or s.kept or s.theirs_alone),
         Do.END, _off, "its boot failed"),
    # --- powering down -----------------------------------------------------------------------------------
    Row("ending-busy", Phase.ENDING, lambda s: s.runs, Do.WAIT, _held,
         "Slurm powers its node down, and a job still runs there"),
    Row("ending-machine", Phase.ENDING, lambda s: s.ends, Do.END, _suspend, "Slurm powers its node down"),
    Row("ending", Phase.ENDING, _always, Do.WAIT, _suspend, "powering down"),
    # --- down, and powered down ----------------------------------------------------------------------------
    Row("down-off-busy", Phase.DOWN_OFF, lambda s: s.runs, Do.WAIT, _held,
         "down and powered down, and a job still runs there"),
    Row("down-off-machine", Phase.DOWN_OFF, lambda s: s.ends, Do.END, _off, "Slurm gave its node up"),
    Row("down-off-asked", Phase.DOWN_OFF, lambda s: s.asked, Do.WAIT, _boot,
         "Slurm gave its node up, and a launch for it has no answer yet"),
    Row("down-off-leaving", Phase.DOWN_OFF, lambda s: s.says("POWER_DOWN") and not s.lingers, Do.WAIT, _slurms_move,
         "about to be powered down though it is off", patience=_slurms_move),
    Row("down-off-person", Phase.DOWN_OFF, lambda s: s.theirs or s.node.whose is Stranger.PERSON, Do.NOTHING,
         _held, "down by a person, who alone brings it back"),
    Row("down-off", Phase.DOWN_OFF, _always, Do.RESET, _next_look,
         "powered down, and fit to be used again"),
    # --- off -----------------------------------------------------------------------------------------------
    Row("off-machine", Phase.OFF, lambda s: s.ends and s.past_grace and not s.runs, Do.END, _off, "its slot is powered down"),
    Row("off-grace", Phase.OFF, lambda s: s.ends, Do.WAIT, _grace_and_off,
         "powered down, and its machine lives: kept for a while, Slurm may only have forgotten it"),
    Row("off-capacity", Phase.OFF, lambda s: s.drained_by(Owner.CAPACITY), Do.CAPACITY, _held,
         "held back: no machine can be had for it now"),
    Row("off-trouble", Phase.OFF, lambda s: s.drained_by(Owner.TROUBLE), Do.LEAVE, _next_look,
         "powered down; the drain of its old machine is lifted"),
    Row("off-order", Phase.OFF, lambda s: s.drained_by(Owner.ORDER) and s.ordered, Do.NOTHING, _held,
         "drained by order", adds=_by_whom),
    Row("off-order-over", Phase.OFF, lambda s: s.drained_by(Owner.ORDER), Do.LIFT, _next_look,
         "the order that drained it is over"),
    Row("off-slurms", Phase.OFF, lambda s: s.drained_by(Stranger.SLURM), Do.CAPACITY, _next_look,
         "Slurm drained it, and its machine is gone: lifted"),
    Row("off-person", Phase.OFF, lambda s: s.node.drained, Do.NOTHING, _held,
         "drained by a person, who alone lifts it"),
    Row("off-spare", Phase.OFF, lambda s: s.slot in s.moment.wanted_spares, Do.POWER_UP, _boot,
         "powered up as a spare"),
    Row("off-always-on", Phase.OFF, lambda s: s.place.always_on and not s.moment.rests(s.place.pool), Do.POWER_UP,
         _boot, "always on"),
    Row("off-marked", Phase.OFF,
         lambda s: s.says("NOT_RESPONDING") and not s.busy
         and (s.place.pool.name not in s.moment.waited_for or s.place.pool.name in s.moment.starved),
         Do.OFF, _off, _MARKED_OFF),  # ParallelCluster #7577, seen on 22.05.8 and 24.11.5: a power-down clears it
    Row("off", Phase.OFF, _always, Do.NOTHING, _held, "powered down, and ready for a job"),
    # --- wanted --------------------------------------------------------------------------------------------
    Row("wanted-asked", Phase.WANTED, lambda s: s.asked, Do.WAIT, _boot,
         "a machine is asked for, and the cloud has not answered yet"),
    Row("wanted-boots", Phase.WANTED, lambda s: s.has, Do.WAIT, _boot, "its machine boots"),
    Row("wanted-again", Phase.WANTED, lambda s: s.relapses and not s.busy and not s.theirs, Do.WAIT, _slurms_move,
         "powered up by Slurm, which kept a request that was served: powered down as soon as that has begun"),
    Row("wanted-left", Phase.WANTED,
         lambda s: s.left_over and not s.busy and not s.theirs,
         Do.DOWN_AND_OFF, _off, "no job wants it any more"),
    Row("wanted", Phase.WANTED, _always, Do.LAUNCH, _boot, "wanted, and a machine is to be launched for it"),
    # --- on, without a machine -------------------------------------------------------------------------------
    Row("gone-person", _ON, lambda s: s.unbacked and s.theirs, Do.NOTHING, _held,
         "its machine is gone, and a person has drained it, who alone lifts it"),
    Row("gone", _ON, lambda s: s.unbacked, Do.DOWN_AND_OFF, _off, "its instance is gone"),
    # --- a power-down is pending -----------------------------------------------------------------------------
    Row("leaving-busy", Phase.LEAVING, lambda s: s.busy, Do.WAIT, _held,
         "powered down as soon as its job lets it"),
    Row("leaving", Phase.LEAVING, _always, Do.WAIT, _suspend, "about to be powered down", patience=_suspend),
    # --- both ways at once -------------------------------------------------------------------------------------
    Row("stranded-person", Phase.STRANDED, lambda s: s.theirs or s.kept, Do.WAIT, _boot,
         "powered up and down at once, and a person's: Slurm gives it up in time"),
    Row("stranded-runs", Phase.STRANDED, lambda s: s.runs, Do.WAIT, _held,
         "powered up and down at once, and a job runs there"),
    Row("stranded-busy", Phase.STRANDED, lambda s: s.busy and not s.lingers, Do.WAIT, _boot,
         "powered up and down at once, and a job starts on it", patience=_boot),
    Row("stranded-off", Phase.STRANDED, lambda s: s.says("POWERED_DOWN") and not s.lingers, Do.WAIT, _slurms_move,
         "about to be powered down though it is off", patience=_slurms_move),
    Row("stranded", Phase.STRANDED, _always, Do.DOWN_AND_OFF, _off, "powered up and down at once"),
    Row("future-runs", Phase.FUTURE, lambda s: s.runs, Do.WAIT, _held,
         "Slurm takes it for not there yet, and a job runs there"),
    Row("future-person", Phase.FUTURE, lambda s: s.theirs, Do.NOTHING, _held,
         "Slurm takes it for not there yet, and a person has drained it, who alone lifts it"),
    Row("future", Phase.FUTURE, _always, Do.RESET, _next_look,
         "Slurm takes it for not there yet, after a restart: brought back"),
    # --- down ------------------------------------------------------------------------------------------------
    Row("reboots", (Phase.DOWN, Phase.SILENT, Phase.UP), lambda s: s.reboots, Do.WAIT, _reboot,
         "a person reboots it"),
    Row("down-runs", Phase.DOWN, lambda s: s.runs and not s.unbacked, Do.WAIT, _held,
         "down, and a job still runs there"),
    Row("down-leaving", Phase.DOWN, lambda s: s.about_to_end and not s.lingers, Do.WAIT, _suspend,
         "down, and about to be powered down", patience=_suspend),
    Row("down-person", Phase.DOWN, lambda s: s.theirs or s.node.whose is Stranger.PERSON, Do.NOTHING, _held,
         "down by a person, who alone brings it back"),
    Row("down-ours", Phase.DOWN, lambda s: isinstance(s.node.whose, Owner), Do.OFF, _off,
         "down, and not coming back"),
    Row("down-grace", Phase.DOWN,
         lambda s: s.has and s.node.reason_at + s.times.orphan_grace_s > s.now, Do.WAIT, _grace_and_off,
         "down, and its machine lives: it may come back by itself"),
    Row("down", Phase.DOWN, _always, Do.OFF, _off, "down, and not coming back"),
    # --- up ------------------------------------------------------------------------------------------------------
    Row("troubled", (Phase.UP, Phase.SILENT), lambda s: s.life is not None and s.life.trouble is not None, Do.LEAVE,
         _held, "its machine is to be left", adds=_why_left),
    Row("silent", Phase.SILENT, _always, Do.WAIT, _silent,
         "slurmctld does not hear it, and takes it down if that lasts"),
    Row("up-capacity", Phase.UP, lambda s: s.drained_by(Owner.CAPACITY), Do.LIFT, _next_look, "the node is up"),
    Row("up-trouble-mute", Phase.UP, lambda s: s.drained_by(Owner.TROUBLE) and s.mute and not (s.busy or s.kept),
         Do.DOWN_AND_OFF, _off, "drained by the daemon, and its agent does not say that all is well: replaced"),
    Row("up-trouble", Phase.UP, lambda s: s.drained_by(Owner.TROUBLE), Do.LEAVE, _held,
         "drained by the daemon, until its agent says that all is well"),
    Row("up-order", Phase.UP, lambda s: s.drained_by(Owner.ORDER) and s.ordered, Do.NOTHING, _held,
         "drained by order", adds=_by_whom),
    Row("up-order-over", Phase.UP, lambda s: s.drained_by(Owner.ORDER), Do.LIFT, _next_look,
         "the order that drained it is over"),
    Row("up-person", Phase.UP, lambda s: s.theirs, Do.NOTHING, _held, "drained by a person, who alone lifts it"),
    Row("works", Phase.UP, lambda s: s.busy, Do.NOTHING, _held, "works"),
    Row("kept", Phase.UP, lambda s: s.kept, Do.NOTHING, _held, "kept by order", adds=_by_whom),
    Row("unfit-fresh", Phase.UP, lambda s: s.unfit and not s.unfit_long, Do.WAIT, _idle,
         "Slurm drained it; its machine is replaced after the pool's idle time", adds=_why_drained),
    Row("unfit", Phase.UP, lambda s: s.unfit, Do.DOWN_AND_OFF, _off, "replaced, Slurm drained it",
         adds=_why_drained),
    Row("emptied", Phase.UP, lambda s: s.moment.empties(s.place.pool), Do.OFF, _off, "its pool is drained",
         adds=_by_whom),
    Row("always-on", Phase.UP, lambda s: s.place.always_on, Do.NOTHING, _held, "idle, and always on"),
    Row("awaited", Phase.UP, lambda s: s.slot in s.moment.awaited, Do.WAIT, _idle,
         "idle, and a job that was sent back comes to it"),
    Row("spare", Phase.UP, lambda s: s.slot in s.moment.spares, Do.NOTHING, _held, "idle, and kept as a spare"),
    Row("idle-over", Phase.UP, lambda s: s.idle_until <= s.now, Do.OFF, _off, "idle", adds=_for_idle),
    Row("idle", Phase.UP, _always, Do.WAIT, _idle, "idle: powered down if no job comes"),
)  # fmt: skip
ABSENT = Row(
    "absent",
    (),
    _always,
    Do.NOTHING,
    _held,
    "slurmctld does not know it: its configuration is older than the plan",
)
UNKNOWN = ROWS[0]
_QUIET = (Do.NOTHING, Do.WAIT, Do.LAUNCH, Do.CAPACITY, Do.LEAVE, Do.TELL)
_BY_PHASE = {
    phase: tuple(
        row for row in ROWS if phase in (row.phases if isinstance(row.phases, tuple) else (row.phases,))
    )
    for phase in Phase
}


class Lives:
    """The row of every slot that Slurm knows, at one moment."""

    def __init__(self, world: World) -> None:
        self.world, self._moment = world, Moment(world)

    def stand(self, slot: str) -> Stand:
        return Stand.of(self._moment, slot)

    def to(self, do: Do) -> Mapping[str, tuple[str, ...]]:
        """Slots for which this is to be done, by the sentence that says why; in the plan's order."""
        return {sentence: tuple(slots) for sentence, slots in self._found.get(do, {}).items()}

    @cached_property
    def _found(self) -> Mapping[Do, Mapping[str, list[str]]]:
        found: dict[Do, dict[str, list[str]]] = {}
        for slot in self.world.phases:
            stand = self.stand(slot)
            row = row_for(stand)
            if row.do not in _QUIET:
                found.setdefault(row.do, {}).setdefault(row.sentence(stand), []).append(slot)
        return found


def row_of(world: World, slot: str) -> Row:
    """The row that a slot is in."""
    return row_for(Lives(world).stand(slot)) if slot in world.phases else ABSENT


def sentence_of(world: World, slot: str) -> str:
    """What people are told of it."""
    if slot not in world.phases:
        return ABSENT.says
    stand = Lives(world).stand(slot)
    return row_for(stand).sentence(stand)


def row_for(stand: Stand) -> Row:
    return next((row for row in _BY_PHASE[stand.phase] if row.when(stand)), UNKNOWN)


def strange(world: World) -> Iterator[Event]:
    """States that no row has, told once; and since when a node stands where Slurm should not leave it."""
    yield from _unknown(world)
    yield from _lingering(world)


def _unknown(world: World) -> Iterator[Event]:
    told = world.memory.unknown
    odd = {s.slot: tuple(sorted(s.node.states)) for s, row in _watched(world) if _to_be_told(s, row)}
    for slot, states in odd.items():
        if told.get(slot) != states:
            yield Unknown(slot=slot, states=states)
    for slot in told.keys() - odd.keys():
        yield Unknown(slot=slot, states=())


def _to_be_told(stand: Stand, row: Row) -> bool:
    return row is UNKNOWN or (row.patience is not None and stand.lingers)


def _lingering(world: World) -> Iterator[Event]:
    known = world.memory.lingers
    for stand, row in _watched(world):
        if row.patience is None:
            continue
        old = known.get(stand.slot)
        if old is None or old.phase != stand.phase:
            yield Lingers(slot=stand.slot, phase=stand.phase.value, bound_s=row.patience(stand) or 0.0)
    for slot, old in known.items():
        if world.phases.get(slot) != old.phase:
            yield Lingers(slot=slot, phase="", bound_s=0.0)


def _watched(world: World) -> Iterator[tuple[Stand, Row]]:
    lives = Lives(world)
    for slot in world.group(Phase.ODD, Phase.LEAVING, Phase.STRANDED, Phase.DOWN, Phase.DOWN_OFF):
        stand = lives.stand(slot)
        yield stand, row_for(stand)
