"""Filters and pages of the Describe calls. An unknown filter is refused; a filter without a match returns nothing (T21)."""

import fnmatch
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from gpucluster.cloud.port import Reservation
from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.gateways import Address, NatGateway
from gpucluster.sandbox.aws.ec2.state.placement import PlacementGroup
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance, Interface, Refusal
from gpucluster.sandbox.aws.ec2.state.volumes import Volume
from gpucluster.sandbox.aws.ec2.views import ROOT_DEVICE, STATE_CODES, instance_tags
from gpucluster.sandbox.aws.moto_state import ACCOUNT

T = TypeVar("T")
Reader = Callable[[T], Iterable[str]]
_EMPTY = ".empty"  # marks the token of an empty page


def _some(value: str | None) -> tuple[str, ...]:
    return () if value is None else (value,)


INSTANCE: Mapping[str, Reader[Ec2Instance]] = {
    "instance-id": lambda i: (i.id,),
    "instance-state-name": lambda i: (i.state.value,),
    "instance-state-code": lambda i: (str(STATE_CODES[i.state]),),
    "instance-type": lambda i: (i.spec.machine,),
    "instance-lifecycle": lambda i: ("spot",) if i.spec.market is Market.SPOT else (),
    "availability-zone": lambda i: (i.zone,),
    "client-token": lambda i: _some(i.spec.token),
    "vpc-id": lambda i: (i.spec.subnet.vpc,) if i.address else (),
    "subnet-id": lambda i: (i.spec.subnet.id,) if i.address else (),
    "private-ip-address": lambda i: _some(i.address),
    "network-interface.addresses.private-ip-address": lambda i: _some(i.address),
    "ip-address": lambda i: _some(i.public_address),
    "image-id": lambda i: (i.spec.image,),
    "key-name": lambda i: _some(i.spec.key_name),
    "reservation-id": lambda i: (i.reservation,),
    "iam-instance-profile.arn": lambda i: _some(i.spec.profile),
    "instance.group-id": lambda i: i.spec.groups if i.address else (),
    "network-interface.group-id": lambda i: i.spec.groups if i.address else (),
    "launch-index": lambda i: (str(i.index),),
    "network-interface.subnet-id": lambda i: (i.spec.subnet.id,) if i.address else (),
    "network-interface.vpc-id": lambda i: (i.spec.subnet.vpc,) if i.address else (),
    "network-interface.availability-zone": lambda i: (i.zone,) if i.address else (),
    "network-interface.network-interface-id": lambda i: (
        (i.interface_id, *(n.id for n in i.nics)) if i.address else ()
    ),
    "network-interface.private-ip-address": lambda i: _some(i.address),
    "network-interface.attachment.instance-id": lambda i: (i.id,) if i.address else (),
    "network-interface.status": lambda i: ("in-use",) if i.address else (),
    "network-interface.mac-address": lambda i: (i.mac,) if i.address else (),
    "network-interface.addresses.association.public-ip": lambda i: _some(i.public_address),
    "network-interface.association.public-ip": lambda i: _some(i.public_address),
    "block-device-mapping.volume-id": lambda i: (i.volume_id,) if i.address else (),
    "block-device-mapping.device-name": lambda i: (ROOT_DEVICE,) if i.address else (),
    "architecture": lambda _: ("x86_64",),
    "hypervisor": lambda _: ("xen",),
    "monitoring-state": lambda _: ("disabled",),
    "owner-id": lambda _: (ACCOUNT,),
    "root-device-name": lambda _: (ROOT_DEVICE,),
    "root-device-type": lambda _: ("ebs",),
    "tenancy": lambda _: ("default",),
    "virtualization-type": lambda _: ("hvm",),
    "state-reason-code": lambda i: _some(i.reason_code or None),
    "state-reason-message": lambda i: _some(i.reason or None) if i.reason_code else (),
    "tag-key": lambda i: tuple(instance_tags(i)),
    "tag-value": lambda i: tuple(instance_tags(i).values()),
    "capacity-reservation-id": lambda i: _some(i.reservation_id),
    "placement-group-name": lambda i: _some(i.spec.placement_group),
}

