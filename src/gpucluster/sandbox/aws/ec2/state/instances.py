"""The instances of the account. Every stand-in reads this one state.

Rules of this file: time comes in as `now`, chance from the given dice; no thread, socket or clock is made
here. Several threads may call: one lock, and only immutable values leave. Always on: T01, T02, T04 to T11, T13,
T14, T21, T23 to T26, T42; by order: next_error, lose_reply (T12), withdraw (T07), notices (T34), events (T35), news
(T41); by `faults.switches`: the rest.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from gpucluster.cloud.port import InstanceState, Reservation
from gpucluster.sandbox.aws.ec2.state import addresses, fleets, launches, lifecycle, maintenance
from gpucluster.sandbox.aws.ec2.state import tags as tagging
from gpucluster.sandbox.aws.ec2.state.network import AccountNetwork
from gpucluster.sandbox.aws.ec2.state.store import atomic
from gpucluster.sandbox.aws.ec2.state.values import (
    CapacitySource,
    Ec2Instance,
    Fleet,
    FleetSpec,
    InstanceLaunch,
    Interface,
    LoggedCall,
    MaintenanceEvent,
    RandomSource,
    Refusal,
    Timing,
)
from gpucluster.sandbox.aws.efs.state import Efs
from gpucluster.sandbox.aws.eks.state import Eks
from gpucluster.sandbox.aws.fsx.state import Fsx


class CloudModel(AccountNetwork):
    """EC2 of one account in one Region: the API's requests and the launcher's reports."""

    def __init__(
        self, dice: RandomSource, *, timing: Timing | None = None, region: str = "us-east-1"
    ) -> None:
        super().__init__(dice, timing=timing, region=region)
        self.efs, self.fsx, self.eks = Efs(self), Fsx(self), Eks(self)

    # --- requests -------------------------------------------------------------------------------

    @atomic
    def admit(self, action: str, now: float, *, unfiltered: bool = False) -> None:
        """The checks of every request: throttling (T11), then injected errors."""
        self.buckets.charge(action, now, unfiltered=unfiltered)
        self.faults.raise_next(action)

    @atomic
    def run(self, spec: InstanceLaunch, now: float) -> tuple[Ec2Instance, ...]:
        """RunInstances in one zone: `min_count` to `max_count` instances, or a refusal. A known token returns the earlier instances."""
        self._advance(now)
        known = self._tokens.replay(spec, now)
        if known:
            return self._replayed(known)
        self.buckets.charge_instances("RunInstances", spec.max_count, now)
        drawn = self._take(spec, spec.min_count, spec.max_count, 0, now)
        made = self._make_all(spec, drawn, now)
        self._tokens.bind(spec, tuple(i.id for i in made))
        return made

    @atomic
    def fleet(self, asked: FleetSpec, now: float) -> Fleet:
        """CreateFleet of type `instant`: instances and errors together; below `least` no instance (T13, T14)."""
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

    @atomic
    def describe(self, ids: Sequence[str], now: float) -> tuple[Ec2Instance, ...]:
        """The visible instances in random order (all without `ids`); one unknown id fails the call (T21)."""
        self._advance(now)
        found = (
            self._by_ids(ids, now) if ids else [i for i in self._instances.values() if self._visible(i, now)]
        )
        self._check_lit(found if ids else ())
        self._random.shuffle(found)
        return tuple(launches.as_seen(i, now) for i in found)

    @atomic
    def terminate(self, ids: Sequence[str], now: float) -> tuple[tuple[Ec2Instance, Ec2Instance], ...]:
        """TerminateInstances: (before, after) of each. A zone with a protected instance terminates none (T23)."""
        self._advance(now)
        before = self._by_ids(ids, now)
        self.buckets.charge_instances("TerminateInstances", len(before), now)
        protected = {i.zone: i for i in before if i.spec.protected}
        spared = [i for i in before if i.zone in protected]
        done = [
            (i, self._store(lifecycle.begin_end(i, now, *_by_user(now)))) for i in before if i not in spared
        ]
        if spared:
            named = min(i.id for i in protected.values())
            raise Refusal(
                "OperationNotPermitted",
                f"The instance '{named}' may not be terminated. Modify its 'disableApiTermination' instance "
                "attribute and try again.",
            )
        return tuple(done)

    @atomic
    def stop(self, ids: Sequence[str], now: float) -> tuple[tuple[Ec2Instance, Ec2Instance], ...]:
        """StopInstances: (before, after) of each."""
        self._advance(now)
        before = self._by_ids(ids, now)
        self._expect(
            before, {InstanceState.RUNNING, InstanceState.STOPPING, InstanceState.STOPPED}, "stopped"
        )
        return tuple((i, self._store(lifecycle.begin_stop(i, now, *_by_user(now)))) for i in before)

    @atomic
    def start(self, ids: Sequence[str], now: float) -> tuple[tuple[Ec2Instance, Ec2Instance], ...]:
        """StartInstances: a stopped instance gave up its capacity and may not get it again (T24)."""
        self._advance(now)
        before = self._by_ids(ids, now)
        self._expect(before, {InstanceState.STOPPED, InstanceState.RUNNING, InstanceState.PENDING}, "started")
        self.buckets.charge_instances("StartInstances", len(before), now)
        return tuple((i, self._started(i, now)) for i in before)

    @atomic
    def change(self, instance_id: str, now: float, edit: Callable[[Ec2Instance], Ec2Instance]) -> Ec2Instance:
        """Change attributes of one visible instance; a change of groups also changes its interface."""
        after = self._store(edit(self.instance(instance_id, now)))
        interface = self._interfaces.get(after.interface_id)
        if interface is not None:
            self._interfaces[interface.id] = replace(interface, groups=after.spec.groups)
        return after

    @atomic
    def tag(self, ids: Sequence[str], tags: Mapping[str, str], gone: Iterable[str], now: float) -> None:
        """Add `tags` to instances, volumes and interfaces by id, and remove the keys `gone`."""
        edit = tagging.edit(tags, gone)
        for instance in self._by_ids([i for i in ids if i.startswith("i-")], now):
            self._instances[instance.id] = replace(instance, tags=edit(instance.tags))
        for instance in [i for i in self._instances.values() if i.volume_id in ids]:
            self._instances[instance.id] = tagging.on_volume(instance, edit)
        for interface in [e for e in self._interfaces.values() if e.id in ids]:
            self._interfaces[interface.id] = replace(interface, tags=edit(interface.tags))

    @atomic
    def interfaces(self, now: float) -> tuple[Interface, ...]:
        """The interfaces that exist; those of terminated instances stay for a while (T42)."""
        self._advance(now)
        return tuple(self._interfaces.values())

    @atomic
    def instance(self, instance_id: str, now: float) -> Ec2Instance:
        """One instance by id; a Refusal if it is not visible."""
        self._advance(now)
        return self._by_ids((instance_id,), now)[0]

    @atomic
    def fresh_id(self, prefix: str) -> str:
        """A new id in EC2's form."""
        return self._new_id(prefix)

    @atomic
    def at_address(self, address: str, now: float) -> Ec2Instance | None:
        """The running instance with this private address. The metadata service identifies its caller by it."""
        self._advance(now)
        return next((i for i in self._instances.values() if i.address == address), None)

    @atomic
    def draw(self) -> int:
        """A random number for an order that differs between calls."""
        return self._random.getrandbits(32)

    @atomic
    def record(self, action: str, now: float, code: str = "", detail: str = "") -> None:
        """Add a line to the call log."""
        self.trail.append(LoggedCall(now, action, code, detail))

    @atomic
    def reservations(self, ids: Sequence[str], now: float) -> tuple[Reservation, ...]:
        """The existing instances among `ids`, or all."""
        self._advance(now)
        table = self.supply.reservations
        return tuple(
            Reservation(
                id=reserved.id,
                state=reserved.state(now),
                machine=reserved.machine,
                zone=reserved.zone,
                total=reserved.total,
                free=table.free(reserved, now),
                starts_at=reserved.starts_at,
                ends_at=reserved.ends_at,
            )
            for reserved in (table.known(ids) if ids else table.all())
        )

    @atomic
    def move_event(self, event_id: str, to: float, now: float) -> tuple[Ec2Instance, MaintenanceEvent]:
        """ModifyInstanceEventStartTime: only with a deadline, not in the last minutes, at least an hour ahead (T35)."""
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

    # --- the launcher ---------------------------------------------------------------------------

    @atomic
    def wanted(self, now: float) -> tuple[Ec2Instance, ...]:
        """Instances that need a machine: pending and running."""
        return self._in_states(now, InstanceState.PENDING, InstanceState.RUNNING)

    @atomic
    def ending(self, now: float) -> tuple[Ec2Instance, ...]:
        """Instances whose machine must end: shutting-down and stopping."""
        return self._in_states(now, InstanceState.SHUTTING_DOWN, InstanceState.STOPPING)

    @atomic
    def mark_running(self, instance_id: str, now: float) -> None:
        """The machine runs. For an instance that is ending, this changes nothing."""
        self._advance(now)
        instance = self._instances[instance_id]
        if instance.state is InstanceState.PENDING:
            self._store(replace(instance, state=InstanceState.RUNNING, since=now))

    @atomic
    def mark_ended(self, instance_id: str, now: float, reason: str = "", code: str = lifecycle.GUEST) -> None:
        """The machine has ended: as requested, by itself (`lifecycle.GUEST`), or by a failure (`Server.InternalError`)."""
        self._advance(now)
        self._store(lifecycle.ended_by_itself(self._instances[instance_id], now, code, reason or code))

    # --- inside -----------------------------------------------------------------------------------

    def _replayed(self, ids: Sequence[str]) -> tuple[Ec2Instance, ...]:
        """The instances of a repeated token, dead or alive; or the documented refusal for dead ones, by switch (T03)."""
        found = tuple(self._instances[i] for i in ids)
        dead = all(i.state is lifecycle.ENDED for i in found)
        if dead and self.switches.dead_token == "refuse":  # noqa: S105
            raise Refusal(
                "IdempotentInstanceTerminated", "The instance of this idempotent request is terminated."
            )
        return found

    def _take(
        self, spec: InstanceLaunch, least: int, most: int, planned: int, now: float
    ) -> tuple[CapacitySource, ...]:
        """Refuse a launch that is not possible, or take its capacity; `planned` addresses are reserved."""
        self._check_young(spec, now)
        self.placements.check(spec, self._instances.values())
        self._check_room(spec, (most + planned) * spec.addresses)
        return self.supply.take(spec, least, most, self._instances.values(), now)

    def _take_for_fleet(
        self, spec: InstanceLaunch, most: int, planned: int, now: float
    ) -> tuple[CapacitySource, ...]:
        self.buckets.charge_instances("RunInstances", most, now)
        return self._take(spec, 1, most, planned, now)

    def _make_all(
        self, spec: InstanceLaunch, drawn: Sequence[CapacitySource], now: float
    ) -> tuple[Ec2Instance, ...]:
        reservation, used, made = self._new_id("r"), set(self._used(spec.subnet.id)), list[Ec2Instance]()
        for index, draw in enumerate(drawn):
            instance = launches.new_instance(
                spec,
                new_id=self._new_id,
                reservation=reservation,
                index=index,
                drawn=draw,
                address=addresses.choose(
                    spec.subnet, used, spec.address, self._random, self.reserved(spec.subnet.id)
                ),
                now=now,
                hidden=launches.draw_lag(self.switches.lag, self._random),
            )
            made.append(self._wired(instance, used))
        return tuple(made)

    def _wired(self, instance: Ec2Instance, used: set[str]) -> Ec2Instance:
        """The new instance with all its interfaces."""

        def choose() -> str:
            subnet = instance.spec.subnet
            found = addresses.choose(subnet, used, None, self._random, self.reserved(subnet.id))
            used.add(found)
            return found

        primary = launches.interface_of(instance)
        used.add(str(primary.address))
        nics = launches.more_interfaces(instance, self._new_id, choose)
        self._interfaces |= {i.id: i for i in (primary, *nics)}
        self._instances[instance.id] = replace(instance, nics=nics)
        return self._instances[instance.id]

    def _check_young(self, spec: InstanceLaunch, now: float) -> None:
        """Refuse an image that does not exist (T18), or a profile that EC2 does not know yet (T36)."""
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
        """During the outage of a zone, reads of its instances fail, and so do reads without ids (T21)."""
        failing = self.switches.failing_zones
        if failing and (not asked or any(i.zone in failing for i in asked)):
            raise Refusal("Unavailable", "The service is unavailable. Please try again shortly.", status=503)

    def _check_room(self, spec: InstanceLaunch, count: int) -> None:
        used = self._used(spec.subnet.id)
        if spec.address is not None and count > spec.addresses:
            raise Refusal(
                "InvalidParameterCombination", "A private address can be given to one instance only."
            )
        addresses.check_room(spec.subnet, used, count, spec.address, self.reserved(spec.subnet.id))

    def _started(self, instance: Ec2Instance, now: float) -> Ec2Instance:
        if instance.state is not InstanceState.STOPPED:
            return instance
        draw = self.supply.take_again(instance.spec, now)
        return self._store(
            replace(
                instance,
                state=InstanceState.PENDING,
                since=now,
                drawn=draw,
                reservation_id=draw.reservation_id,
                reason="",
            )
        )

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


def _by_user(now: float) -> tuple[str, str]:
    code, text = lifecycle.USER
    return code, text.format(when=launches.gmt(now))
