"""Every property of every stack, checked with CloudFormation's schemas in cfn-lint, which AWS publishes."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from support.cloudformation import NOT_MAPPED, ROWS, Translated, refusals, translate
from support.declared import Declared
from support.judged_stacks import EVERY, judged

# (rule, property) -> (part of the message, why the finding is no fault). A row that no stack needs is refused.
ALLOWED: Mapping[tuple[str, str], tuple[str, str]] = {
    ("E3628", "LaunchTemplateData.InstanceType"): (
        "'p5e.48xlarge' is not one of",
        "The spec asks for it after p5en.48xlarge; where it is not sold, the daemon passes over it and `doctor` says so.",
    ),
}


def every() -> Iterator[tuple[str, str, Declared]]:
    """(stack, region, resource)"""
    for name in EVERY:
        stack = judged(name)
        yield from ((name, stack.region, resource) for resource in stack.resources)


@pytest.fixture(scope="module")
def translated() -> dict[str, list[Translated]]:
    """Group by region, because some regions do not offer a machine type."""
    found: dict[str, list[Translated]] = {}
    for _, region, resource in every():
        one = translate(resource)
        if one is not None:
            found.setdefault(region, []).append(one)
    return found


def test_each_type_has_a_row() -> None:
    used = {resource.type for _, _, resource in every()}
    assert used - ROWS.keys() - NOT_MAPPED.keys() == set(), "add a row to tests/support/cloudformation.py"
    assert (ROWS.keys() | NOT_MAPPED.keys()) - used == set(), "no stack declares this type"
    assert ROWS.keys() & NOT_MAPPED.keys() == set()


def test_each_property_has_a_place(translated: Mapping[str, list[Translated]]) -> None:
    """A property that CloudFormation lacks needs a reason in `left_out`."""
    assert [(one.where, one.unplaced) for found in translated.values() for one in found if one.unplaced] == []


def test_each_reason_is_needed() -> None:
    used = {(resource.type, name) for _, _, resource in every() for name in resource.inputs}
    left = {(kind, name) for kind, row in ROWS.items() for name in row.left_out}
    assert left - used == set(), "no stack declares this property"


def test_cfn_lint_refuses_nothing(translated: Mapping[str, list[Translated]]) -> None:
    found = [one for region, resources in translated.items() for one in refusals(resources, region)]
    wrong = [one for one in found if not _is_allowed(*one)]
    assert wrong == []
    assert len(ALLOWED) == len({(rule, text.partition(":")[0]) for _, rule, text in found})


def _is_allowed(_: str, rule: str, text: str) -> bool:
    place, _, message = text.partition(": ")
    row = ALLOWED.get((rule, place))
    return row is not None and row[0] in message


def test_minimum_number_of_checks(translated: Mapping[str, list[Translated]]) -> None:
    """The counts guard against a program whose resources are no longer found."""
    found = [one for resources in translated.values() for one in resources]
    kinds = Counter(one.type for one in found)
    assert len(found) >= 450
    assert len(kinds) >= 30
    assert sum(one.judged for one in found) >= 5000


def planted(kind: str, change: Mapping[str, Any]) -> Translated:
    """Return a resource of the research stack with a mistake. A property that is None is removed."""
    base = next(one for one in judged("research").resources if one.type == kind)
    inputs = {k: v for k, v in {**base.inputs, **change}.items() if v is not None}
    found = translate(Declared(kind, base.name, inputs))
    assert found is not None
    return found


PLANTED: list[tuple[str, str, dict[str, Any], str]] = [
    ("a wrong enumeration", "aws:ec2/placementGroup:PlacementGroup", {"strategy": "clustered"}, "E3030"),
    ("a wrong enumeration inside", "aws:ec2/instance:Instance", {"metadataOptions": {"httpTokens": "yes"}}, "E3030"),
    ("a wrong pattern", "aws:ec2/natGateway:NatGateway", {"subnetId": "net-1"}, "E1154"),
    ("a wrong range of addresses", "aws:ec2/subnet:Subnet", {"cidrBlock": "10.0.0.0/99"}, "E3002"),
    ("a missing required property", "aws:sqs/queuePolicy:QueuePolicy", {"policy": "null"}, "E3003"),
    ("no required property", "aws:efs/mountTarget:MountTarget", {"subnetId": None}, "E3003"),
    ("a number out of range", "aws:sqs/queue:Queue", {"visibilityTimeoutSeconds": 50000}, "E3034"),
    ("a text for a number", "aws:ebs/volume:Volume", {"size": "large"}, "E3012"),
    ("a type that no volume has", "aws:ebs/volume:Volume", {"type": "gp9"}, "E3030"),
    ("a type that is not sold", "aws:ec2/instance:Instance", {"instanceType": "m9.huge"}, "E3628"),
    ("too long a description", "aws:secretsmanager/secret:Secret", {"description": "x" * 3000}, "E3033"),
]  # fmt: skip


@pytest.fixture(scope="module")
def refused() -> set[tuple[int, str]]:
    """Return (number of the row, rule) from one run of cfn-lint."""
    rows = [planted(kind, change) for _, kind, change, _ in PLANTED]
    marked = [
        Translated(where=str(n), type=r.type, properties=r.properties, unplaced=(), judged=0)
        for n, r in enumerate(rows)
    ]
    return {(int(where), rule) for where, rule, _ in refusals(marked, "us-east-1") if where}


@pytest.mark.parametrize("number", range(len(PLANTED)), ids=[row[0] for row in PLANTED])
def test_planted_mistake_is_reported(number: int, refused: set[tuple[int, str]]) -> None:
    rules = {rule for which, rule in refused if which == number}
    assert PLANTED[number][3] in rules, rules


def test_property_that_cloudformation_lacks_is_reported() -> None:
    assert planted("aws:ec2/subnet:Subnet", {"mapPublicIpsOnLaunch": True}).unplaced == (
        "mapPublicIpsOnLaunch",
    )