TOPOLOGY: Mapping[str, Reader[Ec2Instance]] = {
    name: INSTANCE[name] for name in ("availability-zone", "instance-type")
}

PLACEMENT: Mapping[str, Reader[PlacementGroup]] = {
    "group-name": lambda g: (g.name,),
    "strategy": lambda g: (g.strategy,),
    "state": lambda _: ("available",),
    "tag-key": lambda g: tuple(g.tags),
}

RESERVATION: Mapping[str, Reader[Reservation]] = {
    "instance-type": lambda r: (r.machine,),
    "availability-zone": lambda r: (r.zone,),
    "state": lambda r: (r.state,),
}

INTERFACE: Mapping[str, Reader[Interface]] = {
    "network-interface-id": lambda e: (e.id,),
    "attachment.instance-id": lambda e: () if e.gone_at is not None else (e.instance_id,),
    "attachment.status": lambda e: ("attached",) if e.gone_at is None else (),
    "group-id": lambda e: e.groups,
    "vpc-id": lambda e: (e.subnet.vpc,),
    "subnet-id": lambda e: (e.subnet.id,),
    "availability-zone": lambda e: (e.subnet.zone,),
    "private-ip-address": lambda e: _some(e.address),
    "addresses.private-ip-address": lambda e: _some(e.address),
    "interface-type": lambda e: (e.nic.kind.value,),
    "status": lambda e: ("in-use" if e.gone_at is None else "available",),
    "requester-managed": lambda e: ("true" if e.service else "false",),
    "description": lambda e: (e.service,),
    "tag-key": lambda e: tuple(e.tags),
}

TAG: Mapping[str, Reader[Mapping[str, str]]] = {
    "resource-id": lambda t: (t["ResourceId"],),
    "resource-type": lambda t: (t["ResourceType"],),
    "key": lambda t: (t["Key"],),
    "value": lambda t: (t["Value"],),
}

ADDRESS: Mapping[str, Reader[Address]] = {
    "allocation-id": lambda a: (a.id,),
    "association-id": lambda a: _some(a.association),
    "domain": lambda _: ("vpc",),
    "instance-id": lambda a: _some(a.instance),
    "network-interface-id": lambda a: _some(a.interface),
    "private-ip-address": lambda a: _some(a.private_ip),
    "public-ip": lambda a: (a.public_ip,),
    "tag-key": lambda a: tuple(a.tags),
}

OWN_VOLUME: Mapping[str, Reader[Volume]] = {
    "attachment.instance-id": lambda v: _some(v.instance),
    "attachment.device": lambda v: _some(v.device or None),
    "attachment.status": lambda v: () if v.instance is None else ("attached",),
    "volume-id": lambda v: (v.id,),
    "availability-zone": lambda v: (v.zone,),
    "status": lambda v: (v.state,),
    "size": lambda v: (str(v.size_gib),),
    "volume-type": lambda v: (v.kind,),
    "encrypted": lambda v: (str(v.encrypted).lower(),),
    "tag-key": lambda v: tuple(v.tags),
}

VOLUME: Mapping[str, Reader[Ec2Instance]] = {
    "attachment.instance-id": lambda i: (i.id,),
    "volume-id": lambda i: (i.volume_id,),
    "availability-zone": lambda i: (i.zone,),
    "status": lambda _: ("in-use",),
    "attachment.device": lambda _: ("/dev/xvda",),
    "attachment.status": lambda _: ("attached",),
    "tag-key": lambda i: tuple(i.spec.volume_tags),
}


