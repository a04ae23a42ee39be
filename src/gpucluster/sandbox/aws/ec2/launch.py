"""RunInstances: merge the request with its launch template into one InstanceLaunch, or refuse it with the code of EC2."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2 import cards
from gpucluster.sandbox.aws.ec2.call import Ec2Call, check_tags
from gpucluster.sandbox.aws.ec2.rights import Ec2Rights
from gpucluster.sandbox.aws.ec2.state.faults import FaultSwitches
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import InstanceLaunch, NetworkCardRequest, Refusal, SubnetRef
from gpucluster.sandbox.aws.moto_state import Moto, Profile, Template, decoded

USER_DATA_LIMIT = 16 * 1024  # bytes before base64 (T16)
_HOPS = 64  # the longest hop limit of the metadata service (T33)
_KINDS = frozenset({"instance", "volume", "network-interface", "spot-instances-request"})
_ECHOED = ("BlockDeviceMappings", "Monitoring", "EbsOptimized", "CpuOptions", "CreditSpecification", "Placement",
           "PrivateDnsNameOptions", "MaintenanceOptions", "EnclaveOptions", "HibernationOptions")  # fmt: skip
Parameters = Mapping[str, Any]


def launch_spec(
    asked: Parameters, moto: Moto, switches: FaultSwitches | None = None, fleet_subnet: str | None = None
) -> tuple[InstanceLaunch, Profile | None]:
    """Return the launch and its instance profile. `subnet` comes from the override of a fleet."""
    template = _template(asked, moto, switches or FaultSwitches())
    merged = _merged(asked, template)
    if fleet_subnet is not None:
        _put_subnet(merged, fleet_subnet)
    _check_known(merged, moto)
    profile = _profile(merged, moto)
    subnet, public = _subnet(merged, moto)
    nics = _nics(merged, subnet.vpc, moto)
    tags = tags_by_kind(merged)
    market = _market(merged, tags)
    spec = InstanceLaunch(
        machine=str(merged["InstanceType"]),
        market=market,
        subnet=subnet,
        min_count=int(asked.get("MinCount", 0)),
        max_count=int(asked.get("MaxCount", 0)),
        token=asked.get("ClientToken") or None,
        fingerprint=json.dumps(
            {k: v for k, v in asked.items() if k != "ClientToken"}, sort_keys=True, default=str
        ),
        placed=fleet_subnet is not None or _names_place(asked),
        address=_first_interface(merged).get("PrivateIpAddress") or merged.get("PrivateIpAddress"),
        public=public,
        image=str(merged["ImageId"]),
        groups=_groups(merged, subnet.vpc, moto),
        profile=None if profile is None else profile.arn,
        user_data=_user_data(merged),
        key_name=merged.get("KeyName"),
        template=None if template is None else (template.id, template.version),
        on_shutdown=str(merged.get("InstanceInitiatedShutdownBehavior", "stop")),
        protected=cards.is_true(merged.get("DisableApiTermination")),
        metadata=_metadata(merged),
        options=_options(merged, moto),
        tags=tags.get("instance", {}),
        volume_tags=tags.get("volume", {}),
        interface_tags=tags.get("network-interface", {}),
        spot_tags=tags.get("spot-instances-request", {}),
        reservation=_target(merged),
        only_reserved=_preference(merged) == "capacity-reservations-only",
        joins_open=_preference(merged) != "none",
        max_price=_max_price(merged),
        placement_group=_part(merged, "Placement").get("GroupName") or None,
        nic=nics[0],
        nics=nics[1:],
    )
    _check_counts(spec)
    return spec, profile


def _options(merged: Parameters, moto: Moto) -> dict[str, Any]:
    """Return what EC2 lists again. It takes the alias of a key of a disk, and lists the ARN."""
    found = {k: merged[k] for k in _ECHOED if k in merged}
    disks: Sequence[Parameters] = found.get("BlockDeviceMappings", ())
    if disks:
        found["BlockDeviceMappings"] = [
            {**one, "Ebs": _with_arn(one["Ebs"], moto)} if "Ebs" in one else one for one in disks
        ]
    return found


def _with_arn(ebs: Parameters, moto: Moto) -> Parameters:
    key = moto.key(str(ebs["KmsKeyId"])) if ebs.get("KmsKeyId") else None
    return ebs if key is None else {**ebs, "KmsKeyId": key.arn}


def tags_by_kind(merged: Parameters) -> dict[str, dict[str, str]]:
    """Tags at launch by resource type (T17)."""
    found: dict[str, dict[str, str]] = {}
    for part in _list(merged.get("TagSpecifications")):
        kind = str(part.get("ResourceType", ""))
        tags = {str(t["Key"]): str(t.get("Value") or "") for t in _list(part.get("Tags"))}
        if kind not in _KINDS:
            raise Refusal(
                "InvalidParameterValue", f"'{kind}' is not a valid taggable resource type for this operation."
            )
        found.setdefault(kind, {}).update(tags)
    for tags in found.values():
        check_tags(tags)
    return found


def requested_tags(spec: InstanceLaunch) -> dict[str, Mapping[str, str]]:
    """Tags at launch of everything that a launch creates; a spot request needs rights only if it is tagged."""
    tags = {"instance": spec.tags, "volume": spec.volume_tags, "network-interface": spec.interface_tags}
    return {**tags, "spot-instances-request": spec.spot_tags} if spec.spot_tags else tags


def need_spot_role(call: Ec2Call, model: CloudModel, rights: Ec2Rights, spec: InstanceLaunch) -> None:
    """The first spot request of an account creates EC2's service-linked role with the rights of the caller."""
    if spec.market is not Market.SPOT or model.spot_role:
        return
    try:
        call.allow([rights.spot_role()])
    except Refusal as refusal:
        # code, text and status as reported in determined-ai/determined#1830 and kops#16475 (read 2026-11-22)
        raise Refusal(
            "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
            "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances.",
            status=403,
        ) from refusal
    model.spot_role = True


