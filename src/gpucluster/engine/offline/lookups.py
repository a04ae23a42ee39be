"""The questions to the cloud that our programs ask. Without a recorded answer they stay open: what hangs on it is unknown.

A question that is not in the table is refused by name: a program that asks it has not been planned before, and nobody
has said that its answer may be left open.
"""

from collections.abc import Mapping
from typing import Final

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


def sentence(token: str) -> str:
    """What is asked at `pulumi up`."""
    if token == STACK_REFERENCE:
        return "another stack's outputs"
    return LOOKUPS.get(token, token)
