"""Resources that cost money have the cluster's tag, from the provider's default tags or their own tags (T17)."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from gpucluster.catalog.properties import aws_properties
from gpucluster.engine.offline.model import UNKNOWN, Resource, Value
from gpucluster.engine.policy import (
    EnforcementLevel,
    Rule,
    RuleResult,
    Stack,
    Undecided,
    Violation,
    at,
    each,
    is_unreadable,
)
from gpucluster.plan.names import TAG_CLUSTER

from .protection import DATA

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
INSTANCE = "aws:ec2/instance:Instance"
BILLED = DATA  # types with a bill, of which the catalog has no facts
BORN_TAGGED = ("instance", "network-interface", "volume")  # resources of a launch that AWS bills
_EXPECTED = f"the tag {TAG_CLUSTER}"
_STEP = f"set the provider's default_tags, and {TAG_CLUSTER} where they do not reach"


def untagged(stack: Stack) -> Iterator[RuleResult]:
    """Check all resources with tags, the launches of templates, and the volumes of instances."""
    for resource in stack.made():
        if _takes_tags(resource):
            yield from _has(resource, "tags", _effective(stack, resource))
    for template in stack.of_type(TEMPLATE):
        yield from _born(template)
    for instance in stack.of_type(INSTANCE):
        yield from _volumes(stack, instance)


def _volumes(stack: Stack, instance: Resource) -> Iterator[RuleResult]:
    """Check the volumes. The provider's default tags reach them since version 5.39; each volume can have own tags."""
    every = (_default_tags(stack, instance), at(instance.properties, "volumeTags"))
    root = at(instance.properties, "rootBlockDevice", "tags")
    yield from _has(instance, "rootBlockDevice.tags", _merged((*every, root)))
    for number, block in each(instance.properties.get("ebsBlockDevices")):
        yield from _has(instance, f"ebsBlockDevices[{number}].tags", _merged((*every, at(block, "tags"))))


def _takes_tags(resource: Resource) -> bool:
    facts = aws_properties().get(resource.type)
    known = resource.type in BILLED if facts is None else facts.tagged
    return known or "tags" in resource.properties or "tagsAll" in resource.properties


def _effective(stack: Stack, resource: Resource) -> Value:
    """Return the tags of the provider and of the resource, merged."""
    own = resource.properties
    return _merged((_default_tags(stack, resource), own.get("tags"), own.get("tagsAll")))


def _merged(parts: Iterable[Value]) -> Value:
    found: dict[str, Value] = {}
    for part in parts:
        if is_unreadable(part):
            return found if TAG_CLUSTER in found else UNKNOWN
        if isinstance(part, Mapping):
            found.update(cast("Mapping[str, Value]", part))
    return found


def _default_tags(stack: Stack, resource: Resource) -> Value:
    """Parse a provider's setting, which is a JSON text."""
    given = stack.provider(resource).get("defaultTags")
    if isinstance(given, str) and not is_unreadable(given):
        try:
            given = json.loads(given)
        except ValueError:
            return None
    return at(given, "tags")


def _born(template: Resource) -> Iterator[RuleResult]:
    given = template.properties.get("tagSpecifications")
    if is_unreadable(given):
        yield Undecided(resource=template, property="tagSpecifications", expected=_EXPECTED)
        return
    specified = {str(at(block, "resourceType")): at(block, "tags") for _, block in each(given)}
    for kind in BORN_TAGGED:
        yield from _has(template, f"tagSpecifications[{kind}].tags", specified.get(kind))


def _has(resource: Resource, where: str, tags: Value) -> Iterator[RuleResult]:
    value = at(tags, TAG_CLUSTER)
    if is_unreadable(tags) or is_unreadable(value):
        yield Undecided(resource=resource, property=where, expected=_EXPECTED)
    elif not value:
        found = ", ".join(sorted(cast("Mapping[str, Value]", tags or {}))) or "no tag"
        yield Violation(resource=resource, property=where, found=found, expected=_EXPECTED, next_step=_STEP)


RULES = (
    Rule(name="untagged-cost", level=EnforcementLevel.MANDATORY, about="Resources that cost money have the tag of their cluster.", check=untagged),
)  # fmt: skip
