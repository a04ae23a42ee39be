"""Predict what `pulumi up` does to each resource and what that costs, by the catalog's facts of AWS properties.

Resources are matched by type and name. A replaced resource gets a new id. A resource that uses this id in a
property without update in place is replaced, too.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from gpucluster.catalog.properties import aws_properties
from gpucluster.engine.offline.model import Planned, Resource, is_provider
from gpucluster.gitops.model import ORDER, Kind, PropertyChange, ResourceChange
from gpucluster.gitops.properties import Difference, difference, is_fixed
from gpucluster.spec import UpdateClass
from gpucluster.text import cut_middle

Key = tuple[str, str]

_SHOWN = 80  # characters of a value

# Deleting or replacing these deletes stored data: file systems, volumes, databases.
_STORES = ("aws:efs/", "aws:fsx/", "aws:ebs/", "aws:rds/")
_ONLY_WAYS_TO_IT = frozenset(  # applies to a file system, which stays
    {
        "aws:efs/accessPoint:AccessPoint",
        "aws:efs/mountTarget:MountTarget",
        "aws:efs/fileSystemPolicy:FileSystemPolicy",
        "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
    }
)

_OF_UPDATE: Mapping[str, UpdateClass] = {
    "aws:ec2/launchTemplate:LaunchTemplate": UpdateClass.NEW_NODES,  # a new version; nodes record the version that launched them
    "aws:ec2/instance:Instance": UpdateClass.RESTART,  # stopped, changed, started
    "aws:fsx/lustreFileSystem:LustreFileSystem": UpdateClass.RESTART,  # I/O stalls while it grows
}
_OF_REMOVAL: Mapping[str, UpdateClass] = {
    "aws:ec2/launchTemplate:LaunchTemplate": UpdateClass.NEW_NODES,  # its instances stay
    "aws:ec2/subnet:Subnet": UpdateClass.STOP_FLEET,  # AWS refuses while an interface uses it
    "aws:ec2/routeTable:RouteTable": UpdateClass.LIVE,  # its subnets leave first
    "aws:ec2/internetGateway:InternetGateway": UpdateClass.LIVE,  # connections through it break
    "aws:ec2/placementGroup:PlacementGroup": UpdateClass.NEW_NODES,  # the resources in it stay
    "aws:ec2/volumeAttachment:VolumeAttachment": UpdateClass.RESTART,  # the volume stays, but the head loses it
    "aws:ec2/instance:Instance": UpdateClass.RESTART,  # a login or standby machine: without a head there is no cluster
    "aws:budgets/budget:Budget": UpdateClass.LIVE,
    "aws:ec2/securityGroup:SecurityGroup": UpdateClass.LIVE,  # AWS refuses while a machine has it
    "aws:iam/role:Role": UpdateClass.LIVE,  # a right of what is gone, or of jobs
    "aws:iam/instanceProfile:InstanceProfile": UpdateClass.LIVE,
    "aws:efs/accessPoint:AccessPoint": UpdateClass.LIVE,  # leaves with its file system
    "aws:ec2/eip:Eip": UpdateClass.LIVE,
    "aws:ec2/natGateway:NatGateway": UpdateClass.LIVE,  # connections through it break and start again
    "aws:ec2/vpcEndpoint:VpcEndpoint": UpdateClass.LIVE,
    "aws:ec2/subnetCidrReservation:SubnetCidrReservation": UpdateClass.LIVE,  # interfaces keep their addresses
    "aws:eks/nodeGroup:NodeGroup": UpdateClass.DRAIN,  # its pods are evicted
    "aws:eks/addon:Addon": UpdateClass.DRAIN,  # a driver of volumes: its pods must have ended
    "aws:eks/accessEntry:AccessEntry": UpdateClass.LIVE,  # its people no longer get in; no pod is touched
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": UpdateClass.LIVE,
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": UpdateClass.LIVE,  # a right, as a role
    "aws:cloudwatch/eventRule:EventRule": UpdateClass.LIVE,  # notices of interruptions, and their queue
    "aws:cloudwatch/eventTarget:EventTarget": UpdateClass.LIVE,
    "aws:sqs/queue:Queue": UpdateClass.LIVE,
    "aws:sqs/queuePolicy:QueuePolicy": UpdateClass.LIVE,
    "aws:efs/mountTarget:MountTarget": UpdateClass.DRAIN,  # machines of one zone lose the mount
    "aws:efs/fileSystemPolicy:FileSystemPolicy": UpdateClass.LIVE,
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": UpdateClass.LIVE,  # the files stay
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": UpdateClass.LIVE,
    "aws:ec2/routeTableAssociation:RouteTableAssociation": UpdateClass.LIVE,
    "aws:ec2/route:Route": UpdateClass.LIVE,
    "aws:iam/rolePolicy:RolePolicy": UpdateClass.LIVE,
    "aws:s3/bucketObjectv2:BucketObjectv2": UpdateClass.LIVE,
    "aws:s3/bucketPolicy:BucketPolicy": UpdateClass.LIVE,
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": UpdateClass.LIVE,
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": UpdateClass.LIVE,
}
_AS_A_REMOVAL = frozenset({UpdateClass.LIVE, UpdateClass.NEW_NODES, UpdateClass.DRAIN})
_WITH_NODES = frozenset({"aws:ec2/subnet:Subnet"})
_PUBLIC = "public"  # in the names of `aws.vpc`
_TAGS = frozenset({"tags", "tagsAll", "volumeTags"})
_NEVER_LESS: Mapping[
    str, str
] = {  # property by type that AWS refuses to change and that does not replace the resource
    "aws:ebs/volume:Volume": "size",
}


def compare(old: Planned, new: Planned) -> tuple[ResourceChange, ...]:
    """Return every resource that would change, worst first. Unknown values are not compared."""
    before, after = _by_key(old), _by_key(new)
    anew = _anew(before, after)
    changes = (_change(before.get(key), after.get(key), anew) for key in before.keys() | after.keys())
    found = (change for change in changes if change is not None)
    return tuple(sorted(found, key=lambda one: (-ORDER[one.update], one.type, one.name)))


def _by_key(planned: Planned) -> dict[Key, Resource]:
    """Ignore components. Compare providers: a provider's region decides where all resources are."""
    return {(one.type, one.name): one for one in planned.resources if one.custom and not one.external}


