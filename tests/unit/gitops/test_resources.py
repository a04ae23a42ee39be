"""Tests of resource changes between two planned programs."""

from dataclasses import replace
from typing import Any

import pytest
from support.builders import SPEC, a_spec_text
from support.reviewed import a_diff

from gpucluster.engine.offline.model import UNKNOWN, Planned, Resource
from gpucluster.gitops.model import Kind, ResourceChange
from gpucluster.gitops.resources import compare
from gpucluster.spec import UpdateClass

VPC, SUBNET = "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet"
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
ROUTE, NAT = "aws:ec2/route:Route", "aws:ec2/natGateway:NatGateway"
HEAD, TEMPLATE = "aws:ec2/instance:Instance", "aws:ec2/launchTemplate:LaunchTemplate"


def _resource(kind: str, name: str, *, hangs_on: dict[str, str] | None = None, **properties: Any) -> Resource:
    deps = {prop: (f"urn::{urn}",) for prop, urn in (hangs_on or {}).items()}
    return Resource(
        urn=f"urn::{kind}::{name}",
        type=kind,
        name=name,
        custom=True,
        property_dependencies=deps,
        properties=properties,
    )


def _planned(*resources: Resource) -> Planned:
    return Planned(project="gpucluster", stack="burst", resources=resources)


def _only(old: Resource | None, new: Resource | None) -> ResourceChange:
    (found,) = compare(_planned(*([old] if old else [])), _planned(*([new] if new else [])))
    return found


def test_same_resources_are_no_change() -> None:
    planned = _planned(_resource(VPC, "burst", cidrBlock="10.0.0.0/16"), _resource(HEAD, "h", ami=UNKNOWN))
    assert compare(planned, planned) == ()


@pytest.mark.parametrize(
    ("kind", "name", "old", "new", "expected"),
    [
        (VPC, "cidrBlock", "10.0.0.0/16", "10.1.0.0/16", (Kind.REPLACED, UpdateClass.REPLACE)),
        (VPC, "enableDnsSupport", True, False, (Kind.CHANGED, UpdateClass.LIVE)),
        (HEAD, "instanceType", "m7i.xlarge", "m7i.2xlarge", (Kind.CHANGED, UpdateClass.RESTART)),
        (HEAD, "tags", {"a": "1"}, {"a": "2"}, (Kind.CHANGED, UpdateClass.NONE)),
        (TEMPLATE, "userData", "YQ==", "Yg==", (Kind.CHANGED, UpdateClass.NEW_NODES)),
        ("aws:new/thing:Thing", "size", 1, 2, (Kind.REPLACED, UpdateClass.REPLACE)),
        (LUSTRE, "deploymentType", "A", "B", (Kind.REPLACED, UpdateClass.DATA_LOSS)),
        (LUSTRE, "perUnitStorageThroughput", 125, 250, (Kind.CHANGED, UpdateClass.RESTART)),
        ("pulumi:providers:aws", "region", "us-east-1", "us-east-2", (Kind.REPLACED, UpdateClass.REPLACE)),
        ("pulumi:providers:aws", "defaultTags", "{}", '{"a":1}', (Kind.CHANGED, UpdateClass.LIVE)),
    ],
)
def test_changed_property(
    kind: str, name: str, old: Any, new: Any, expected: tuple[Kind, UpdateClass]
) -> None:
    found = _only(_resource(kind, "one", **{name: old}), _resource(kind, "one", **{name: new}))
    assert (found.kind, found.update) == expected
    assert [one.name for one in found.properties] == [name]


@pytest.mark.parametrize(
    ("kind", "update"),
    [
        (TEMPLATE, UpdateClass.NEW_NODES),
        (SUBNET, UpdateClass.STOP_FLEET),
        (HEAD, UpdateClass.RESTART),
        ("aws:iam/role:Role", UpdateClass.LIVE),
        ("aws:iam/instanceProfile:InstanceProfile", UpdateClass.LIVE),
        ("aws:ec2/securityGroup:SecurityGroup", UpdateClass.LIVE),
        ("aws:ec2/route:Route", UpdateClass.LIVE),
        ("aws:efs/fileSystem:FileSystem", UpdateClass.DATA_LOSS),
        ("aws:ebs/volume:Volume", UpdateClass.DATA_LOSS),
        ("aws:efs/mountTarget:MountTarget", UpdateClass.DRAIN),
        ("aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation", UpdateClass.LIVE),
        ("aws:ec2/natGateway:NatGateway", UpdateClass.LIVE),
        ("aws:ec2/placementGroup:PlacementGroup", UpdateClass.NEW_NODES),
    ],
)
def test_removed_resource(kind: str, update: UpdateClass) -> None:
    found = _only(_resource(kind, "one"), None)
    assert (found.kind, found.update) == (Kind.REMOVED, update)


