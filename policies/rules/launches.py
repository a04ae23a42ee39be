"""How machines are launched: their metadata service, and where a launch is bound to."""

from collections.abc import Iterator

from gpucluster.engine.offline.model import Resource, Value
from gpucluster.engine.policy import Level, Open, Rule, Said, Stack, Violation, at, untold
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


def metadata(stack: Stack) -> Iterator[Said]:
    """A token for each question, and no answer that crosses a bridge: what runs in a container is not the machine."""
    for resource in stack.of_type(*LAUNCHES):
        if at(resource.properties, "metadataOptions", "httpEndpoint") == "disabled":
            continue
        yield from _is(resource, "httpTokens", "required")
        yield from _is(resource, "httpPutResponseHopLimit", 1)


def _is(resource: Resource, name: str, wanted: str | int) -> Iterator[Said]:
    found = at(resource.properties, "metadataOptions", name)
    where = f"metadataOptions.{name}"
    if untold(found):
        yield Open(resource=resource, property=where, expected=repr(wanted))
    elif found != wanted:
        yield Violation(
            resource=resource,
            property=where,
            found="nothing" if found is None else repr(found),
            expected=repr(wanted),
            next_step=f"set {where} to {wanted!r}; the account's and the image's defaults may be wider",
        )


def placement(stack: Stack) -> Iterator[Said]:
    """Held capacity stands where it stands: a group that was made apart from it finds none (T27)."""
    for resource in stack.of_type(*LAUNCHES):
        group = _group(resource)
        held = _held(resource)
        expected = "no placement group on a reservation or a capacity block"
        if group is None or held is None:
            continue
        if untold(held):
            yield Open(resource=resource, property="capacityReservationSpecification", expected=expected)
        else:
            yield Violation(
                resource=resource,
                property="placement.groupName" if resource.type == TEMPLATE else "placementGroup",
                found=f"{'a group' if untold(group) else repr(group)} and {held}",
                expected=expected,
                next_step="leave the group out; a reservation that has a group of its own brings it along",
            )

    for group in stack.of_type(PLACEMENT_GROUP):
        yield from _only_for_held(stack, group)


def _only_for_held(stack: Stack, group: Resource) -> Iterator[Said]:
    """Our launches name the group themselves, so a pool that has only held capacity must have none."""
    pool = at(group.properties, "tags", TAG_POOL)
    if pool is None or untold(pool):
        return
    templates = [one for one in stack.of_type(TEMPLATE) if at(one.properties, "tags", TAG_POOL) == pool]
    if templates and all(_held(one) for one in templates):
        yield Violation(
            resource=group,
            property="tags",
            found=f"a group for the pool {pool!r}, all of whose templates are held capacity",
            expected="no placement group on a reservation or a capacity block",
            next_step="declare the group only for pools that launch on the market, too",
        )


def _group(resource: Resource) -> Value:
    """The group's name or id, unknown ones too; None when there is none."""
    places = (
        ("placement", "groupName"),
        ("placement", "groupId"),
        ("placementGroup",),
        ("placementGroupId",),
    )
    return next((found for place in places if (found := at(resource.properties, *place))), None)


def _held(resource: Resource) -> str | None:
    """What the launch is bound to, in words, or UNKNOWN; None for a free launch."""
    if at(resource.properties, "instanceMarketOptions", "marketType") == "capacity-block":
        return "a capacity block"
    held = at(resource.properties, "capacityReservationSpecification")
    if held is None or untold(held):
        return held
    if at(held, "capacityReservationTarget") is not None:
        return "a reservation"
    return "reservations only" if at(held, "capacityReservationPreference") == ONLY_RESERVED else None


RULES = (
    Rule(name="imdsv2", level=Level.MANDATORY, about="The metadata service asks for a token and answers no container.", judge=metadata),
    Rule(name="placement-on-reservation", level=Level.MANDATORY, about="No placement group is forced on held capacity.", judge=placement),
)  # fmt: skip