def _anew(before: Mapping[Key, Resource], after: Mapping[Key, Resource]) -> dict[str, str]:
    """Return URN -> reason for every replaced resource, including those that depend on one."""
    both = [(before[key], after[key]) for key in sorted(before.keys() & after.keys())]
    reasons = {
        new.urn: f"{', '.join(found.replaces)} cannot change in place"
        for old, new in both
        if (found := _difference(old, new)).replaces
    }
    grown = True
    while grown:
        grown = False
        for _, new in both:
            if new.urn not in reasons and (why := _hanging(new, reasons)):
                reasons[new.urn], grown = why, True
    return reasons


def _hanging(resource: Resource, replaced: Mapping[str, str]) -> str | None:
    if resource.provider in replaced:
        return "its provider has another region"
    facts = aws_properties().get(resource.type)
    for name, urns in sorted(resource.property_dependencies.items()):
        if (facts is None or is_fixed(facts, name)) and any(urn in replaced for urn in urns):
            return f"{name} is of a resource that is replaced"
    return None


def _change(old: Resource | None, new: Resource | None, anew: Mapping[str, str]) -> ResourceChange | None:
    if new is None:
        return None if old is None else _removed(old)
    if old is None:
        return ResourceChange(type=new.type, name=new.name, kind=Kind.ADDED, update=UpdateClass.LIVE)
    found = _difference(old, new)
    properties = (*_properties(old, new, found), *_following(new, found, anew))
    if new.urn in anew:
        return ResourceChange(
            type=new.type,
            name=new.name,
            kind=Kind.REPLACED,
            update=_of_replacement(new),
            properties=properties,
            why=_refusal(old, anew[new.urn]),
            protected=old.protect,
        )
    if not properties:
        return None
    lessened = _lessened(old, new)
    return ResourceChange(
        type=new.type,
        name=new.name,
        kind=Kind.CHANGED,
        update=UpdateClass.DATA_LOSS if lessened else _of_update(new, properties),
        properties=properties,
        why=lessened,
    )


def _lessened(old: Resource, new: Resource) -> str:
    """Return why AWS refuses an update in place that the engine would try; empty if it does not."""
    name = _NEVER_LESS.get(new.type, "")
    was, now = old.properties.get(name), new.properties.get(name)
    if not (isinstance(was, int | float) and isinstance(now, int | float) and now < was):
        return ""
    return f"AWS refuses a smaller {name}, so `pulumi up` fails: only a new and empty one can have this size"


def _removed(old: Resource) -> ResourceChange:
    removal = _OF_REMOVAL.get(old.type, UpdateClass.REPLACE)
    if old.type in _WITH_NODES and f"-{_PUBLIC}-" in old.name:  # only gateways and login machines are in it
        removal = UpdateClass.LIVE
    update = UpdateClass.DATA_LOSS if _stores(old) else removal
    why = "it is protected: `pulumi up` refuses until the protection is removed" if old.protect else ""
    return ResourceChange(
        type=old.type, name=old.name, kind=Kind.REMOVED, update=update, why=why, protected=old.protect
    )