@pytest.mark.parametrize(
    ("size", "update", "words"),
    [(50, UpdateClass.DATA_LOSS, "AWS refuses a smaller size"), (200, UpdateClass.LIVE, "")],
)
def test_volume_can_grow_but_not_shrink(size: int, update: UpdateClass, words: str) -> None:
    """Regression: it was `live` here, but data loss at the top of the same report."""
    found = _only(*(_resource("aws:ebs/volume:Volume", "apps", size=one) for one in (100, size)))
    assert (found.kind, found.update) == (Kind.CHANGED, update)
    assert found.why.startswith(words)
    assert bool(found.why) == bool(words)


def test_new_resource_affects_nothing_running() -> None:
    found = _only(None, _resource(HEAD, "one"))
    assert (found.kind, found.update) == (Kind.ADDED, UpdateClass.LIVE)


def test_protected_resource_is_not_deleted() -> None:
    assert "protected" in _only(replace(_resource(VPC, "one"), protect=True), None).why


def test_protected_resource_is_not_replaced() -> None:
    """Regression: only a removal said that `pulumi up` refuses."""
    old, new = (replace(_resource(VPC, "one", cidrBlock=cidr), protect=True) for cidr in ("a", "b"))
    found = _only(old, new)
    assert found.protected
    assert found.why.endswith("`pulumi up` refuses until the protection is removed")


@pytest.mark.parametrize(
    ("kind", "fixed", "update"),
    [
        (
            "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
            "dataRepositoryPath",
            UpdateClass.LIVE,
        ),
        (SUBNET, "vpcId", UpdateClass.REPLACE),
    ],
)
def test_replacement_costs_no_more_than_a_removal_that_touches_nothing(
    kind: str, fixed: str, update: UpdateClass
) -> None:
    """Regression: a changed link of a Lustre with S3 was `replace`, and lost running jobs."""
    sides = ({fixed: "s3://a"}, {fixed: "s3://b"})
    found = _only(*(_resource(kind, "one", hangs_on=None, **one) for one in sides))
    assert (found.kind, found.update) == (Kind.REPLACED, update)


def test_dependents_of_replaced_resource_are_replaced_or_updated() -> None:
    def world(cidr: str) -> Planned:
        return _planned(
            _resource(VPC, "v", cidrBlock=cidr),
            _resource(SUBNET, "s", hangs_on={"vpcId": f"{VPC}::v"}, vpcId=UNKNOWN),
            _resource(HEAD, "h", hangs_on={"subnetId": f"{SUBNET}::s"}, subnetId=UNKNOWN),
            _resource(
                TEMPLATE,
                "t",
                hangs_on={"vpcSecurityGroupIds": f"{SUBNET}::s"},
                vpcSecurityGroupIds=[UNKNOWN],
            ),
        )

    found = compare(world("10.0.0.0/16"), world("10.1.0.0/16"))
    assert [(one.name, one.kind, one.update) for one in found] == [
        ("h", Kind.REPLACED, UpdateClass.REPLACE),
        ("s", Kind.REPLACED, UpdateClass.REPLACE),
        ("v", Kind.REPLACED, UpdateClass.REPLACE),
        ("t", Kind.CHANGED, UpdateClass.NEW_NODES),
    ]


def test_resources_of_replaced_provider_are_replaced() -> None:
    """A new region changes no property of a role, but replaces every role."""
    role = replace(_resource("aws:iam/role:Role", "r"), provider="urn::pulumi:providers:aws::aws")

    def world(region: str) -> Planned:
        return _planned(_resource("pulumi:providers:aws", "aws", region=region), role)

    found = {one.name: one for one in compare(world("us-east-1"), world("us-east-2"))}
    assert (found["r"].kind, found["r"].why) == (Kind.REPLACED, "its provider has another region")


