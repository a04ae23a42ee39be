"""What a launch makes, and what its token remembers (T01, T02, T04)."""

import datetime
import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass

from gpucluster.cloud.model.values import Ec2Instance, Interface, LaunchSpec, Refusal
from gpucluster.cloud.port import InstanceState

_ID = re.compile(r"i-([0-9a-f]{8}|[0-9a-f]{17})")


@dataclass(slots=True)
class _Token:
    fingerprint: str
    at: float  # of the first request
    ids: tuple[str, ...] = ()


class Tokens:
    """Client tokens: zonal when the request names a subnet or a zone, else regional (T02)."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Token] = {}

    def replay(self, spec: LaunchSpec, now: float) -> tuple[str, ...]:
        """Return the ids of the same request made before; () for a new one; refuse other parameters.

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
                "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
            )
        return token.ids

    def bind(self, spec: LaunchSpec, ids: tuple[str, ...]) -> None:
        """Remember what the launch made."""
        if spec.token is not None:
            self._known[_key(spec)].ids = ids

    def forget(self, gone: Set[str], failed_before: float) -> None:
        """Drop the tokens of instances that are gone for a day, and of launches that failed so long ago."""
        self._known = {
            key: token
            for key, token in self._known.items()
            if (gone.isdisjoint(token.ids) if token.ids else token.at > failed_before)
        }


def new_instance(
    spec: LaunchSpec,
    *,
    new_id: Callable[[str], str],
    reservation: str,
    index: int,
    rule: int | None,
    address: str,
    now: float,
) -> Ec2Instance:
    """Return a pending instance with its interface's and volume's ids drawn."""
    packed = [int(part) for part in address.split(".")]
    public = f"198.18.{packed[2]}.{packed[3]}" if spec.public else None  # RFC 2544: never routed
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
        drawn=rule,
        tags=dict(spec.tags),
    )


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
    )


def check_ids(ids: Sequence[str]) -> None:
    """Refuse the first id that cannot be one."""
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
    """The time as EC2 writes it in reasons."""
    return datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S GMT")


def _key(spec: LaunchSpec) -> tuple[str, str]:
    return spec.token or "", spec.subnet.zone if spec.placed else ""