def _template(asked: Parameters, moto: Moto, switches: FaultSwitches) -> Template | None:
    wanted: Any = asked.get("LaunchTemplate")
    if not wanted:
        return None
    named = (wanted.get("LaunchTemplateId"), wanted.get("LaunchTemplateName"))
    if all(named):
        raise Refusal("InvalidParameterCombination", "A launch template is named by its id or by its name.")
    found = moto.template(*named, wanted.get("Version"))
    if wanted.get("Version") == "$Latest" and switches.moving_latest:
        switches.latest_asked += 1
        if (
            switches.latest_asked % 2 and found.version > 1
        ):  # another writer created a version in between (T15)
            return moto.template(*named, str(found.version - 1))
    return found


def _merged(asked: Parameters, template: Template | None) -> dict[str, Any]:
    """Merge the request over the template; tag specifications add up, otherwise the request's value wins."""
    content = {} if template is None else dict(template.content)
    created = [p for p in _list(content.get("TagSpecifications")) if p.get("ResourceType") in _KINDS]
    merged = {**content, **asked}
    merged["TagSpecifications"] = [*created, *_list(asked.get("TagSpecifications"))]
    for name in ("InstanceType", "ImageId"):
        if not merged.get(name):
            raise Refusal("MissingParameter", f"The request must contain the parameter {name}")
    return merged


def _check_known(merged: Parameters, moto: Moto) -> None:
    machine, image, key = str(merged["InstanceType"]), str(merged["ImageId"]), merged.get("KeyName")
    if not moto.machine_known(machine):
        raise Refusal("InvalidParameterValue", f"Invalid value '{machine}' for InstanceType.")
    if not moto.image_known(image):
        raise Refusal("InvalidAMIID.NotFound", f"The image id '[{image}]' does not exist")
    if key is not None and not moto.key_pair_known(str(key)):
        raise Refusal("InvalidKeyPair.NotFound", f"The key pair '{key}' does not exist")


