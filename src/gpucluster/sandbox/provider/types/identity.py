"""IAM roles, inline policies, attachments and instance profiles, and secrets."""

from collections.abc import Mapping
from typing import Any

from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.cloud import Cloud
from gpucluster.sandbox.provider.schema import (
    TAG_PROPERTIES,
    Autoname,
    Call,
    ResourceType,
    computed,
    replaces,
    updates,
)
from gpucluster.sandbox.provider.shapes import DOCUMENT, FLAG, NUMBER

Seen = Mapping[str, Value] | None


# --- role ------------------------------------------------------------------------------------
def _create_role(call: Call) -> str:
    names = ("name", "path", "assumeRolePolicy", "description", "maxSessionDuration", "permissionsBoundary")
    call.cloud.iam.create_role(**call.api(*names), Tags=call.tags)
    return call.inputs["name"]


def _read_role(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = cloud.iam.get_role(RoleName=identifier)["Role"]
    return seen | {"PermissionsBoundary": seen.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn")}


def _update_role(call: Call, changed: frozenset[str]) -> None:
    if "assumeRolePolicy" in changed:
        call.cloud.iam.update_assume_role_policy(
            RoleName=call.id, PolicyDocument=call.inputs["assumeRolePolicy"]
        )
    if changed & {"description", "maxSessionDuration"}:
        about = {"Description": call.inputs.get("description") or ""}
        call.cloud.iam.update_role(RoleName=call.id, **about, **call.api("maxSessionDuration"))
    if "permissionsBoundary" in changed:
        _bound(call)
    _retag(call, "role", RoleName=call.id)


def _bound(call: Call) -> None:
    if call.inputs.get("permissionsBoundary"):
        call.cloud.iam.put_role_permissions_boundary(RoleName=call.id, **call.api("permissionsBoundary"))
    else:
        call.cloud.iam.delete_role_permissions_boundary(RoleName=call.id)


ROLE = ResourceType(
    name="aws:iam/role:Role",
    properties={
        "name": replaces("RoleName"),
        "path": replaces("Path", default="/"),
        "assumeRolePolicy": updates("AssumeRolePolicyDocument", DOCUMENT),
        "description": updates("Description"),
        "maxSessionDuration": updates("MaxSessionDuration", NUMBER, default=3600),
        "permissionsBoundary": updates("PermissionsBoundary"),
        "forceDetachPolicies": updates(None, FLAG, default=False),
        "arn": computed("Arn"),
        "uniqueId": computed("RoleId"),
        **TAG_PROPERTIES,
    },
    create=_create_role,
    read=_read_role,
    update=_update_role,
    delete=lambda call: call.cloud.iam.delete_role(RoleName=call.id),
    autoname=Autoname("name", 64),
)


# --- inline policy ---------------------------------------------------------------------------
def _put_policy(call: Call) -> str:
    call.cloud.iam.put_role_policy(**call.api("role", "name", "policy"))
    return f"{call.inputs['role']}:{call.inputs['name']}"


def _read_policy(cloud: Cloud, identifier: str, _: Values) -> Seen:
    role, name = identifier.split(":", 1)
    return cloud.iam.get_role_policy(RoleName=role, PolicyName=name)


def _update_policy(call: Call, _: frozenset[str]) -> None:
    _put_policy(call)


ROLE_POLICY = ResourceType(
    name="aws:iam/rolePolicy:RolePolicy",
    properties={
        "role": replaces("RoleName"),
        "name": replaces("PolicyName"),
        "policy": updates("PolicyDocument", DOCUMENT),
    },
    create=_put_policy,
    read=_read_policy,
    update=_update_policy,
    delete=lambda call: call.cloud.iam.delete_role_policy(**call.api("role", "name")),
    autoname=Autoname("name", 128),
)


# --- policy attachment -----------------------------------------------------------------------
def _attach_policy(call: Call) -> str:
    call.cloud.iam.attach_role_policy(**call.api("role", "policyArn"))
    return f"{call.inputs['role']}/{call.inputs['policyArn']}"


def _read_attachment(cloud: Cloud, identifier: str, _: Values) -> Seen:
    role, arn = identifier.split("/", 1)
    pages = cloud.iam.get_paginator("list_attached_role_policies").paginate(RoleName=role)
    every = {one["PolicyArn"] for page in pages for one in page["AttachedPolicies"]}
    return {"RoleName": role, "PolicyArn": arn} if arn in every else None


ROLE_POLICY_ATTACHMENT = ResourceType(
    name="aws:iam/rolePolicyAttachment:RolePolicyAttachment",
    properties={"role": replaces("RoleName"), "policyArn": replaces("PolicyArn")},
    create=_attach_policy,
    read=_read_attachment,
    delete=lambda call: call.cloud.iam.detach_role_policy(**call.api("role", "policyArn")),
    delete_first=True,  # a deletion after the creation would detach the new attachment, which is the same
)


# --- instance profile ------------------------------------------------------------------------
def _create_profile(call: Call) -> str:
    call.cloud.iam.create_instance_profile(**call.api("name", "path"), Tags=call.tags)
    return call.inputs["name"]


def _complete_profile(call: Call) -> None:
    role = call.inputs.get("role")
    if role and role != _read_profile(call.cloud, call.id, {})["RoleName"]:
        call.cloud.iam.add_role_to_instance_profile(InstanceProfileName=call.id, RoleName=role)


def _read_profile(cloud: Cloud, identifier: str, _: Values) -> dict[str, Any]:
    seen = cloud.iam.get_instance_profile(InstanceProfileName=identifier)["InstanceProfile"]
    roles = seen["Roles"]
    return seen | {"RoleName": roles[0]["RoleName"] if roles else None}


def _update_profile(call: Call, changed: frozenset[str]) -> None:
    if "role" in changed:
        _empty_profile(call)
        _complete_profile(call)
    _retag(call, "instance_profile", InstanceProfileName=call.id)


def _empty_profile(call: Call) -> None:
    """Remove all roles from the profile. A deletion that stopped midway may have removed them already."""
    role = _read_profile(call.cloud, call.id, {})["RoleName"]
    if role:
        call.cloud.iam.remove_role_from_instance_profile(InstanceProfileName=call.id, RoleName=role)


def _delete_profile(call: Call) -> None:
    _empty_profile(call)
    call.cloud.iam.delete_instance_profile(InstanceProfileName=call.id)


INSTANCE_PROFILE = ResourceType(
    name="aws:iam/instanceProfile:InstanceProfile",
    properties={
        "name": replaces("InstanceProfileName"),
        "path": replaces("Path", default="/"),
        "role": updates("RoleName"),
        "arn": computed("Arn"),
        "uniqueId": computed("InstanceProfileId"),
        **TAG_PROPERTIES,
    },
    create=_create_profile,
    complete=_complete_profile,
    read=_read_profile,
    update=_update_profile,
    delete=_delete_profile,
    autoname=Autoname("name", 128),
)


# --- secret ----------------------------------------------------------------------------------
def _create_secret(call: Call) -> str:
    return call.cloud.secrets.create_secret(**call.api("name", "description", "kmsKeyId"), Tags=call.tags)[
        "ARN"
    ]


def _read_secret(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = cloud.secrets.describe_secret(SecretId=identifier)
    return None if seen.get("DeletedDate") else seen


def _update_secret(call: Call, changed: frozenset[str]) -> None:
    if "description" in changed:
        call.cloud.secrets.update_secret(SecretId=call.id, Description=call.inputs.get("description") or "")
    if "kmsKeyId" in changed:
        call.cloud.secrets.update_secret(SecretId=call.id, KmsKeyId=call.inputs.get("kmsKeyId") or "")
    gone = call.lost_tags()
    if gone:
        call.cloud.secrets.untag_resource(SecretId=call.id, TagKeys=gone)
    if call.tags:
        call.cloud.secrets.tag_resource(SecretId=call.id, Tags=call.tags)


def _delete_secret(call: Call) -> None:
    """Delete the secret. A recovery window of 0 days deletes it at once (T38)."""
    days = call.inputs.get("recoveryWindowInDays")
    how: dict[str, Any] = {"RecoveryWindowInDays": days} if days else {"ForceDeleteWithoutRecovery": True}
    call.cloud.secrets.delete_secret(SecretId=call.id, **how)


SECRET = ResourceType(
    name="aws:secretsmanager/secret:Secret",
    properties={
        "name": replaces("Name"),
        "description": updates("Description"),
        "kmsKeyId": updates("KmsKeyId"),
        "recoveryWindowInDays": updates(None, NUMBER, default=30),
        "forceOverwriteReplicaSecret": updates(None, FLAG, default=False),
        "arn": computed("ARN"),
        **TAG_PROPERTIES,
    },
    create=_create_secret,
    read=_read_secret,
    update=_update_secret,
    delete=_delete_secret,
    autoname=Autoname("name", 512),
)

ROWS = (ROLE, ROLE_POLICY, ROLE_POLICY_ATTACHMENT, INSTANCE_PROFILE, SECRET)


def _retag(call: Call, what: str, **named: str) -> None:
    """Tag by IAM's own calls: `tag_role`, `untag_role` and similar ones."""
    gone = call.lost_tags()
    if gone:
        getattr(call.cloud.iam, f"untag_{what}")(**named, TagKeys=gone)
    if call.tags:
        getattr(call.cloud.iam, f"tag_{what}")(**named, Tags=call.tags)
