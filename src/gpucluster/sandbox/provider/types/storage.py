"""S3 buckets, their settings, and objects."""

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from botocore.exceptions import ClientError

from gpucluster.engine.aws_account import code_of
from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.cloud import Cloud, absent_is_fine
from gpucluster.sandbox.provider.schema import (
    TAG_PROPERTIES,
    Autoname,
    Call,
    ResourceType,
    computed,
    moving,
    replaces,
    updates,
)
from gpucluster.sandbox.provider.shapes import DOCUMENT, FLAG, NUMBER, TEXT, Field, Many, Record

Seen = Mapping[str, Value] | None


# --- bucket ----------------------------------------------------------------------------------
def _create_bucket(call: Call) -> str:
    name, region = call.inputs["bucket"], call.cloud.region
    where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    call.cloud.s3.create_bucket(Bucket=name, **where)
    return name


def _tag_bucket(call: Call) -> None:
    if call.tags:
        call.cloud.s3.put_bucket_tagging(Bucket=call.id, Tagging={"TagSet": call.tags})
    else:
        call.cloud.s3.delete_bucket_tagging(Bucket=call.id)


def _read_bucket(cloud: Cloud, identifier: str, _: Values) -> Seen:
    cloud.s3.head_bucket(Bucket=identifier)
    return {
        "Bucket": identifier,
        "Arn": f"arn:aws:s3:::{identifier}",
        "Domain": f"{identifier}.s3.{cloud.region}.amazonaws.com",
        "Tags": _bucket_tags(cloud, identifier),
    }


def _bucket_tags(cloud: Cloud, bucket: str) -> list[dict[str, str]]:
    try:
        return cloud.s3.get_bucket_tagging(Bucket=bucket)["TagSet"]
    except ClientError as error:
        if code_of(error) == "NoSuchTagSet":
            return []
        raise


def _update_bucket(call: Call, changed: frozenset[str]) -> None:
    if changed & TAG_PROPERTIES.keys():
        _tag_bucket(call)


def _delete_bucket(call: Call) -> None:
    """Delete the bucket. Versions and delete markers count as content (T39)."""
    if call.inputs.get("forceDestroy"):
        _delete_versions(call.cloud, call.id, "")
    call.cloud.s3.delete_bucket(Bucket=call.id)


def _delete_versions(cloud: Cloud, bucket: str, key: str) -> None:
    """Delete every version of `key`, or of all objects if it is empty."""
    for page in cloud.s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=key):
        every = [
            {"Key": v["Key"], "VersionId": v["VersionId"]}
            for v in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
            if not key or v["Key"] == key
        ]
        if every:
            cloud.s3.delete_objects(Bucket=bucket, Delete={"Objects": every, "Quiet": True})


BUCKET = ResourceType(
    name="aws:s3/bucket:Bucket",
    properties={
        "bucket": replaces("Bucket"),
        "forceDestroy": updates(None, FLAG, default=False),
        "arn": computed("Arn"),
        "bucketRegionalDomainName": computed("Domain"),
        **TAG_PROPERTIES,
    },
    create=_create_bucket,
    complete=_tag_bucket,
    read=_read_bucket,
    update=_update_bucket,
    delete=_delete_bucket,
    autoname=Autoname("bucket", 63),
)


# --- bucket settings -------------------------------------------------------------------------
def _put_versioning(call: Call) -> str:
    call.cloud.s3.put_bucket_versioning(**call.api("bucket", "versioningConfiguration"))
    return call.inputs["bucket"]


