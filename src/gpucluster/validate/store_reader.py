"""Read what AWS says of one bucket, key, queue, secret or file system, and of the roles of machines and jobs. A thing that does not exist is an empty answer."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpucluster.checks.cloud import ENDED
from gpucluster.cloud.aws import translated
from gpucluster.cloud.port import CloudError
from gpucluster.plan import names

Client = Callable[[str], Any]  # of a service
_RULE = re.compile(r"arn:aws[a-z-]*:events:[a-z0-9-]+:[0-9]{12}:rule/([A-Za-z0-9._-]{1,64})\"")
_OF_PULUMI = (names.ROLE_HEAD, names.ROLE_STANDBY, names.ROLE_LOGIN)
_MOST_RULES = 16  # a foreign policy may name many
_GONE = {  # the services' codes for a thing that does not exist
    *("NoSuchBucket", "NoSuchBucketPolicy", "NoSuchPublicAccessBlockConfiguration"),
    *("NoSuchLifecycleConfiguration", "ServerSideEncryptionConfigurationNotFoundError"),
    *("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"),
    "ResourceNotFoundException",
    *("FileSystemNotFound", "PolicyNotFound"),
    *("NoSuchEntity", "NotFoundException"),
    *("InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateId.VersionNotFound"),
    "InvalidInstanceID.NotFound",
}


def read_bucket(client: Client, name: str) -> Mapping[str, Any]:
    s3 = client("s3")
    versioning = _asked(s3.get_bucket_versioning, Bucket=name)
    if versioning is None:
        return {}
    block = _asked(s3.get_public_access_block, Bucket=name) or {}
    encryption = _asked(s3.get_bucket_encryption, Bucket=name) or {}
    lifecycle = _asked(s3.get_bucket_lifecycle_configuration, Bucket=name) or {}
    return {
        "Versioning": versioning.get("Status", ""),
        "PublicAccessBlock": block.get("PublicAccessBlockConfiguration"),
        "Encryption": encryption.get("ServerSideEncryptionConfiguration", {}).get("Rules", []),
        "Lifecycle": lifecycle.get("Rules", []),
        "Policy": (_asked(s3.get_bucket_policy, Bucket=name) or {}).get("Policy"),
    }


def read_key(client: Client, name: str) -> Mapping[str, Any]:
    """The state of a KMS key, by its ARN or an alias."""
    found = _asked(client("kms").describe_key, KeyId=name)
    return {} if found is None else found["KeyMetadata"]


def read_queue(client: Client, url: str) -> Mapping[str, Any]:
    """Its attributes, and the rules of EventBridge that its policy names."""
    answer = _asked(client("sqs").get_queue_attributes, QueueUrl=url, AttributeNames=["All"])
    if answer is None:
        return {}
    found = answer.get("Attributes", {})
    rules = sorted(set(_RULE.findall(found.get("Policy", ""))))[:_MOST_RULES]
    return {**found, "Rules": [_rule(client("events"), name) for name in rules]}


def _rule(events: Any, name: str) -> Mapping[str, Any]:
    """A rule with its targets. Only its name if it does not exist."""
    found = _asked(events.describe_rule, Name=name)
    if found is None:
        return {"Name": name}
    targets = _asked(events.list_targets_by_rule, Rule=name) or {}
    return {**found, "Name": name, "Targets": targets.get("Targets", [])}


def read_secret(client: Client, arn: str) -> Mapping[str, Any]:
    """Its description and policy, never its value."""
    manager = client("secretsmanager")
    found = _asked(manager.describe_secret, SecretId=arn)
    if found is None:
        return {}
    if found.get("DeletedDate"):  # its policy cannot be read any more
        return found
    return {
        **found,
        "Policy": (_asked(manager.get_resource_policy, SecretId=arn) or {}).get("ResourcePolicy"),
    }


def read_efs(client: Client, name: str) -> Mapping[str, Any]:
    efs = client("efs")
    found = _asked(efs.describe_file_systems, FileSystemId=name)
    if found is None:
        return {}
    targets = _asked(efs.describe_mount_targets, FileSystemId=name) or {}
    policy = _asked(efs.describe_file_system_policy, FileSystemId=name) or {}
    return {
        **found["FileSystems"][0],
        "Policy": policy.get("Policy"),
        "MountTargets": targets.get("MountTargets", []),
    }


def read_lustre(client: Client, name: str) -> Mapping[str, Any]:
    found = _asked(client("fsx").describe_file_systems, FileSystemIds=[name])
    return {} if found is None else found["FileSystems"][0]


def read_roles(
    client: Client, cluster: str, instances: Iterable[Mapping[str, Any]], template: str = "", role: str = ""
) -> Mapping[str, Any]:
    """The roles of the instance profiles of the cluster's machines and of a launch template, and `role`, with their policies.

    `template`: `ID:VERSION`. Others' profiles are not read.
    """
    living = (one for one in instances if one["State"]["Name"] not in ENDED)
    arns = {one["IamInstanceProfile"]["Arn"] for one in living if "IamInstanceProfile" in one}
    arns |= _profiles_of_template(client, template) if template else set()
    kinds = tuple(f"{cluster}-{role}" for role in names.PROFILE_ROLES)
    profiles = sorted(name for arn in arns if (name := arn.rpartition("/")[2]).startswith(kinds))
    found = [_role_of_profile(client("iam"), profile) for profile in profiles]
    return {"Roles": [*found, *([_role(client("iam"), role, role)] if role else [])]}


def _profiles_of_template(client: Client, template: str) -> set[str]:
    """The ARN of the instance profile in a version of a launch template."""
    versions = read_templates(client, [template])["LaunchTemplateVersions"]
    profiles = [one.get("LaunchTemplateData", {}).get("IamInstanceProfile", {}) for one in versions]
    return {one.get("Arn") or one.get("Name", "") for one in profiles}


def read_templates(client: Client, templates: Iterable[str]) -> Mapping[str, Any]:
    """The versions of launch templates that exist, of those that are named `ID:VERSION`."""
    found: list[Any] = []
    for template in templates:
        name, _, version = template.partition(":")
        describe = client("ec2").describe_launch_template_versions
        answer = _asked(describe, LaunchTemplateId=name, Versions=[version]) or {}
        found += answer.get("LaunchTemplateVersions", [])
    return {"LaunchTemplateVersions": found}


def read_shutdowns(ec2: Any, instances: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What EC2 does when the system of a machine of Pulumi shuts down; the launch template decides it for nodes."""
    found: list[Any] = []
    for one in instances:
        roles = [tag["Value"] for tag in one.get("Tags", []) if tag["Key"] == names.TAG_ROLE]
        if one["State"]["Name"] not in ENDED and roles and roles[0] in _OF_PULUMI:
            asked = {"InstanceId": one["InstanceId"], "Attribute": "instanceInitiatedShutdownBehavior"}
            answer = _asked(ec2.describe_instance_attribute, **asked)
            found += [] if answer is None else [answer]
    return {"Shutdowns": found}


