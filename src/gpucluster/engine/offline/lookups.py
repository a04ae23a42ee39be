"""The cloud look-ups of our programs. Without a recorded answer, values that depend on it are unknown.

The planner rejects a look-up that is not in the table, because no person has approved to leave its answer unknown.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from gpucluster.engine.offline.model import Value

# token -> description for people
LOOKUPS: Final[Mapping[str, str]] = {
    "aws:ec2/getAmi:getAmi": "the machine image",
    "aws:ec2/getSubnet:getSubnet": "the site's own subnet",
    "aws:ec2/getVpc:getVpc": "the site's own VPC",
    "aws:efs/getFileSystem:getFileSystem": "the site's own EFS",
    "aws:index/getCallerIdentity:getCallerIdentity": "the account of the credentials",
    "aws:kms/getKey:getKey": "the KMS key",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "the site's own Lustre",  # a resource that is read: AWS's provider has no data source for it
}
STACK_REFERENCE: Final = (
    "pulumi:pulumi:StackReference"  # read, not invoked; its outputs are in another stack's state
)
# token -> outputs that a program reads: a missing or wrong value would otherwise go unnoticed
READ: Final[Mapping[str, Mapping[str, type]]] = {
    "aws:ec2/getAmi:getAmi": {"imageId": str, "rootDeviceName": str},
    "aws:ec2/getSubnet:getSubnet": {
        "arn": str,
        "availabilityZone": str,
        "availableIpAddressCount": int,
        "cidrBlock": str,
        "id": str,
        "vpcId": str,
    },
    "aws:ec2/getVpc:getVpc": {
        "enableDnsHostnames": bool,
        "enableDnsSupport": bool,
        "id": str,
        "ownerId": str,
    },
    "aws:efs/getFileSystem:getFileSystem": {"dnsName": str, "fileSystemId": str},
    "aws:index/getCallerIdentity:getCallerIdentity": {"accountId": str},
    "aws:kms/getKey:getKey": {
        "arn": str,
        "enabled": bool,
        "keyManager": str,
        "keySpec": str,
        "keyUsage": str,
    },
    "aws:fsx/lustreFileSystem:LustreFileSystem": {"dnsName": str, "mountName": str},
}
# token -> values of a placeholder answer, which the program accepts: a key that EBS can use
ASSUMED: Final[Mapping[str, Mapping[str, Value]]] = {
    "aws:kms/getKey:getKey": {
        "enabled": True,
        "keyManager": "CUSTOMER",
        "keySpec": "SYMMETRIC_DEFAULT",
        "keyUsage": "ENCRYPT_DECRYPT",
    },
}
_KINDS: Final[Mapping[type, str]] = {bool: "true or false", int: "a whole number", str: "a text"}


def complaints(token: str, answer: Mapping[str, Value] | None) -> Iterator[str]:
    """Return problems of a recorded entry. Each begins with the field's name."""
    if token not in LOOKUPS and token != STACK_REFERENCE:
        yield f"token: {token!r:.80} is nothing that programs look up; they ask for {', '.join(sorted(LOOKUPS))}"
    if answer is None:
        return
    for name, kind in sorted(READ.get(token, {}).items()):
        value = answer.get(name)
        if type(value) is not kind or value == "":
            found = "nothing" if name not in answer else f"{value!r:.60}"
            yield f"answer.{name}: found {found}, expected {_KINDS[kind]}: it is {sentence(token)}"


def sentence(token: str) -> str:
    """Describe the query of `pulumi up`."""
    if token == STACK_REFERENCE:
        return "another stack's outputs"
    return LOOKUPS.get(token, token)
