"""Capacity bought ahead: reservations (T25) and capacity blocks (T26), on the caller's clock."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpucluster.cloud.model.values import LaunchSpec, Refusal, Timing
from gpucluster.plan.model import Market


@dataclass(slots=True)
class Held:
    """A reservation or block; `used` slots carry instances, `cooling` ones are cleaned until then."""

    id: str
    machine: str
    zone: str
    total: int
    block: bool = False
    open: bool = False  # any launch that matches joins it
    starts_at: float | None = None
    ends_at: float | None = None
    cancelled: bool = False
    payment: str = ""  # payment-pending or payment-failed, of a block
    used: int = 0
    cooling: list[float] = field(default_factory=list[float])
    warned: bool = False
    tags: Mapping[str, str] = field(default_factory=dict[str, str])

    def state(self, now: float) -> str:
        """EC2's word."""
        if self.cancelled:
            return "cancelled"
        if self.payment:
            return self.payment
        if self.starts_at is not None and now < self.starts_at:
            return "scheduled"
        return "expired" if self.ends_at is not None and now >= self.ends_at else "active"

    def free(self, now: float, closing_s: float) -> int:
        """Slots that a launch can have now; a block gives none in its last half hour."""
        closes = self.ends_at is not None and self.block and now >= self.ends_at - closing_s
        if self.state(now) != "active" or closes:
            return 0
        return max(0, self.total - self.used - sum(until > now for until in self.cooling))


class Reservations:
    """All of the account, by id."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._held: dict[str, Held] = {}

    def add(self, held: Held) -> None:
        """Put one there, or another in its place."""
        self._held[held.id] = held

    def clear(self) -> None:
        """Forget all; instances in them live on."""
        self._held.clear()

    def get(self, reservation_id: str) -> Held:
        """One by id, or EC2's refusal."""
        found = self._held.get(reservation_id)
        if found is None:
            raise Refusal(
                "InvalidCapacityReservationId.NotFound",
                f"The capacity reservation ID '{reservation_id}' does not exist",
            )
        return found

    def all(self) -> tuple[Held, ...]:
        """Every one, sorted."""
        return tuple(self._held[i] for i in sorted(self._held))

    def known(self, ids: Iterable[str]) -> tuple[Held, ...]:
        """Those of `ids` that are there."""
        return tuple(self._held[i] for i in ids if i in self._held)

    def cancel(self, reservation_id: str, now: float) -> None:
        """Instances in it live on, as ordinary ones; a block cannot be cancelled, nor what has ended."""
        held = self.get(reservation_id)
        if held.block:
            raise Refusal("UnsupportedOperation", "A capacity block cannot be cancelled.")
        self._check_state(held, now)
        held.cancelled = True

    def targeted(self, spec: LaunchSpec, now: float) -> Held | None:
        """The reservation that the launch names, checked: it must be there, fit, and have begun."""
        if spec.reservation is None:
            if spec.market is Market.CAPACITY_BLOCK:
                raise Refusal(
                    "InvalidParameterCombination",
                    "A capacity block is launched into by its reservation's id.",
                )
            return None
        held = self.get(spec.reservation)
        if (spec.market is Market.CAPACITY_BLOCK) != held.block:
            raise Refusal(
                "InvalidParameterCombination",
                f"The market type does not fit the capacity reservation '{held.id}'.",
            )
        if (held.machine, held.zone) != (spec.machine, spec.subnet.zone):
            raise Refusal(
                "InvalidParameterValue",
                f"The capacity reservation '{held.id}' is of {held.machine} in {held.zone}.",
            )
        self._check_state(held, now)
        return held

    def joined(self, spec: LaunchSpec, now: float) -> Held | None:
        """An open reservation that the launch would take from without naming it."""
        if spec.market is Market.SPOT or not spec.joins_open:
            return None
        fits = (
            held
            for held in self.all()
            if held.open and (held.machine, held.zone) == (spec.machine, spec.subnet.zone)
        )
        return next((held for held in fits if held.free(now, self._timing.closing_s)), None)

    def free(self, held: Held, now: float) -> int:
        """Slots that a launch can have now."""
        return held.free(now, self._timing.closing_s)

    def take(self, held: Held, count: int) -> None:
        """Fill slots."""
        held.used += count

    def give_back(self, reservation_id: str, now: float, *, unused: bool = False) -> None:
        """Empty a slot; a block's is cleaned first, unless nothing ran in it."""
        held = self._held.get(reservation_id)
        if held is None:
            return
        held.used -= 1
        if held.block and not unused:
            held.cooling = [until for until in held.cooling if until > now]
            held.cooling.append(now + self._timing.cleaning_s)

    def closing(self, now: float) -> frozenset[str]:
        """Blocks whose instances EC2 ends now."""
        before = self._timing.closing_s
        return frozenset(h.id for h in self._blocks() if h.ends_at is not None and now >= h.ends_at - before)

    def to_warn(self, now: float) -> tuple[Held, ...]:
        """Blocks whose expiration warning is due, each once."""
        before = self._timing.warning_s
        due = [
            h for h in self._blocks() if not h.warned and h.ends_at is not None and now >= h.ends_at - before
        ]
        for held in due:
            held.warned = True
        return tuple(due)

    def _blocks(self) -> list[Held]:
        return [h for h in self.all() if h.block]

    def _check_state(self, held: Held, now: float) -> None:
        state = held.state(now)
        if state == "active":
            return
        if state == "scheduled":
            raise Refusal(
                "InvalidCapacityReservationState.PendingActivation",
                f"The capacity reservation '{held.id}' is not active yet.",
            )
        raise Refusal(  # the code's end is not verified; what it means is
            "InvalidCapacityReservationState", f"The capacity reservation '{held.id}' is {state}."
        )
