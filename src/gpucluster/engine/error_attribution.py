"""Find the spec field behind a failed resource, from the resource's name and the cloud's error code.

Pure functions. If the plan has no matching field, the cloud's message is shown unchanged.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from gpucluster.engine import eks_fields
from gpucluster.plan.model import (
    ClusterPlan,
    Efs,
    Image,
    ImageById,
    Lustre,
    Mount,
    SiteEfs,
    SiteNetwork,
    SlurmOnAws,
)
from gpucluster.plan.names import export_key, volume_name
from gpucluster.plan.reservations import reserved

Explain = Callable[[str, str, str], str]  # resource type, name, the cloud's message -> explanation
Field = Callable[[ClusterPlan, str], str]  # a resource's name -> the spec's field, or ""


@dataclass(frozen=True, slots=True)
class Cause:
    """An explanation for a family of error codes. `field` overrides the resource's own field."""

    codes: re.Pattern[str]
    meaning: str
    next_step: str  # placeholders: {field}, {action} and {code}
    field: Callable[[ClusterPlan, str, str], str] | None = None  # plan, the resource's own field, the message
    text: re.Pattern[str] = re.compile(
        ""
    )  # a part of the message, where a service has one code for many causes


def explainer(plan: ClusterPlan) -> Explain:
    """Return the function that explains errors for one plan."""
    return partial(_explain, plan)


def field_of(plan: ClusterPlan, kind: str, name: str) -> str:
    """Return the spec field of a resource, such as `pools[h200].capacity[0].machines`; empty if there is none."""
    found = _FIELDS.get(kind)
    return "" if found is None else found(plan, name.removeprefix(f"{plan.name}-"))


def _explain(plan: ClusterPlan, kind: str, name: str, words: str) -> str:
    code, action = _code(words)
    own = field_of(plan, kind, name)
    cause = next((one for one in CAUSES if one.codes.search(code or words) and one.text.search(words)), None)
    if cause is None:
        return f"{own}: {words}" if own else words
    field = (cause.field(plan, own, words) if cause.field else "") or own
    step = cause.next_step.format(field=field or "the spec", action=action or "it", code=code)
    return f"{field + ': ' if field else ''}{cause.meaning}; {words}; next: {step}"


_WORDS = (  # formats of botocore and of the Go SDK of the real provider
    re.compile(r"An error occurred \((?P<code>[\w.]+)\) when calling the (?P<action>\w+)"),
    re.compile(
        r"operation error (?P<service>[\w ]+): (?P<action>\w+),.*api error (?P<code>[\w.]+):", re.DOTALL
    ),
    re.compile(r"api error (?P<code>[\w.]+):"),
)


def _code(words: str) -> tuple[str, str]:
    found = next((match for pattern in _WORDS if (match := pattern.search(words))), None)
    if found is None:
        return "", ""
    return found["code"], found.groupdict().get("action") or ""


# --- spec fields -----------------------------------------------------------------------------------
def _template(plan: ClusterPlan, name: str) -> str:
    found = ((pool, one) for pool in plan.pools for one in pool.templates if one.key == name)
    own = next((f"pools[{pool.name}].capacity[{one.source}].machines" for pool, one in found), "")
    return own or eks_fields.node_group(plan, name)


def _placement(plan: ClusterPlan, name: str) -> str:
    """Compare whole names: the pool `h200` is not the pool `h200-big`."""
    pools = ((pool, f"{pool.name}-{span.zone}") for pool in plan.pools for span in pool.slots)
    own = next((f"pools[{pool.name}].capacity" for pool, full in pools if full == name), "")
    return own or eks_fields.node_group(plan, name)


def _address(plan: ClusterPlan, name: str) -> str:
    return "login.count" if _is_login(plan, name) else "aws.network.nat"


def _is_login(plan: ClusterPlan, name: str) -> bool:
    return plan.login is not None and f"{plan.name}-{name}" in plan.login.names


def _machine(plan: ClusterPlan, name: str) -> str:
    if _is_login(plan, name):
        return "login.machine"
    return {"head": "head.machine", "standby": "head.standby"}.get(name, "")


def _disk(plan: ClusterPlan, name: str) -> str:
    if name == "state":
        return "head.state"
    return next((f"storage[{m.path}].nfs" for m in plan.storage if export_key(m.path) == name), "head.state")


def _mounted(key: str) -> Field:
    def field(plan: ClusterPlan, name: str) -> str:
        words = name.partition("-")[2]
        mounts = ((m, volume_name(m.path) or "root") for m in plan.storage if _has(m, key))
        fits = [(len(word), m.path) for m, word in mounts if words == word or words.startswith(f"{word}-")]
        return f"storage[{max(fits)[1]}].{key}" if fits else "storage"

    return field


def _has(mount: Mount, key: str) -> bool:
    return isinstance(mount.source, Efs | SiteEfs if key == "efs" else Lustre)


def _always(field: str) -> Field:
    return lambda _plan, _name: field


