"""Whether the daemon of this machine acts, in words: from its own answer, and from what systemd knows of its unit."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpucluster import shell
from gpucluster.elastic.abilities import CLOCK_OFF, SET_CLOCK
from gpucluster.elastic.notifier import ACTS, ENDS, NO_LEASE, STANDBY, WATCHDOG_S
from gpucluster.errors import GpuclusterError

UNIT = "gpucluster-elastic"
PROPERTIES = ("ActiveState", "SubState", "StatusText", "WatchdogTimestampMonotonic")
SHOW = ("systemctl", "show", f"{UNIT}.service", f"--property={','.join(PROPERTIES)}")
SHOW_S = 5.0
# A daemon that has the lease, or had it, ticks each second, also while Slurm, EC2 and S3 hang; a busy turn takes a few seconds.
# Any other one calls S3 in the thread that ticks: see `notifier.WATCHDOG_S`.
SILENT_S, WAITING_SILENT_S = 30.0, 86.0
NO_ANSWER = f"{UNIT} does not answer on this machine"
IDLE = f"{UNIT} does not act on this machine"
KILLED = "systemd kills it and starts it again"
LOOK = f"systemctl status {UNIT}; journalctl -u {UNIT}"
_HOLDER = re.compile(r"([^/\s]+)/\S+ holds the lease")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState:
    """What systemd knows. `silent_s`: seconds since the last tick; None: the watchdog does not run."""

    active: str  # ActiveState
    sub: str  # SubState
    status: str  # what the daemon says of itself
    silent_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonView:
    """`acts`: this machine's daemon acts. If it does not, `state` says why, `then` what happens without a person, and `remedy`
    what a person can do.

    `holder`: the machine whose daemon holds the lease, if this machine's daemon waits for it.
    """

    acts: bool
    state: str = ""
    then: str = ""
    remedy: str = ""
    holder: str = ""

    @property
    def effect(self) -> str:
        """Return the state, what follows from it for the cluster, and what happens then."""
        nothing = "" if self.holder or self.acts else ": it launches nothing"
        return f"{self.state}{nothing}{f'; {self.then}' if self.then else ''}"


ACTING = DaemonView(acts=True)
UNKNOWN = DaemonView(acts=False, state=NO_ANSWER, remedy=LOOK)


def read(now: float) -> UnitState | None:
    """Ask systemd; `now` is monotonic. None: it does not answer, or this machine has no such unit."""
    try:
        return parse(shell.run(SHOW, timeout_s=SHOW_S).stdout, now)
    except (GpuclusterError, ValueError):
        return None


def parse(text: str, now: float) -> UnitState:
    """Parse `systemctl show`; ValueError: a property is missing."""
    found = {name: value for name, _, value in (line.partition("=") for line in text.splitlines())}
    if missing := [name for name in PROPERTIES if name not in found]:
        raise ValueError(f"systemctl show printed no {', '.join(missing)}")
    ticked_at = int(found["WatchdogTimestampMonotonic"]) / 1e6
    silent_s = max(0.0, now - ticked_at) if ticked_at else None
    return UnitState(
        active=found["ActiveState"], sub=found["SubState"], status=found["StatusText"], silent_s=silent_s
    )


def view(unit: UnitState | None, *, answers: bool, evacuates: bool = False) -> DaemonView:
    """Return the view. `answers`: the daemon answers at its port, which a frozen one also does if only its main thread hangs.

    `evacuates`: it says there that it cannot read the control object and goes on to evacuate, which the row of that loss tells.
    """
    if unit is None or unit.active != "active":
        return ACTING if answers else _not_running(unit)
    bound = SILENT_S if unit.status.startswith((ACTS, NO_LEASE)) else WAITING_SILENT_S
    if unit.silent_s is not None and unit.silent_s >= bound:
        state = f"{UNIT} of this machine has given no sign of life for {unit.silent_s:.0f} s"
        return DaemonView(
            acts=False, state=state, then=f"{KILLED} after {WATCHDOG_S} s without one", remedy=LOOK
        )
    if unit.status.startswith(STANDBY):
        return _waiting(unit.status.removeprefix(STANDBY))
    if unit.status.startswith(NO_LEASE) and not evacuates:
        return _without_lease("holds no lease now", unit.status.removeprefix(NO_LEASE))
    # A daemon that has just begun, or whose port another program has, ticks and does not answer.
    return ACTING if answers or unit.silent_s is not None else UNKNOWN


def _waiting(words: str) -> DaemonView:
    """Return the view of a standby; `words` names the holder, or says why the control object cannot be read."""
    named = _HOLDER.match(words)
    if named is None:
        return _without_lease("waits for the lease, and does not act", words)
    state = (
        f"{UNIT} of this machine is a standby: it waits for the lease, which the daemon of {named[1]} holds"
    )
    remedy = f"run the command on {named[1]}: only its daemon knows what nodes report"
    return DaemonView(acts=False, state=state, remedy=remedy, holder=named[1])


def _without_lease(state: str, words: str) -> DaemonView:
    off = any(code in words for code in CLOCK_OFF)
    remedy = f"the clock of this machine is off: {SET_CLOCK}" if off else LOOK
    return DaemonView(acts=False, state=f"{UNIT} of this machine {state}: {words}", remedy=remedy)


# SubState or ActiveState -> the state, and what happens next.
_ENDED: Mapping[str, tuple[str, str]] = {
    "auto-restart": ("has ended", "systemd starts it again"),
    "stop-watchdog": ("gave no sign of life", KILLED),
    "activating": ("starts", ""),
    "deactivating": (ENDS, ""),
}
_STOPPED = (
    "does not run",
    "if gpucluster-agent runs, it starts it in its next round; its log says if it cannot",
)


def _not_running(unit: UnitState | None) -> DaemonView:
    if unit is None:
        return UNKNOWN
    state, then = _ENDED.get(unit.sub) or _ENDED.get(unit.active) or _STOPPED
    return DaemonView(acts=False, state=f"{UNIT} of this machine {state}", then=then, remedy=LOOK)
