"""What a scenario orders of the model: capacity, quotas, prices, reservations, notices, events, and how news come."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from gpucluster.cloud.model.news import NewsSwitches
from gpucluster.cloud.model.reservations import Held
from gpucluster.cloud.model.state import State, atomic
from gpucluster.cloud.model.values import ANY, MaintenanceEvent
from gpucluster.plan.model import Market


class Orders(State):
    """Each order takes effect at once; time comes in as `now`."""

    @atomic
    def set_capacity(
        self, machine: str = ANY, zone: str = ANY, market: str = ANY, free: int | None = None
    ) -> None:
        """From now on `free` more of these can be had; None is any number."""
        self.capacity.set(machine, zone, market, free)

    @atomic
    def know_zones(self, zones: Iterable[str]) -> None:
        """The Region's zones, which refusals name; those of launches are known anyway."""
        self.capacity.zones.update(zones)

    @atomic
    def set_room(self, instances: int | None) -> None:
        """Bound the living instances by what the host can carry, whatever scenarios say; set before launches."""
        self.capacity.room = instances

    @atomic
    def clear(self) -> None:
        """Drop all that scenarios have ordered: capacity, withdrawn machines, errors, lost replies, switches."""
        self.supply.clear()
        self.faults.clear()
        self.news.clear()

    @atomic
    def set_quota(self, bucket: str, market: Market, vcpus: int | None) -> None:
        """Bound the vCPU of `P`, `G and VT` or `Standard`; spot has its own bounds (T08, T09)."""
        self.supply.quotas.set(bucket, market, vcpus)

    @atomic
    def set_spot_price(self, machine: str, zone: str, micro_usd: int) -> None:
        """A spot request that would pay less is refused with the price (T08)."""
        self.supply.spot_prices[machine, zone] = micro_usd

    @atomic
    def deliver_news(self, **switches: Any) -> None:
        """How events come from now on, by the names of `NewsSwitches` (T41)."""
        self.news.switches = NewsSwitches(**switches)

    @atomic
    def take_news(self, now: float) -> tuple[str, ...]:
        """Event bodies that are due; the caller has a queue of his own."""
        found: list[str] = []
        while page := self.news.receive(now):
            found += [body for _, body in page]
            self.news.delete([handle for handle, _ in page])
        return tuple(found)

    @atomic
    def reserve(
        self,
        machine: str,
        zone: str,
        total: int,
        *,
        id: str = "",  # noqa: A002 - its name
        block: bool = False,
        open: bool = False,  # noqa: A002 - EC2's word
        starts_at: float | None = None,
        ends_at: float | None = None,
    ) -> str:
        """Make a capacity reservation or block, and return its id (T25, T26)."""
        name = id or self._new_id("cr")
        self.supply.reservations.add(
            Held(name, machine, zone, total, block=block, open=open, starts_at=starts_at, ends_at=ends_at)
        )
        return name

    @atomic
    def cancel_reservation(self, reservation_id: str, now: float) -> None:
        """Its instances live on, as ordinary ones (T25)."""
        self._advance(now)
        self.supply.reservations.cancel(reservation_id, now)
        for instance in self._instances.values():
            if instance.held == reservation_id:
                self._instances[instance.id] = replace(instance, held=None)

    @atomic
    def interrupt(
        self, instance_id: str, now: float, after_s: float = 120.0, *, silent: Collection[str] = ()
    ) -> None:
        """Take a spot instance back after `after_s`; `silent` ways say nothing: `metadata`, `queue` (T34)."""
        self._advance(now)
        instance = replace(
            self._any(instance_id), notice_at=now + after_s, notice_hidden="metadata" in silent
        )
        self._instances[instance_id] = instance
        if "queue" not in silent:
            self.news.spot(instance, now)
        self._advance(now)

    @atomic
    def recommend(self, instance_id: str, now: float, *, silent: Collection[str] = ()) -> None:
        """Give a rebalance recommendation: the instance may be taken back, or not (T34)."""
        self._advance(now)
        instance = self._any(instance_id)
        if "metadata" not in silent:
            instance = self._instances[instance_id] = replace(instance, rebalance_at=now)
        if "queue" not in silent:
            self.news.rebalance(instance, now)

    @atomic
    def maintain(
        self, instance_id: str, event: MaintenanceEvent, now: float, *, silent: Collection[str] = ()
    ) -> MaintenanceEvent:
        """Schedule an event, or change the one of its id; without an id it gets one (T35)."""
        self._advance(now)
        instance = self._any(instance_id)
        event = event if event.id else replace(event, id=self._new_id("instance-event"))
        others = tuple(e for e in instance.events if e.id != event.id)
        instance = self._instances[instance_id] = replace(instance, events=(*others, event))
        if "queue" not in silent:
            self.news.maintenance(instance, event, now)
        return event
