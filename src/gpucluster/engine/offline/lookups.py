"""The questions to the cloud that our programs ask. Without a recorded answer they stay open: what hangs on it is unknown.

A question that is not in the table is refused by name: a program that asks it has not been planned before, and nobody
has said that its answer may be left open.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from gpucluster.engine.offline.model import Value

# token -> what a person reads of it
LOOKUPS: Final[Mapping[str, str]] = {
    "aws:ec2/getAmi:getAmi": "the machine image",
    "aws:ec2/getSubnet:getSubnet": "the site's own subnet",
    "aws:ec2/getVpc:getVpc": "the site's own VPC",
    "aws:efs/getFileSystem:getFileSystem": "the site's own EFS",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "the site's own Lustre",  # read: there is no data source
}
STACK_REFERENCE: Final = (
    "pulumi:pulumi:StackReference"  # read, not invoked; its outputs are another stack's state
)
# token -> what a program reads of the answer: without it, or with another kind of value, it would go on with nothing
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
    "aws:ec2/getVpc:getVpc": {"arn": str, "enableDnsHostnames": bool, "enableDnsSupport": bool, "id": str},
    "aws:efs/getFileSystem:getFileSystem": {"dnsName": str, "fileSystemId": str},
    "aws:fsx/lustreFileSystem:LustreFileSystem": {"dnsName": str, "mountName": str},
}
_KINDS: Final[Mapping[type, str]] = {bool: "true or false", int: "a whole number", str: "a text"}


def complaints(token: str, answer: Mapping[str, Value] | None) -> Iterator[str]:
    """What is wrong with a recorded entry, each beginning with its field."""
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
    """What is asked at `pulumi up`."""
    if token == STACK_REFERENCE:
        return "another stack's outputs"
    return LOOKUPS.get(token, token)