def test_replace_options_of_program_are_respected() -> None:
    old, new = (_resource(VPC, "v", enableDnsSupport=flag) for flag in (True, False))
    found = _only(old, replace(new, replace_on_changes=("enableDnsSupport",)))
    assert found.kind is Kind.REPLACED


def test_replace_option_of_one_key_is_respected() -> None:
    """The engine takes a path such as `labels["a.b/c"]`, too (Pulumi, `replaceOnChanges`)."""
    group = "aws:eks/nodeGroup:NodeGroup"

    def kind(old: dict[str, str], new: dict[str, str]) -> Kind:
        after = _resource(group, "g", labels=new)
        return _only(
            _resource(group, "g", labels=old), replace(after, replace_on_changes=('labels["a.b/c"]',))
        ).kind

    assert kind({"a.b/c": "1"}, {"a.b/c": "2"}) is Kind.REPLACED
    assert kind({}, {"a.b/c": "2"}) is Kind.REPLACED
    assert kind({"a.b/c": "1", "d": "1"}, {"a.b/c": "1", "d": "2"}) is Kind.CHANGED


def test_ignored_property_is_no_change() -> None:
    old, new = (_resource(VPC, "v", enableDnsSupport=flag) for flag in (True, False))
    assert compare(_planned(old), _planned(replace(new, ignore_changes=("enableDnsSupport",)))) == ()


def test_ignored_part_of_a_property_is_no_change() -> None:
    ignored = ("vpcConfig.subnetIds",)

    def cluster(subnets: list[str], public: bool) -> Resource:
        inside = {"subnetIds": subnets, "endpointPublicAccess": public}
        made = _resource("aws:eks/cluster:Cluster", "c", vpcConfig=inside)
        return replace(made, ignore_changes=ignored)

    old = cluster(["a", "b"], False)
    assert compare(_planned(old), _planned(cluster(["a", "b", "c"], False))) == ()
    found = _only(old, cluster(["a", "b", "c"], True))
    assert [one.name for one in found.properties] == ["vpcConfig"]


def test_components_and_read_resources_are_ignored() -> None:
    component = replace(_resource("gpucluster:aws:Head", "h", a=1), custom=False)
    external = replace(_resource(VPC, "v", cidrBlock="a"), external=True)
    assert compare(_planned(component, external), _planned()) == ()


def test_equivalent_policy_documents_are_equal() -> None:
    policy = "aws:iam/rolePolicy:RolePolicy"
    old = _resource(policy, "p", policy='{"a": 1, "b": 2}')
    new = _resource(policy, "p", policy='{"b":2,"a":1}')
    assert compare(_planned(old), _planned(new)) == ()


def test_engine_replacement_raises_the_class_and_is_quoted() -> None:
    worse = compare(
        _planned(_resource(VPC, "burst", cidrBlock="a")), _planned(_resource(VPC, "burst", cidrBlock="b"))
    )
    found = a_diff(SPEC, a_spec_text(("idle: 5m", "idle: 6m")), worse)
    assert found.worst is UpdateClass.REPLACE
    assert found.engine_note == (
        "the effect on resources is worse: replace instead of live, because aws:ec2/vpc:Vpc burst is replaced: "
        "cidrBlock cannot change in place"
    )


def test_engine_is_not_quoted_when_it_agrees() -> None:
    milder = (ResourceChange(type=VPC, name="v", kind=Kind.CHANGED, update=UpdateClass.LIVE),)
    assert a_diff(SPEC, a_spec_text(("10.42.0.0/16", "10.43.0.0/16")), milder).engine_note is None


def test_reference_change_is_found_without_ids() -> None:
    """A Lustre that moves to another zone's subnet is lost. A route that uses another gateway is not."""

    def world(one: str) -> Planned:
        return _planned(
            _resource(LUSTRE, "data", hangs_on={"subnetIds": f"{SUBNET}::{one}"}, subnetIds=UNKNOWN),
            _resource(ROUTE, "out", hangs_on={"natGatewayId": f"{NAT}::{one}"}, natGatewayId=UNKNOWN),
        )

    found = compare(world("a"), world("b"))
    assert [(one.name, one.kind, one.update) for one in found] == [
        ("data", Kind.REPLACED, UpdateClass.DATA_LOSS),
        ("out", Kind.CHANGED, UpdateClass.LIVE),
    ]
    assert compare(world("a"), world("a")) == ()