def _read_versioning(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = cloud.s3.get_bucket_versioning(Bucket=identifier)
    if not seen.get("Status"):
        return None
    return {"Bucket": identifier, "VersioningConfiguration": {"Status": seen["Status"]}}


def _suspend_versioning(call: Call) -> None:
    call.cloud.s3.put_bucket_versioning(Bucket=call.id, VersioningConfiguration={"Status": "Suspended"})


BUCKET_VERSIONING = ResourceType(
    name="aws:s3/bucketVersioning:BucketVersioning",
    properties={
        "bucket": replaces("Bucket"),
        "versioningConfiguration": updates(
            "VersioningConfiguration", Record({"status": Field("Status", TEXT)})
        ),
    },
    create=_put_versioning,
    read=_read_versioning,
    update=lambda call, _: nothing(_put_versioning(call)),
    delete=_suspend_versioning,
)

_EXPIRY = Record(
    {
        "id": Field("ID", TEXT),
        "status": Field("Status", TEXT),
        "filter": Field("Filter", Record({"prefix": Field("Prefix", TEXT)})),
        "noncurrentVersionExpiration": Field(
            "NoncurrentVersionExpiration", Record({"noncurrentDays": Field("NoncurrentDays", NUMBER)})
        ),
    }
)


def _put_lifecycle(call: Call) -> str:
    rules = {"Rules": call.api("rules")["Rules"]}
    call.cloud.s3.put_bucket_lifecycle_configuration(
        Bucket=call.inputs["bucket"], LifecycleConfiguration=rules
    )
    return call.inputs["bucket"]


def _read_lifecycle(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = cloud.s3.get_bucket_lifecycle_configuration(Bucket=identifier)
    return {"Bucket": identifier, "Rules": seen["Rules"]}


BUCKET_LIFECYCLE = ResourceType(
    name="aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
    properties={"bucket": replaces("Bucket"), "rules": updates("Rules", Many(_EXPIRY))},
    create=_put_lifecycle,
    read=_read_lifecycle,
    update=lambda call, _: nothing(_put_lifecycle(call)),
    delete=lambda call: call.cloud.s3.delete_bucket_lifecycle(Bucket=call.id),
)

_ENCRYPTION = Record(
    {
        "applyServerSideEncryptionByDefault": Field(
            "ApplyServerSideEncryptionByDefault",
            Record(
                {"sseAlgorithm": Field("SSEAlgorithm", TEXT), "kmsMasterKeyId": Field("KMSMasterKeyID", TEXT)}
            ),
        ),
        "bucketKeyEnabled": Field("BucketKeyEnabled", FLAG, default=False),
    }
)


def _put_encryption(call: Call) -> str:
    rules = call.api("rules")
    call.cloud.s3.put_bucket_encryption(Bucket=call.inputs["bucket"], ServerSideEncryptionConfiguration=rules)
    return call.inputs["bucket"]


def _read_encryption(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = cloud.s3.get_bucket_encryption(Bucket=identifier)["ServerSideEncryptionConfiguration"]
    return {"Bucket": identifier, "Rules": seen["Rules"]}


BUCKET_ENCRYPTION = ResourceType(
    name="aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    properties={"bucket": replaces("Bucket"), "rules": updates("Rules", Many(_ENCRYPTION))},
    create=_put_encryption,
    read=_read_encryption,
    update=lambda call, _: nothing(_put_encryption(call)),
    delete=lambda call: call.cloud.s3.delete_bucket_encryption(Bucket=call.id),
)

_BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")


def _put_block(call: Call) -> str:
    call.cloud.s3.put_public_access_block(
        Bucket=call.inputs["bucket"], PublicAccessBlockConfiguration=call.api(*_BLOCKS)
    )
    return call.inputs["bucket"]


def _read_block(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = cloud.s3.get_public_access_block(Bucket=identifier)["PublicAccessBlockConfiguration"]
    return {"Bucket": identifier, **seen}


PUBLIC_ACCESS_BLOCK = ResourceType(
    name="aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
    properties={
        "bucket": replaces("Bucket"),
        **{name: updates(name[0].upper() + name[1:], FLAG, default=False) for name in _BLOCKS},
    },
    create=_put_block,
    read=_read_block,
    update=lambda call, _: nothing(_put_block(call)),
    delete=lambda call: call.cloud.s3.delete_public_access_block(Bucket=call.id),
)


def _put_policy(call: Call) -> str:
    call.cloud.s3.put_bucket_policy(**call.api("bucket", "policy"))
    return call.inputs["bucket"]


def _read_policy(cloud: Cloud, identifier: str, _: Values) -> Seen:
    return {"Bucket": identifier, "Policy": cloud.s3.get_bucket_policy(Bucket=identifier)["Policy"]}


BUCKET_POLICY = ResourceType(
    name="aws:s3/bucketPolicy:BucketPolicy",
    properties={"bucket": replaces("Bucket"), "policy": updates("Policy", DOCUMENT)},
    create=_put_policy,
    read=_read_policy,
    update=lambda call, _: nothing(_put_policy(call)),
    delete=lambda call: call.cloud.s3.delete_bucket_policy(Bucket=call.id),
)


# --- object ----------------------------------------------------------------------------------
def _put_object(call: Call) -> str:
    arguments: dict[str, Any] = call.api("bucket", "key", "contentType", "serverSideEncryption")
    arguments["Body"] = base64.b64decode(call.inputs["contentBase64"])
    tags: Values = call.inputs.get("tagsAll") or {}
    if tags:
        arguments["Tagging"] = urlencode(sorted(tags.items()))
    call.cloud.s3.put_object(**arguments)
    return f"{call.inputs['bucket']}/{call.inputs['key']}"


def _read_object(cloud: Cloud, identifier: str, _: Values) -> Seen:
    bucket, key = identifier.split("/", 1)
    seen = cloud.s3.get_object(Bucket=bucket, Key=key)
    tags = cloud.s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]
    return {
        **{name: seen.get(name) for name in ("ContentType", "ServerSideEncryption", "VersionId")},
        "Bucket": bucket,
        "Key": key,
        "Arn": f"arn:aws:s3:::{identifier}",
        "Content": base64.b64encode(seen["Body"].read()).decode(),
        "ETag": seen["ETag"].strip('"'),
        "Tags": tags,
    }


def _update_object(call: Call, changed: frozenset[str]) -> None:
    if changed - TAG_PROPERTIES.keys():
        _put_object(call)
    else:
        named = call.api("bucket", "key")
        call.cloud.s3.put_object_tagging(**named, Tagging={"TagSet": call.tags})


def _delete_object(call: Call) -> None:
    with absent_is_fine():
        _delete_versions(call.cloud, call.inputs["bucket"], call.inputs["key"])


BUCKET_OBJECT = ResourceType(
    name="aws:s3/bucketObjectv2:BucketObjectv2",
    properties={
        "bucket": replaces("Bucket"),
        "key": replaces("Key"),
        "contentBase64": updates("Content"),
        "contentType": updates("ContentType", from_cloud=True),
        "serverSideEncryption": updates("ServerSideEncryption", from_cloud=True),
        "forceDestroy": updates(None, FLAG, default=False),
        "arn": computed("Arn"),
        "etag": moving("ETag"),
        "versionId": moving("VersionId"),
        **TAG_PROPERTIES,
    },
    create=_put_object,
    read=_read_object,
    update=_update_object,
    delete=_delete_object,
)

ROWS = (
    BUCKET,
    BUCKET_VERSIONING,
    BUCKET_LIFECYCLE,
    BUCKET_ENCRYPTION,
    PUBLIC_ACCESS_BLOCK,
    BUCKET_POLICY,
    BUCKET_OBJECT,
)


def nothing(_: object) -> None:
    """Return nothing: a put has no outputs."""
