"""Compare the stand-in provider with the catalog's facts, which come from the upstream provider's source.

The test compares every property of every type. A difference fails unless `DIFFERS` or `DELETED_FIRST` has its reason.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from support.recording_cloud import RecordingCloud

from gpucluster.catalog.properties import ResourceFacts, aws_properties
from gpucluster.gitops.properties import difference
from gpucluster.sandbox.provider.diff import diff
from gpucluster.sandbox.provider.schema import Call, Change, ResourceType
from gpucluster.sandbox.provider.shapes import (
    AMOUNT,
    DOCUMENT,
    FLAG,
    FLAG_AS_TEXT,
    FRACTION,
    NUMBER,
    PAIRS,
    TAGS,
    TEXT,
    Many,
    One,
    Record,
    Refused,
    Shape,
)
from gpucluster.sandbox.provider.table import TYPES

NAMES = sorted(name.removeprefix("aws:") for name in TYPES)

# Differences between the stand-in and the catalog's facts, with reasons.
DIFFERS: Mapping[tuple[str, str], str] = {
    (
        "ec2/launchTemplate:LaunchTemplate",
        "defaultVersion",
    ): "an output here: the program sets updateDefaultVersion",
    ("ec2/routeTableAssociation:RouteTableAssociation", "routeTableId"): (
        "ReplaceRouteTableAssociation answers another id, and an update of the stand-in keeps the id"
    ),
    ("s3/bucketObjectv2:BucketObjectv2", "etag"): "an output here: the program sets contentBase64",
}
# Updates that upstream passes over: internal/service/eks/cluster.go, `resourceClusterUpdate`.
SILENT = {("eks/cluster:Cluster", "encryptionConfig")}
DELETED_FIRST: Mapping[str, str] = {
    "ec2/routeTableAssociation:RouteTableAssociation": (
        "a new table replaces it here, and a subnet has one association; upstream updates it in place"
    ),
}

# Properties whose effect depends on the direction: type, old inputs, new inputs, whether it replaces.
DIRECTED: tuple[tuple[str, str, dict[str, Any], dict[str, Any], bool], ...] = (
    ("a dedicated VPC becomes an ordinary one", "ec2/vpc:Vpc", {"instanceTenancy": "dedicated"}, {"instanceTenancy": "default"}, False),
    ("an ordinary VPC does not become dedicated", "ec2/vpc:Vpc", {"instanceTenancy": "default"}, {"instanceTenancy": "dedicated"}, True),
    ("private names of an interface endpoint", "ec2/vpcEndpoint:VpcEndpoint", {"vpcEndpointType": "Interface", "privateDnsEnabled": False}, {"vpcEndpointType": "Interface", "privateDnsEnabled": True}, False),
    ("another range of a rule", "vpc/securityGroupIngressRule:SecurityGroupIngressRule", {"cidrIpv4": "10.0.0.0/8"}, {"cidrIpv4": "10.0.0.0/16"}, False),
    ("a group for a range in a rule", "vpc/securityGroupIngressRule:SecurityGroupIngressRule", {"cidrIpv4": "10.0.0.0/8"}, {"referencedSecurityGroupId": "sg-1"}, True),
    ("a range for a group in a rule", "vpc/securityGroupEgressRule:SecurityGroupEgressRule", {"referencedSecurityGroupId": "sg-1"}, {"cidrIpv4": "0.0.0.0/0"}, True),
    ("a Lustre grows", "fsx/lustreFileSystem:LustreFileSystem", {"storageCapacity": 1200, "deploymentType": "PERSISTENT_2"}, {"storageCapacity": 2400, "deploymentType": "PERSISTENT_2"}, False),
    ("a Lustre does not shrink", "fsx/lustreFileSystem:LustreFileSystem", {"storageCapacity": 2400, "deploymentType": "PERSISTENT_2"}, {"storageCapacity": 1200, "deploymentType": "PERSISTENT_2"}, True),
    ("a first scratch Lustre does not even grow", "fsx/lustreFileSystem:LustreFileSystem", {"storageCapacity": 1200, "deploymentType": "SCRATCH_1"}, {"storageCapacity": 2400, "deploymentType": "SCRATCH_1"}, True),
    ("a Lustre's metadata gets faster", "fsx/lustreFileSystem:LustreFileSystem", {"metadataConfiguration": {"mode": "USER_PROVISIONED", "iops": 1500}}, {"metadataConfiguration": {"mode": "USER_PROVISIONED", "iops": 3000}}, False),
    ("a Lustre's metadata does not get slower", "fsx/lustreFileSystem:LustreFileSystem", {"metadataConfiguration": {"mode": "USER_PROVISIONED", "iops": 3000}}, {"metadataConfiguration": {"mode": "USER_PROVISIONED", "iops": 1500}}, True),
    ("the secrets of a cluster get a key", "eks/cluster:Cluster", {}, {"encryptionConfig": {"provider": {"keyArn": "arn"}, "resources": ["secrets"]}}, False),
    ("the secrets of a cluster keep a key", "eks/cluster:Cluster", {"encryptionConfig": {"provider": {"keyArn": "arn"}, "resources": ["secrets"]}}, {}, True),
    ("a root volume grows", "ec2/instance:Instance", {"rootBlockDevice": {"encrypted": True, "volumeSize": 8}}, {"rootBlockDevice": {"encrypted": True, "volumeSize": 9}}, False),
)  # fmt: skip

# Sample values for texts with a special format.
_FORMS: Mapping[str, tuple[Any, Any]] = {
    "timePeriodStart": ("2026-01-01_00:00", "2026-02-01_00:00"),
    "timePeriodEnd": ("2087-06-15_00:00", "2087-07-15_00:00"),
    "validUntil": ("2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z"),
    "contentBase64": (base64.b64encode(b"one").decode(), base64.b64encode(b"two").decode()),
    "userDataBase64": (base64.b64encode(b"one").decode(), base64.b64encode(b"two").decode()),
}
_IDS: Mapping[str, str] = {
    "eks/addon:Addon": "cluster:addon",
    "eks/nodeGroup:NodeGroup": "cluster:group",
    "iam/rolePolicy:RolePolicy": "role:name",
    "iam/rolePolicyAttachment:RolePolicyAttachment": "role/arn",
    "s3/bucketObjectv2:BucketObjectv2": "bucket/key",
    "budgets/budget:Budget": "123456789012:name",
    "cloudwatch/eventTarget:EventTarget": "rule/target",
    "eks/accessPolicyAssociation:AccessPolicyAssociation": "cluster#principal#policy",
}


def kind_of(name: str) -> ResourceType:
    return TYPES[f"aws:{name}"]


def inputs_of(kind: ResourceType) -> dict[str, Shape]:
    """Properties that a program may set, except tags."""
    return {
        key: row.shape
        for key, row in kind.properties.items()
        if row.change is not Change.COMPUTED
        and key not in ("tags", "tagsAll")
        and not isinstance(row.shape, Refused)
    }


def samples(key: str, shape: Shape) -> Iterator[tuple[str, Any, Any]]:
    """Return (path, one value, another value) for the property and each nested field."""
    if key.rpartition(".")[2] in _FORMS:
        yield (key, *_FORMS[key.rpartition(".")[2]])
    elif isinstance(shape, Record):
        for name, field in shape.fields.items():
            for path, one, other in samples(f"{key}.{name}", field.shape):
                yield path, {name: one}, {name: other}
    elif isinstance(shape, Many):
        for path, one, other in samples(key, shape.item):
            yield path, [one], [other]
    elif isinstance(shape, One):
        yield from samples(key, shape.item)
    else:
        yield (key, *_scalars(key.rpartition(".")[2])[id(shape)])


def _scalars(name: str) -> dict[int, tuple[Any, Any]]:
    return {
        id(TEXT): (f"{name}-one", f"{name}-two"),
        id(NUMBER): (41, 42),
        id(FRACTION): (41.5, 42.5),
        id(FLAG): (True, False),
        id(FLAG_AS_TEXT): ("true", "false"),
        id(AMOUNT): ("41.5", "42.5"),
        id(DOCUMENT): (json.dumps({"one": name}), json.dumps({"two": name})),
        id(TAGS): ({"name": f"{name}-one"}, {"name": f"{name}-two"}),
        id(PAIRS): ({"name": f"{name}-one"}, {"name": f"{name}-two"}),
    }


CASES = [
    (name, path, key, one, other)
    for name in NAMES
    for key, shape in inputs_of(kind_of(name)).items()
    for path, one, other in samples(key, shape)
]


def facts_of(name: str) -> ResourceFacts:
    return aws_properties()[f"aws:{name}"]


def test_catalog_and_stand_in_know_the_same_types() -> None:
    assert aws_properties().keys() == TYPES.keys()


@pytest.mark.parametrize("name", NAMES)
def test_properties_update_replace_or_are_computed_as_upstream(name: str) -> None:
    kind, facts = kind_of(name), facts_of(name)
    found = {
        key: (row.change.value, facts.properties[key].change.value if key in facts.properties else "unknown")
        for key, row in kind.properties.items()
        if key != "tagsAll" and (name, key) not in DIFFERS
    }
    assert {key: pair for key, pair in found.items() if pair[0] != pair[1]} == {}
    assert kind.tagged == facts.tagged
    assert (kind.autoname.property if kind.autoname else None) == facts.auto_name


@pytest.mark.parametrize("name", NAMES)
def test_resources_are_deleted_first_as_upstream(name: str) -> None:
    assert (kind_of(name).delete_first != facts_of(name).delete_before_replace) == (name in DELETED_FIRST)


def test_every_listed_difference_exists() -> None:
    for name, key in DIFFERS:
        assert kind_of(name).properties[key].change.value != facts_of(name).properties[key].change.value


@pytest.mark.parametrize(
    ("name", "path", "key", "one", "other"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES]
)
def test_change_of_each_value_replaces_like_the_upstream_provider(
    name: str, path: str, key: str, one: Any, other: Any
) -> None:
    found, upstream = (
        diff(kind_of(name), {key: one}, {key: other}),
        difference(facts_of(name), {key: one}, {key: other}),
    )
    assert found.changed == upstream.changed == (key,), path
    if (name, key) not in DIFFERS:
        assert found.replaces == upstream.replaces, path


@pytest.mark.parametrize(
    ("name", "olds", "news", "anew"), [c[1:] for c in DIRECTED], ids=[c[0] for c in DIRECTED]
)
def test_direction_of_change_decides(
    *, name: str, olds: dict[str, Any], news: dict[str, Any], anew: bool
) -> None:
    for found in (diff(kind_of(name), olds, news), difference(facts_of(name), olds, news)):
        assert found.changed
        assert bool(found.replaces) is anew


def test_every_direction_of_the_table_has_a_case() -> None:
    directed = {
        (kind.name.removeprefix("aws:"), key)
        for kind in TYPES.values()
        for key, row in kind.properties.items()
        if row.anew_when is not None
    }
    shown = {(name, key) for _, name, olds, news, _ in DIRECTED for key in {*olds, *news}}
    assert {one for one in directed - shown if "prefixListId" not in one} == set()


def full(kind: ResourceType, side: int) -> dict[str, Any]:
    """Return inputs with every property set to a distinct value. A root volume has `volumeTags` or its own tags."""
    found: dict[str, Any] = {"tags": {"name": f"tag-{side}"}, "tagsAll": {"name": f"tag-{side}"}}
    for key, shape in inputs_of(kind).items():
        every = [sample[side] for sample in samples(key, shape) if sample[0] != "rootBlockDevice.tags"]
        found[key] = _merged(every) if isinstance(shape, Record) else every[-1]
        if isinstance(shape, Many) and isinstance(shape.item, Record):
            found[key] = [_merged([one[0] for one in every])]
    return found


def _merged(parts: Sequence[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            nested = isinstance(value, dict) and isinstance(found.get(name), dict)
            found[name] = _merged([found[name], value]) if nested else value
    return found


def words(value: Any) -> Iterator[str]:
    """Return every name and value of a call's parameters."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield str(name)
            yield from words(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from words(item)
    else:
        yield value.decode() if isinstance(value, bytes) else str(value)


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    elif not isinstance(value, bool) and value not in ("true", "false"):
        yield str(value)


@pytest.mark.parametrize("name", NAMES)
def test_every_set_property_reaches_the_api(name: str) -> None:
    """A property that Check accepts and no call sends would be ignored silently."""
    kind, cloud = kind_of(name), RecordingCloud()
    inputs = full(kind, 1)
    kind.create(Call(cloud, kind, "", inputs, 1))
    if kind.complete is not None:
        kind.complete(Call(cloud, kind, _IDS.get(name, "id-1"), inputs, 1))
    told = {word for _, parameters in cloud.writes for word in words(parameters)}
    sent = {key: row.api for key, row in kind.properties.items() if row.api is not None and key in inputs}
    lost = {key for key, api in sent.items() if api not in told and not _is_told(inputs[key], told)}
    assert lost - _SET_AT_CREATION.get(name, set()) == set()


# sent in a special form
_SET_AT_CREATION: Mapping[str, set[str]] = {
    "kms/key:Key": {"enableKeyRotation"},  # by the name of the call
    "s3/bucketObjectv2:BucketObjectv2": {"contentBase64"},
}


def _is_told(value: Any, told: set[str]) -> bool:
    found = [*leaves(value)]
    return bool(found) and all(any(leaf in word for word in told) for leaf in found)


IN_PLACE = [
    (name, key)
    for name in NAMES
    for key in inputs_of(kind_of(name))
    if kind_of(name).properties[key].change is Change.UPDATE and kind_of(name).properties[key].api is not None
]


@pytest.mark.parametrize(("name", "key"), IN_PLACE)
def test_update_in_place_reaches_the_api(name: str, key: str) -> None:
    kind = kind_of(name)
    olds, update = full(kind, 1), kind.update
    assert update is not None
    told: list[Any] = []
    for news, changed in ((olds, frozenset[str]()), (olds | {key: full(kind, 2)[key]}, frozenset({key}))):
        cloud = RecordingCloud()
        update(Call(cloud, kind, _IDS.get(name, "id-1"), news, 1, olds), changed)
        told.append(cloud.writes)
    assert (told[1] == told[0]) is ((name, key) in SILENT)


def test_key_of_the_secrets_is_added_to_a_cluster_without_one() -> None:
    """And another key is passed over in silence, as upstream does: an error would hide that `pulumi up` deletes the old one."""
    kind = kind_of("eks/cluster:Cluster")
    update, news = kind.update, full(kind, 1)
    assert update is not None
    olds = {key: value for key, value in news.items() if key != "encryptionConfig"}
    cloud = RecordingCloud()
    update(Call(cloud, kind, "id-1", news, 1, olds), frozenset({"encryptionConfig"}))
    assert "associate_encryption_config" in str(cloud.writes)
