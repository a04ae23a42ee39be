"""Tests of the catalog's facts of AWS properties: complete, current, and parsed correctly."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpucluster.catalog.properties import OnChange, aws_properties

ROOT = Path(__file__).parents[3]
DATA = ROOT / "src/gpucluster/catalog/data"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "make_property_facts", ROOT / "tools/make_property_facts.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_data_and_page_are_what_the_script_writes(script: ModuleType) -> None:
    """Compare with the installed cfn-lint and pulumi-aws: a new version with other facts fails here."""
    facts = script.merged()
    assert (DATA / "aws-properties.json").read_text() == script.json_text(facts)
    assert (ROOT / "docs/facts/aws-properties.md").read_text() == script.doc(facts)


def test_each_source_difference_has_a_reason() -> None:
    types: dict[str, Any] = json.loads((DATA / "aws-properties.json").read_text())["types"]
    rows = [row for one in types.values() for row in one["properties"].values()]
    differing = [row for row in rows if row.get("cloudformation", row["terraform"]) != row["terraform"]]
    assert len(differing) > 40
    assert all(row["why"] and row["taken"] in ("terraform", "cloudformation") for row in differing)


def test_tags_of_every_type_update_in_place() -> None:
    found = {facts.properties["tags"].change for facts in aws_properties().values() if facts.tagged}
    assert found == {OnChange.UPDATE}


@pytest.mark.parametrize(
    ("token", "name", "old", "new", "holds"),
    [
        ("aws:ec2/instance:Instance", "userData", {}, {"userDataReplaceOnChange": True}, True),
        ("aws:ec2/instance:Instance", "userData", {}, {}, False),
        ("aws:ec2/subnet:Subnet", "ipv6CidrBlock", {"assignIpv6AddressOnCreation": True}, {}, True),
        ("aws:ec2/subnet:Subnet", "ipv6CidrBlock", {}, {"assignIpv6AddressOnCreation": True}, False),
        ("aws:ec2/vpcEndpoint:VpcEndpoint", "privateDnsEnabled", {}, {"vpcEndpointType": "Gateway"}, True),
        ("aws:ec2/vpcEndpoint:VpcEndpoint", "privateDnsEnabled", {}, {"vpcEndpointType": "Interface"}, False),
    ],
)
def test_condition_holds_in_its_case_only(
    *, token: str, name: str, old: dict[str, Any], new: dict[str, Any], holds: bool
) -> None:
    conditions = [one for one in aws_properties()[token].conditions if one.property == name]
    assert [one.holds(old, new) for one in conditions] == [holds]
