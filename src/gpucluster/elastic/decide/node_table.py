"""The states of a node as one table, by Slurm's state, the instance's status, the owner of the reason, and orders.

The first matching row applies. Every known state has a row; the last rows of each state do nothing. `why` shows the text
of the row, which is a state and promises no act, because a lost dependency may deny the act. If the row drains the node or sets
it down, the text is also the reason in Slurm. `bound` returns how many seconds
a node may be in this row; None: no limit, because a job, a person or the capacity ends it.

The actions that remove a node (TERMINATE, OFF, DOWN_AND_OFF, RESET, SET_DOWN) never apply to a node with a running job, unless
its instance is lost. They never apply to a node that a person drained, unless Slurm itself has powered it down.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from gpucluster.elastic.decide.node_context import EXPECTED_S, NodeContext, SharedContext
from gpucluster.elastic.decide.world import SCHEDULES_S, InstanceStatus, World
from gpucluster.elastic.events import Event, StateLingers, UnknownState
from gpucluster.plan import defaults
from gpucluster.plan.model import SlurmPlan
from gpucluster.slurm.drains import DrainOwner, health_words
from gpucluster.slurm.states import NodeState, SlurmPhase
from gpucluster.text import short

UNMOVED_S = 60.0  # twice the slowest scan of the power thread, and slurmctld's own delays (S02)
SLURMD_PINGS = 1.4  # slurmctld sets a node DOWN so many SlurmdTimeouts after its last answer, at most (S08)


class Decision(StrEnum):
    """The decision of a row. The module in brackets carries it out."""

    NOTHING = "nothing"
    WAIT = "wait"  # the state changes without an action
    LAUNCH = "launch"  # [gangs]
    CAPACITY = "capacity"  # drained or undrained with the capacity [blocked]
    EVACUATE = "evacuate"  # its instance is evacuated [evacuation]
    POWER_UP = "power-up"  # [terminations]
    TERMINATE = "terminate"  # terminate the instance [terminations]
    OFF = "off"  # power down when jobs are over [terminations]
    DOWN_AND_OFF = "down-and-off"  # [terminations]
    SET_DOWN = "set-down"  # by order: the node stays powered down [terminations]
    RESET = "reset"  # DOWN~ or FUTURE back to IDLE [terminations]
    DRAIN = "drain"  # drain it by order [terminations]
    UNDRAIN = "undrain"  # remove our drain [terminations]
    RECORD = "record"  # the state is unknown: an event records it


Bound = Callable[[NodeContext], float | None]
Condition = Callable[[NodeContext], bool]


@dataclass(frozen=True, slots=True)
class Row:
    """One state of a node."""

    name: str
    phases: SlurmPhase | tuple[SlurmPhase, ...]
    when: Condition
    decision: Decision
    bound: Bound
    text: str
    detail: Callable[[NodeContext], str] | None = None  # added to `text` for this node
    then: str = ""  # what the daemon does later (Ability.UPDATE), if `decision` does not say it
    leave_bound: Bound | None = None  # seconds after which Slurm should have left the state
    if_instance: bool = False  # `when` is false for a slot without an instance: such slots skip the row
    if_drained: bool = False  # `when` is false for a node that is not drained: such nodes skip the row

    def sentence(self, context: NodeContext) -> str:
        return self.text if self.detail is None else f"{self.text}{self.detail(context)}"


# --- bounds ------------------------------------------------------------------------------------------
def _unbounded(_: NodeContext) -> None:
    return None


def _next_pass(s: NodeContext) -> float:
    return 2 * s.times.reconcile_s


def _power_thread(s: NodeContext) -> float:
    return UNMOVED_S


def _suspend(s: NodeContext) -> float:
    return s.times.suspend_timeout_s + UNMOVED_S


def _off(s: NodeContext) -> float:
    """Return the bound of our power-down: two passes, Slurm's scan and SuspendTimeout. The instance ends in that time."""
    return 2 * s.times.reconcile_s + _suspend(s)


def _boot(s: NodeContext) -> float:
    """Return the bound of a boot: our boot timeout, and a little more, because Slurm's ResumeTimeout is later."""
    return s.place.pool.boot_timeout_s + 2 * UNMOVED_S


