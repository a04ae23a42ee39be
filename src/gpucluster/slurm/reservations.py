"""Site reservations: what differs between the plan and slurmctld, and the commands that change it.

Ours are the reservations whose name begins with `gpucluster-`, except those of capacity blocks, which the daemon keeps.
A reservation that a job uses is not deleted: slurmctld refuses that (S37), and the next run tries again. No reservation
powers up a node: not at its creation, nor at its start (S37).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import SiteReservation
from gpucluster.plan.names import BLOCK_RESERVATION_PREFIX, RESERVATION_PREFIX
from gpucluster.shell import Result
from gpucluster.slurm import hostlist, parse
from gpucluster.slurm.values import SlurmReservation
from gpucluster.text import short, utc_minute

SHOW = ("scontrol", "show", "reservations", "--json")
NEAR_S = 60.0  # slurmctld rounds times
IN_ENVIRONMENT = {"TZ": "UTC"}  # scontrol reads times in its own time zone
_REPEATS = {86400: "DAILY", 7 * 86400: "WEEKLY"}
_OURS = frozenset({"MAINT", *_REPEATS.values()})
_BUSY = "in use"  # ESLURM_RESERVATION_BUSY
Run = Callable[[Sequence[str]], Result]  # with IN_ENVIRONMENT, without an error for an exit code


class ReservationsError(GpuclusterError):
    """slurmctld does not list its reservations."""


@dataclass(frozen=True, slots=True)
class Change:
    """The commands for one reservation, by Slurm's name. If one fails, the next ones are not run."""

    name: str
    commands: tuple[tuple[str, ...], ...]


def reconcile(run: Run, plan: Sequence[SiteReservation], now_s: float) -> tuple[str, ...]:
    """Make the changes; return a sentence for each that slurmctld refuses."""
    shown = run(SHOW)
    if shown.code != 0:
        raise ReservationsError(f"slurmctld does not list its reservations: {_said(shown)}")
    refused = list[str]()
    for change in difference(plan, parse.parse_reservations(shown.stdout), now_s):
        for command in change.commands:
            done = run(command)
            if done.code != 0:
                refused.append(_refusal(change.name, done))
                break
    return tuple(refused)


def difference(
    plan: Sequence[SiteReservation], found: Sequence[SlurmReservation], now_s: float
) -> tuple[Change, ...]:
    """Return the changes at this time (Unix), deletions first. A reservation that is over is not made again."""
    have = {one.name: one for one in found if _is_ours(one.name)}
    wanted = {slurm_name(one): one for one in plan if one.every_s or _end(one) > now_s}
    gone = [Change(name, (_delete(name),)) for name in sorted(have.keys() - wanted.keys())]
    return (*gone, *_changed(wanted, have, now_s))


def slurm_name(one: SiteReservation) -> str:
    """Return the name in Slurm: `gpucluster-NAME`."""
    return f"{RESERVATION_PREFIX}{one.name}"


def _is_ours(name: str) -> bool:
    return name.startswith(RESERVATION_PREFIX) and not name.startswith(BLOCK_RESERVATION_PREFIX)


def _changed(
    wanted: dict[str, SiteReservation], have: dict[str, SlurmReservation], now_s: float
) -> Iterator[Change]:
    for name, one in wanted.items():
        known = have.get(name)
        if known is None:
            yield Change(name, (_create(one, now_s),))
        elif _needs_a_new_one(one, known, now_s):
            yield Change(name, (_delete(name), _create(one, now_s)))
        elif _differs(one, known, now_s):
            yield Change(name, (("scontrol", "update", *_values(one, known, now_s)),))


def _needs_a_new_one(one: SiteReservation, known: SlurmReservation, now_s: float) -> bool:
    """slurmctld changes neither the start of an active reservation, nor removes users, accounts, a partition or flags."""
    flags = frozenset(known.flags) & _OURS != _flags(one) & _OURS
    begun = known.starts_at <= now_s and _is_moved(one, known, now_s)
    return flags or begun or any(now != was for now, was in _members(one, known))


def _differs(one: SiteReservation, known: SlurmReservation, now_s: float) -> bool:
    length = abs((known.ends_at - known.starts_at) - _length(one, known, now_s)) > NEAR_S
    return length or _is_moved(one, known, now_s) or {*known.nodes} != {*hostlist.expand_slurm(one.nodes)}


