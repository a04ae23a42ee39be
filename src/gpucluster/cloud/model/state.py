"""What the model holds, and how it goes on by time alone: beneath the orders of scenarios and the requests."""

import functools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Concatenate, ParamSpec, TypeVar

from gpucluster.cloud.model import launches, life
from gpucluster.cloud.model.buckets import Buckets
from gpucluster.cloud.model.budgets import Budgets
from gpucluster.cloud.model.capacity import Capacity
from gpucluster.cloud.model.faultbox import FaultBox, Switches
from gpucluster.cloud.model.gateways import Addresses, Gateways, NatGateway
from gpucluster.cloud.model.news import News
from gpucluster.cloud.model.placement import Placements
from gpucluster.cloud.model.supply import Supply
from gpucluster.cloud.model.values import Call, Dice, Ec2Instance, Interface, Timing
from gpucluster.cloud.model.volumes import Volumes
from gpucluster.cloud.port import InstanceState

S = TypeVar("S", bound="State")
P = ParamSpec("P")
R = TypeVar("R")
_TRAIL = 20_000  # calls kept


def atomic(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """One caller at a time."""

    @functools.wraps(method)
    def locked(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.lock:
            return method(self, *args, **kwargs)

    return locked


class State:
    """Instances, interfaces, tokens, supply, faults and news of one account in one Region."""

    def __init__(self, dice: Dice, *, timing: Timing | None = None, region: str = "us-east-1") -> None:
        self.region = region
        self.timing = timing or Timing()
        self.lock = threading.RLock()
        self.supply = Supply(self.timing)
        self.buckets = Buckets()
        self.faults = FaultBox()
        self.news = News(region, dice)
        self.placements = Placements()
        self.volumes = Volumes()
        self.addresses = Addresses()
        self.budgets = Budgets()
        self.rules_changed: dict[str, float] = {}  # security group -> when its rules last changed (T45)
        self.spot_role = False  # the account's service-linked role, which its first spot request makes
        self.gateways = Gateways()
        self.foreign: Callable[[str], frozenset[str]] = lambda _: (
            frozenset()
        )  # addresses of others, by subnet
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

    def _advance(self, now: float) -> None:
        closing = self.supply.reservations.closing(now)
        for instance in tuple(self._instances.values()):
            if instance.held in closing:
                instance = life.begin_end(instance, now, *life.BLOCK)  # noqa: PLW2901
            self._store(life.advance(instance, self.timing, now), now)
        for held in self.supply.reservations.to_warn(now):
            self.news.block_warning(held.id, held.machine, held.zone, held.ends_at or 0.0, now)
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
            self.news.state(after, after.since)
        self._instances[after.id] = after
        return after

    def _release(self, after: Ec2Instance, now: float) -> Ec2Instance:
        if after.state not in (life.ENDED, InstanceState.STOPPED):
            return after
        self.supply.give_back(after.drawn, now)
        if after.state is life.ENDED:
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
        """Addresses of a subnet that are taken, by whomever (T10)."""
        mine = {i.address for i in self._interfaces.values() if i.subnet.id == subnet_id and i.address}
        return self.foreign(subnet_id) | mine

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

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}-0{self._dice.getrandbits(64):016x}"