def _reboot(s: NodeContext) -> float | None:
    """Return the bound of a reboot. None if the node has jobs: slurmctld reboots it after they end."""
    return None if s.busy else _boot(s)


def _grace_and_off(s: NodeContext) -> float:
    return s.times.orphan_grace_s + _off(s)


def _idle(s: NodeContext) -> float:
    return s.place.pool.idle_s + _off(s)


def _expected(s: NodeContext) -> float:
    return max(EXPECTED_S, s.place.pool.idle_s) + _idle(s)


def _schedule(s: NodeContext) -> float:
    return SCHEDULES_S + _next_pass(s)


def down_after_s(plan: SlurmPlan) -> float:
    """Return the longest time from the last answer of a node's slurmd until slurmctld sets the node DOWN."""
    return SLURMD_PINGS * defaults.slurmd_timeout(plan).value


def _silent(s: NodeContext) -> float:
    return down_after_s(s.shared.world.plan) + UNMOVED_S


# --- additions to the text -------------------------------------------------------------------------
def _for_idle(s: NodeContext) -> str:
    return f" for {s.place.pool.idle_s} s"


def _why_drained(s: NodeContext) -> str:
    return f": {short(s.node.reason, 120)}"


def _why_unhealthy(s: NodeContext) -> str:
    return f": {short(health_words(s.node.reason), 120)}"


def _by_whom(s: NodeContext) -> str:
    order = s.shared.world.memory.orders.get(s.slot) or s.shared.world.memory.orders.get(s.place.pool.name)
    if order is None:
        return ""
    return f" from {short(order.by, 120)}" + (f": {short(order.words, 120)}" if order.words else "")


def _why_left(s: NodeContext) -> str:
    interruption = s.incarnation.interruption if s.incarnation is not None else None
    return f": {short(interruption.words, 120)}" if interruption is not None else ""


def _always(_: NodeContext) -> bool:
    return True


_ANY = tuple(p for p in SlurmPhase if p not in (SlurmPhase.UNKNOWN, SlurmPhase.FUTURE))
_ON = (SlurmPhase.UP, SlurmPhase.NOT_RESPONDING, SlurmPhase.POWER_DOWN_PENDING)
_REPEATS = "repeats the call if it gets no answer"
_REPLACES_LATER = "replaces its instance after the pool's idle time"
_UNDRAINED = "it was opened: Slurm has a minute to start a job on it"
_MARKED_OFF = (
    "powered down, but still marked NOT_RESPONDING. After a restart slurmctld would start no job on it"
)