_FIELDS: Mapping[str, Field] = {
    "aws:ec2/launchTemplate:LaunchTemplate": _template,
    "aws:ec2/placementGroup:PlacementGroup": _placement,
    "aws:ec2/instance:Instance": _machine,
    "aws:ebs/volume:Volume": _disk,
    "aws:ec2/volumeAttachment:VolumeAttachment": _disk,
    "aws:efs/fileSystem:FileSystem": _mounted("efs"),
    "aws:efs/fileSystemPolicy:FileSystemPolicy": _mounted("efs"),
    "aws:efs/mountTarget:MountTarget": _mounted("efs"),
    "aws:efs/accessPoint:AccessPoint": _mounted("efs"),
    "aws:fsx/lustreFileSystem:LustreFileSystem": _mounted("fsx_lustre"),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": _mounted("fsx_lustre"),
    "aws:ec2/vpc:Vpc": _always("aws.network.cidr"),
    "aws:ec2/subnet:Subnet": _always("aws.network.zones"),
    "aws:ec2/eip:Eip": _address,
    "aws:ec2/natGateway:NatGateway": _always("aws.network.nat"),
    "aws:ec2/vpcEndpoint:VpcEndpoint": _always("aws.network.endpoints"),
    "aws:ec2/subnetCidrReservation:SubnetCidrReservation": _always("head.zone"),
    "aws:budgets/budget:Budget": _always("budget"),
    "aws:eks/cluster:Cluster": eks_fields.cluster,
    "aws:eks/nodeGroup:NodeGroup": eks_fields.node_group,
    "aws:eks/addon:Addon": _always("kubernetes.version"),
    "aws:eks/accessEntry:AccessEntry": eks_fields.access_entry,
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": eks_fields.access_entry,
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": eks_fields.pod_identity,
}


def _image(plan: ClusterPlan, own: str, words: str) -> str:
    """Return the field of the image: a pool can have its own image."""
    pools = (pool for pool in plan.pools if pool.image and _named(pool.image, words))
    fields = [f"pools[{pool.name}].image" for pool in pools]
    if isinstance(plan, SlurmOnAws) and _named(plan.image, words):
        users = [pool.name for pool in plan.pools if pool.image is None]
        fields.insert(0, f"aws.image (of the head{_of_pools(users)})")
    return " and ".join(fields) or "aws.image"


def _of_pools(names: list[str]) -> str:
    return f" and the pools {', '.join(names)}" if names else ""


def _named(image: Image, words: str) -> bool:
    return (image.id if isinstance(image, ImageById) else image.name) in words


def _address_range(plan: ClusterPlan, own: str, words: str) -> str:
    """Return the machine type and the address range that is full."""
    network = plan.aws.network if plan.aws else None
    of = "aws.network.subnets" if isinstance(network, SiteNetwork) else "aws.network.cidr"
    return f"{own}, in {of}" if own else of


def _reservation(plan: ClusterPlan, own: str, words: str) -> str:
    return next((f"{field}.id" for key, field, _ in reserved(plan) if key in words), own)


def _in_spec(field: str) -> Callable[[ClusterPlan, str, str], str]:
    return lambda _plan, _own, _words: field


_NO_LAUNCH = re.compile(r"Could not launch .* Instances")  # of the Auto Scaling group of a node group
_STAYS_FAILED = "and EKS keeps the node group as failed"
_REPLACE = "`pulumi up --replace URN`, with the URN of the node group"

