"""The customer-managed key: every volume, file system, bucket and secret names it, and only the roles that need it may use it."""

import gc
import json
import re
from functools import partial
from typing import Any

import pytest
from support.aws_plans import aws, declared_of, research
from support.builders import a_plan
from support.declared import Declared, declared_by

from gpucluster.aws.encryption import faults
from gpucluster.aws.program import declare

KEY = "arn:aws:kms:us-east-2:123456789012:key/0123abcd-0123-0123-0123-0123456789ab"
KEYED = aws(kms_key="alias/research")(research())
GOOD = {
    "arn": KEY,
    "enabled": True,
    "manager": "CUSTOMER",
    "spec": "SYMMETRIC_DEFAULT",
    "usage": "ENCRYPT_DECRYPT",
}


def found(word: str) -> list[Declared]:
    return [r for r in declared_of(KEYED) if r.type.endswith(f":{word}")]


def keys_of(one: Declared) -> list[Any]:
    """The keys that a resource names."""
    inputs = one.inputs
    match one.type.rpartition(":")[2]:
        case "Instance":
            return [inputs["rootBlockDevice"].get("kmsKeyId")]
        case "LaunchTemplate":
            return [device["ebs"].get("kmsKeyId") for device in inputs["blockDeviceMappings"]]
        case "BucketServerSideEncryptionConfiguration":
            return [
                rule["applyServerSideEncryptionByDefault"].get("kmsMasterKeyId") for rule in inputs["rules"]
            ]
        case _:
            return [inputs.get("kmsKeyId")]


@pytest.mark.parametrize(
    "word",
    [
        "Instance",
        "LaunchTemplate",
        "Volume",
        "FileSystem",
        "LustreFileSystem",
        "BucketServerSideEncryptionConfiguration",
        "Secret",
    ],
)
def test_every_resource_with_data_names_the_key(word: str) -> None:
    assert found(word)
    assert {key for one in found(word) for key in keys_of(one)} == {KEY}


def test_queue_keeps_the_key_of_sqs() -> None:
    """EventBridge would need the customer's key policy to send events."""
    (queue,) = found("Queue")
    assert queue.inputs["sqsManagedSseEnabled"] is True
    assert "kmsMasterKeyId" not in queue.inputs


def test_without_the_field_no_resource_names_a_key() -> None:
    text = json.dumps([dict(one.inputs) for one in declared_of(research())], default=str)
    # not only `kms`: the base64 of a bundle may have these three letters
    assert not re.search(r"kms[_-]?(key|master)|kms:|arn:aws:kms", text, re.IGNORECASE)


def statements(role: str) -> dict[str, Any]:
    (policy,) = [r for r in found("RolePolicy") if r.name == f"burst-{role}"]
    return {s["Sid"]: s for s in json.loads(policy.inputs["policy"])["Statement"]}


def test_roles_use_only_this_key_and_only_through_services() -> None:
    for role in ("head", "node", "login"):
        own = [s for s in statements(role).values() if any(a.startswith("kms:") for a in s["Action"])]
        assert own
        assert all(s["Resource"] == [KEY] for s in own)
        assert all("kms:ViaService" in s["Condition"]["StringEquals"] for s in own)
    assert statements("node")["StoredKey"]["Action"] == ["kms:Decrypt"]
    assert statements("head")["VolumeGrant"]["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}
    assert not any("kms:" in str(s) for s in statements("jobs").values())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, []),
        ({"enabled": False}, ["it is disabled or waits for its deletion, expected an enabled key"]),
        ({"manager": "AWS"}, ["its manager is AWS, expected CUSTOMER"]),
        ({"spec": "RSA_2048"}, ["its spec is RSA_2048, expected SYMMETRIC_DEFAULT"]),
        ({"usage": "SIGN_VERIFY"}, ["its usage is SIGN_VERIFY, expected ENCRYPT_DECRYPT"]),
        ({"arn": KEY.replace("us-east-2", "us-west-2")}, ["it is not in us-east-2"]),
    ],
)
def test_fault_of_a_key(change: dict[str, Any], says: list[str]) -> None:
    assert list(faults({**GOOD, **change}, "us-east-2")) == says


def test_disabled_key_ends_the_program_with_the_field() -> None:
    plan = aws(kms_key="alias/disabled")(a_plan())
    with pytest.raises(Exception, match=r"aws\.kms_key: alias/disabled \(arn:aws:kms:.*\): it is disabled"):
        declared_by(partial(declare, plan))


def test_program_that_failed_logs_nothing_when_it_is_collected(caplog: pytest.LogCaptureFixture) -> None:
    """A traceback that is logged during a parse ends that parse with a SystemError (Python 3.11)."""
    gc.collect()
    caplog.clear()
    with pytest.raises(Exception, match="it is disabled"):
        declared_by(partial(declare, aws(kms_key="alias/disabled")(a_plan())))
    gc.collect()
    assert caplog.messages == []