# Rows that other modules use.
OFF_GRACE = Row(
    "off-grace",
    SlurmPhase.OFF,
    lambda s: s.can_terminate,
    Decision.WAIT,
    _grace_and_off,
    "powered down, but its instance exists: a restarted slurmctld may have lost the state",
    if_instance=True,
)
OFF = Row("off", SlurmPhase.OFF, _always, Decision.NOTHING, _unbounded, "powered down, and ready for a job")
NEEDED_BOOTS = Row(
    "needed-boots",
    SlurmPhase.POWERING_UP,
    lambda s: s.has_instance,
    Decision.WAIT,
    _boot,
    "its instance boots",
    if_instance=True,
)
AWAITED = Row(
    "awaited",
    SlurmPhase.UP,
    lambda s: s.slot in s.shared.awaited,
    Decision.WAIT,
    _idle,
    "idle: kept for a requeued job",
)
EXPECTED = Row(
    "expected",
    SlurmPhase.UP,
    lambda s: s.slot in s.shared.expected and s.idle_until <= s.now < s.expected_until,
    Decision.WAIT,
    _expected,
    "idle, and a waiting job may use it",
)
IDLE_OVER = Row(
    "idle-over", SlurmPhase.UP, lambda s: s.idle_until <= s.now, Decision.OFF, _off, "idle", detail=_for_idle
)
IDLE = Row("idle", SlurmPhase.UP, _always, Decision.WAIT, _idle, "idle, and ready for a job")
UNHEALTHY = Row(
    "up-health",
    SlurmPhase.UP,
    lambda s: s.drained_by(DrainOwner.HEALTH),
    Decision.DOWN_AND_OFF,
    _off,
    "a health check failed",
    detail=_why_unhealthy,
    if_drained=True,
)
PROGRAM_FAILED = Row(
    "drained-by-slurm-program",
    SlurmPhase.UP,
    lambda s: s.failed_program,
    Decision.DOWN_AND_OFF,
    _off,
    "Slurm drained it",
    detail=_why_drained,
    if_drained=True,
)
# Its pool has had its most replacements of an hour.
UNHEALTHY_LIMIT = Row(
    "up-health-limit",
    SlurmPhase.UP,
    lambda s: s.drained_by(DrainOwner.HEALTH) and not s.may_be_replaced,
    Decision.WAIT,
    _unbounded,
    "a health check failed, and it stays drained: its pool has had its most replacements of an hour",
    detail=_why_unhealthy,
    if_drained=True,
)
PROGRAM_LIMIT = Row(
    "drained-by-slurm-limit",
    SlurmPhase.UP,
    lambda s: s.failed_program and not s.may_be_replaced,
    Decision.WAIT,
    _unbounded,
    "Slurm drained it, and it stays drained: its pool has had its most replacements of an hour",
    detail=_why_drained,
    if_drained=True,
)
FAULT_LIMIT = Row(
    "interrupted-limit",
    (SlurmPhase.UP, SlurmPhase.NOT_RESPONDING),
    lambda s: s.fault_kept,
    Decision.WAIT,
    _unbounded,
    "a GPU failed, and it stays drained: its pool has had its most replacements of an hour",
    detail=_why_left,
)
NOT_RESPONDING = Row(
    "not-responding",
    SlurmPhase.NOT_RESPONDING,
    _always,
    Decision.WAIT,
    _silent,
    "it does not respond",
    leave_bound=_silent,
)
HOURLY_LIMITS = (UNHEALTHY_LIMIT, PROGRAM_LIMIT, FAULT_LIMIT)