# EKS has one code for all parameters that it does not take; docs/facts/eks.md has the sources of the messages
_EKS: tuple[Cause, ...] = (
    Cause(
        re.compile(r"^InvalidParameterException$"),
        "EKS does not have this version of Kubernetes",
        "a version that EKS supports in {field}",
        _in_spec("kubernetes.version"),
        re.compile(r"unsupported Kubernetes version"),
    ),
    Cause(
        re.compile(r"^InvalidParameterException$"),
        "EKS goes one minor version up at a time",
        "the next minor version in {field}, then the same command, and so on",
        _in_spec("kubernetes.version"),
        re.compile(r"Unsupported Kubernetes minor version update"),
    ),
    Cause(
        re.compile(r"^InvalidParameterException$"),
        "EKS does not have this version of the add-on for the cluster",
        "aws eks describe-addon-versions lists what it has; another {field}, or a newer gpucluster",
        text=re.compile(r"Addon.*specified is not supported"),
    ),
    Cause(
        re.compile(r"^ResourceInUseException$"),
        "the add-on was installed without this stack",
        "aws eks delete-addon --preserve for the one of the message, then the same command again",
        text=re.compile(r"Addon already exists"),
    ),
    Cause(
        re.compile(r"^InvalidParameterException$"),
        "the account has no such role or user",
        "create it, or take it out of {field}; then the same command again",
        text=re.compile(r"invalid principal"),
    ),
    Cause(
        re.compile(r"^ResourceInUseException$"),
        "the cluster admits this principal already, without this stack",
        "aws eks delete-access-entry for it, or take it out of {field}; then the same command again",
        text=re.compile(r"access entry resource is already in use"),
    ),
    Cause(
        re.compile(r"^ResourceNotFoundException$"),
        "the access entry was deleted by hand",
        "pulumi refresh, then pulumi up: {field} makes it again",
        text=re.compile(r"principalArn could not be found"),
    ),
    Cause(
        re.compile(r"^InvalidParameterException$"),
        "EKS does not take these ranges",
        "public ranges that are yours in {field}",
        _in_spec("kubernetes.api_from"),
        re.compile(r"publicAccessCidrs"),
    ),
    Cause(
        re.compile(r"^InvalidParameterException$|^UnsupportedAvailabilityZoneException$"),
        "EKS needs two zones that it supports",
        "other zones in {field}",
        _in_spec("aws.network.zones"),
        re.compile(r"two different AZs|vailability [Zz]one"),
    ),
    Cause(
        re.compile(r"ResourceAlreadyExistsException"),
        "a control plane of this name has written logs after its log group was deleted",
        "aws logs delete-log-group --log-group-name with the name of the message, which deletes those logs; then the same command again",
        text=re.compile(r"log group already exists"),
    ),
    Cause(
        re.compile(r"EntityAlreadyExists"),
        "the account has this role already, and IAM's names hold for all Regions: a cluster of the same name in another Region, or one that was deleted in part",
        "another name of the cluster in the spec; or, if no cluster has the role, delete it, then the same command again",
        text=re.compile(r"-kubernetes-node already exists"),
    ),
    Cause(
        re.compile(r"InsufficientInstanceCapacity"),
        f"the cloud has none left now, {_STAYS_FAILED}",
        f"another machine or zone in {{field}}; or later {_REPLACE}",
        text=_NO_LAUNCH,
    ),
    Cause(
        re.compile(r"LimitExceeded|MaxSpotInstanceCount"),
        f"the account's quota does not allow it, {_STAYS_FAILED}",
        f"ask for more in Service Quotas; then {_REPLACE}",
        text=_NO_LAUNCH,
    ),
    Cause(
        re.compile(r"PendingActivation"),
        f"the reservation has not begun, {_STAYS_FAILED}",
        f"after its start {_REPLACE}",
        _reservation,
        _NO_LAUNCH,
    ),
)
CAUSES: tuple[Cause, ...] = (  # the first match applies
    *_EKS,
    Cause(
        re.compile(r"^(RequestLimitExceeded|Throttling\w*|TooManyRequestsException)$"),
        "the cloud was asked too fast",
        "the same command again; it goes on from here",
    ),
    Cause(
        re.compile(r"LimitExceeded|^ServiceQuotaExceeded|QuotaExceeded|^MaxSpotInstanceCount|TooManyBuckets"),
        "the account's quota does not allow it",
        "ask for more in Service Quotas, or make {field} smaller; then the same command again",
    ),
    Cause(
        re.compile(r"^(UnauthorizedOperation|AccessDenied\w*|AuthorizationError|ForbiddenException)$"),
        "whoever runs this may not do it",
        "allow {action} to whoever runs this (docs/aws.md lists all actions); then the same command again",
    ),
    Cause(
        re.compile(r"^InvalidAMIID|no machine image fits|query returned no results"),
        "there is no such image in the region",
        "gpucluster image build, or another image in {field}",
        _image,
    ),
    Cause(
        re.compile(r"FreeAddresses|^IpAddressInUse$|^PrivateIpAddressInUse$"),
        "the subnet has no free address for it",
        "a larger range, or fewer machines in that subnet: {field}",
        _address_range,
    ),
    Cause(
        re.compile(r"^InvalidCapacityReservation|^ReservationCapacityExceeded$"),
        "the reservation is not there, or is full",
        "compare {field} with the account's reservations of the region",
        _reservation,
    ),
    Cause(
        re.compile(r"^Insufficient\w*Capacity$|^UnfulfillableCapacity$|^InsufficientCapacity\w*$"),
        "the cloud has none left now",
        "the same command later, or another machine or zone in {field}",
    ),
    Cause(
        re.compile(r"^Unsupported$|^UnsupportedAvailabilityZone$|^InstanceTypeNotSupported$"),
        "the zone does not sell it",
        "another machine or zone in {field}",
    ),
    Cause(
        re.compile(r"^InvalidIPAddress\.InUse$"),
        "the address is still held: EC2 gives it back minutes after the end of what had it",
        "the same command again in some minutes; if it stays so, end what holds the address",
    ),
    Cause(
        re.compile(r"^(DependencyViolation|DeleteConflict|FileSystemInUse|BucketNotEmpty|\w+\.InUse|InUse)$"),
        "something that this stack does not know still uses it",
        "remove what uses it, then the same command again",
    ),
    Cause(
        re.compile(
            r"^(ExpiredToken\w*|InvalidClientTokenId|AuthFailure|UnrecognizedClientException|OptInRequired)$"
        ),
        "the credentials are not valid here",
        "fresh credentials (aws sts get-caller-identity shows whose they are), then the same command again",
    ),
)
