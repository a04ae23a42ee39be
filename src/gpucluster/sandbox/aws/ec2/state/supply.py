"""The capacity of a launch: reservation, quota, spot price and free capacity, checked in one place."""

from collections.abc import Iterable, Iterator

from gpucluster.cloud.port import LIVING
from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.capacity import Capacity
from gpucluster.sandbox.aws.ec2.state.reservations import Reservations, ReservedCapacity
from gpucluster.sandbox.aws.ec2.state.values import (
    CapacitySource,
    Ec2Instance,
    InstanceLaunch,
    Refusal,
    Timing,
)
from gpucluster.sandbox.aws.servicequotas.state import Quotas

_SPOT_AT_ONCE = 3000  # instances in one spot request (T08)


class Supply:
    """Everything that can be short in an account and Region."""

    def __init__(self, timing: Timing) -> None:
        self.capacity = Capacity()
        self.reservations = Reservations(timing)
        self.quotas = Quotas()
        self.spot_prices: dict[tuple[str, str], int] = {}  # (machine, zone) -> micro-USD an hour

    def clear(self) -> None:
        """Remove what scenarios have set; reservations stay, because instances may run in them."""
        self.capacity.clear()
        self.quotas.clear()
        self.spot_prices.clear()

    def take(
        self, spec: InstanceLaunch, least: int, most: int, instances: Iterable[Ec2Instance], now: float
    ) -> tuple[CapacitySource, ...]:
        """Take `least` to `most` slots, or refuse and take nothing."""
        self.capacity.check_offered(spec.machine, spec.subnet.zone)
        self._check_spot(spec, most)
        target = self.reservations.targeted(spec, now)
        if target is not None:
            return self._from(target, least, most, now)
        joined = self.reservations.joined(spec, now)
        inside = 0 if joined is None else min(most, self.reservations.free(joined, now))
        if spec.only_reserved and inside < least:
            raise _exceeded(spec.machine)
        ordinary: tuple[CapacitySource, ...] = ()
        if inside < most and not spec.only_reserved:
            bound = self._within_quota(spec, least - inside, most - inside, instances)
            ordinary = self._ordinary(spec, least - inside, bound)
        if joined is None:
            return ordinary
        self.reservations.take(joined, inside)
        self.capacity.take_room(inside)
        return ((CapacitySource(reservation_id=joined.id),) * inside) + ordinary

    def take_again(self, spec: InstanceLaunch, now: float) -> CapacitySource:
        """Take a slot for an instance that was stopped: it had given its slot up (T24)."""
        return self.take(spec, 1, 1, (), now)[0]

    def give_back(self, draw: CapacitySource | None, now: float, *, unused: bool = False) -> None:
        """Return one slot; `unused`: nothing ran in it."""
        if draw is None:
            return
        self.capacity.give_back(draw.rule)
        if draw.reservation_id is not None:
            self.reservations.give_back(draw.reservation_id, now, unused=unused)

    def _from(
        self, reserved: ReservedCapacity, least: int, most: int, now: float
    ) -> tuple[CapacitySource, ...]:
        count = min(most, self.reservations.free(reserved, now))
        room = self.capacity.room
        count = count if room is None else min(count, room)
        if count < least:
            raise _exceeded(reserved.id)
        self.reservations.take(reserved, count)
        self.capacity.take_room(count)
        return (CapacitySource(reservation_id=reserved.id),) * count

    def _ordinary(self, spec: InstanceLaunch, least: int, most: int) -> tuple[CapacitySource, ...]:
        market = Market.ON_DEMAND if spec.market is Market.RESERVATION else spec.market
        count, rule = self.capacity.take(spec.machine, spec.subnet.zone, market, max(0, least), most)
        return (CapacitySource(rule=rule),) * count

    def _within_quota(
        self, spec: InstanceLaunch, least: int, most: int, instances: Iterable[Ec2Instance]
    ) -> int:
        room = self.quotas.room(spec.machine, spec.market, self._counted(spec.market, instances))
        if room is not None and room < least:
            raise self.quotas.refusal(spec.machine, spec.market)
        return most if room is None else min(room, most)

    def _counted(self, market: Market, instances: Iterable[Ec2Instance]) -> Iterator[tuple[str, int]]:
        """The vCPUs that count against a quota: a reservation in full, used or not; a block not at all (T09)."""
        spot = market is Market.SPOT
        for one in instances:
            if (
                one.state in LIVING
                and (one.spec.market is Market.SPOT) == spot
                and one.reservation_id is None
            ):
                yield one.spec.machine, 1
        for reserved in () if spot else self.reservations.all():
            if not reserved.block and not reserved.cancelled:
                yield reserved.machine, reserved.total

    def _check_spot(self, spec: InstanceLaunch, most: int) -> None:
        if spec.market is not Market.SPOT:
            return
        if most > _SPOT_AT_ONCE:
            raise Refusal(
                "RequestResourceCountExceeded", f"At most {_SPOT_AT_ONCE} spot instances in one request."
            )
        price = self.spot_prices.get((spec.machine, spec.subnet.zone))
        if price is not None and spec.max_price is not None and spec.max_price < price:
            raise Refusal(
                "SpotMaxPriceTooLow",
                f"Your Spot request price of {spec.max_price / 1e6:g} is lower than the minimum required Spot "
                f"request fulfillment price of {price / 1e6:g}.",
            )


def _exceeded(what: str) -> Refusal:
    return Refusal(
        "ReservationCapacityExceeded", f"The requested reservation does not have sufficient capacity: {what}."
    )