SPOT_PRICE: Mapping[str, Reader[Mapping[str, Any]]] = {
    "availability-zone": lambda p: (p["AvailabilityZone"],),
    "instance-type": lambda p: (p["InstanceType"],),
    "product-description": lambda p: (p["ProductDescription"],),
    "spot-price": lambda p: (p["SpotPrice"],),
}


def gateway(now: float) -> Mapping[str, Reader[NatGateway]]:
    """Filters of NAT gateways; their state depends on the time."""
    return {
        "nat-gateway-id": lambda g: (g.id,),
        "subnet-id": lambda g: (g.subnet.id,),
        "vpc-id": lambda g: (g.subnet.vpc,),
        "state": lambda g: (g.state(now),),
        "tag-key": lambda g: tuple(g.tags),
    }


def chosen(
    items: Iterable[T],
    filters: Any,
    readers: Mapping[str, Reader[T]],
    tags: Callable[[T], Mapping[str, str]],
) -> list[T]:
    """The items that match every filter."""
    asked = cast(Sequence[Mapping[str, Any]], filters or ())
    tests = [_test(f, readers, tags) for f in asked]
    return [item for item in items if all(test(item) for test in tests)]


def page(
    items: Iterable[T],
    key: Callable[[T], str],
    asked: Mapping[str, Any],
    seed: int,
    forced: int | None = None,
    *,
    bounds: tuple[int, int] = (5, 1000),
) -> tuple[list[T], str | None]:
    """One page in the order that `seed` gives, and the token of the next page (T22).

    `forced` bounds a page whatever is asked, and puts an empty one with a token behind the first. `bounds` are those of
    MaxResults.
    """
    limit, token = asked.get("MaxResults"), asked.get("NextToken")
    least, most = bounds
    if limit is not None and not least <= int(limit) <= most:
        raise Refusal(
            "InvalidParameterValue",
            f"Value ({limit}) for parameter maxResults is invalid. Expecting {least} to {most}.",
        )
    if forced is not None:
        limit = forced if limit is None else min(int(limit), forced)
        if token is not None and str(token).endswith(_EMPTY):
            return [], str(token).removesuffix(_EMPTY)
    after = ""
    if token is not None:
        seed, after = _unpack(str(token))
    rest = [(rank, item) for rank, item in _ordered(items, key, seed) if rank > after]
    if limit is None or len(rest) <= int(limit):
        return [item for _, item in rest], None
    head = rest[: int(limit)]
    empty = _EMPTY if forced is not None and token is None else ""
    return [item for _, item in head], f"{seed:x}.{head[-1][0]}{empty}"


def _ordered(items: Iterable[T], key: Callable[[T], str], seed: int) -> list[tuple[str, T]]:
    return sorted(((_rank(seed, key(item)), item) for item in items), key=lambda pair: pair[0])


def _rank(seed: int, text: str) -> str:
    return hashlib.sha256(f"{seed}:{text}".encode()).hexdigest()


def _unpack(token: str) -> tuple[int, str]:
    match = re.fullmatch(r"([0-9a-f]{1,16})\.([0-9a-f]{64})", token)
    if match is None:
        raise Refusal("InvalidParameterValue", "Unable to parse pagination token")
    return int(match[1], 16), match[2]


def _test(
    one: Mapping[str, Any], readers: Mapping[str, Reader[T]], tags: Callable[[T], Mapping[str, str]]
) -> Callable[[T], bool]:
    name = str(one.get("Name", ""))
    wanted = [_pattern(str(v)) for v in cast(Sequence[object], one.get("Values") or ())]
    reader = readers.get(name)
    if name.startswith("tag:"):
        tag = name.removeprefix("tag:")
        return lambda item: any(p.fullmatch(v) for p in wanted for v in _some(tags(item).get(tag)))
    if reader is None:
        # `requests.check` refuses what EC2 does not document
        raise Refusal("UnsupportedOperation", f"the sandbox has no filter '{name}' for this call")
    return lambda item: any(p.fullmatch(v) for p in wanted for v in reader(item))


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(text.replace("[", "[[]")))