def _members(one: SiteReservation, known: SlurmReservation) -> Iterator[tuple[object, object]]:
    yield frozenset(_users(one)), frozenset(known.users)
    yield frozenset(one.accounts), frozenset(known.accounts)
    yield one.partition or "", known.partition


def _is_moved(one: SiteReservation, known: SlurmReservation, now_s: float) -> bool:
    """Whether it begins at another time. slurmctld moves the start of a repeating one itself."""
    if one.every_s:
        apart = (known.starts_at - one.starts_at) % one.every_s
        too_early = known.starts_at < one.starts_at - NEAR_S
        return too_early or min(apart, one.every_s - apart) > NEAR_S
    begun = one.starts_at <= now_s and known.starts_at <= now_s
    return not begun and abs(known.starts_at - one.starts_at) > NEAR_S


def _length(one: SiteReservation, known: SlurmReservation, now_s: float) -> float:
    """How long it lasts in Slurm: less, if it was made after its start."""
    begun = not one.every_s and known.starts_at <= now_s
    return _end(one) - known.starts_at if begun else one.duration_s


def _end(one: SiteReservation) -> int:
    return one.starts_at + one.duration_s


def _create(one: SiteReservation, now_s: float) -> tuple[str, ...]:
    """IGNORE_JOBS: without it slurmctld refuses the reservation while a job runs that could run into it (S37)."""
    return (
        "scontrol", "create", "reservation", *_values(one, None, now_s),
        *(f"Users={','.join(_users(one))}",) * bool(_users(one)),
        *(f"Accounts={','.join(one.accounts)}",) * bool(one.accounts),
        *(f"PartitionName={one.partition}",) * (one.partition is not None),
        f"Flags={','.join(sorted(_flags(one)))}",
    )  # fmt: skip


def _values(one: SiteReservation, known: SlurmReservation | None, now_s: float) -> Iterator[str]:
    yield f"ReservationName={slurm_name(one)}"
    if known is None or known.starts_at > now_s:
        start = _next_start(one, now_s)
        yield f"StartTime={_time(start)}"
        yield f"EndTime={_time(start + one.duration_s if one.every_s else _end(one))}"
    else:
        yield f"EndTime={_time(known.starts_at + _length(one, known, now_s))}"
    yield f"Nodes={one.nodes}"


def _next_start(one: SiteReservation, now_s: float) -> float:
    """slurmctld takes no start in the past. One that repeats begins with its next repetition."""
    if one.starts_at > now_s:
        return one.starts_at
    if not one.every_s:
        return now_s + 1
    return one.starts_at + ((now_s - one.starts_at) // one.every_s + 1) * one.every_s


def _delete(name: str) -> tuple[str, ...]:
    return ("scontrol", "delete", f"ReservationName={name}")


def _users(one: SiteReservation) -> tuple[str, ...]:
    """Return who may use it. Slurm requires somebody: root, if a maintenance names nobody."""
    return one.users if one.users or one.accounts else ("root",)


def _flags(one: SiteReservation) -> frozenset[str]:
    repeats = {_REPEATS[one.every_s]} if one.every_s else set[str]()
    return frozenset({"IGNORE_JOBS", *repeats, *({"MAINT"} if one.maint else ())})


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _refusal(name: str, done: Result) -> str:
    if _BUSY in done.stderr + done.stdout:
        return f"the reservation {name} changes when no job uses it"
    return f"the reservation {name} is refused: {_said(done)}"


def _said(done: Result) -> str:
    return short(done.stderr.strip() or done.stdout.strip() or f"exit code {done.code}", 300)


def members(one: SlurmReservation) -> str:
    """Return whose jobs may use it: `users ada, bob; account vision`."""
    kinds = (("user", one.users), ("account", one.accounts), ("group", one.groups))
    return "; ".join(f"{kind}{'s' * (len(some) > 1)} {', '.join(some)}" for kind, some in kinds if some)


def words(one: SlurmReservation) -> str:
    """Return a reservation for a sentence: `the reservation NAME of NODES from START to END`."""
    nodes = hostlist.fold(one.nodes)
    return (
        f"the reservation {one.name} of {nodes} from {utc_minute(one.starts_at)} to {utc_minute(one.ends_at)}"
    )