def _role_of_profile(iam: Any, profile: str) -> Mapping[str, Any]:
    found = _asked(iam.get_instance_profile, InstanceProfileName=profile) or {}
    roles = found.get("InstanceProfile", {}).get("Roles", [])
    return _role(iam, profile, roles[0]["RoleName"]) if roles else _no_role(profile)


def _role(iam: Any, profile: str, name: str) -> Mapping[str, Any]:
    """A role with its policies."""
    found = _asked(iam.get_role, RoleName=name)
    if found is None:
        return _no_role(profile)
    attached = iam.get_paginator("list_attached_role_policies").paginate(RoleName=name)
    inline = [
        one
        for page in iam.get_paginator("list_role_policies").paginate(RoleName=name)
        for one in page["PolicyNames"]
    ]
    documents = {one: _asked(iam.get_role_policy, RoleName=name, PolicyName=one) or {} for one in inline}
    return {
        "Profile": profile,
        "Name": name,
        "Trust": found["Role"].get("AssumeRolePolicyDocument"),
        "Attached": [one["PolicyArn"] for page in attached for one in page["AttachedPolicies"]],
        "Inline": [
            {"PolicyName": one, "PolicyDocument": answer.get("PolicyDocument")}
            for one, answer in documents.items()
        ],
    }


def _no_role(profile: str) -> Mapping[str, Any]:
    """The profile has no role, or there is no role of this name."""
    return {"Profile": profile, "Name": "", "Attached": [], "Inline": []}


STORES: Mapping[str, Callable[[Client, str], Mapping[str, Any]]] = {
    "bucket": read_bucket,
    "key": read_key,
    "queue": read_queue,
    "secret": read_secret,
    "efs": read_efs,
    "lustre": read_lustre,
}


def _asked(call: Callable[..., Mapping[str, Any]], **arguments: Any) -> Mapping[str, Any] | None:
    """The answer; None if the thing does not exist."""
    try:
        with translated():
            return call(**arguments)
    except CloudError as error:
        if error.code in _GONE:
            return None
        raise