ROWS: tuple[Row, ...] = (
    Row("unknown", SlurmPhase.UNKNOWN, _always, Decision.RECORD, _unbounded,
         "the daemon's node table has no row for its state: the daemon does nothing"),
    # --- unusable instances ----------------------------------------------------------------------------
    Row("kept-failed", SlurmPhase.POWERING_UP, lambda s: s.kept and s.failed and not s.runs and not s.drained_by_person, Decision.SET_DOWN, _next_pass,
         "its boot failed, and it is kept by an order", detail=_by_whom, if_instance=True),
    Row("kept-down", (SlurmPhase.DOWN, SlurmPhase.DOWN_OFF), lambda s: s.kept, Decision.NOTHING, _unbounded,
         "kept in this state by an order", detail=_by_whom, if_instance=True),
    Row("kept-off-failed", SlurmPhase.OFF, lambda s: s.kept and s.failed and not s.node.drained, Decision.DRAIN, _next_pass,
         "its boot failed, and it is kept by an order", detail=_by_whom, if_instance=True),
    Row("kept-off-held", SlurmPhase.OFF, lambda s: s.kept and s.node.drained, Decision.NOTHING, _unbounded,
         "kept in this state by an order", detail=_by_whom, if_instance=True),
    Row("kept-off", SlurmPhase.OFF, lambda s: s.kept, Decision.POWER_UP, _boot,
         "powered down, but its instance is kept by an order", if_instance=True),
    Row("kept-ending", SlurmPhase.POWERING_DOWN, lambda s: s.kept, Decision.WAIT, _suspend,
         "kept by an order: Slurm powers the node down, but the instance stays", if_instance=True),
    Row("halted", _ANY, lambda s: s.instance_status is InstanceStatus.HALTED and not s.kept and not s.only_drained_by_person, Decision.TERMINATE, _off, "its instance is stopped", if_instance=True),
    Row("needed-end-refused", SlurmPhase.POWERING_UP, lambda s: s.end_refused and not (s.runs or s.kept or s.drained_by_person), Decision.DOWN_AND_OFF, _off,
         "its old instance cannot be terminated, so it takes no job", if_instance=True),
    Row("failed", tuple(p for p in _ANY if p not in _ON), lambda s: s.failed and s.can_terminate and not (s.runs or s.kept or s.only_drained_by_person),
         Decision.TERMINATE, _off, "its boot failed", if_instance=True),
    # --- powering down -----------------------------------------------------------------------------------
    Row("ending-busy", SlurmPhase.POWERING_DOWN, lambda s: s.runs, Decision.WAIT, _unbounded,
         "Slurm powers the node down, but a job still runs on it"),
    Row("ending-instance", SlurmPhase.POWERING_DOWN, lambda s: s.can_terminate, Decision.TERMINATE, _suspend, "Slurm powers the node down", if_instance=True),
    Row("ending", SlurmPhase.POWERING_DOWN, _always, Decision.WAIT, _suspend, "powering down"),
    # --- down, and powered down ----------------------------------------------------------------------------
    Row("down-off-busy", SlurmPhase.DOWN_OFF, lambda s: s.runs, Decision.WAIT, _unbounded,
         "DOWN and powered down, but a job still runs on it"),
    Row("down-off-instance", SlurmPhase.DOWN_OFF, lambda s: s.can_terminate, Decision.TERMINATE, _off, "Slurm set the node DOWN and powered it down", if_instance=True),
    Row("down-off-requested", SlurmPhase.DOWN_OFF, lambda s: s.launch_requested, Decision.WAIT, _boot,
         "Slurm set the node DOWN and powered it down, and a launch for it has no result yet", then=_REPEATS),
    Row("down-off-pending", SlurmPhase.DOWN_OFF, lambda s: s.has_state(NodeState.POWER_DOWN) and not s.lingers, Decision.WAIT, _power_thread,
         "Slurm will power it down, although it is already off", leave_bound=_power_thread),
    Row("down-off-person", SlurmPhase.DOWN_OFF, lambda s: s.drained_by_person or s.node.drain_owner is DrainOwner.PERSON, Decision.NOTHING,
         _unbounded, "set DOWN by a person; only a person can resume it"),
    Row("down-off", SlurmPhase.DOWN_OFF, _always, Decision.RESET, _next_pass,
         "DOWN and powered down"),
    # --- off -----------------------------------------------------------------------------------------------
    Row("off-instance", SlurmPhase.OFF, lambda s: s.can_terminate and s.past_grace and not s.runs, Decision.TERMINATE, _off, "its node is powered down", if_instance=True),
    OFF_GRACE,
    Row("off-removed", SlurmPhase.OFF, lambda s: s.removed and not s.drained_by_person, Decision.NOTHING, _unbounded,
         "powered down: a new bundle removes or changes it, so it takes no jobs"),
    Row("off-removal-over", SlurmPhase.OFF, lambda s: s.drained_by(DrainOwner.BUNDLE), Decision.UNDRAIN, _next_pass,
         "the bundle that removed or changed it is applied or withdrawn", if_drained=True),
    Row("off-capacity", SlurmPhase.OFF, lambda s: s.drained_by(DrainOwner.CAPACITY), Decision.CAPACITY, _unbounded,
         "drained: there is no capacity for it now", if_drained=True),
    Row("off-evacuated", SlurmPhase.OFF, lambda s: s.drained_by(DrainOwner.EVACUATION), Decision.EVACUATE, _next_pass,
         "powered down, and drained for its old instance", if_drained=True),
    Row("off-order", SlurmPhase.OFF, lambda s: s.drained_by(DrainOwner.OPERATOR) and s.ordered, Decision.NOTHING, _unbounded,
         "drained by an order", detail=_by_whom, if_drained=True),
    Row("off-order-over", SlurmPhase.OFF, lambda s: s.drained_by(DrainOwner.OPERATOR), Decision.UNDRAIN, _next_pass,
         "the order that drained it has ended", if_drained=True),
    Row("off-end-over", SlurmPhase.OFF, lambda s: s.drained_by(DrainOwner.TERMINATION), Decision.UNDRAIN, _next_pass,
         "its old instance has ended", if_drained=True),
    Row("off-health", SlurmPhase.OFF, lambda s: s.drained_by(DrainOwner.HEALTH), Decision.UNDRAIN, _next_pass,
         "powered down, and drained for the health of its old instance", if_drained=True),
    Row("off-by-slurm", SlurmPhase.OFF, lambda s: s.drained_by(DrainOwner.SLURM), Decision.CAPACITY, _next_pass,
         "Slurm drained it, and its instance is gone", if_drained=True),
    Row("off-person", SlurmPhase.OFF, lambda s: s.node.drained, Decision.NOTHING, _unbounded,
         "drained by a person; only a person can resume it", if_drained=True),
    Row("off-spare", SlurmPhase.OFF, lambda s: s.slot in s.shared.needed_spares, Decision.POWER_UP, _boot,
         "powered down, and its pool lacks a spare"),
    Row("off-always-on", SlurmPhase.OFF, lambda s: s.place.always_on and not s.shared.is_paused(s.place.pool), Decision.POWER_UP,
         _boot, "powered down, although it is always on"),
    Row("off-undrained", SlurmPhase.OFF, lambda s: s.just_undrained, Decision.NOTHING, _schedule, _UNDRAINED),
    Row("off-marked", SlurmPhase.OFF,
         lambda s: s.has_state(NodeState.NOT_RESPONDING) and not s.busy
         and (s.place.pool.name not in s.shared.waited_for or s.place.pool.name in s.shared.starved),
         Decision.OFF, _off, _MARKED_OFF),  # a power-down removes the mark (22.05.8 and 24.11.5, observed; ParallelCluster #7577)
    OFF,
    # --- needed ----------------------------------------------------------------------------------------
    Row("needed-requested", SlurmPhase.POWERING_UP, lambda s: s.launch_requested, Decision.WAIT, _boot,
         "a launch was requested, and the cloud has not answered yet", then=_REPEATS),
    NEEDED_BOOTS,
    Row("needed-again", SlurmPhase.POWERING_UP, lambda s: s.relapses and not s.busy and not s.drained_by_person, Decision.WAIT, _power_thread,
         "Slurm powers it up for an old request", then="powers it down as soon as the power-up has begun"),
    Row("needed-no-more", SlurmPhase.POWERING_UP,
         lambda s: s.left_over and not s.busy and not s.drained_by_person,
         Decision.DOWN_AND_OFF, _off, "no job needs it any more"),
    Row("needed", SlurmPhase.POWERING_UP, _always, Decision.LAUNCH, _boot, "needed, and it has no instance"),
    # --- on, without an instance -----------------------------------------------------------------------------
    Row("gone-person", _ON, lambda s: s.has_lost_instance and s.drained_by_person, Decision.NOTHING, _unbounded,
         "its instance is gone, and a person drained it; only a person can resume it", if_drained=True),
    Row("gone", _ON, lambda s: s.has_lost_instance, Decision.DOWN_AND_OFF, _off, "its instance is gone"),
    # --- a power-down is pending -----------------------------------------------------------------------------
    Row("pending-busy", SlurmPhase.POWER_DOWN_PENDING, lambda s: s.busy, Decision.WAIT, _unbounded,
         "a power-down is pending, and a job uses it"),
    Row("pending", SlurmPhase.POWER_DOWN_PENDING, _always, Decision.WAIT, _suspend, "a power-down is pending", leave_bound=_suspend),
    # --- powering up and down at once ------------------------------------------------------------------------
    Row("stuck-person", SlurmPhase.STUCK, lambda s: s.drained_by_person or s.kept, Decision.WAIT, _boot,
         "powering up and down at the same time, and kept or drained by a person: Slurm sets it DOWN after its timeout"),
    Row("stuck-runs", SlurmPhase.STUCK, lambda s: s.runs, Decision.WAIT, _unbounded,
         "powering up and down at the same time, and a job runs on it"),
    Row("stuck-busy", SlurmPhase.STUCK, lambda s: s.busy and not s.lingers, Decision.WAIT, _boot,
         "powering up and down at the same time, and a job starts on it", leave_bound=_boot),
    Row("stuck-off", SlurmPhase.STUCK, lambda s: s.has_state(NodeState.POWERED_DOWN) and not s.lingers, Decision.WAIT, _power_thread,
         "Slurm will power it down, although it is already off", leave_bound=_power_thread),
    Row("stuck", SlurmPhase.STUCK, _always, Decision.DOWN_AND_OFF, _off, "powering up and down at the same time"),
    Row("future-runs", SlurmPhase.FUTURE, lambda s: s.runs, Decision.WAIT, _unbounded,
         "FUTURE, and a job runs on it"),
    Row("future-person", SlurmPhase.FUTURE, lambda s: s.drained_by_person, Decision.NOTHING, _unbounded,
         "FUTURE, and drained by a person; only a person can resume it", if_drained=True),
    Row("future", SlurmPhase.FUTURE, _always, Decision.RESET, _next_pass,
         "FUTURE after a restart of slurmctld"),
    # --- down ------------------------------------------------------------------------------------------------
    Row("reboots", (SlurmPhase.DOWN, SlurmPhase.NOT_RESPONDING, SlurmPhase.UP), lambda s: s.reboots, Decision.WAIT, _reboot,
         "a person reboots it"),
    Row("down-runs", SlurmPhase.DOWN, lambda s: s.runs and not s.has_lost_instance, Decision.WAIT, _unbounded,
         "DOWN, but a job still runs on it"),
    Row("down-pending", SlurmPhase.DOWN, lambda s: s.about_to_end and not s.lingers, Decision.WAIT, _suspend,
         "DOWN, and a power-down is pending", leave_bound=_suspend),
    Row("down-drained", SlurmPhase.DOWN, lambda s: s.drained_by_person, Decision.NOTHING, _unbounded,
         "DOWN, and drained by a person; only a person can resume it"),
    Row("down-person", SlurmPhase.DOWN, lambda s: s.node.drain_owner is DrainOwner.PERSON, Decision.NOTHING, _unbounded,
         "set DOWN by a person; it is up again once its slurmd registers, and only a drain would stay"),
    Row("down-by-daemon", SlurmPhase.DOWN, lambda s: s.node.drain_owner.is_daemon, Decision.OFF, _off,
         "DOWN, and it did not recover"),
    Row("down-grace", SlurmPhase.DOWN,
         lambda s: s.has_instance and s.node.reason_at + s.times.orphan_grace_s > s.now, Decision.WAIT, _grace_and_off,
         "DOWN, but its instance exists: it may recover by itself", then="powers it down if it does not recover", if_instance=True),
    Row("down", SlurmPhase.DOWN, _always, Decision.OFF, _off, "DOWN, and it did not recover"),
    # --- up ------------------------------------------------------------------------------------------------------
    FAULT_LIMIT,
    Row("interrupted", (SlurmPhase.UP, SlurmPhase.NOT_RESPONDING), lambda s: s.incarnation is not None and s.incarnation.interruption is not None, Decision.EVACUATE,
         _unbounded, "its instance is being evacuated", detail=_why_left),
    NOT_RESPONDING,
    Row("up-removed", SlurmPhase.UP, lambda s: s.removed and s.node.drained and not (s.busy or s.kept or s.drained_by_person), Decision.OFF, _off,
         "a new bundle removes or changes it, and it has no job", if_drained=True),
    Row("up-removed-busy", SlurmPhase.UP, lambda s: s.removed and not s.drained_by_person, Decision.NOTHING, _unbounded,
         "a new bundle removes or changes it: it takes no new jobs, and the bundle waits for the present ones"),
    Row("up-removal-over", SlurmPhase.UP, lambda s: s.drained_by(DrainOwner.BUNDLE), Decision.UNDRAIN, _next_pass,
         "the bundle that removed or changed it is applied or withdrawn", if_drained=True),
    Row("up-capacity", SlurmPhase.UP, lambda s: s.drained_by(DrainOwner.CAPACITY), Decision.UNDRAIN, _next_pass, "the node is up", if_drained=True),
    Row("up-evacuated-silent", SlurmPhase.UP, lambda s: s.drained_by(DrainOwner.EVACUATION) and s.reports_nothing and not (s.busy or s.kept),
         Decision.DOWN_AND_OFF, _off, "drained by the daemon, and its agent has not reported that it is healthy", if_drained=True),
    Row("up-evacuated", SlurmPhase.UP, lambda s: s.drained_by(DrainOwner.EVACUATION), Decision.EVACUATE, _unbounded,
         "drained by the daemon, and its agent has not reported that it is healthy",
         then="removes its drain when its agent reports that it is healthy", if_drained=True),
    Row("up-order", SlurmPhase.UP, lambda s: s.drained_by(DrainOwner.OPERATOR) and s.ordered, Decision.NOTHING, _unbounded,
         "drained by an order", detail=_by_whom, if_drained=True),
    Row("up-order-over", SlurmPhase.UP, lambda s: s.drained_by(DrainOwner.OPERATOR), Decision.UNDRAIN, _next_pass,
         "the order that drained it has ended", if_drained=True),
    Row("up-end-refused", SlurmPhase.UP, lambda s: s.drained_by(DrainOwner.TERMINATION) and s.end_refused and not (s.busy or s.kept), Decision.OFF, _off,
         "powered up although its instance is to be terminated", if_drained=True),
    Row("up-end-over", SlurmPhase.UP, lambda s: s.drained_by(DrainOwner.TERMINATION) and not s.end_refused, Decision.UNDRAIN, _next_pass,
         "its instance is not to be terminated any more", if_drained=True),
    Row("up-health-busy", SlurmPhase.UP, lambda s: s.drained_by(DrainOwner.HEALTH) and s.busy, Decision.WAIT, _unbounded,
         "a health check failed, and a job uses it", detail=_why_unhealthy, then="replaces its instance when its jobs end", if_drained=True),
    Row("up-health-kept", SlurmPhase.UP, lambda s: s.drained_by(DrainOwner.HEALTH) and s.kept, Decision.NOTHING, _unbounded,
         "a health check failed, and it is kept by an order", detail=_by_whom, if_drained=True),
    Row("up-health-recently", SlurmPhase.UP, lambda s: s.drained_by(DrainOwner.HEALTH) and not s.drained_long, Decision.WAIT, _idle,
         "a health check failed", detail=_why_unhealthy, then=_REPLACES_LATER, if_drained=True),
    UNHEALTHY_LIMIT,
    UNHEALTHY,
    Row("up-person", SlurmPhase.UP, lambda s: s.drained_by_person, Decision.NOTHING, _unbounded, "drained by a person; only a person can resume it", if_drained=True),
    Row("busy", SlurmPhase.UP, lambda s: s.busy, Decision.NOTHING, _unbounded, "a job uses it"),
    Row("kept", SlurmPhase.UP, lambda s: s.kept, Decision.NOTHING, _unbounded, "kept by an order", detail=_by_whom),
    Row("drained-by-slurm-recently", SlurmPhase.UP, lambda s: s.unfit and not s.unfit_long, Decision.WAIT, _idle,
         "Slurm drained it", detail=_why_drained, then=_REPLACES_LATER),
    PROGRAM_LIMIT,
    PROGRAM_FAILED,
    Row("drained-by-slurm", SlurmPhase.UP, lambda s: s.unfit, Decision.DOWN_AND_OFF, _off, "Slurm drained it",
         detail=_why_drained),
    Row("up-undrained", SlurmPhase.UP, lambda s: s.just_undrained, Decision.WAIT, _schedule, _UNDRAINED),
    Row("pool-drained", SlurmPhase.UP, lambda s: s.shared.is_drained(s.place.pool), Decision.OFF, _off, "its pool is drained by an order",
         detail=_by_whom),
    Row("always-on", SlurmPhase.UP, lambda s: s.place.always_on, Decision.NOTHING, _unbounded, "idle, and always on"),
    AWAITED,
    Row("spare", SlurmPhase.UP, lambda s: s.slot in s.shared.spares, Decision.NOTHING, _unbounded, "idle, and kept as a spare"),
    EXPECTED,
    IDLE_OVER,
    IDLE,
)  # fmt: skip
UNKNOWN = ROWS[0]
_QUIET = (
    Decision.NOTHING,
    Decision.WAIT,
    Decision.LAUNCH,
    Decision.CAPACITY,
    Decision.EVACUATE,
    Decision.RECORD,
)


