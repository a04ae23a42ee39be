"""The rights that an EC2 call needs, by resource: also those of RunInstances and CreateFleet on all that they use and make."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from gpucluster.catalog.calls import call_facts
from gpucluster.sandbox.aws.ec2.state.values import InstanceLaunch
from gpucluster.sandbox.aws.iam.policies import Context, Need
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto
from gpucluster.sandbox.aws.rights import ApiRequest, need, request_tags, resource_tags

_FLEET = "ec2:CreateFleet"
# Condition keys that EC2 sends for the instance, not for other resources of a launch (service authorization reference).
_OF_INSTANCES = frozenset(
    {"ec2:instancemarkettype", "ec2:instanceprofile", "ec2:instancetype", "ec2:metadatahttptokens"}
)
_SPOT_ROLE = "role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
Tags = Mapping[str, Mapping[str, str]]  # by kind of resource
_RESOURCE_KINDS: Mapping[str, str] = {
    "ami": "image",
    "eipalloc": "elastic-ip",
    "eni": "network-interface",
    "i": "instance",
    "igw": "internet-gateway",
    "lt": "launch-template",
    "nat": "natgateway",
    "pg": "placement-group",
    "rtb": "route-table",
    "sg": "security-group",
    "sgr": "security-group-rule",
    "subnet": "subnet",
    "vol": "volume",
    "vpc": "vpc",
    "vpce": "vpc-endpoint",
}
# Parameters with ids of existing resources. An action is checked on those whose kind it takes.
_NAMING = frozenset(
    {
        *("AddRouteTableIds", "AddSecurityGroupIds", "AddSubnetIds", "AllocationId", "GroupId"),
        *("GroupIds", "Groups", "InstanceId", "InstanceIds", "InternetGatewayId", "LaunchTemplateId"),
        *("NatGatewayId", "NetworkInterfaceId", "RemoveRouteTableIds", "RemoveSecurityGroupIds"),
        *("RemoveSubnetIds", "Resources", "RouteTableId", "RouteTableIds", "SecurityGroupIds"),
        *("SubnetId", "SubnetIds", "VolumeId", "VpcEndpointId", "VpcEndpointIds", "VpcId"),
    }
)
# operation -> kind of the resource that it creates, as the request's tags name it
_CREATED: Mapping[str, str] = {
    "AllocateAddress": "elastic-ip",
    "AuthorizeSecurityGroupEgress": "security-group-rule",
    "AuthorizeSecurityGroupIngress": "security-group-rule",
    "CreateInternetGateway": "internet-gateway",
    "CreateLaunchTemplate": "launch-template",
    "CreateNatGateway": "natgateway",
    "CreateNetworkInterface": "network-interface",
    "CreatePlacementGroup": "placement-group",
    "CreateRouteTable": "route-table",
    "CreateSecurityGroup": "security-group",
    "CreateSubnet": "subnet",
    "CreateVolume": "volume",
    "CreateVpc": "vpc",
    "CreateVpcEndpoint": "vpc-endpoint",
}
_ONLY_IF_TAGGED = frozenset({"AuthorizeSecurityGroupEgress", "AuthorizeSecurityGroupIngress"})


class Ec2Rights:
    """Reads tags of instances and placement groups from EC2's state, and other tags from moto."""

    def __init__(
        self,
        moto: Moto,
        tags_of: Callable[[str], Mapping[str, str]],
        tags_of_group: Callable[[str], Mapping[str, str]],
        associated: Callable[[str], Sequence[str]],
        owner_of_reservation: Callable[[str], str] = lambda _: "",
        *,
        place_of: Callable[[str], tuple[str, str] | None] = lambda _: None,
    ) -> None:
        """`place_of`: the subnet and the VPC of a network interface."""
        self._moto = moto
        self._owner_of_reservation = owner_of_reservation
        self._tags = tags_of
        self._place_of = place_of
        self._tags_of_group = tags_of_group
        self._associated = associated  # the ids of both ends of an association

    def of(self, request: ApiRequest) -> list[Need]:
        """The rights of every call but RunInstances and CreateFleet, by the resource types of the service reference."""
        kinds = call_facts().kinds.get(f"ec2:{request.operation}")
        named = [one for one in self._named(request) if kinds is None or one[0] in kinds]
        if request.operation in ("CreateTags", "DeleteTags"):
            named = [(_kind_of(one), one) for one in request.parameters.get("Resources", ())]
        extra = (
            request_tags(tags_in(request.parameters.get("Tags", ()))) if "Tags" in request.operation else {}
        )
        needs = [self._need(request, kind, name, extra) for kind, name in named]
        needs += self._created(request)
        if str(request.parameters.get("PrivateDnsEnabled", "")).lower() == "true":  # of an interface endpoint
            zone = "arn:aws:route53:::hostedzone/*"
            needs.append(Need(action="route53:AssociateVPCWithHostedZone", resource=zone))
        return needs or [need(request, "*", {})]

    def _need(self, request: ApiRequest, kind: str, name: str, extra: Context) -> Need:
        by_name = kind == "placement-group" and not name.startswith("pg-")
        tags = self._tags_of_group(name) if by_name else self._tags(name)
        return need(request, self._arn(kind, name), {**resource_tags(tags), **self._place(name), **extra})

    def _place(self, name: str) -> Context:
        """The condition keys of a network interface."""
        place = self._place_of(name) if _kind_of(name) == "network-interface" else None
        return (
            {}
            if place is None
            else {"ec2:subnet": (self._arn_of(place[0]),), "ec2:vpc": (self._arn_of(place[1]),)}
        )

    def _named(self, request: ApiRequest) -> list[tuple[str, str]]:
        """Kind and id of each existing resource that the request names."""
        asked = request.parameters
        found = [one for key in sorted(_NAMING & asked.keys()) for one in _texts(asked[key])]
        if request.operation.startswith("Describe") and not request.operation.endswith("Attribute"):
            return []
        for rule in asked.get("SecurityGroupRules", ()):
            found += _texts(rule.get("SecurityGroupRuleId", ()))
        found += [end for one in _texts(asked.get("AssociationId", ())) for end in self._associated(one)]
        named = [(_kind_of(one), one) for one in found]
        if request.operation == "DeletePlacementGroup":
            named.append(("placement-group", str(asked.get("GroupName", ""))))
        return named

    def _created(self, request: ApiRequest) -> list[Need]:
        """The right on the new resource with the tags of the request, and the right to tag it at its creation."""
        kind = _CREATED.get(request.operation)
        specified = request.parameters.get("TagSpecifications", ())
        tags = {k: v for part in specified for k, v in tags_in(part.get("Tags", ())).items()}
        if kind is None or (not tags and request.operation in _ONLY_IF_TAGGED):
            return []
        arn, requested = self._arn(kind, "*"), request_tags(tags)
        made = [need(request, arn, requested)]
        if tags:
            created = {**requested, "ec2:createaction": (request.operation,)}
            made.append(Need(action="ec2:CreateTags", resource=arn, context=created))
        return made

    def launch(
        self, spec: InstanceLaunch, role_arn: str | None, specified_tags: Mapping[str, Mapping[str, str]]
    ) -> list[Need]:
        """RunInstances on each resource that it uses or makes, CreateTags, and PassRole (T37)."""
        whole = self._launch_context(spec)
        common = {key: values for key, values in whole.items() if key not in _OF_INSTANCES}
        needs = [
            Need(action="ec2:RunInstances", resource=r, context={**common, **c}) for r, c in self._used(spec)
        ]
        for kind, tags in sorted(specified_tags.items()):
            requested = {**(whole if kind == "instance" else common), **request_tags(tags)}
            arn = self._arn(kind, "*")
            needs.append(Need(action="ec2:RunInstances", resource=arn, context=requested))
            if tags:
                created = {**requested, "ec2:createaction": ("RunInstances",)}
                needs.append(Need(action="ec2:CreateTags", resource=arn, context=created))
        if role_arn is not None:
            passed = {"iam:passedtoservice": ("ec2.amazonaws.com",)}
            needs.append(Need(action="iam:PassRole", resource=role_arn, context=passed))
        return needs

    def fleet(
        self,
        specs: Iterable[InstanceLaunch],
        fleet_tags: Mapping[str, str],
        tags: Callable[[InstanceLaunch], Tags],
    ) -> list[Need]:
        """CreateFleet on the fleet and on each resource that its launches use or make; `launch` gives those of each launch."""
        requested, arn = request_tags(fleet_tags), self._arn("fleet", "*")
        needs = [Need(action=_FLEET, resource=arn, context=requested)]
        if fleet_tags:
            created = {**requested, "ec2:createaction": ("CreateFleet",)}
            needs.append(Need(action="ec2:CreateTags", resource=arn, context=created))
        for spec in specs:
            needs += [Need(action=_FLEET, resource=r, context=c) for r, c in self._used(spec)]
            made = sorted(tags(spec).items())
            needs += [
                Need(action=_FLEET, resource=self._arn(k, "*"), context=request_tags(t)) for k, t in made
            ]
        return needs

    def spot_role(self) -> Need:
        """The right that the first spot request of an account needs."""
        return Need(action="iam:CreateServiceLinkedRole", resource=f"arn:aws:iam::{ACCOUNT}:{_SPOT_ROLE}")

    def _used(self, spec: InstanceLaunch) -> list[tuple[str, Context]]:
        ids = [spec.subnet.id, *spec.groups, spec.image]
        if spec.template is not None:
            ids.append(spec.template[0])
        used: list[tuple[str, Context]] = [(self._arn_of(one), resource_tags(self._tags(one))) for one in ids]
        owner = {"ec2:owner": (self._moto.image_owner(spec.image),)}
        used = [(arn, {**context, **owner} if ":image/" in arn else context) for arn, context in used]
        if spec.reservation is not None:
            used.append((self._arn("capacity-reservation", spec.reservation), {}))
        if spec.placement_group is not None:
            tags = resource_tags(self._tags_of_group(spec.placement_group))
            used.append((self._arn("placement-group", spec.placement_group), tags))
        if spec.key_name is not None:
            used.append((self._arn("key-pair", spec.key_name), {}))
        return used

    def _launch_context(self, spec: InstanceLaunch) -> dict[str, tuple[str, ...]]:
        context = {
            "ec2:instancetype": (spec.machine,),
            "ec2:instancemarkettype": (spec.market.value,),
            "ec2:subnet": (self._arn_of(spec.subnet.id),),
            "ec2:vpc": (self._arn_of(spec.subnet.vpc),),
            "ec2:region": (self._moto.region,),
            "aws:requestedregion": (self._moto.region,),
            "ec2:metadatahttptokens": (spec.metadata.get("HttpTokens", "optional"),),
        }
        if spec.template is not None:
            context["ec2:launchtemplate"] = (self._arn_of(spec.template[0]),)
            context["ec2:islaunchtemplateresource"] = ("true",)
        if spec.profile is not None:
            context["ec2:instanceprofile"] = (spec.profile,)
        return context

    def _arn_of(self, resource_id: str) -> str:
        return self._arn(_kind_of(resource_id), resource_id)

    def _arn(self, kind: str, name: str) -> str:
        account = "" if kind == "image" else ACCOUNT
        if kind in (
            "subnet",
            "vpc",
            "security-group",
        ):  # the ARN of a shared one has its owner's account (T50)
            account = self._moto.owner_of(name)
        if kind == "capacity-reservation":
            account = self._owner_of_reservation(name) or ACCOUNT
        return f"arn:aws:ec2:{self._moto.region}:{account}:{kind}/{name}"


def tags_in(tags: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """EC2's list of tags as a mapping."""
    return {str(t.get("Key", "")): str(t.get("Value", "")) for t in tags}


def _kind_of(resource_id: str) -> str:
    return _RESOURCE_KINDS.get(resource_id.partition("-")[0], "unknown")


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(one) for one in cast(Sequence[object], value)]
