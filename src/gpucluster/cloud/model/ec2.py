"""One truth of EC2's instances for every stand-in: the sandbox's face, and ModelCloud in tests.

Rules of this file: time comes in as `now`, chance from the given dice; no thread, socket or clock is made
here. Several threads may call: one lock, and only immutable values leave. Always on: T01, T02, T04 to T11, T13,
T14, T21, T23 to T26, T42; by order: next_error, lose_reply (T12), withdraw (T07), notices (T34), events (T35), news
(T41); by `faults.switches`: the rest.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from gpucluster.cloud.model import addresses, fleets, launches, life, maintenance, tagging
from gpucluster.cloud.model.efs import Efs
from gpucluster.cloud.model.lustre import Fsx
from gpucluster.cloud.model.premises import Premises
from gpucluster.cloud.model.state import atomic
from gpucluster.cloud.model.values import (
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


class CloudModel(Premises):
    """EC2 of one account in one Region: its requests, and what the launcher tells it."""

    def __init__(self, dice: Dice, *, timing: Timing | None = None, region: str = "us-east-1") -> None:
        super().__init__(dice, timing=timing, region=region)
        self.efs, self.fsx = Efs(self), Fsx(self)

    # --- requests -------------------------------------------------------------------------------

    @atomic
    def admit(self, action: str, now: float, *, unfiltered: bool = False) -> None:
        """Every request passes here first: throttling (T11), then a scenario's error."""
        self.buckets.charge(action, now, unfiltered=unfiltered)
        self.faults.raise_next(action)

    @atomic
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

    @atomic
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

    @atomic
    def describe(self, ids: Sequence[str], now: float) -> tuple[Ec2Instance, ...]:
        """The visible instances (all without `ids`), in an order drawn anew; one unknown id fails all (T21)."""
        self._advance(now)
        found = (
            self._by_ids(ids, now) if ids else [i for i in self._instances.values() if self._visible(i, now)]
        )
        self._check_lit(found if ids else ())
        self._dice.shuffle(found)
        return tuple(launches.as_seen(i, now) for i in found)

    @atomic
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

    @atomic
    def stop(self, ids: Sequence[str], now: float) -> tuple[tuple[Ec2Instance, Ec2Instance], ...]:
        """StopInstances: (before, after) of each."""
        self._advance(now)
        before = self._by_ids(ids, now)
        self._expect(
            before, {InstanceState.RUNNING, InstanceState.STOPPING, InstanceState.STOPPED}, "stopped"
        )
        return tuple((i, self._store(life.begin_stop(i, now, *_by_user(now)))) for i in before)

    @atomic
    def start(self, ids: Sequence[str], now: float) -> tuple[tuple[Ec2Instance, Ec2Instance], ...]:
        """StartInstances: a stopped one gave up its capacity, and may not get it back (T24)."""
        self._advance(now)
        before = self._by_ids(ids, now)
        self._expect(before, {InstanceState.STOPPED, InstanceState.RUNNING, InstanceState.PENDING}, "started")
        self.buckets.charge_instances("StartInstances", len(before), now)
        return tuple((i, self._started(i, now)) for i in before)

    @atomic
    def change(self, instance_id: str, now: float, edit: Callable[[Ec2Instance], Ec2Instance]) -> Ec2Instance:
        """Change attributes of one visible instance; its interface follows its groups."""
        after = self._store(edit(self.instance(instance_id, now)))
        interface = self._interfaces.get(after.interface_id)
        if interface is not None:
            self._interfaces[interface.id] = replace(interface, groups=after.spec.groups)
        return after

    @atomic
    def tag(self, ids: Sequence[str], tags: Mapping[str, str], gone: Iterable[str], now: float) -> None:
        """Add `tags` to instances, their volumes and interfaces, by id, and remove the keys `gone`."""
        edit = tagging.edit(tags, gone)
        for instance in self._by_ids([i for i in ids if i.startswith("i-")], now):
            self._instances[instance.id] = replace(instance, tags=edit(instance.tags))
        for instance in [i for i in self._instances.values() if i.volume_id in ids]:
            self._instances[instance.id] = tagging.on_volume(instance, edit)
        for interface in [e for e in self._interfaces.values() if e.id in ids]:
            self._interfaces[interface.id] = replace(interface, tags=edit(interface.tags))

    @atomic
    def interfaces(self, now: float) -> tuple[Interface, ...]:
        """Interfaces that exist: those of ended instances linger (T42)."""
        self._advance(now)
        return tuple(self._interfaces.values())

    @atomic
    def instance(self, instance_id: str, now: float) -> Ec2Instance:
        """One instance by id; refuses what cannot be seen."""
        self._advance(now)
        return self._by_ids((instance_id,), now)[0]

    @atomic
    def fresh_id(self, prefix: str) -> str:
        """An id of EC2's form."""
        return self._new_id(prefix)

    @atomic
    def at_address(self, address: str, now: float) -> Ec2Instance | None:
        """The instance that has this private address now: how the metadata service knows its caller."""
        self._advance(now)
        return next((i for i in self._instances.values() if i.address == address), None)

    @atomic
    def draw(self) -> int:
        """A number for an order of one's own."""
        return self._dice.getrandbits(32)

    @atomic
    def record(self, action: str, now: float, code: str = "", detail: str = "") -> None:
        """Write a line to the trail."""
        self.trail.append(Call(now, action, code, detail))

    @atomic
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

    @atomic
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

    # --- the launcher ---------------------------------------------------------------------------

    @atomic
    def wanted(self, now: float) -> tuple[Ec2Instance, ...]:
        """Instances whose machine is to run: pending (to be started) and running."""
        return self._in_states(now, InstanceState.PENDING, InstanceState.RUNNING)

    @atomic
    def ending(self, now: float) -> tuple[Ec2Instance, ...]:
        """Instances whose machine is to end: shutting-down and stopping."""
        return self._in_states(now, InstanceState.SHUTTING_DOWN, InstanceState.STOPPING)

    @atomic
    def mark_running(self, instance_id: str, now: float) -> None:
        """The machine runs; said of one that is asked to end meanwhile, it changes nothing."""
        self._advance(now)
        instance = self._instances[instance_id]
        if instance.state is InstanceState.PENDING:
            self._store(replace(instance, state=InstanceState.RUNNING, since=now))

    @atomic
    def mark_ended(self, instance_id: str, now: float, reason: str = "", code: str = life.GUEST) -> None:
        """The machine is gone: as asked, by itself (`life.GUEST`), or for a failure (`Server.InternalError`)."""
        self._advance(now)
        self._store(life.ended_by_itself(self._instances[instance_id], now, code, reason or code))

    # --- inside -----------------------------------------------------------------------------------

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
        self.placements.check(spec, self._instances.values())
        self._check_room(spec, (most + planned) * spec.addresses)
        return self.supply.take(spec, least, most, self._instances.values(), now)

    def _take_for_fleet(self, spec: LaunchSpec, most: int, planned: int, now: float) -> tuple[Draw, ...]:
        self.buckets.charge_instances("RunInstances", most, now)
        return self._take(spec, 1, most, planned, now)

    def _make_all(self, spec: LaunchSpec, drawn: Sequence[Draw], now: float) -> tuple[Ec2Instance, ...]:
        reservation, used, made = self._new_id("r"), set(self._used(spec.subnet.id)), list[Ec2Instance]()
        for index, draw in enumerate(drawn):
            instance = launches.new_instance(
                spec,
                new_id=self._new_id,
                reservation=reservation,
                index=index,
                drawn=draw,
                address=addresses.choose(spec.subnet, used, spec.address, self._dice),
                now=now,
                hidden=launches.draw_lag(self.switches.lag, self._dice),
            )
            made.append(self._wired(instance, used))
        return tuple(made)

    def _wired(self, instance: Ec2Instance, used: set[str]) -> Ec2Instance:
        """The new instance with all its interfaces."""

        def choose() -> str:
            used.add(found := addresses.choose(instance.spec.subnet, used, None, self._dice))
            return found

        primary = launches.interface_of(instance)
        used.add(str(primary.address))
        nics = launches.more_interfaces(instance, self._new_id, choose)
        self._interfaces |= {i.id: i for i in (primary, *nics)}
        self._instances[instance.id] = replace(instance, nics=nics)
        return self._instances[instance.id]

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
        if spec.address is not None and count > spec.addresses:
            raise Refusal(
                "InvalidParameterCombination", "A private address can be given to one instance only."
            )
        addresses.check_room(spec.subnet, used, count, spec.address)

    def _started(self, instance: Ec2Instance, now: float) -> Ec2Instance:
        if instance.state is not InstanceState.STOPPED:
            return instance
        draw = self.supply.take_again(instance.spec, now)
        return self._store(
            replace(instance, state=InstanceState.PENDING, since=now, drawn=draw, held=draw.held, reason="")
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
    code, text = life.USER
    return code, text.format(when=launches.gmt(now))