def _check_counts(spec: InstanceLaunch) -> None:
    if not 1 <= spec.min_count <= spec.max_count:
        raise Refusal("InvalidParameterValue", "Value for minCount or maxCount is invalid.")


def _profile(merged: Parameters, moto: Moto) -> Profile | None:
    wanted: Any = merged.get("IamInstanceProfile")
    if not wanted:
        return None
    profile = moto.profile(wanted.get("Name"), wanted.get("Arn"))
    if profile.role is None:
        raise Refusal(
            "InvalidParameterValue", f'IAM Instance Profile "{profile.arn}" has no associated IAM Roles'
        )
    return profile


def _first_interface(merged: Parameters) -> Mapping[str, Any]:
    """The primary interface: device 0 of card 0."""
    order = sorted(
        _list(merged.get("NetworkInterfaces")),
        key=lambda i: (int(i.get("NetworkCardIndex") or 0), int(i.get("DeviceIndex") or 0)),
    )
    return order[0] if order else {}


def _names_place(asked: Parameters) -> bool:
    zone = _part(asked, "Placement").get("AvailabilityZone")
    return bool(asked.get("SubnetId") or zone or _first_interface(asked).get("SubnetId"))


def _subnet(merged: Parameters, moto: Moto) -> tuple[SubnetRef, bool]:
    """The subnet, and whether the instance gets a public address (T31)."""
    interfaces = _list(merged.get("NetworkInterfaces"))
    first = _first_interface(merged)
    if first and (merged.get("SubnetId") or merged.get("SecurityGroupIds")):
        raise Refusal(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level subnet ID or security groups may not be specified on the "
            "same request",
        )
    if len({one.get("SubnetId") for one in interfaces}) > 1:
        raise Refusal(
            "UnsupportedOperation", "the sandbox's machines have all their interfaces in one subnet"
        )
    subnet_id = first.get("SubnetId") or merged.get("SubnetId")
    zone = _part(merged, "Placement").get("AvailabilityZone")
    place = moto.subnet(str(subnet_id)) if subnet_id else moto.default_subnet(zone)
    if zone not in (None, place.zone):
        raise Refusal(
            "InvalidParameterValue", f"The subnet '{place.id}' is in the zone {place.zone}, not in {zone}."
        )
    requested = first.get("AssociatePublicIpAddress")
    alone = len(interfaces) < 2  # a subnet gives no public address to a machine with several interfaces
    return place, (place.public and alone) if requested is None else cards.is_true(requested)


def _put_subnet(merged: dict[str, Any], subnet: str) -> None:
    """A fleet's override sets the subnet of the template's interfaces; RunInstances cannot (T31)."""
    interfaces = _list(merged.get("NetworkInterfaces"))
    if interfaces:
        merged["NetworkInterfaces"] = [{**one, "SubnetId": subnet} for one in interfaces]
    else:
        merged["SubnetId"] = subnet


def _nics(merged: Parameters, vpc: str, moto: Moto) -> tuple[NetworkCardRequest, ...]:
    """All interfaces, primary first, each with existing groups (T29)."""
    asked = _list(merged.get("NetworkInterfaces"))
    if not asked:
        return (NetworkCardRequest(groups=_groups(merged, vpc, moto)),)
    machine = str(merged["InstanceType"])
    found = cards.checked(machine, asked, moto.cards(machine))
    return tuple(replace(nic, groups=_known_groups(nic.groups, vpc, moto)) for nic in found)


def _groups(merged: Parameters, vpc: str, moto: Moto) -> tuple[str, ...]:
    wanted = _first_interface(merged).get("Groups") or merged.get("SecurityGroupIds") or ()
    return _known_groups(cast(Sequence[str], wanted), vpc, moto)


