"""One truth of EC2's instances for every stand-in: the sandbox's face, and ModelCloud in tests.

Rules of this file: time comes in as `now`, chance from the given dice; no thread, socket or clock is made
here. Several threads may call: one lock, and only immutable values leave. Always on: T01, T02, T05, T06, T10,
T11, T21, T23, T24, T42; by switch: next_error, lose_reply (T12), withdraw (T07), interrupt (T34).
"""

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Concatenate, ParamSpec, TypeVar

from gpucluster.cloud.model import addresses, launches, life, tagging
from gpucluster.cloud.model.buckets import Buckets
from gpucluster.cloud.model.capacity import Capacity
from gpucluster.cloud.model.faultbox import FaultBox
from gpucluster.cloud.model.values import ANY, Call, Dice, Ec2Instance, Interface, LaunchSpec, Refusal, Timing
from gpucluster.cloud.port import InstanceState

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
        self.capacity = Capacity()
        self.buckets = Buckets()
        self.faults = FaultBox()
        self.trail: deque[Call] = deque(maxlen=_TRAIL)
        self._dice = dice
        self._instances: dict[str, Ec2Instance] = {}
        self._interfaces: dict[str, Interface] = {}
        self._tokens = launches.Tokens()
        self._reservations = 0

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
        """Drop all that scenarios have ordered: capacity, withdrawn machines, errors, lost replies."""
        self.capacity.clear()
        self.faults.clear()

    @_atomic
    def interrupt(self, instance_id: str, now: float, after_s: float = 120.0) -> None:
        """Give a spot notice: the instance ends after `after_s` (T34)."""
        instance = self.instance(instance_id, now)
        self._instances[instance_id] = replace(instance, notice_at=now + after_s)

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
            return tuple(self._instances[i] for i in known)
        self.buckets.charge_instances("RunInstances", spec.max_count, now)
        self._check_room(spec)
        market = spec.market
        count, rule = self.capacity.take(
            spec.machine, spec.subnet.zone, market, spec.min_count, spec.max_count
        )
        reservation = self._new_id("r")
        made = tuple(self._make(spec, reservation, index, rule, now) for index in range(count))
        self._tokens.bind(spec, tuple(i.id for i in made))
        return made

    @_atomic
    def describe(self, ids: Sequence[str], now: float) -> tuple[Ec2Instance, ...]:
        """The visible instances (all without `ids`), in an order drawn anew; one unknown id fails all (T21)."""
        self._advance(now)
        found = (
            self._by_ids(ids, now) if ids else [i for i in self._instances.values() if self._visible(i, now)]
        )
        self._dice.shuffle(found)
        return tuple(found)

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
        for instance in tuple(self._instances.values()):
            self._store(life.advance(instance, self.timing, now))
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

    def _store(self, after: Ec2Instance) -> Ec2Instance:
        before = self._instances.get(after.id)
        if before is after:
            return after
        if before is not None and before.state is not after.state:
            after = self._release(after)
        self._instances[after.id] = after
        return after

    def _release(self, after: Ec2Instance) -> Ec2Instance:
        if after.state not in (life.ENDED, InstanceState.STOPPED):
            return after
        self.capacity.give_back(after.drawn)
        interface = self._interfaces.get(after.interface_id)
        if after.state is life.ENDED and interface is not None:
            gone_at = after.since + self.timing.linger_s
            self._interfaces[interface.id] = replace(interface, gone_at=gone_at, public_address=None)
        return replace(after, drawn=None)

    def _make(
        self, spec: LaunchSpec, reservation: str, index: int, rule: int | None, now: float
    ) -> Ec2Instance:
        address = addresses.choose(spec.subnet, self._used(spec.subnet.id), spec.address, self._dice)
        instance = launches.new_instance(
            spec,
            new_id=self._new_id,
            reservation=reservation,
            index=index,
            rule=rule,
            address=address,
            now=now,
        )
        self._interfaces[instance.interface_id] = launches.interface_of(instance)
        self._instances[instance.id] = instance
        return instance

    def _check_room(self, spec: LaunchSpec) -> None:
        used = self._used(spec.subnet.id)
        if spec.address is not None and spec.max_count > 1:
            raise Refusal(
                "InvalidParameterCombination", "A private address can be given to one instance only."
            )
        addresses.check_room(spec.subnet, used, spec.max_count, spec.address)

    def _used(self, subnet_id: str) -> frozenset[str]:
        return frozenset(i.address for i in self._interfaces.values() if i.subnet.id == subnet_id)

    def _started(self, instance: Ec2Instance, now: float) -> Ec2Instance:
        if instance.state is not InstanceState.STOPPED:
            return instance
        spec = instance.spec
        _, rule = self.capacity.take(spec.machine, instance.zone, spec.market, 1, 1)
        return self._store(replace(instance, state=InstanceState.PENDING, since=now, drawn=rule, reason=""))

    def _by_ids(self, ids: Sequence[str], now: float) -> list[Ec2Instance]:
        launches.check_ids(ids)
        unknown = [i for i in ids if i not in self._instances or not self._visible(self._instances[i], now)]
        if unknown:
            raise launches.not_found(unknown)
        return [self._instances[i] for i in dict.fromkeys(ids)]

    def _visible(self, instance: Ec2Instance, now: float) -> bool:
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
