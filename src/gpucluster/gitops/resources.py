"""What `pulumi up` would do to each resource, by the engine's own table, and what that costs.

Resources are matched by type and name. A replaced resource has another id, so what takes that id by a
property that cannot change in place is replaced with it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.engine.offline.model import Planned, Resource, is_provider
from gpucluster.engine.provider.diff import Difference
from gpucluster.engine.provider.diff import diff as differ
from gpucluster.engine.provider.schema import Change, ResourceType
from gpucluster.engine.provider.table import TYPES
from gpucluster.gitops.classes import ORDER
from gpucluster.gitops.model import Kind, PropertyChange, ResourceChange
from gpucluster.gitops.short import short
from gpucluster.spec import UpdateClass

Key = tuple[str, str]

# What goes, or stands anew, takes what is stored in it: file systems, volumes, databases.
_STORES = ("aws:efs/", "aws:fsx/", "aws:ebs/", "aws:rds/")
_ONLY_WAYS_TO_IT = frozenset(  # to a file system, which stays
    {
        "aws:efs/accessPoint:AccessPoint",
        "aws:efs/mountTarget:MountTarget",
        "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
    }
)

_OF_UPDATE: Mapping[str, UpdateClass] = {
    "aws:ec2/launchTemplate:LaunchTemplate": UpdateClass.NEW_NODES,  # a version; nodes name the one they came from
    "aws:ec2/instance:Instance": UpdateClass.RESTART,  # stopped, changed, started
    "aws:fsx/lustreFileSystem:LustreFileSystem": UpdateClass.RESTART,  # it stalls while it grows
}
_OF_REMOVAL: Mapping[str, UpdateClass] = {
    "aws:ec2/launchTemplate:LaunchTemplate": UpdateClass.NEW_NODES,  # its instances outlive it
    "aws:ec2/subnet:Subnet": UpdateClass.STOP_FLEET,  # AWS refuses while an interface is in it
    "aws:ec2/routeTable:RouteTable": UpdateClass.STOP_FLEET,  # goes with its subnet
    "aws:ec2/placementGroup:PlacementGroup": UpdateClass.NEW_NODES,  # what stands in it stands
    "aws:ec2/volumeAttachment:VolumeAttachment": UpdateClass.RESTART,  # the volume stays, the head lacks it
    "aws:budgets/budget:Budget": UpdateClass.LIVE,
    "aws:ec2/eip:Eip": UpdateClass.LIVE,
    "aws:ec2/natGateway:NatGateway": UpdateClass.LIVE,  # connections through it break, and begin anew
    "aws:ec2/vpcEndpoint:VpcEndpoint": UpdateClass.LIVE,
    "aws:efs/mountTarget:MountTarget": UpdateClass.DRAIN,  # a zone's machines lose the mount
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
_TAGS = frozenset({"tags", "tagsAll", "volumeTags"})
_NEVER_LESS: Mapping[
    str, str
] = {  # property by type, where it does not replace: AWS refuses, and has no other way
    "aws:ebs/volume:Volume": "size",
}


def compare(old: Planned, new: Planned) -> tuple[ResourceChange, ...]:
    """Every resource that would be touched, the worst first; what only the deployment tells cannot be compared."""
    before, after = _by_key(old), _by_key(new)
    anew = _anew(before, after)
    changes = (_change(before.get(key), after.get(key), anew) for key in before.keys() | after.keys())
    found = (change for change in changes if change is not None)
    return tuple(sorted(found, key=lambda one: (-ORDER[one.update], one.type, one.name)))


def _by_key(planned: Planned) -> dict[Key, Resource]:
    """Components are nothing in the cloud; a provider is, for where it looks decides where all stands."""
    return {(one.type, one.name): one for one in planned.resources if one.custom and not one.external}


def _anew(before: Mapping[Key, Resource], after: Mapping[Key, Resource]) -> dict[str, str]:
    """Urn of every resource that is replaced -> why; those that hang on a replaced one included."""
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
        return "its provider looks elsewhere"
    row = TYPES.get(resource.type)
    for name, urns in sorted(resource.property_dependencies.items()):
        if (row is None or _is_fixed(row, name)) and any(urn in replaced for urn in urns):
            return f"{name} is of a resource that is replaced"
    return None


def _is_fixed(row: ResourceType, name: str) -> bool:
    return name not in row.properties or row.properties[name].change is Change.REPLACE


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
            update=UpdateClass.DATA_LOSS if _stores(new) else UpdateClass.REPLACE,
            properties=properties,
            why=anew[new.urn],
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
    """Why the change cannot be made in place, though the engine would try; empty: nothing is against it."""
    name = _NEVER_LESS.get(new.type, "")
    was, now = old.properties.get(name), new.properties.get(name)
    if not (isinstance(was, int | float) and isinstance(now, int | float) and now < was):
        return ""
    return f"AWS refuses a smaller {name}, so `pulumi up` fails: only another one, which is empty, has it"


def _removed(old: Resource) -> ResourceChange:
    update = UpdateClass.DATA_LOSS if _stores(old) else _OF_REMOVAL.get(old.type, UpdateClass.REPLACE)
    why = "it is protected: `pulumi up` refuses until that is taken away" if old.protect else ""
    return ResourceChange(type=old.type, name=old.name, kind=Kind.REMOVED, update=update, why=why)


def _of_update(resource: Resource, properties: tuple[PropertyChange, ...]) -> UpdateClass:
    if _TAGS.issuperset(one.name for one in properties):
        return UpdateClass.NONE
    return _OF_UPDATE.get(resource.type, UpdateClass.LIVE)


def _difference(old: Resource, new: Resource) -> Difference:
    """By the row of its type; of a type without a row nothing is known to change in place."""
    row = TYPES.get(new.type)
    if row is not None:
        found, ignored = differ(row, old.properties, new.properties), frozenset(new.ignore_changes)
        turned = tuple(_turned(old, new))
        changed = tuple(sorted({*found.changed, *turned} - ignored))
        fixed = {name for name in turned if _is_fixed(row, name)}
        anew = {*found.replaces, *new.replace_on_changes, *fixed}
        return Difference(changed, tuple(name for name in changed if name in anew), found.delete_first)
    names = sorted(old.properties.keys() | new.properties.keys())
    changed = tuple(n for n in names if old.properties.get(n) != new.properties.get(n))
    if is_provider(new):
        return Difference(changed, tuple(n for n in changed if n == "region"), False)
    return Difference(changed, changed, False)


def _turned(old: Resource, new: Resource) -> Iterator[str]:
    """Properties that were one resource's and are another's now: neither id is known, yet they differ."""
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
    """Properties that only say what a replaced resource is called now."""
    for name, urns in sorted(resource.property_dependencies.items()):
        if name not in found.changed and any(urn in anew for urn in urns):
            yield PropertyChange(name=name, before=None, after=None, replaces=False)


def _shown(properties: Mapping[str, Any], name: str) -> str | None:
    return short(properties[name]) if name in properties else None


def _stores(resource: Resource) -> bool:
    return resource.type.startswith(_STORES) and resource.type not in _ONLY_WAYS_TO_IT
