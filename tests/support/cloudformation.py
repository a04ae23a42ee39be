"""Judge resources by CloudFormation's schemas and the rules of cfn-lint: types, enumerations, patterns, required properties.

Pulumi's names and CloudFormation's differ. A table translates them. What the table does not have is reported: nothing is
left out without a reason.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import cfnlint
from cfnlint.api import lint
from cfnlint.config import ManualArgs

from support.declared import Declared

Value = Any
SCHEMAS = Path(cfnlint.__file__).parent / "data/schemas"


@dataclass(frozen=True, kw_only=True)
class Row:
    """How a Pulumi type is written in CloudFormation.

    `names` maps a property to a path in CloudFormation, where the same word in another case is not right. `left_out` has
    properties that CloudFormation lacks, with the reason. `shape` changes values before the translation. `beside` are
    properties that CloudFormation requires and that another Pulumi resource sets.
    """

    type: str
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    shape: Callable[[dict[str, Value]], dict[str, Value]] = lambda given: given
    beside: Mapping[str, Value] = field(default_factory=dict[str, Value])


def _parsed(*names: str) -> Callable[[dict[str, Value]], dict[str, Value]]:
    """Replace the JSON text of these properties by its value."""
    return lambda given: {k: json.loads(v) if k in names else v for k, v in given.items()}


def _budget(given: dict[str, Value]) -> dict[str, Value]:
    fields = dict(given)
    notices = [
        {
            "notification": {k: v for k, v in one.items() if k != "subscriberEmailAddresses"},
            "subscribers": [
                {"subscriptionType": "EMAIL", "address": mail} for mail in one["subscriberEmailAddresses"]
            ],
        }
        for one in fields.pop("notifications", [])
    ]
    limit = {"amount": float(fields.pop("limitAmount")), "unit": fields.pop("limitUnit")}
    filters = {one["name"]: one["values"] for one in fields.pop("costFilters", [])}
    budget = {**fields, "budgetLimit": limit, "costFilters": filters}
    return {"budget": budget, "notificationsWithSubscribers": notices}


def _instance(given: dict[str, Value]) -> dict[str, Value]:
    fields = dict(given)
    root = fields.pop("rootBlockDevice", None)
    if root is not None:
        plain = {k: v for k, v in root.items() if k not in ("tags",)}
        fields["blockDeviceMappings"] = [{"deviceName": "/dev/sda1", "ebs": plain}]
    return fields


def _template(given: dict[str, Value]) -> dict[str, Value]:
    """All but name, tags and versions is in LaunchTemplateData."""
    outside = ("name", "namePrefix", "description", "tags", "updateDefaultVersion")
    fields = {k: v for k, v in given.items() if k in outside}
    inside = {k: v for k, v in given.items() if k not in outside}
    if "vpcSecurityGroupIds" in inside:
        inside["securityGroupIds"] = inside.pop("vpcSecurityGroupIds")
    for interface in inside.get("networkInterfaces", []):
        if "securityGroups" in interface:
            interface["groups"] = interface.pop("securityGroups")
    if "tags" in fields:
        fields["tagSpecifications"] = [{"resourceType": "launch-template", "tags": fields.pop("tags")}]
    return {**fields, "launchTemplateData": inside}


def _lustre(given: dict[str, Value]) -> dict[str, Value]:
    outside = (
        *("tags", "subnetIds", "securityGroupIds", "storageCapacity", "storageType", "fileSystemTypeVersion"),
        *("kmsKeyId", "backupId"),
    )
    fields = {k: v for k, v in given.items() if k in outside}
    if isinstance(fields.get("subnetIds"), str):
        fields["subnetIds"] = [fields["subnetIds"]]
    inside = {k: v for k, v in given.items() if k not in outside}
    return {**fields, "fileSystemType": "LUSTRE", "lustreConfiguration": inside}


def _encryption(given: dict[str, Value]) -> dict[str, Value]:
    rules = [
        {k.replace("applyServerSide", "serverSide"): value for k, value in rule.items()}
        for rule in given["rules"]
    ]
    return {"bucketEncryption": {"serverSideEncryptionConfiguration": rules}}


def _lifecycle(given: dict[str, Value]) -> dict[str, Value]:
    """CloudFormation has the prefix beside the rule, not in a filter."""
    rules = [
        {
            "prefix" if key == "filter" else key: value["prefix"] if key == "filter" else value
            for key, value in rule.items()
        }
        for rule in given["rules"]
    ]
    return {"bucketName": given["bucket"], "lifecycleConfiguration": {"rules": rules}}


def _cluster(given: dict[str, Value]) -> dict[str, Value]:
    fields = dict(given)
    types = [{"type": one} for one in fields.pop("enabledClusterLogTypes")]
    network = fields.pop("vpcConfig")
    return {**fields, "logging": {"clusterLogging": {"enabledTypes": types}}, "resourcesVpcConfig": network}


def _access_policy(given: dict[str, Value]) -> dict[str, Value]:
    """CloudFormation has the association as a property of the entry."""
    policy = {"policyArn": given["policyArn"], "accessScope": given["accessScope"]}
    return {
        "clusterName": given["clusterName"],
        "principalArn": given["principalArn"],
        "accessPolicies": [policy],
    }


_ONLY_PULUMI = "an instruction to the provider; AWS has no such field"
_NO_TAGS = "CloudFormation's resource has no tags"
_OF_RULES = {
    "cidrIpv4": "CidrIp",
    "referencedSecurityGroupId": "SourceSecurityGroupId",
    "prefixListId": "SourcePrefixListId",
    "securityGroupId": "GroupId",
}
ROWS: Mapping[str, Row] = {
    "aws:budgets/budget:Budget": Row(
        type="AWS::Budgets::Budget",
        shape=_budget,
        names={"budget.name": "BudgetName", "tags": "ResourceTags"},
    ),
    "aws:cloudwatch/eventRule:EventRule": Row(type="AWS::Events::Rule", shape=_parsed("eventPattern")),
    "aws:cloudwatch/eventTarget:EventTarget": Row(
        type="AWS::Events::Rule",
        shape=lambda given: {"targets": [{"arn": given["arn"], "id": given["targetId"]}]},
        beside={"EventPattern": {"source": ["aws.ec2"]}},
    ),
    "aws:cloudwatch/logGroup:LogGroup": Row(type="AWS::Logs::LogGroup", names={"name": "LogGroupName"}),
    "aws:ebs/volume:Volume": Row(type="AWS::EC2::Volume", names={"type": "VolumeType"}),
    "aws:ec2/eip:Eip": Row(type="AWS::EC2::EIP", names={"instance": "InstanceId"}),
    "aws:ec2/instance:Instance": Row(
        type="AWS::EC2::Instance",
        shape=_instance,
        names={
            "ami": "ImageId",
            "privateIp": "PrivateIpAddress",
            "vpcSecurityGroupIds": "SecurityGroupIds",
            "userDataBase64": "UserData",
        },
    ),
    "aws:ec2/internetGateway:InternetGateway": Row(
        type="AWS::EC2::InternetGateway",
        left_out={"vpcId": "AWS::EC2::VPCGatewayAttachment; the id is judged at the VPC's other resources"},
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": Row(
        type="AWS::EC2::LaunchTemplate",
        shape=_template,
        names={"name": "LaunchTemplateName", "description": "VersionDescription"},
        left_out={"updateDefaultVersion": _ONLY_PULUMI},
    ),
    "aws:ec2/natGateway:NatGateway": Row(type="AWS::EC2::NatGateway"),
    "aws:ec2/placementGroup:PlacementGroup": Row(
        type="AWS::EC2::PlacementGroup", names={"name": "GroupName"}
    ),
    "aws:ec2/route:Route": Row(type="AWS::EC2::Route"),
    "aws:ec2/routeTable:RouteTable": Row(type="AWS::EC2::RouteTable"),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": Row(type="AWS::EC2::SubnetRouteTableAssociation"),
    "aws:ec2/securityGroup:SecurityGroup": Row(
        type="AWS::EC2::SecurityGroup", names={"description": "GroupDescription", "name": "GroupName"}
    ),
    "aws:ec2/subnet:Subnet": Row(type="AWS::EC2::Subnet"),
    "aws:ec2/volumeAttachment:VolumeAttachment": Row(
        type="AWS::EC2::VolumeAttachment",
        names={"deviceName": "Device"},
        left_out={"stopInstanceBeforeDetaching": _ONLY_PULUMI},
    ),
    "aws:ec2/vpc:Vpc": Row(type="AWS::EC2::VPC"),
    "aws:ec2/vpcEndpoint:VpcEndpoint": Row(
        type="AWS::EC2::VPCEndpoint", names={"policy": "PolicyDocument"}, shape=_parsed("policy")
    ),
    "aws:eks/accessEntry:AccessEntry": Row(type="AWS::EKS::AccessEntry"),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": Row(
        type="AWS::EKS::AccessEntry", shape=_access_policy
    ),
    "aws:eks/cluster:Cluster": Row(type="AWS::EKS::Cluster", shape=_cluster),
    "aws:eks/addon:Addon": Row(
        type="AWS::EKS::Addon",
        names={"resolveConflictsOnUpdate": "ResolveConflicts"},
        left_out={"resolveConflictsOnCreate": "CloudFormation has one field for creation and update"},
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": Row(type="AWS::EKS::PodIdentityAssociation"),
    "aws:eks/nodeGroup:NodeGroup": Row(
        type="AWS::EKS::Nodegroup",
        names={"nodeRoleArn": "NodeRole", "subnetIds": "Subnets", "nodeGroupName": "NodegroupName"},
    ),
    "aws:efs/accessPoint:AccessPoint": Row(type="AWS::EFS::AccessPoint", names={"tags": "AccessPointTags"}),
    "aws:efs/fileSystem:FileSystem": Row(type="AWS::EFS::FileSystem", names={"tags": "FileSystemTags"}),
    "aws:efs/fileSystemPolicy:FileSystemPolicy": Row(
        type="AWS::EFS::FileSystem",
        names={"policy": "FileSystemPolicy"},
        left_out={"fileSystemId": "in CloudFormation the policy is a property of the file system"},
        shape=_parsed("policy"),
    ),
    "aws:efs/mountTarget:MountTarget": Row(type="AWS::EFS::MountTarget"),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": Row(
        type="AWS::FSx::DataRepositoryAssociation",
        left_out={"deleteDataInFilesystem": "CloudFormation chooses it when the stack is deleted"},
    ),
    "aws:fsx/lustreFileSystem:LustreFileSystem": Row(type="AWS::FSx::FileSystem", shape=_lustre),
    "aws:iam/instanceProfile:InstanceProfile": Row(
        type="AWS::IAM::InstanceProfile",
        names={"name": "InstanceProfileName"},
        shape=lambda given: {**{k: v for k, v in given.items() if k != "role"}, "roles": [given["role"]]},
    ),
    "aws:iam/role:Role": Row(
        type="AWS::IAM::Role",
        names={"assumeRolePolicy": "AssumeRolePolicyDocument", "name": "RoleName"},
        shape=_parsed("assumeRolePolicy"),
    ),
    "aws:iam/rolePolicy:RolePolicy": Row(
        type="AWS::IAM::RolePolicy",
        names={"policy": "PolicyDocument", "role": "RoleName", "name": "PolicyName"},
        shape=_parsed("policy"),
        beside={"PolicyName": "drawn-by-pulumi"},
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": Row(
        type="AWS::IAM::Role",
        shape=lambda given: {"roleName": given["role"], "managedPolicyArns": [given["policyArn"]]},
        beside={"AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": []}},
    ),
    "aws:kms/key:Key": Row(
        type="AWS::KMS::Key", names={"deletionWindowInDays": "PendingWindowInDays", "policy": "KeyPolicy"}
    ),
    "aws:s3/bucket:Bucket": Row(
        type="AWS::S3::Bucket", names={"bucket": "BucketName"}, left_out={"forceDestroy": _ONLY_PULUMI}
    ),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": Row(
        type="AWS::S3::Bucket", shape=_lifecycle
    ),
    "aws:s3/bucketPolicy:BucketPolicy": Row(
        type="AWS::S3::BucketPolicy", names={"policy": "PolicyDocument"}, shape=_parsed("policy")
    ),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": Row(
        type="AWS::S3::Bucket",
        names={"bucket": "BucketName"},
        shape=lambda given: {
            "bucket": given["bucket"],
            "publicAccessBlockConfiguration": {k: v for k, v in given.items() if k != "bucket"},
        },
    ),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": Row(
        type="AWS::S3::Bucket", shape=_encryption
    ),
    "aws:s3/bucketVersioning:BucketVersioning": Row(type="AWS::S3::Bucket", names={"bucket": "BucketName"}),
    "aws:secretsmanager/secret:Secret": Row(
        type="AWS::SecretsManager::Secret",
        left_out={"recoveryWindowInDays": "CloudFormation chooses it when the stack is deleted"},
    ),
    "aws:sqs/queue:Queue": Row(
        type="AWS::SQS::Queue",
        names={
            "messageRetentionSeconds": "MessageRetentionPeriod",
            "receiveWaitTimeSeconds": "ReceiveMessageWaitTimeSeconds",
            "visibilityTimeoutSeconds": "VisibilityTimeout",
            "name": "QueueName",
        },
    ),
    "aws:sqs/queuePolicy:QueuePolicy": Row(
        type="AWS::SQS::QueuePolicy",
        names={"policy": "PolicyDocument"},
        shape=lambda given: {"queues": [given["queueUrl"]], "policy": json.loads(given["policy"])},
    ),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": Row(
        type="AWS::EC2::SecurityGroupEgress",
        names={
            **_OF_RULES,
            "referencedSecurityGroupId": "DestinationSecurityGroupId",
            "prefixListId": "DestinationPrefixListId",
        },
        left_out={"tags": _NO_TAGS},
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": Row(
        type="AWS::EC2::SecurityGroupIngress", names=_OF_RULES, left_out={"tags": _NO_TAGS}
    ),
}
NOT_MAPPED: Mapping[str, str] = {
    "aws:s3/bucketObjectv2:BucketObjectv2": "CloudFormation has no resource for an object in S3",
    "aws:ec2/subnetCidrReservation:SubnetCidrReservation": "CloudFormation has no such type",
}


@dataclass(frozen=True, kw_only=True)
class Translated:
    """A resource in CloudFormation's words, and the properties that have no place there."""

    where: str
    type: str  # CloudFormation's
    properties: Mapping[str, Value]
    unplaced: tuple[str, ...]
    judged: int  # properties, nested ones included


