"""The customer-managed KMS key of a cluster: look it up, and compare it with what volumes and file systems need."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi import Output

from gpucluster.plan.model import AwsPlan

Key = Output[str] | None  # ARN of the key; None: each service uses the key that AWS manages for it
_EXPECTED: Mapping[str, str] = {
    "manager": "CUSTOMER",  # the policy of a key of AWS cannot be changed
    "spec": "SYMMETRIC_DEFAULT",
    "usage": "ENCRYPT_DECRYPT",
}


def look_up_key(plan: AwsPlan, provider: pulumi.ProviderResource) -> Key:
    """Return the ARN of the key that the spec names. A key that EBS cannot use ends the program with the field's name.

    EBS and EC2 check a key after they answer, so a wrong key would only show as machines that end at once (T51).
    """
    named = plan.aws.kms_key
    if named is None:
        return None
    found = aws.kms.get_key_output(key_id=named, opts=pulumi.InvokeOutputOptions(provider=provider))
    return found.apply(partial(_checked, named, plan.aws.region))


def faults(key: Mapping[str, Any], region: str) -> Iterator[str]:
    """Yield each reason why EBS cannot use the key."""
    if key["enabled"] is not True:
        yield "it is disabled or waits for its deletion, expected an enabled key"
    for name, expected in _EXPECTED.items():
        if key[name] != expected:
            yield f"its {name} is {key[name]}, expected {expected}"
    if str(key["arn"]).split(":")[3] != region:
        yield f"it is not in {region}"


def _checked(named: str, region: str, answer: aws.kms.GetKeyResult) -> str:
    key = {
        "arn": answer.arn,
        "enabled": answer.enabled,
        "manager": answer.key_manager,
        "spec": answer.key_spec,
        "usage": answer.key_usage,
    }
    found = list(faults(key, region))
    if found:
        raise pulumi.RunError(f"aws.kms_key: {named} ({answer.arn}): {'; '.join(found)}")
    return answer.arn
