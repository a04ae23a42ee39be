"""The stored state and its changes by time alone."""

import functools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Concatenate, ParamSpec, TypeVar

from gpucluster.cloud.port import InstanceState
from gpucluster.sandbox.aws.budgets.state import Budgets
from gpucluster.sandbox.aws.ec2.state import launches, lifecycle
from gpucluster.sandbox.aws.ec2.state.capacity import Capacity
from gpucluster.sandbox.aws.ec2.state.faults import FaultSwitches, InjectedFaults
from gpucluster.sandbox.aws.ec2.state.gateways import Addresses, Gateways, NatGateway
from gpucluster.sandbox.aws.ec2.state.placement import Placements
from gpucluster.sandbox.aws.ec2.state.supply import Supply
from gpucluster.sandbox.aws.ec2.state.throttling import Buckets
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance, Interface, LoggedCall, RandomSource, Timing
from gpucluster.sandbox.aws.ec2.state.volumes import Volumes
from gpucluster.sandbox.aws.events.state import InstanceEvents

S = TypeVar("S", bound="State")
P = ParamSpec("P")
R = TypeVar("R")
_TRAIL = 20_000  # calls in the log


def atomic(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Take the lock of the state for the call."""

    @functools.wraps(method)
    def locked(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.lock:
            return method(self, *args, **kwargs)

    return locked


class State:
    """The state of one account in one Region: instances, interfaces, tokens, supply, faults and events."""

    def __init__(
        self, dice: RandomSource, *, timing: Timing | None = None, region: str = "us-east-1"
    ) -> None:
        self.region = region
        self.timing = timing or Timing()
        self.lock = threading.RLock()
        self.supply = Supply(self.timing)
        self.buckets = Buckets()
        self.faults = InjectedFaults()
        self.events = InstanceEvents(region, dice)
        self.placements = Placements()
        self.volumes = Volumes()
        self.addresses = Addresses()
        self.budgets = Budgets()
        self.rules_changed: dict[
            str, float
        ] = {}  # security group -> time of the last change of its rules (T45)
        self.spot_role = False  # the service-linked role exists; the first spot request creates it
        self.gateways = Gateways()
        self.foreign: Callable[[str], frozenset[str]] = lambda _: (
            frozenset()
        )  # addresses that moto's resources use, by subnet
        self.reserved: Callable[[str], frozenset[str]] = lambda _: frozenset()  # CIDR reservations, by subnet
        self.trail: deque[LoggedCall] = deque(maxlen=_TRAIL)
        self._random = dice
        self._instances: dict[str, Ec2Instance] = {}
        self._interfaces: dict[str, Interface] = {}
        self._tokens = launches.Tokens()

    @property
    def capacity(self) -> Capacity:
        """The free capacity of each (machine, zone, market)."""
        return self.supply.capacity

    @property
    def switches(self) -> FaultSwitches:
        """The faults that stay on."""
        return self.faults.switches

    def _advance(self, now: float) -> None:
        closing = self.supply.reservations.closing(now)
        for instance in tuple(self._instances.values()):
            if instance.reservation_id in closing:
                instance = lifecycle.begin_end(instance, now, *lifecycle.BLOCK)  # noqa: PLW2901
            self._store(lifecycle.advance(instance, self.timing, now), now)
        for reserved in self.supply.reservations.to_warn(now):
            self.events.block_warning(
                reserved.id, reserved.machine, reserved.zone, reserved.ends_at or 0.0, now
            )
        self.gateways.advance(now, self._gateway_ended)
        for interface in tuple(self._interfaces.values()):
            if interface.gone_at is not None and interface.gone_at <= now:
                del self._interfaces[interface.id]
        self._forget(now)

    def _gateway_ended(self, gateway: NatGateway) -> None:
        self._interfaces.pop(gateway.interface, None)
        if gateway.allocation is not None and gateway.allocation in self.addresses:
            self.addresses.unbind(self.addresses.get(gateway.allocation))

    def _forget(self, now: float) -> None:
        before = now - self.timing.token_s
        gone = {i.id for i in self._instances.values() if i.state is lifecycle.ENDED and i.since <= before}
        for instance_id in gone:
            del self._instances[instance_id]
        self._tokens.forget(gone, before)

    def _store(self, after: Ec2Instance, now: float | None = None) -> Ec2Instance:
        before = self._instances.get(after.id)
        if before is after:
            return after
        if before is not None and before.state is not after.state:
            after = self._release(after, after.since if now is None else now)
            self.events.state(after, after.since)
        self._instances[after.id] = after
        return after

    def _release(self, after: Ec2Instance, now: float) -> Ec2Instance:
        if after.state not in (lifecycle.ENDED, InstanceState.STOPPED):
            return after
        self.supply.give_back(after.drawn, now)
        if after.state is lifecycle.ENDED:
            gone_at = after.since + self.timing.linger_s
            for name in (after.interface_id, *(i.id for i in after.nics)):
                if name in self._interfaces:
                    gone = replace(self._interfaces[name], gone_at=gone_at, public_address=None)
                    self._interfaces[name] = gone
            self.volumes.let_go(after.id)
            for address in self.addresses.all():
                if address.instance == after.id:
                    self.addresses.unbind(address)
        return replace(after, drawn=None)

    def _used(self, subnet_id: str) -> frozenset[str]:
        """The used addresses of a subnet (T10)."""
        mine = {i.address for i in self._interfaces.values() if i.subnet.id == subnet_id and i.address}
        return self.foreign(subnet_id) | mine

    def _any(self, instance_id: str) -> Ec2Instance:
        """An instance that exists, even if reads do not show it yet."""
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
        return instance.state is not lifecycle.ENDED or now < instance.since + self.timing.visible_s

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}-0{self._random.getrandbits(64):016x}"