def translate(resource: Declared) -> Translated | None:
    """Return the resource for CloudFormation; None if its type is in NOT_MAPPED."""
    if resource.type in NOT_MAPPED:
        return None
    row = ROWS[resource.type]
    schema = _schema(row.type)
    given = {k: v for k, v in _copy(resource.inputs).items() if k not in row.left_out}
    walk = _Translator(row, schema)
    made = walk.object(schema, row.shape(given), "")
    return Translated(
        where=f"{resource.type} {resource.name}",
        type=row.type,
        properties={**row.beside, **made},
        unplaced=tuple(walk.unplaced),
        judged=_count(made),
    )


def _copy(value: Mapping[str, Value]) -> dict[str, Value]:
    return json.loads(json.dumps(value))


def _count(value: Value) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_count, value.values()))
    return sum(map(_count, value)) if isinstance(value, list) else 0


@cache
def _schema(name: str) -> Mapping[str, Value]:
    files = json.loads((SCHEMAS / "providers/us-east-1.json").read_text())
    return json.loads((SCHEMAS / f"resources/{files[name]}.json").read_text())


class _Translator:
    """Walks one resource beside its schema; `unplaced` has the properties that the schema lacks."""

    def __init__(self, row: Row, root: Value) -> None:
        self._row, self._root = row, root
        self.unplaced: list[str] = []

    def object(self, schema: Value, given: Mapping[str, Value], path: str) -> dict[str, Value]:
        known: Mapping[str, Value] = schema.get("properties", {})
        spelled = {name.lower(): name for name in known}
        made: dict[str, Value] = {}
        for name, value in given.items():
            here = f"{path}.{name}".lstrip(".")
            same = next((spelled[word] for word in _spellings(name) if word in spelled), "")
            target = self._row.names.get(here, same)
            if target in known:
                made[target] = self._value(known[target], value, here)
            else:
                self.unplaced.append(here)
        return made

    def _value(self, schema: Value, value: Value, path: str) -> Value:
        node = _resolved(schema, self._root)
        kind = node.get("type")
        kinds: list[Value] = kind if isinstance(kind, list) else [kind]
        if isinstance(value, dict) and "array" in kinds:
            inner = _resolved(node.get("items", {}), self._root)
            if {"Key", "Value"} <= inner.get("properties", {}).keys():
                return [{"Key": k, "Value": v} for k, v in sorted(value.items())]
            value = [value]
        if isinstance(value, list):
            return [self._value(node.get("items", {}), one, path) for one in value]
        if isinstance(value, dict):  # without properties: an open object, such as a policy document
            return self.object(node, value, path) if node.get("properties") else value
        if kinds == ["boolean"] and value in ("true", "false"):
            return value == "true"  # Pulumi writes some of a template's switches as text
        return value


