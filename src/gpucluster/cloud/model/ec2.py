"""One truth of EC2's instances for every stand-in: the sandbox's face, and ModelCloud in tests.

Rules of this file: time comes in as `now`, chance from the given dice; no thread, socket or clock is made
here. Several threads may call: one lock, and only immutable values leave. Always on: T01, T02, T04 to T11, T13,
T14, T21, T23 to T26, T42; by order: next_error, lose_reply (T12), withdraw (T07), notices (T34), events (T35), news
(T41); by `faults.switches`: the rest.
"""

import functools
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from gpucluster.cloud.model import addresses, fleets, launches, life, maintenance, tagging
from gpucluster.cloud.model.buckets import Buckets
from gpucluster.cloud.model.capacity import Capacity
from gpucluster.cloud.model.faultbox import FaultBox, Switches
from gpucluster.cloud.model.news import News, NewsSwitches
from gpucluster.cloud.model.reservations import Held
from gpucluster.cloud.model.supply import Supply
from gpucluster.cloud.model.values import (
    ANY,
    Call,
    Dice,
    Draw,
    Ec2Instance,
    Fleet,
    FleetSpec,
    Interface,
    LaunchSpec,
    MaintenanceEvent,
    Refusal,
    Timing,
)
from gpucluster.cloud.port import InstanceState, Reservation
from gpucluster.plan.model import Market

P = ParamSpec("P")
R = TypeVar("R")
_TRAIL = 20_000  # calls kept


def _atomic(method: "Callable[Concatenate[CloudModel, P], R]") -> "Callable[Concatenate[CloudModel, P], R]":
    @functools.wraps(method)
    def locked(self: "CloudModel", *args: P.args, **kwargs: P.kwargs) -> R:
        with self.lock:
            return method(self, *args, **kwargs)

    return locked