def _candidates(phase: SlurmPhase, *, instance: bool, drained: bool) -> tuple[Row, ...]:
    phases = ((row, row.phases if isinstance(row.phases, tuple) else (row.phases,)) for row in ROWS)
    return tuple(
        row
        for row, some in phases
        if phase in some and (instance or not row.if_instance) and (drained or not row.if_drained)
    )


_CANDIDATES = {
    (phase, instance, drained): _candidates(phase, instance=instance, drained=drained)
    for phase in SlurmPhase
    for instance in (False, True)
    for drained in (False, True)
}


class NodeTable:
    """The row of every slot that Slurm lists, at one time."""

    def __init__(self, world: World) -> None:
        self.world, self._shared = world, SharedContext(world)

    def context(self, slot: str) -> NodeContext:
        return NodeContext.of(self._shared, slot)

    def to(self, do: Decision) -> Mapping[str, tuple[str, ...]]:
        """Return the slots with this decision, in the plan's order, grouped by the text of their row."""
        return {sentence: tuple(slots) for sentence, slots in self._found.get(do, {}).items()}

    @cached_property
    def _found(self) -> Mapping[Decision, Mapping[str, list[str]]]:
        found: dict[Decision, dict[str, list[str]]] = {}
        for slot in self.world.phases:
            context = self.context(slot)
            row = row_for(context)
            if row.decision not in _QUIET:
                found.setdefault(row.decision, {}).setdefault(row.sentence(context), []).append(slot)
        return found


