"""Capacity reservations (T25) and capacity blocks (T26). Time is an argument."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.values import InstanceLaunch, Refusal, Timing


@dataclass(slots=True)
class ReservedCapacity:
    """A reservation or block. `used` slots carry instances, `cooling` slots are being cleaned until that time."""

    id: str
    machine: str
    zone: str
    total: int
    owner: str = ""  # another account, which shares it; "" for this one
    block: bool = False
    open: bool = False  # any matching launch joins it
    starts_at: float | None = None
    ends_at: float | None = None
    cancelled: bool = False
    payment: str = ""  # payment-pending or payment-failed, for a block
    used: int = 0
    cooling: list[float] = field(default_factory=list[float])
    warned: bool = False
    tags: Mapping[str, str] = field(default_factory=dict[str, str])

    def state(self, now: float) -> str:
        """The state as EC2 names it."""
        if self.cancelled:
            return "cancelled"
        if self.payment:
            return self.payment
        if self.starts_at is not None and now < self.starts_at:
            return "scheduled"
        return "expired" if self.ends_at is not None and now >= self.ends_at else "active"

    def free(self, now: float, closing_s: float) -> int:
        """Slots that a launch can use now; a block has none in its last half hour."""
        closes = self.ends_at is not None and self.block and now >= self.ends_at - closing_s
        if self.state(now) != "active" or closes:
            return 0
        return max(0, self.total - self.used - sum(until > now for until in self.cooling))


class Reservations:
    """All reservations of the account by id."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._reserved: dict[str, ReservedCapacity] = {}

    def add(self, reserved: ReservedCapacity) -> None:
        """Add or replace a reservation."""
        self._reserved[reserved.id] = reserved

    def clear(self) -> None:
        """Forget all; their instances go on running."""
        self._reserved.clear()

    def get(self, reservation_id: str) -> ReservedCapacity:
        """One reservation by id; a Refusal if it does not exist."""
        found = self._reserved.get(reservation_id)
        if found is None:
            raise Refusal(
                "InvalidCapacityReservationId.NotFound",
                f"The capacity reservation ID '{reservation_id}' does not exist",
            )
        return found

    def all(self) -> tuple[ReservedCapacity, ...]:
        """All reservations, sorted."""
        return tuple(self._reserved[i] for i in sorted(self._reserved))

    def known(self, ids: Iterable[str]) -> tuple[ReservedCapacity, ...]:
        """The existing reservations among `ids`."""
        return tuple(self._reserved[i] for i in ids if i in self._reserved)

    def owned(self, reservation_id: str) -> ReservedCapacity:
        """One reservation of this account; a Refusal for one that another account shares (T50)."""
        reserved = self.get(reservation_id)
        if reserved.owner:
            raise Refusal(
                "UnauthorizedOperation",
                f"You are not authorized to change the capacity reservation '{reserved.id}': it belongs to {reserved.owner}.",
                status=403,
            )
        return reserved

    def cancel(self, reservation_id: str, now: float) -> None:
        """Cancel it; its instances go on as ordinary ones. A block or an ended reservation cannot be cancelled."""
        reserved = self.owned(reservation_id)
        if reserved.block:
            raise Refusal("UnsupportedOperation", "A capacity block cannot be cancelled.")
        self._check_state(reserved, now)
        reserved.cancelled = True

    def targeted(self, spec: InstanceLaunch, now: float) -> ReservedCapacity | None:
        """The reservation that the launch names; a Refusal if it does not exist, does not match or has not begun."""
        if spec.reservation is None:
            if spec.market is Market.CAPACITY_BLOCK:
                raise Refusal(
                    "InvalidParameterCombination",
                    "A capacity block is launched into by its reservation's id.",
                )
            return None
        reserved = self.get(spec.reservation)
        if (spec.market is Market.CAPACITY_BLOCK) != reserved.block:
            raise Refusal(
                "InvalidParameterCombination",
                f"The market type does not fit the capacity reservation '{reserved.id}'.",
            )
        if (reserved.machine, reserved.zone) != (spec.machine, spec.subnet.zone):
            raise Refusal(
                "InvalidParameterValue",
                f"The capacity reservation '{reserved.id}' is of {reserved.machine} in {reserved.zone}.",
            )
        self._check_state(reserved, now)
        return reserved

    def joined(self, spec: InstanceLaunch, now: float) -> ReservedCapacity | None:
        """An open reservation that the launch joins without naming it."""
        if spec.market is Market.SPOT or not spec.joins_open:
            return None
        fits = (
            reserved
            for reserved in self.all()
            if reserved.open and (reserved.machine, reserved.zone) == (spec.machine, spec.subnet.zone)
        )
        return next((reserved for reserved in fits if reserved.free(now, self._timing.closing_s)), None)

    def free(self, reserved: ReservedCapacity, now: float) -> int:
        """Slots that a launch can use now."""
        return reserved.free(now, self._timing.closing_s)

    def take(self, reserved: ReservedCapacity, count: int) -> None:
        """Use slots."""
        reserved.used += count

    def give_back(self, reservation_id: str, now: float, *, unused: bool = False) -> None:
        """Release a slot; a block's slot is cleaned first, unless nothing ran in it."""
        reserved = self._reserved.get(reservation_id)
        if reserved is None:
            return
        reserved.used -= 1
        if reserved.block and not unused:
            reserved.cooling = [until for until in reserved.cooling if until > now]
            reserved.cooling.append(now + self._timing.cleaning_s)

    def closing(self, now: float) -> frozenset[str]:
        """Blocks whose instances EC2 terminates now."""
        before = self._timing.closing_s
        return frozenset(h.id for h in self._blocks() if h.ends_at is not None and now >= h.ends_at - before)

    def to_warn(self, now: float) -> tuple[ReservedCapacity, ...]:
        """Blocks whose expiration warning is due; each is returned once."""
        before = self._timing.warning_s
        due = [
            h for h in self._blocks() if not h.warned and h.ends_at is not None and now >= h.ends_at - before
        ]
        for reserved in due:
            reserved.warned = True
        return tuple(due)

    def _blocks(self) -> list[ReservedCapacity]:
        return [h for h in self.all() if h.block]

    def _check_state(self, reserved: ReservedCapacity, now: float) -> None:
        state = reserved.state(now)
        if state == "active":
            return
        if state == "scheduled":
            raise Refusal(
                "InvalidCapacityReservationState.PendingActivation",
                f"The capacity reservation '{reserved.id}' is not active yet.",
            )
        raise Refusal(  # the ending of the code is not verified; its meaning is
            "InvalidCapacityReservationState", f"The capacity reservation '{reserved.id}' is {state}."
        )