class CloudModel:
    """EC2 of one account in one Region."""

    def __init__(self, dice: Dice, *, timing: Timing | None = None, region: str = "us-east-1") -> None:
        self.region = region
        self.timing = timing or Timing()
        self.lock = threading.RLock()
        self.supply = Supply(self.timing)
        self.buckets = Buckets()
        self.faults = FaultBox()
        self.news = News(region, dice)
        self.trail: deque[Call] = deque(maxlen=_TRAIL)
        self._dice = dice
        self._instances: dict[str, Ec2Instance] = {}
        self._interfaces: dict[str, Interface] = {}
        self._tokens = launches.Tokens()

    @property
    def capacity(self) -> Capacity:
        """What is free of each (machine, zone, market)."""
        return self.supply.capacity

    @property
    def switches(self) -> Switches:
        """The faults that stay on."""
        return self.faults.switches

    # --- scenario ---------------------------------------------------------------------------

    @_atomic
    def set_capacity(
        self, machine: str = ANY, zone: str = ANY, market: str = ANY, free: int | None = None
    ) -> None:
        """From now on `free` more of these can be had; None is any number."""
        self.capacity.set(machine, zone, market, free)

    @_atomic
    def know_zones(self, zones: Iterable[str]) -> None:
        """The Region's zones, which refusals name; those of launches are known anyway."""
        self.capacity.zones.update(zones)

    @_atomic
    def set_room(self, instances: int | None) -> None:
        """Bound the living instances by what the host can carry, whatever scenarios say; set before launches."""
        self.capacity.room = instances

    @_atomic
    def clear(self) -> None:
        """Drop all that scenarios have ordered: capacity, withdrawn machines, errors, lost replies, switches."""
        self.supply.clear()
        self.faults.clear()
        self.news.clear()

    @_atomic
    def set_quota(self, bucket: str, market: Market, vcpus: int | None) -> None:
        """Bound the vCPU of `P`, `G and VT` or `Standard`; spot has its own bounds (T08, T09)."""
        self.supply.quotas.set(bucket, market, vcpus)

    @_atomic
    def set_spot_price(self, machine: str, zone: str, micro_usd: int) -> None:
        """A spot request that would pay less is refused with the price (T08)."""
        self.supply.spot_prices[machine, zone] = micro_usd

    @_atomic
    def deliver_news(self, **switches: Any) -> None:
        """How events come from now on, by the names of `NewsSwitches` (T41)."""
        self.news.switches = NewsSwitches(**switches)

    @_atomic
    def take_news(self, now: float) -> tuple[str, ...]:
        """Event bodies that are due; the caller has a queue of his own."""
        found: list[str] = []
        while page := self.news.receive(now):
            found += [body for _, body in page]
            self.news.delete([handle for handle, _ in page])
        return tuple(found)

    @_atomic
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

    @_atomic
    def reservations(self, ids: Sequence[str], now: float) -> tuple[Reservation, ...]:
        """Those of `ids` that are there, or all."""
        self._advance(now)
        table = self.supply.reservations
        return tuple(
            Reservation(
                id=held.id,
                state=held.state(now),
                machine=held.machine,
                zone=held.zone,
                total=held.total,
                free=table.free(held, now),
                starts_at=held.starts_at,
                ends_at=held.ends_at,
            )
            for held in (table.known(ids) if ids else table.all())
        )

    @_atomic
    def cancel_reservation(self, reservation_id: str, now: float) -> None:
        """Its instances live on, as ordinary ones (T25)."""
        self._advance(now)
        self.supply.reservations.cancel(reservation_id)
        for instance in self._instances.values():
            if instance.held == reservation_id:
                self._instances[instance.id] = replace(instance, held=None)

    @_atomic
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

    @_atomic
    def recommend(self, instance_id: str, now: float, *, silent: Collection[str] = ()) -> None:
        """Give a rebalance recommendation: the instance may be taken back, or not (T34)."""
        self._advance(now)
        instance = self._any(instance_id)
        if "metadata" not in silent:
            instance = self._instances[instance_id] = replace(instance, rebalance_at=now)
        if "queue" not in silent:
            self.news.rebalance(instance, now)

    @_atomic
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

    @_atomic
    def move_event(self, event_id: str, to: float, now: float) -> tuple[Ec2Instance, MaintenanceEvent]:
        """ModifyInstanceEventStartTime: only with a deadline, not in the last minutes, an hour ahead (T35)."""
        self._advance(now)
        found = [(i, e) for i in self._instances.values() for e in i.events if e.id == event_id]
        if not found:
            raise Refusal("InvalidInstanceEventID.NotFound", f"The event '{event_id}' does not exist")
        instance, event = found[0]
        maintenance.check_move(event, to, now)
        moved = replace(event, not_before=to)
        return self._store(
            replace(instance, events=tuple(moved if e is event else e for e in instance.events))
        ), moved

    # --- requests -------------------------------------------------------------------------------

    @_atomic
    def admit(self, action: str, now: float, *, unfiltered: bool = False) -> None:
        """Every request passes here first: throttling (T11), then a scenario's error."""
        self.buckets.charge(action, now, unfiltered=unfiltered)
        self.faults.raise_next(action)

    @_atomic
    def run(self, spec: LaunchSpec, now: float) -> tuple[Ec2Instance, ...]:
        """RunInstances: one zone, `min_count` to `max_count` instances or a refusal; a token replays."""
        self._advance(now)
        known = self._tokens.replay(spec, now)
        if known:
            return self._replayed(known)
        self.buckets.charge_instances("RunInstances", spec.max_count, now)
        drawn = self._take(spec, spec.min_count, spec.max_count, 0, now)
        made = self._make_all(spec, drawn, now)
        self._tokens.bind(spec, tuple(i.id for i in made))
        return made

    @_atomic
    def fleet(self, asked: FleetSpec, now: float) -> Fleet:
        """CreateFleet of type `instant`: instances and errors side by side; below `least` none (T13, T14)."""
        self._advance(now)
        known = self._tokens.fleet(asked.token, asked.fingerprint)
        if known is not None:
            return known
        plan = fleets.plan(asked, lambda spec, most, planned: self._take_for_fleet(spec, most, planned, now))
        if plan.count < asked.least:
            for draw in plan.draws:
                self.supply.give_back(draw, now, unused=True)
            made: tuple[tuple[str, int], ...] = ()
        else:
            made = tuple(
                (i.id, position)
                for position, spec, drawn in plan.taken
                for i in self._make_all(replace(spec, fleet=asked.id), drawn, now)
            )
        fleet = Fleet(id=asked.id, instances=made, errors=fleets.errors(asked, plan, launched=bool(made)))
        self._tokens.bind_fleet(asked, fleet, now)
        return fleet

    @_atomic
    def describe(self, ids: Sequence[str], now: float) -> tuple[Ec2Instance, ...]:
        """The visible instances (all without `ids`), in an order drawn anew; one unknown id fails all (T21)."""
        self._advance(now)
        found = (
            self._by_ids(ids, now) if ids else [i for i in self._instances.values() if self._visible(i, now)]
        )
        self._check_lit(found if ids else ())
        self._dice.shuffle(found)
        return tuple(launches.as_seen(i, now) for i in found)

    @_atomic
    def terminate(self, ids: Sequence[str], now: float) -> tuple[tuple[Ec2Instance, Ec2Instance], ...]:
        """TerminateInstances: (before, after) of each; zones with a protected one are spared whole (T23)."""
        self._advance(now)
        before = self._by_ids(ids, now)
        self.buckets.charge_instances("TerminateInstances", len(before), now)
        protected = {i.zone: i for i in before if i.spec.protected}
        spared = [i for i in before if i.zone in protected]
        done = [(i, self._store(life.begin_end(i, now, *_by_user(now)))) for i in before if i not in spared]
        if spared:
            named = min(i.id for i in protected.values())
            raise Refusal(
                "OperationNotPermitted",
                f"The instance '{named}' may not be terminated. Modify its 'disableApiTermination' instance "
                "attribute and try again.",
            )
        return tuple(done)

    @_atomic
    def stop(self, ids: Sequence[str], now: float) -> tuple[tuple[Ec2Instance, Ec2Instance], ...]:
        """StopInstances: (before, after) of each."""
        self._advance(now)
        before = self._by_ids(ids, now)
        self._expect(
            before, {InstanceState.RUNNING, InstanceState.STOPPING, InstanceState.STOPPED}, "stopped"
        )
        return tuple((i, self._store(life.begin_stop(i, now, *_by_user(now)))) for i in before)

    @_atomic
    def start(self, ids: Sequence[str], now: float) -> tuple[tuple[Ec2Instance, Ec2Instance], ...]:
        """StartInstances: a stopped one gave up its capacity, and may not get it back (T24)."""
        self._advance(now)
        before = self._by_ids(ids, now)
        self._expect(before, {InstanceState.STOPPED, InstanceState.RUNNING, InstanceState.PENDING}, "started")
        self.buckets.charge_instances("StartInstances", len(before), now)
        return tuple((i, self._started(i, now)) for i in before)

    @_atomic
    def change(self, instance_id: str, now: float, edit: Callable[[Ec2Instance], Ec2Instance]) -> Ec2Instance:
        """Change attributes of one visible instance; its interface follows its groups."""
        after = self._store(edit(self.instance(instance_id, now)))
        interface = self._interfaces.get(after.interface_id)
        if interface is not None:
            self._interfaces[interface.id] = replace(interface, groups=after.spec.groups)
        return after

    @_atomic
    def tag(self, ids: Sequence[str], tags: Mapping[str, str], gone: Iterable[str], now: float) -> None:
        """Add `tags` to instances, their volumes and interfaces, by id, and remove the keys `gone`."""
        edit = tagging.edit(tags, gone)
        for instance in self._by_ids([i for i in ids if i.startswith("i-")], now):
            self._instances[instance.id] = replace(instance, tags=edit(instance.tags))
        for instance in [i for i in self._instances.values() if i.volume_id in ids]:
            self._instances[instance.id] = tagging.on_volume(instance, edit)
        for interface in [e for e in self._interfaces.values() if e.id in ids]:
            self._interfaces[interface.id] = replace(interface, tags=edit(interface.tags))

    @_atomic
    def interfaces(self, now: float) -> tuple[Interface, ...]:
        """Interfaces that exist: those of ended instances linger (T42)."""
        self._advance(now)
        return tuple(self._interfaces.values())

    @_atomic
    def instance(self, instance_id: str, now: float) -> Ec2Instance:
        """One instance by id; refuses what cannot be seen."""
        self._advance(now)
        return self._by_ids((instance_id,), now)[0]

    @_atomic
    def fresh_id(self, prefix: str) -> str:
        """An id of EC2's form."""
        return self._new_id(prefix)

    @_atomic
    def at_address(self, address: str, now: float) -> Ec2Instance | None:
        """The instance that has this private address now: how the metadata service knows its caller."""
        self._advance(now)
        return next((i for i in self._instances.values() if i.address == address), None)

    @_atomic
    def draw(self) -> int:
        """A number for an order of one's own."""
        return self._dice.getrandbits(32)

    @_atomic
    def record(self, action: str, now: float, code: str = "", detail: str = "") -> None:
        """Write a line to the trail."""
        self.trail.append(Call(now, action, code, detail))

    # --- the launcher ---------------------------------------------------------------------------

    @_atomic
    def wanted(self, now: float) -> tuple[Ec2Instance, ...]:
        """Instances whose machine is to run: pending (to be started) and running."""
        return self._in_states(now, InstanceState.PENDING, InstanceState.RUNNING)

    @_atomic
    def ending(self, now: float) -> tuple[Ec2Instance, ...]:
        """Instances whose machine is to end: shutting-down and stopping."""
        return self._in_states(now, InstanceState.SHUTTING_DOWN, InstanceState.STOPPING)

    @_atomic
    def mark_running(self, instance_id: str, now: float) -> None:
        """The machine runs; said of one that is asked to end meanwhile, it changes nothing."""
        self._advance(now)
        instance = self._instances[instance_id]
        if instance.state is InstanceState.PENDING:
            self._store(replace(instance, state=InstanceState.RUNNING, since=now))

    @_atomic
    def mark_ended(self, instance_id: str, now: float, reason: str = "", code: str = life.GUEST) -> None:
        """The machine is gone: as asked, by itself (`life.GUEST`), or for a failure (`Server.InternalError`)."""
        self._advance(now)
        self._store(life.ended_by_itself(self._instances[instance_id], now, code, reason or code))

    # --- inside -----------------------------------------------------------------------------------

    def _advance(self, now: float) -> None:
        closing = self.supply.reservations.closing(now)
        for instance in tuple(self._instances.values()):
            if instance.held in closing:
                instance = life.begin_end(instance, now, *life.BLOCK)  # noqa: PLW2901
            self._store(life.advance(instance, self.timing, now), now)
        for held in self.supply.reservations.to_warn(now):
            self.news.block_warning(held.id, held.machine, held.zone, held.ends_at or 0.0, now)
        for interface in tuple(self._interfaces.values()):
            if interface.gone_at is not None and interface.gone_at <= now:
                del self._interfaces[interface.id]
        self._forget(now)

    def _forget(self, now: float) -> None:
        before = now - self.timing.token_s
        gone = {i.id for i in self._instances.values() if i.state is life.ENDED and i.since <= before}
        for instance_id in gone:
            del self._instances[instance_id]
        self._tokens.forget(gone, before)

    def _store(self, after: Ec2Instance, now: float | None = None) -> Ec2Instance:
        before = self._instances.get(after.id)
        if before is after:
            return after
        if before is not None and before.state is not after.state:
            after = self._release(after, after.since if now is None else now)
        self._instances[after.id] = after
        return after

    def _release(self, after: Ec2Instance, now: float) -> Ec2Instance:
        if after.state not in (life.ENDED, InstanceState.STOPPED):
            return after
        self.supply.give_back(after.drawn, now)
        interface = self._interfaces.get(after.interface_id)
        if after.state is life.ENDED and interface is not None:
            gone_at = after.since + self.timing.linger_s
            self._interfaces[interface.id] = replace(interface, gone_at=gone_at, public_address=None)
        return replace(after, drawn=None)

    def _replayed(self, ids: Sequence[str]) -> tuple[Ec2Instance, ...]:
        """The same ids again, dead or alive; or the documented refusal of the dead, by switch (T03)."""
        found = tuple(self._instances[i] for i in ids)
        dead = all(i.state is life.ENDED for i in found)
        if dead and self.switches.dead_token == "refuse":  # noqa: S105
            raise Refusal(
                "IdempotentInstanceTerminated", "The instance of this idempotent request is terminated."
            )
        return found

    def _take(self, spec: LaunchSpec, least: int, most: int, planned: int, now: float) -> tuple[Draw, ...]:
        """Refuse what cannot be launched, and take capacity; `planned` addresses are spoken for."""
        self._check_young(spec, now)
        self._check_room(spec, most + planned)
        return self.supply.take(spec, least, most, self._instances.values(), now)

    def _take_for_fleet(self, spec: LaunchSpec, most: int, planned: int, now: float) -> tuple[Draw, ...]:
        self.buckets.charge_instances("RunInstances", most, now)
        return self._take(spec, 1, most, planned, now)

    def _make_all(self, spec: LaunchSpec, drawn: Sequence[Draw], now: float) -> tuple[Ec2Instance, ...]:
        reservation = self._new_id("r")
        return tuple(self._make(spec, reservation, index, draw, now) for index, draw in enumerate(drawn))

    def _make(self, spec: LaunchSpec, reservation: str, index: int, drawn: Draw, now: float) -> Ec2Instance:
        address = addresses.choose(spec.subnet, self._used(spec.subnet.id), spec.address, self._dice)
        instance = launches.new_instance(
            spec,
            new_id=self._new_id,
            reservation=reservation,
            index=index,
            drawn=drawn,
            address=address,
            now=now,
            hidden=launches.draw_lag(self.switches.lag, self._dice),
        )
        self._interfaces[instance.interface_id] = launches.interface_of(instance)
        self._instances[instance.id] = instance
        return instance

    def _check_young(self, spec: LaunchSpec, now: float) -> None:
        """An image that is gone (T18), a profile that EC2 does not know yet (T36)."""
        code = self.switches.images_gone.get(spec.image)
        if code is not None:
            raise Refusal(code, f"The image id '[{spec.image}]' does not exist")
        if spec.profile is not None and now < self.switches.profile_lag_until:
            raise Refusal(
                "InvalidParameterValue",
                f"Value ({spec.profile}) for parameter iamInstanceProfile.arn is invalid. Invalid IAM Instance "
                "Profile ARN",
            )

    def _check_lit(self, asked: Sequence[Ec2Instance]) -> None:
        """During a zone's outage, reads of its instances fail, and so do reads that name none (T21)."""
        dark = self.switches.dark_zones
        if dark and (not asked or any(i.zone in dark for i in asked)):
            raise Refusal("Unavailable", "The service is unavailable. Please try again shortly.", status=503)

    def _check_room(self, spec: LaunchSpec, count: int) -> None:
        used = self._used(spec.subnet.id)
        if spec.address is not None and count > 1:
            raise Refusal(
                "InvalidParameterCombination", "A private address can be given to one instance only."
            )
        addresses.check_room(spec.subnet, used, count, spec.address)

    def _used(self, subnet_id: str) -> frozenset[str]:
        return frozenset(i.address for i in self._interfaces.values() if i.subnet.id == subnet_id)

    def _started(self, instance: Ec2Instance, now: float) -> Ec2Instance:
        if instance.state is not InstanceState.STOPPED:
            return instance
        draw = self.supply.take_again(instance.spec, now)
        return self._store(
            replace(instance, state=InstanceState.PENDING, since=now, drawn=draw, held=draw.held, reason="")
        )

    def _any(self, instance_id: str) -> Ec2Instance:
        """One that exists, though reads may not show it yet."""
        found = self._instances.get(instance_id)
        if found is None:
            raise launches.not_found([instance_id])
        return found

    def _by_ids(self, ids: Sequence[str], now: float) -> list[Ec2Instance]:
        launches.check_ids(ids)
        unknown = [i for i in ids if i not in self._instances or not self._visible(self._instances[i], now)]
        if unknown:
            raise launches.not_found(unknown)
        return [self._instances[i] for i in dict.fromkeys(ids)]

    def _visible(self, instance: Ec2Instance, now: float) -> bool:
        if now < instance.known_at:
            return False
        return instance.state is not life.ENDED or now < instance.since + self.timing.visible_s

    def _in_states(self, now: float, *states: InstanceState) -> tuple[Ec2Instance, ...]:
        self._advance(now)
        return tuple(sorted((i for i in self._instances.values() if i.state in states), key=lambda i: i.id))

    def _expect(self, found: Iterable[Ec2Instance], states: set[InstanceState], verb: str) -> None:
        for instance in found:
            if instance.state not in states:
                raise Refusal(
                    "IncorrectInstanceState",
                    f"The instance '{instance.id}' is not in a state from which it can be {verb}.",
                )

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}-0{self._dice.getrandbits(64):016x}"


def _by_user(now: float) -> tuple[str, str]:
    code, text = life.USER
    return code, text.format(when=launches.gmt(now))
