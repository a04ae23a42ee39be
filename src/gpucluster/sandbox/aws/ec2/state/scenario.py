"""What a scenario can set: capacity, quotas, prices, reservations, interruption notices, events, and their delivery."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.reservations import ReservedCapacity
from gpucluster.sandbox.aws.ec2.state.store import State, atomic
from gpucluster.sandbox.aws.ec2.state.values import ANY, MaintenanceEvent
from gpucluster.sandbox.aws.events.state import DeliverySwitches


class ScenarioControls(State):
    """What a scenario can set. It takes effect at once; time is an argument."""

    @atomic
    def set_capacity(
        self, machine: str = ANY, zone: str = ANY, market: str = ANY, free: int | None = None
    ) -> None:
        """Set the number of instances that can still be launched; None is any number."""
        self.capacity.set(machine, zone, market, free)

    @atomic
    def set_zones(self, zones: Iterable[str]) -> None:
        """Set the zones of the Region, which refusals name."""
        self.capacity.zones.update(zones)

    @atomic
    def set_host_limit(self, instances: int | None) -> None:
        """Limit the living instances to what the host can run, whatever scenarios set. Called before the first launch."""
        self.capacity.room = instances

    @atomic
    def clear(self) -> None:
        """Remove everything that scenarios have set."""
        self.supply.clear()
        self.faults.clear()
        self.events.clear()

    @atomic
    def set_quota(self, bucket: str, market: Market, vcpus: int | None) -> None:
        """Limit the vCPUs of `P`, `G and VT` or `Standard`; spot has its own limits (T08, T09)."""
        self.supply.quotas.set(bucket, market, vcpus)

    @atomic
    def set_spot_price(self, machine: str, zone: str, micro_usd: int) -> None:
        """Set the spot price; a request with a lower maximum is refused with the price (T08)."""
        self.supply.spot_prices[machine, zone] = micro_usd

    @atomic
    def set_delivery(self, **switches: Any) -> None:
        """Set how events are delivered, by the fields of `DeliverySwitches` (T41)."""
        self.events.switches = DeliverySwitches(**switches)

    @atomic
    def take_events(self, now: float) -> tuple[str, ...]:
        """Return and remove the events that are due, for a caller with its own queue."""
        found: list[str] = []
        while page := self.events.receive(now):
            found += [body for _, body in page]
            self.events.delete([handle for handle, _ in page])
        return tuple(found)

    @atomic
    def reserve(
        self,
        machine: str,
        zone: str,
        total: int,
        *,
        id: str = "",  # noqa: A002 - its name
        owner: str = "",
        block: bool = False,
        open: bool = False,  # noqa: A002 - EC2's word
        starts_at: float | None = None,
        ends_at: float | None = None,
    ) -> str:
        """Create a capacity reservation or block, and return its id (T25, T26). Another `owner` shares it (T50)."""
        reserved = ReservedCapacity(
            id or self._new_id("cr"),
            machine,
            zone,
            total,
            owner=owner,
            block=block,
            open=open,
            starts_at=starts_at,
            ends_at=ends_at,
        )
        self.supply.reservations.add(reserved)
        return reserved.id

    @atomic
    def cancel_reservation(self, reservation_id: str, now: float) -> None:
        """Cancel it; its instances go on as ordinary ones (T25)."""
        self._advance(now)
        self.supply.reservations.cancel(reservation_id, now)
        for instance in self._instances.values():
            if instance.reservation_id == reservation_id:
                self._instances[instance.id] = replace(instance, reservation_id=None)

    @atomic
    def interrupt(
        self, instance_id: str, now: float, after_s: float = 120.0, *, silent: Collection[str] = ()
    ) -> None:
        """Interrupt a spot instance after `after_s`. `silent` channels get no notice: `metadata`, `queue` (T34)."""
        self._advance(now)
        instance = replace(
            self._any(instance_id), notice_at=now + after_s, notice_hidden="metadata" in silent
        )
        self._instances[instance_id] = instance
        if "queue" not in silent:
            self.events.spot(instance, now)
        self._advance(now)

    @atomic
    def recommend(self, instance_id: str, now: float, *, silent: Collection[str] = ()) -> None:
        """Send a rebalance recommendation: an interruption may follow or not (T34)."""
        self._advance(now)
        instance = self._any(instance_id)
        if "metadata" not in silent:
            instance = self._instances[instance_id] = replace(instance, rebalance_at=now)
        if "queue" not in silent:
            self.events.rebalance(instance, now)

    @atomic
    def maintain(
        self, instance_id: str, event: MaintenanceEvent, now: float, *, silent: Collection[str] = ()
    ) -> MaintenanceEvent:
        """Schedule an event, or change the event with its id; without an id it gets one (T35)."""
        self._advance(now)
        instance = self._any(instance_id)
        event = event if event.id else replace(event, id=self._new_id("instance-event"))
        others = tuple(e for e in instance.events if e.id != event.id)
        instance = self._instances[instance_id] = replace(instance, events=(*others, event))
        if "queue" not in silent:
            self.events.maintenance(instance, event, now)
        return event
