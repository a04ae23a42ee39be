"""What costs money says whose it is: by the provider's default tags, and where these do not reach, by its own (T17)."""

import json
from collections.abc import Iterator, Mapping
from typing import cast

from gpucluster.engine.offline.model import UNKNOWN, Resource, Value
from gpucluster.engine.policy import Level, Open, Rule, Said, Stack, Violation, at, each, untold
from gpucluster.engine.provider.table import TYPES
from gpucluster.plan.names import TAG_CLUSTER

from .protection import DATA

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
INSTANCE = "aws:ec2/instance:Instance"
BILLED = DATA  # what our own table has no row for
BORN_TAGGED = ("instance", "network-interface", "volume")  # what a launch makes and bills
_EXPECTED = f"the tag {TAG_CLUSTER}"
_STEP = f"set the provider's default_tags, and {TAG_CLUSTER} where they do not reach"


def untagged(stack: Stack) -> Iterator[Said]:
    """Every resource that takes tags; what a template's launches make; an instance's volumes."""
    for resource in stack.made():
        if _takes_tags(resource):
            yield from _has(resource, "tags", _effective(stack, resource))
    for template in stack.of_type(TEMPLATE):
        yield from _born(template)
    for instance in stack.of_type(INSTANCE):
        yield from _volumes(instance)


def _volumes(instance: Resource) -> Iterator[Said]:
    """All at once, or each by its own."""
    every = at(instance.properties, "volumeTags")
    own = every or at(instance.properties, "rootBlockDevice", "tags")
    yield from _has(instance, "volumeTags", own)
    for number, block in each(instance.properties.get("ebsBlockDevices")):
        if own is not None and not every:
            yield from _has(instance, f"ebsBlockDevices[{number}].tags", at(block, "tags"))


def _takes_tags(resource: Resource) -> bool:
    row = TYPES.get(resource.type)
    known = resource.type in BILLED if row is None else "tags" in row.properties
    return known or "tags" in resource.properties or "tagsAll" in resource.properties


def _effective(stack: Stack, resource: Resource) -> Value:
    """The provider's, the resource's own, and what the provider made of both."""
    found: dict[str, Value] = {}
    for part in (
        _default_tags(stack, resource),
        resource.properties.get("tags"),
        resource.properties.get("tagsAll"),
    ):
        if untold(part):
            return found if TAG_CLUSTER in found else UNKNOWN
        if isinstance(part, Mapping):
            found.update(cast("Mapping[str, Value]", part))
    return found


def _default_tags(stack: Stack, resource: Resource) -> Value:
    """A provider's settings come as JSON texts."""
    given = stack.provider(resource).get("defaultTags")
    if isinstance(given, str) and not untold(given):
        try:
            given = json.loads(given)
        except ValueError:
            return None
    return at(given, "tags")


def _born(template: Resource) -> Iterator[Said]:
    given = template.properties.get("tagSpecifications")
    if untold(given):
        yield Open(resource=template, property="tagSpecifications", expected=_EXPECTED)
        return
    specified = {str(at(block, "resourceType")): at(block, "tags") for _, block in each(given)}
    for kind in BORN_TAGGED:
        yield from _has(template, f"tagSpecifications[{kind}].tags", specified.get(kind))


def _has(resource: Resource, where: str, tags: Value) -> Iterator[Said]:
    value = at(tags, TAG_CLUSTER)
    if untold(tags) or untold(value):
        yield Open(resource=resource, property=where, expected=_EXPECTED)
    elif not value:
        found = ", ".join(sorted(cast("Mapping[str, Value]", tags or {}))) or "no tag"
        yield Violation(resource=resource, property=where, found=found, expected=_EXPECTED, next_step=_STEP)


RULES = (
    Rule(name="untagged-cost", level=Level.MANDATORY, about="What costs money carries its cluster's tag.", judge=untagged),
)  # fmt: skip