def _spellings(name: str) -> tuple[str, ...]:
    low = name.lower()
    return (low, f"{low}s", low.removesuffix("s"))


def _resolved(schema: Value, root: Value) -> Value:
    while "$ref" in schema:
        found: Value = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    return schema


# Rules of cfn-lint that are about templates, not about what AWS takes.
OFF: Mapping[str, str] = {
    "E3010": "the number of resources of a template: several stacks are judged in one",
    "E3019": "unique names: Pulumi declares one bucket in several resources, and several stacks are judged in one",
}


def refusals(resources: Iterable[Translated], region: str) -> list[tuple[str, str, str]]:
    """(resource, rule, message) of each error of cfn-lint. Warnings are about the style of templates."""
    every = list(resources)
    template = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Resources": {
            f"R{number}": {"Type": one.type, "Properties": dict(one.properties)}
            for number, one in enumerate(every)
        },
    }
    found = lint(json.dumps(template), config=ManualArgs(regions=[region]))
    return [_refusal(every, match) for match in found if match.rule.id[0] == "E" and match.rule.id not in OFF]


def _refusal(every: Sequence[Translated], match: Any) -> tuple[str, str, str]:
    place = [str(part) for part in match.path or ()]
    where = every[int(place[1].removeprefix("R"))].where if len(place) > 1 else ""
    return where, str(match.rule.id), f"{'.'.join(place[3:])}: {str(match.message)[:150]}"
