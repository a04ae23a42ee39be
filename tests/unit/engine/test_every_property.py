"""Each property of each resource type: it replaces or it changes in place, as the upstream provider says it does.

`EXPECTED` is written by hand from the upstream schemas and not from our table: the two are held against each other,
so a type or a property that is added without its line fails here.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from recording_cloud import RecordingCloud

from gpucluster.engine.provider.calls import Call
from gpucluster.engine.provider.diff import diff
from gpucluster.engine.provider.schema import Change, ResourceType
from gpucluster.engine.provider.shapes import (
    AMOUNT,
    DOCUMENT,
    FLAG,
    FLAG_AS_TEXT,
    FRACTION,
    NUMBER,
    REFUSED,
    TAGS,
    TEXT,
    Many,
    One,
    Record,
    Shape,
)
from gpucluster.engine.provider.table import TYPES

# type -> (what replaces, what changes in place); tags always change in place
EXPECTED: Mapping[str, tuple[str, str]] = {
    "ec2/vpc:Vpc": ("cidrBlock instanceTenancy", "enableDnsSupport enableDnsHostnames"),
    "ec2/subnet:Subnet": ("vpcId cidrBlock availabilityZone", "mapPublicIpOnLaunch"),
    "ec2/internetGateway:InternetGateway": ("", "vpcId"),
    "ec2/eip:Eip": (
        "domain address publicIpv4Pool networkBorderGroup",
        "instance networkInterface associateWithPrivateIp",
    ),
    "ec2/natGateway:NatGateway": ("allocationId subnetId connectivityType privateIp", ""),
    "ec2/routeTable:RouteTable": ("vpcId", ""),
    "ec2/route:Route": ("routeTableId destinationCidrBlock", "gatewayId natGatewayId"),
    "ec2/routeTableAssociation:RouteTableAssociation": ("routeTableId subnetId", ""),
    "ec2/vpcEndpoint:VpcEndpoint": (
        "vpcId serviceName vpcEndpointType privateDnsEnabled",
        "routeTableIds subnetIds securityGroupIds policy",
    ),
    "ec2/securityGroup:SecurityGroup": ("name description vpcId", "revokeRulesOnDelete"),
    "vpc/securityGroupIngressRule:SecurityGroupIngressRule": (
        "securityGroupId",
        "ipProtocol fromPort toPort description cidrIpv4 referencedSecurityGroupId prefixListId",
    ),
    "vpc/securityGroupEgressRule:SecurityGroupEgressRule": (
        "securityGroupId",
        "ipProtocol fromPort toPort description cidrIpv4 referencedSecurityGroupId prefixListId",
    ),
    "iam/role:Role": (
        "name path",
        "assumeRolePolicy description maxSessionDuration permissionsBoundary forceDetachPolicies",
    ),
    "iam/rolePolicy:RolePolicy": ("role name", "policy"),
    "iam/rolePolicyAttachment:RolePolicyAttachment": ("role policyArn", ""),
    "iam/instanceProfile:InstanceProfile": ("name path", "role"),
    "secretsmanager/secret:Secret": ("name", "description recoveryWindowInDays forceOverwriteReplicaSecret"),
    "s3/bucket:Bucket": ("bucket", "forceDestroy"),
    "s3/bucketVersioning:BucketVersioning": ("bucket", "versioningConfiguration"),
    "s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": ("bucket", "rules"),
    "s3/bucketPublicAccessBlock:BucketPublicAccessBlock": (
        "bucket",
        "blockPublicAcls blockPublicPolicy ignorePublicAcls restrictPublicBuckets",
    ),
    "s3/bucketPolicy:BucketPolicy": ("bucket", "policy"),
    "s3/bucketObjectv2:BucketObjectv2": (
        "bucket key",
        "contentBase64 contentType serverSideEncryption forceDestroy",
    ),
    "sqs/queue:Queue": (
        "name",
        "messageRetentionSeconds visibilityTimeoutSeconds receiveWaitTimeSeconds sqsManagedSseEnabled",
    ),
    "sqs/queuePolicy:QueuePolicy": ("queueUrl", "policy"),
    "cloudwatch/eventRule:EventRule": ("name", "eventPattern description state forceDestroy"),
    "cloudwatch/eventTarget:EventTarget": ("rule targetId", "arn"),
    "ec2/launchTemplate:LaunchTemplate": (
        "name",
        "description updateDefaultVersion imageId instanceType userData keyName ebsOptimized"
        " vpcSecurityGroupIds instanceInitiatedShutdownBehavior disableApiTermination iamInstanceProfile"
        " metadataOptions instanceMarketOptions capacityReservationSpecification blockDeviceMappings"
        " networkInterfaces placement tagSpecifications",
    ),
    "ec2/placementGroup:PlacementGroup": ("name strategy partitionCount spreadLevel", ""),
    "ebs/volume:Volume": (
        "availabilityZone encrypted kmsKeyId snapshotId multiAttachEnabled",
        "size type iops throughput",
    ),
    "ec2/volumeAttachment:VolumeAttachment": (
        "deviceName instanceId volumeId",
        "forceDetach skipDestroy stopInstanceBeforeDetaching",
    ),
    "ec2/instance:Instance": (
        "ami subnetId privateIp keyName associatePublicIpAddress"
        " rootBlockDevice.encrypted rootBlockDevice.kmsKeyId",
        "instanceType vpcSecurityGroupIds iamInstanceProfile userDataBase64 metadataOptions rootBlockDevice"
        " volumeTags instanceInitiatedShutdownBehavior disableApiTermination",
    ),
    "efs/fileSystem:FileSystem": (
        "creationToken performanceMode encrypted kmsKeyId availabilityZoneName",
        "throughputMode provisionedThroughputInMibps lifecyclePolicies",
    ),
    "efs/mountTarget:MountTarget": ("fileSystemId subnetId ipAddress", "securityGroups"),
    "efs/accessPoint:AccessPoint": ("fileSystemId posixUser rootDirectory", ""),
    "fsx/lustreFileSystem:LustreFileSystem": (
        "subnetIds securityGroupIds deploymentType storageType kmsKeyId copyTagsToBackups driveCacheType"
        " exportPath importPath importedFileChunkSize fileSystemTypeVersion efaEnabled",
        "storageCapacity perUnitStorageThroughput autoImportPolicy automaticBackupRetentionDays"
        " dailyAutomaticBackupStartTime dataCompressionType logConfiguration rootSquashConfiguration"
        " metadataConfiguration weeklyMaintenanceStartTime skipFinalBackup",
    ),
    "fsx/dataRepositoryAssociation:DataRepositoryAssociation": (
        "fileSystemId fileSystemPath dataRepositoryPath batchImportMetaDataOnCreate",
        "importedFileChunkSize deleteDataInFilesystem s3",
    ),
    "budgets/budget:Budget": (
        "name accountId",
        "budgetType limitAmount limitUnit timeUnit timePeriodStart timePeriodEnd costFilters costTypes"
        " notifications",
    ),
}

# A property that goes one way in place and the other anew: type, old inputs, new inputs, whether it replaces.
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
    ("a root volume grows", "ec2/instance:Instance", {"rootBlockDevice": {"encrypted": True, "volumeSize": 8}}, {"rootBlockDevice": {"encrypted": True, "volumeSize": 9}}, False),
)  # fmt: skip

# Samples where a text has a form of its own.
_FORMS: Mapping[str, tuple[Any, Any]] = {
    "timePeriodStart": ("2026-01-01_00:00", "2026-02-01_00:00"),
    "timePeriodEnd": ("2087-06-15_00:00", "2087-07-15_00:00"),
    "validUntil": ("2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z"),
    "contentBase64": (base64.b64encode(b"one").decode(), base64.b64encode(b"two").decode()),
    "userDataBase64": (base64.b64encode(b"one").decode(), base64.b64encode(b"two").decode()),
}
_IDS: Mapping[str, str] = {
    "iam/rolePolicy:RolePolicy": "role:name",
    "iam/rolePolicyAttachment:RolePolicyAttachment": "role/arn",
    "s3/bucketObjectv2:BucketObjectv2": "bucket/key",
    "budgets/budget:Budget": "123456789012:name",
    "cloudwatch/eventTarget:EventTarget": "rule/target",
}


def kind_of(name: str) -> ResourceType:
    return TYPES[f"aws:{name}"]


def inputs_of(kind: ResourceType) -> dict[str, Shape]:
    """Properties that a program may set, but for tags."""
    return {
        key: row.shape
        for key, row in kind.properties.items()
        if row.change is not Change.COMPUTED and key not in ("tags", "tagsAll") and row.shape is not REFUSED
    }


def samples(key: str, shape: Shape) -> Iterator[tuple[str, Any, Any]]:
    """(path, one value, another) for the property, and for each field of what it holds."""
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
    }


CASES = [
    (name, path, key, one, other)
    for name in EXPECTED
    for key, shape in inputs_of(kind_of(name)).items()
    for path, one, other in samples(key, shape)
]


def test_every_type_and_property_has_its_line() -> None:
    """A property without a line, or a line without a property, is named."""
    ours = {kind.name.removeprefix("aws:"): set(inputs_of(kind)) for kind in TYPES.values()}
    lines = {name: {p for p in f"{a} {b}".split() if "." not in p} for name, (a, b) in EXPECTED.items()}
    assert lines == ours


@pytest.mark.parametrize(
    ("name", "path", "key", "one", "other"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES]
)
def test_it_updates_or_replaces(name: str, path: str, key: str, one: Any, other: Any) -> None:
    replacing = EXPECTED[name][0].split()
    found = diff(kind_of(name), {key: one}, {key: other})
    assert found.changed == (key,)
    assert found.replaces == ((key,) if key in replacing or path in replacing else ())


@pytest.mark.parametrize(
    ("name", "olds", "news", "anew"), [c[1:] for c in DIRECTED], ids=[c[0] for c in DIRECTED]
)
def test_the_direction_decides(*, name: str, olds: dict[str, Any], news: dict[str, Any], anew: bool) -> None:
    found = diff(kind_of(name), olds, news)
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
    """Every property set, each to a value of its own; a root volume has its tags by `volumeTags` or by itself."""
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
    """Every name and value of a call's parameters."""
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


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_set_reaches_the_cloud_in_words_that_it_knows(name: str) -> None:
    """A property that Check takes and no call carries would succeed in silence."""
    kind, cloud = kind_of(name), RecordingCloud()
    inputs = full(kind, 1)
    kind.create(Call(cloud, kind, "", inputs, 1))
    if kind.settle is not None:
        kind.settle(Call(cloud, kind, _IDS.get(name, "id-1"), inputs, 1))
    told = {word for _, parameters in cloud.writes for word in words(parameters)}
    sent = {key: row.api for key, row in kind.properties.items() if row.api is not None and key in inputs}
    lost = {key for key, api in sent.items() if api not in told and not _is_told(inputs[key], told)}
    assert lost - _AT_BIRTH_OTHERWISE.get(name, set()) == set()


# told in a form of their own
_AT_BIRTH_OTHERWISE: Mapping[str, set[str]] = {
    "s3/bucketObjectv2:BucketObjectv2": {"contentBase64"},
}


def _is_told(value: Any, told: set[str]) -> bool:
    found = [*leaves(value)]
    return bool(found) and all(any(leaf in word for word in told) for leaf in found)


IN_PLACE = [
    (name, key)
    for name, (_, updating) in EXPECTED.items()
    for key in updating.split()
    if kind_of(name).properties[key].api is not None
]


@pytest.mark.parametrize(("name", "key"), IN_PLACE)
def test_a_change_in_place_is_told_to_the_cloud(name: str, key: str) -> None:
    kind = kind_of(name)
    olds, update = full(kind, 1), kind.update
    assert update is not None
    told: list[Any] = []
    for news, changed in ((olds, frozenset[str]()), (olds | {key: full(kind, 2)[key]}, frozenset({key}))):
        cloud = RecordingCloud()
        update(Call(cloud, kind, _IDS.get(name, "id-1"), news, 1, olds), changed)
        told.append(cloud.writes)
    assert told[1] != told[0]
