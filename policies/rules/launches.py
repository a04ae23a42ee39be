"""Rules for launches: the metadata service, and placement of a launch."""

from collections.abc import Iterator

from gpucluster.engine.offline.model import Resource, Value
from gpucluster.engine.policy import (
    EnforcementLevel,
    Rule,
    RuleResult,
    Stack,
    Undecided,
    Violation,
    at,
    is_unreadable,
)
from gpucluster.plan.names import TAG_POOL

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
LAUNCHES = (
    TEMPLATE,
    "aws:ec2/instance:Instance",
    "aws:ec2/spotInstanceRequest:SpotInstanceRequest",
    "aws:ec2/launchConfiguration:LaunchConfiguration",
)
PLACEMENT_GROUP = "aws:ec2/placementGroup:PlacementGroup"
ONLY_RESERVED = "capacity-reservations-only"


def metadata(stack: Stack) -> Iterator[RuleResult]:
    """Require IMDSv2 tokens and a hop limit of 1, so that containers cannot use the machine's credentials."""
    for resource in stack.of_type(*LAUNCHES):
        if at(resource.properties, "metadataOptions", "httpEndpoint") == "disabled":
            continue
        yield from _is(resource, "httpTokens", "required")
        yield from _is(resource, "httpPutResponseHopLimit", 1)


def _is(resource: Resource, name: str, wanted: str | int) -> Iterator[RuleResult]:
    found = at(resource.properties, "metadataOptions", name)
    where = f"metadataOptions.{name}"
    if is_unreadable(found):
        yield Undecided(resource=resource, property=where, expected=repr(wanted))
    elif found != wanted:
        yield Violation(
            resource=resource,
            property=where,
            found="nothing" if found is None else repr(found),
            expected=repr(wanted),
            next_step=f"set {where} to {wanted!r}; the account's and the image's defaults may be wider",
        )


def placement(stack: Stack) -> Iterator[RuleResult]:
    """Check that no placement group is combined with reserved capacity: the group may be elsewhere and finds none (T27)."""
    for resource in stack.of_type(*LAUNCHES):
        group = _group(resource)
        preference = _reservation_preference(resource)
        expected = "no placement group on a reservation or a capacity block"
        if group is None or preference is None:
            continue
        if is_unreadable(preference):
            yield Undecided(resource=resource, property="capacityReservationSpecification", expected=expected)
        else:
            yield Violation(
                resource=resource,
                property="placement.groupName" if resource.type == TEMPLATE else "placementGroup",
                found=f"{'a group' if is_unreadable(group) else repr(group)} and {preference}",
                expected=expected,
                next_step="remove the group; a reservation with its own group applies this group by itself",
            )

    for group in stack.of_type(PLACEMENT_GROUP):
        yield from _only_with_reservations(stack, group)


def _only_with_reservations(stack: Stack, group: Resource) -> Iterator[RuleResult]:
    """Check pools with only reserved capacity: our launches set the group themselves, so the pool must have none."""
    pool = at(group.properties, "tags", TAG_POOL)
    if pool is None or is_unreadable(pool):
        return
    templates = [one for one in stack.of_type(TEMPLATE) if at(one.properties, "tags", TAG_POOL) == pool]
    if templates and all(_reservation_preference(one) for one in templates):
        yield Violation(
            resource=group,
            property="tags",
            found=f"a group for the pool {pool!r}, which has only templates with reserved capacity",
            expected="no placement group on a reservation or a capacity block",
            next_step="declare the group only for pools that also launch spot or on-demand instances",
        )


def _group(resource: Resource) -> Value:
    """Return the group's name or id, which can be unknown; None if there is no group."""
    places = (
        ("placement", "groupName"),
        ("placement", "groupId"),
        ("placementGroup",),
        ("placementGroupId",),
    )
    return next((found for place in places if (found := at(resource.properties, *place))), None)


def _reservation_preference(resource: Resource) -> str | None:
    """Return a description of the reservation, or UNKNOWN; None for a launch without a reservation."""
    if at(resource.properties, "instanceMarketOptions", "marketType") == "capacity-block":
        return "a capacity block"
    preference = at(resource.properties, "capacityReservationSpecification")
    if preference is None or is_unreadable(preference):
        return preference
    if at(preference, "capacityReservationTarget") is not None:
        return "a reservation"
    return "reservations only" if at(preference, "capacityReservationPreference") == ONLY_RESERVED else None


RULES = (
    Rule(name="imdsv2", level=EnforcementLevel.MANDATORY, about="The metadata service requires a token and does not answer containers.", check=metadata),
    Rule(name="placement-on-reservation", level=EnforcementLevel.MANDATORY, about="No placement group is combined with reserved capacity.", check=placement),
)  # fmt: skip
