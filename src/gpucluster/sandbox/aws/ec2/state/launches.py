"""What a launch creates, and what its client token returns later (T01, T02, T04)."""

import datetime
import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace

from gpucluster.cloud.port import InstanceState
from gpucluster.plan.model import InterfaceKind
from gpucluster.sandbox.aws.ec2.state.values import (
    CapacitySource,
    Ec2Instance,
    Fleet,
    FleetSpec,
    InstanceLaunch,
    Interface,
    Lag,
    RandomSource,
    Refusal,
)

_FLEET_TAG = "aws:ec2:fleet-id"  # the tag that EC2 sets on instances of a fleet (T14)
_MISMATCH = (
    "Arguments on this idempotent request are inconsistent with arguments used in previous request(s)."
)
_ID = re.compile(r"i-([0-9a-f]{8}|[0-9a-f]{17})")


@dataclass(slots=True)
class _Token:
    fingerprint: str
    at: float  # the time of the first request
    ids: tuple[str, ...] = ()


class Tokens:
    """Client tokens: zonal when the request names a subnet or a zone, else regional (T02)."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Token] = {}
        self._fleets: dict[str, tuple[str, Fleet, float]] = {}

    def replay(self, spec: InstanceLaunch, now: float) -> tuple[str, ...]:
        """Return the ids of an identical earlier request, or () for a new one; refuse other parameters.

        The token is bound here already: a launch that then fails keeps it (T04).
        """
        if spec.token is None:
            return ()
        if len(spec.token) > 64 or not spec.token.isascii():
            raise Refusal(
                "InvalidParameterValue", "Invalid value for clientToken: at most 64 ASCII characters"
            )
        token = self._known.setdefault(_key(spec), _Token(spec.fingerprint, now))
        if token.fingerprint != spec.fingerprint:
            raise Refusal(
                "IdempotentParameterMismatch",
                _MISMATCH,
            )
        return token.ids

    def fleet(self, token: str | None, fingerprint: str) -> Fleet | None:
        """The fleet of an identical earlier request; the token of a fleet is regional."""
        found = None if token is None else self._fleets.get(token)
        if found is not None and found[0] != fingerprint:
            raise Refusal("IdempotentParameterMismatch", _MISMATCH)
        return None if found is None else found[1]

    def bind_fleet(self, asked: FleetSpec, fleet: Fleet, now: float) -> None:
        """Remember the result of a fleet, also an empty one."""
        if asked.token is not None:
            self._fleets[asked.token] = (asked.fingerprint, fleet, now)

    def bind(self, spec: InstanceLaunch, ids: tuple[str, ...]) -> None:
        """Remember the result of a launch."""
        if spec.token is not None:
            self._known[_key(spec)].ids = ids

    def forget(self, gone: Set[str], failed_before: float) -> None:
        """Forget the tokens of instances that ended a day ago, and of launches that failed so long ago."""
        self._known = {
            key: token
            for key, token in self._known.items()
            if (gone.isdisjoint(token.ids) if token.ids else token.at > failed_before)
        }
        self._fleets = {
            token: known
            for token, known in self._fleets.items()
            if (
                gone.isdisjoint(i for i, _ in known[1].instances)
                if known[1].instances
                else known[2] > failed_before
            )
        }


def new_instance(
    spec: InstanceLaunch,
    *,
    new_id: Callable[[str], str],
    reservation: str,
    index: int,
    drawn: CapacitySource,
    address: str,
    now: float,
    hidden: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> Ec2Instance:
    """Return a pending instance with random ids for its interface and its volume."""
    packed = [int(part) for part in address.split(".")]
    public = (
        f"198.18.{packed[2]}.{packed[3]}" if spec.public else None
    )  # RFC 2544: these addresses are never routed
    return Ec2Instance(
        id=new_id("i"),
        reservation=reservation,
        index=index,
        spec=spec,
        state=InstanceState.PENDING,
        since=now,
        launched_at=now,
        address=address,
        public_address=public,
        interface_id=new_id("eni"),
        volume_id=new_id("vol"),
        mac="02:00:" + ":".join(f"{part:02x}" for part in packed),
        drawn=drawn,
        reservation_id=drawn.reservation_id,
        tags=dict(spec.tags) if spec.fleet is None else {**spec.tags, _FLEET_TAG: spec.fleet},
        known_at=now + hidden[0],
        address_at=now + hidden[1],
        tags_at=now + hidden[2],
    )


def draw_lag(lag: Lag, dice: RandomSource) -> tuple[float, float, float]:
    """Random delays until the id, the address and the tags of one instance are visible."""
    most = (lag.id_s, lag.address_s, lag.tags_s)
    return tuple(dice.randrange(0, int(m * 1000) + 1) / 1000 for m in most)  # type: ignore[return-value]


def as_seen(instance: Ec2Instance, now: float) -> Ec2Instance:
    """The instance as reads show it while it is young (T20)."""
    if now >= max(instance.address_at, instance.tags_at):
        return instance
    address = instance.address if now >= instance.address_at else None
    shown = replace(instance, address=address)
    return shown if now >= instance.tags_at else replace(shown, tags={})


def interface_of(instance: Ec2Instance) -> Interface:
    """The primary interface of a new instance."""
    if instance.address is None:
        raise ValueError(f"{instance.id} has no address")
    return Interface(
        id=instance.interface_id,
        instance_id=instance.id,
        subnet=instance.spec.subnet,
        address=instance.address,
        public_address=instance.public_address,
        mac=instance.mac,
        groups=instance.spec.groups,
        tags=dict(instance.spec.interface_tags),
        nic=instance.spec.nic,
    )


def more_interfaces(
    instance: Ec2Instance, new_id: Callable[[str], str], choose: Callable[[], str]
) -> tuple[Interface, ...]:
    """The other interfaces; each has an address, except EFA-only ones (T29)."""
    return tuple(
        Interface(
            id=new_id("eni"),
            instance_id=instance.id,
            subnet=instance.spec.subnet,
            address=None if nic.kind is InterfaceKind.EFA_ONLY else choose(),
            public_address=None,
            mac=f"{instance.mac[:3]}{number + 1:02x}{instance.mac[5:]}",
            groups=nic.groups,
            tags=dict(instance.spec.interface_tags),
            nic=nic,
        )
        for number, nic in enumerate(instance.spec.nics)
    )


def check_ids(ids: Sequence[str]) -> None:
    """Refuse the first id with a wrong form."""
    for one in ids:
        if not _ID.fullmatch(one):
            raise Refusal("InvalidInstanceID.Malformed", f'Invalid id: "{one}"')


def not_found(ids: Iterable[str]) -> Refusal:
    """The refusal that names every unknown id."""
    named = sorted(ids)
    text = (
        f"The instance ID '{named[0]}' does not exist"
        if len(named) == 1
        else f"The instance IDs '{', '.join(named)}' do not exist"
    )
    return Refusal("InvalidInstanceID.NotFound", text)


def gmt(now: float) -> str:
    """The time in the form of EC2's reasons."""
    return datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S GMT")


def _key(spec: InstanceLaunch) -> tuple[str, str]:
    return spec.token or "", spec.subnet.zone if spec.placed else ""