def _known_groups(wanted: Sequence[str], vpc: str, moto: Moto) -> tuple[str, ...]:
    if not wanted:
        default = moto.default_group(vpc)
        return () if default is None else (default,)
    known = moto.groups()
    for group_id in wanted:
        group = known.get(group_id)
        if group is None:
            raise Refusal("InvalidGroup.NotFound", f"The security group '{group_id}' does not exist")
        if group.vpc != vpc:
            raise Refusal(
                "InvalidParameter", f"Security group {group_id} and the subnet belong to different networks."
            )
    return tuple(wanted)


def _market(merged: Parameters, tags: Mapping[str, Mapping[str, str]]) -> Market:
    kind = _part(merged, "InstanceMarketOptions").get("MarketType")
    if kind == "spot":
        lasting = _part(_part(merged, "InstanceMarketOptions"), "SpotOptions").get("SpotInstanceType")
        if lasting not in (None, "one-time"):
            raise Refusal("UnsupportedOperation", f"the sandbox has no {lasting} spot requests")
        return Market.SPOT
    if kind == "capacity-block":
        return Market.CAPACITY_BLOCK
    if kind is not None:
        raise Refusal("UnsupportedOperation", f"the sandbox does not know the market type {kind!r}")
    if "spot-instances-request" in tags:
        raise Refusal(
            "InvalidParameterValue", "'spot-instances-request' is not valid for an On-Demand request."
        )
    return Market.ON_DEMAND if _target(merged) is None else Market.RESERVATION


def _target(merged: Parameters) -> str | None:
    """The named reservation; only by id, because the sandbox has no resource groups."""
    asked = _part(merged, "CapacityReservationSpecification")
    target = _part(asked, "CapacityReservationTarget")
    if target and asked.get("CapacityReservationPreference") not in (None, "capacity-reservations-only"):
        raise Refusal(
            "InvalidParameterCombination", "A preference may not be specified with a capacity reservation."
        )
    if target.get("CapacityReservationResourceGroupArn"):
        raise Refusal("UnsupportedOperation", "the sandbox has no resource groups of capacity reservations")
    return target.get("CapacityReservationId")


def _preference(merged: Parameters) -> str:
    asked = _part(merged, "CapacityReservationSpecification")
    return str(asked.get("CapacityReservationPreference") or "open")


def _max_price(merged: Parameters) -> int | None:
    text = _part(_part(merged, "InstanceMarketOptions"), "SpotOptions").get("MaxPrice")
    if text is None:
        return None
    try:
        price = round(float(str(text)) * 1e6)
    except (ValueError, OverflowError):
        price = 0
    if price <= 0:
        raise Refusal("InvalidParameterValue", f"Invalid value '{text}' for MaxPrice.")
    return price


def _user_data(merged: Parameters) -> bytes:
    text = merged.get("UserData")
    if text is None:
        return b""
    content = decoded(text)
    if len(content) > USER_DATA_LIMIT:
        raise Refusal("InvalidParameterValue", "User data is limited to 16384 bytes")
    return content


def _metadata(merged: Parameters) -> dict[str, str]:
    asked = cast(Mapping[str, Any], merged.get("MetadataOptions") or {})
    defaults = {"HttpTokens": "optional", "HttpPutResponseHopLimit": "1", "HttpEndpoint": "enabled",
                "InstanceMetadataTags": "disabled"}  # fmt: skip
    found = {**defaults, **{k: str(v) for k, v in asked.items()}}
    if not 1 <= int(found["HttpPutResponseHopLimit"]) <= _HOPS:
        raise Refusal("InvalidParameterValue", f"HttpPutResponseHopLimit is from 1 to {_HOPS}.")
    return found


def _part(asked: Parameters, name: str) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], asked.get(name) or {})


def _list(value: Any) -> list[dict[str, Any]]:
    return list(cast(Iterable[dict[str, Any]], value or ()))