def row_for(context: NodeContext) -> Row:
    """Return the first row that matches. A pass calls this for each slot, so rows that cannot match are left out before."""
    for row in _CANDIDATES[context.phase, context.has_instance, context.node.drained]:
        if row.when(context):
            return row
    return UNKNOWN


def unexpected_states(world: World) -> Iterator[Event]:
    """Return events: states without a row, and nodes that stay too long in a state that Slurm should leave."""
    yield from _unknown(world)
    yield from _lingering(world)


def _unknown(world: World) -> Iterator[Event]:
    recorded = world.memory.unknown
    reportable = {
        s.slot: tuple(sorted(s.node.states)) for s, row in _watched(world) if _is_reportable(s, row)
    }
    for slot, states in reportable.items():
        if recorded.get(slot) != states:
            yield UnknownState(slot=slot, states=states)
    for slot in sorted(recorded.keys() - reportable.keys()):
        yield UnknownState(slot=slot, states=())


def _is_reportable(context: NodeContext, row: Row) -> bool:
    return row is UNKNOWN or (row.leave_bound is not None and context.lingers)


def _lingering(world: World) -> Iterator[Event]:
    known = world.memory.lingers
    for slot, old in known.items():  # before the new ones: a slot may go from one such phase to another
        if world.phases.get(slot) != old.phase:
            yield StateLingers(slot=slot, phase="", bound_s=0.0)
    for context, row in _watched(world):
        if row.leave_bound is None:
            continue
        old = known.get(context.slot)
        if old is None or old.phase != context.phase:
            yield StateLingers(
                slot=context.slot, phase=context.phase.value, bound_s=row.leave_bound(context) or 0.0
            )


def _watched(world: World) -> Iterator[tuple[NodeContext, Row]]:
    table = NodeTable(world)
    for slot in world.group(
        SlurmPhase.UNKNOWN,
        SlurmPhase.POWER_DOWN_PENDING,
        SlurmPhase.STUCK,
        SlurmPhase.NOT_RESPONDING,
        SlurmPhase.DOWN,
        SlurmPhase.DOWN_OFF,
    ):
        context = table.context(slot)
        yield context, row_for(context)
