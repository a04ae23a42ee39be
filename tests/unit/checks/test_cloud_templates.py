"""The check of launch templates, over those that the real program declares."""

import base64
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from support.aws_plans import declared_of, research
from support.builders import a_plan
from support.declared import Declared, declared_by

from gpucluster.aws.program import declare
from gpucluster.checks.check import CheckResult, CheckStatus, QueryOutput
from gpucluster.checks.cloud_templates import evaluate_templates, parse_templates
from gpucluster.plan import names
from gpucluster.plan.model import Bindings, SlurmOnAws
from gpucluster.plan.model.bindings import TemplateBinding
from gpucluster.sandbox.provider.table import TYPES
from gpucluster.validate.cloud_expectations import of_cluster

KIND = TYPES["aws:ec2/launchTemplate:LaunchTemplate"]
AHEAD = (
    "      - {from: reservation, id: cr-0123456789abcdef0, machines: [p5en.48xlarge], zones: [us-east-2a]}\n"
)
OUTSIDE = ("name", "tags", "tagsAll", "updateDefaultVersion")
Data = dict[str, dict[str, Any]]  # by key of the plan


def declared(plan: SlurmOnAws, found: tuple[Declared, ...]) -> Data:
    """LaunchTemplateData of each template, as the provider sends it."""
    inputs = {r.name.removeprefix(f"{plan.name}-"): r.inputs for r in found if r.type == KIND.name}
    return {key: api(one) for key, one in inputs.items()}


def api(inputs: Mapping[str, Any]) -> dict[str, Any]:
    rows = {name: KIND.properties[name] for name in inputs if name not in OUTSIDE}
    return {str(row.api): row.shape.to_api(inputs[name]) for name, row in rows.items()}


def checked(plan: SlurmOnAws, data: Data) -> CheckResult:
    first = next(iter(data.values()))
    told = json.loads(base64.b64decode(first["UserData"]).decode().removeprefix("#cloud-config\n"))
    group = (first.get("SecurityGroupIds") or first["NetworkInterfaces"][0]["Groups"])[0]
    bindings = Bindings(
        schema=1,
        region=plan.aws.region,
        bucket=json.loads(told["write_files"][0]["content"])["bucket"],
        secret="arn",
        subnets={},
        templates={key: TemplateBinding(id=f"lt-{key}", version=1) for key in data},
        groups={names.ROLE_NODE: group},
    )
    versions = [
        {"LaunchTemplateId": f"lt-{key}", "VersionNumber": 1, "LaunchTemplateData": one}
        for key, one in data.items()
    ]
    want = dict(of_cluster(plan, bindings))["cloud.templates"]
    answer = QueryOutput(code=0, stdout=json.dumps({"LaunchTemplateVersions": versions}))
    return evaluate_templates(parse_templates((answer,)), want)


def reserved() -> tuple[SlurmOnAws, tuple[Declared, ...]]:
    plan = a_plan(("    capacity:\n", f"    capacity:\n{AHEAD}"))
    return plan, declared_by(partial(declare, plan))


@pytest.mark.parametrize(
    "make",
    [lambda: (a_plan(), declared_of(a_plan())), lambda: (research(), declared_of(research())), reserved],
    ids=["burst", "research", "reserved"],
)
def test_templates_of_the_program_have_no_fault(
    make: Callable[[], tuple[SlurmOnAws, tuple[Declared, ...]]],
) -> None:
    plan, found = make()
    result = checked(plan, declared(plan, found))
    assert (result.verdict, result.found) == (
        CheckStatus.PASS,
        f"{sum(len(pool.templates) for pool in plan.pools)} launch templates",
    )


def fewer_interfaces(one: dict[str, Any]) -> None:
    one["NetworkInterfaces"] = one["NetworkInterfaces"][:-1]


def without_fabric(one: dict[str, Any]) -> None:
    one["NetworkInterfaces"] = [{**each, "InterfaceType": "interface"} for each in one["NetworkInterfaces"]]


def other_reservation(one: dict[str, Any]) -> None:
    del one["CapacityReservationSpecification"]


def second_volume(one: dict[str, Any]) -> None:
    disk = {"Encrypted": True, "VolumeSize": 500}
    one["BlockDeviceMappings"] = [*one["BlockDeviceMappings"], {"DeviceName": "/dev/sdb", "Ebs": disk}]


def emptied(one: dict[str, Any]) -> None:
    one.clear()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (fewer_interfaces, "has 16 network interfaces, not the plan's 17"),
        (without_fabric, "has network interfaces of another kind or card than the plan's"),
        (other_reservation, "launches into the reservation none, not cr-0123456789abcdef0"),
        (second_volume, "has 2 volumes, not one"),
        (emptied, "launches no machine type, "),
    ],
)
def test_difference_is_named(change: Callable[[dict[str, Any]], None], words: str) -> None:
    plan, found = reserved()
    data = declared(plan, found)
    change(data["h200-cr-0123456789abcdef0-p5en.48xlarge"])
    data = dict(sorted(data.items(), key=lambda pair: "cr-" in pair[0]))
    result = checked(plan, data)
    assert result.verdict is CheckStatus.FAIL
    about = (
        "version 1 of the launch template lt-h200-cr-0123456789abcdef0-p5en.48xlarge (h200, p5en.48xlarge) "
    )
    assert f"{about}{words}" in result.found
    assert result.remedy == "pulumi up --refresh --stack burst"