def _of_replacement(resource: Resource) -> UpdateClass:
    """Return the class of a removal where another one of the same kind costs no more, else `replace`."""
    if _stores(resource):
        return UpdateClass.DATA_LOSS
    removal = _OF_REMOVAL.get(resource.type, UpdateClass.REPLACE)
    return removal if removal in _AS_A_REMOVAL else UpdateClass.REPLACE


def _refusal(old: Resource, why: str) -> str:
    return (
        f"{why}, and it is protected: `pulumi up` refuses until the protection is removed"
        if old.protect
        else why
    )


def _of_update(resource: Resource, properties: tuple[PropertyChange, ...]) -> UpdateClass:
    if _TAGS.issuperset(one.name for one in properties):
        return UpdateClass.NONE
    return _OF_UPDATE.get(resource.type, UpdateClass.LIVE)


def _difference(old: Resource, new: Resource) -> Difference:
    """Compare by the facts of the type. Without facts, every property counts as replacing."""
    facts = aws_properties().get(new.type)
    if facts is not None:
        found = difference(facts, old.properties, _with_ignored(old, new))
        ignored = frozenset(new.ignore_changes)
        turned = tuple(_turned(old, new))
        changed = tuple(sorted({*found.changed, *turned} - ignored))
        fixed = {name for name in turned if is_fixed(facts, name)}
        anew = {*found.replaces, *_replacing(old, new), *fixed}
        return Difference(changed, tuple(name for name in changed if name in anew))
    names = sorted(old.properties.keys() | new.properties.keys())
    changed = tuple(n for n in names if old.properties.get(n) != new.properties.get(n))
    if is_provider(new):
        return Difference(changed, tuple(n for n in changed if n == "region"))
    return Difference(changed, changed)


def _replacing(old: Resource, new: Resource) -> Iterator[str]:
    """Return the properties whose change replaces by an option of the program. `labels["key"]` names one key of a property."""
    for path in new.replace_on_changes:
        name, _, key = path.removesuffix('"]').partition('["')
        if not key or _key(old, name, key) != _key(new, name, key):
            yield name


def _key(resource: Resource, name: str, key: str) -> object:
    value = resource.properties.get(name)
    return cast("Mapping[str, Any]", value).get(key) if isinstance(value, Mapping) else None


def _with_ignored(old: Resource, new: Resource) -> Mapping[str, Any]:
    """Return the new properties with the old parts that the program ignores, such as `vpcConfig.subnetIds`."""
    found = dict(new.properties)
    for path in new.ignore_changes:
        name, _, part = path.partition(".")
        was, now = old.properties.get(name), found.get(name)
        if part and isinstance(was, Mapping) and isinstance(now, Mapping) and part in was:
            found[name] = {**now, part: was[part]}
    return found


def _turned(old: Resource, new: Resource) -> Iterator[str]:
    """Return properties that refer to another resource than before, even if both ids are unknown."""
    for name in old.property_dependencies.keys() & new.property_dependencies.keys():
        pair = old.property_dependencies[name], new.property_dependencies[name]
        if pair[0] != pair[1] and all(len(urns) == 1 for urns in pair):
            yield name


def _properties(old: Resource, new: Resource, found: Difference) -> Iterator[PropertyChange]:
    for name in found.changed:
        yield PropertyChange(
            name=name,
            before=_shown(old.properties, name),
            after=_shown(new.properties, name),
            replaces=name in found.replaces,
        )


def _following(resource: Resource, found: Difference, anew: Mapping[str, str]) -> Iterator[PropertyChange]:
    """Return properties that change only because a replaced resource has a new name."""
    for name, urns in sorted(resource.property_dependencies.items()):
        if name not in found.changed and any(urn in anew for urn in urns):
            yield PropertyChange(name=name, before=None, after=None, replaces=False)


def _shown(properties: Mapping[str, Any], name: str) -> str | None:
    """Return a text unchanged, another value as JSON. Cut in the middle, where two versions differ least."""
    if name not in properties:
        return None
    value = properties[name]
    return cut_middle(value if isinstance(value, str) else json.dumps(value, sort_keys=True), _SHOWN)


def _stores(resource: Resource) -> bool:
    return resource.type.startswith(_STORES) and resource.type not in _ONLY_WAYS_TO_IT
