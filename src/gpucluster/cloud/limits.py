"""The default token buckets of EC2's API (T11): facts, for the model that refuses by them and the daemon that paces by them.

Each is (size, refill a second), of one account and Region; an account's real ones may be larger.
"""

from collections.abc import Mapping

# Source: the EC2 developer guide's page on API throttling.
READ = (100.0, 20.0)
UNFILTERED_READ = (50.0, 10.0)  # DescribeInstances and its like with neither filter nor page size
WRITE = (50.0, 5.0)
OWN: Mapping[str, tuple[float, float]] = {
    "RunInstances": (5.0, 2.0),
    "StartInstances": (5.0, 2.0),
    "TerminateInstances": (100.0, 5.0),
    "CreateTags": (100.0, 10.0),
    "CreateNetworkInterface": (100.0, 5.0),
    "CreateLaunchTemplateVersion": (100.0, 5.0),
    "CreateNatGateway": (10.0, 1.0),
    "CreateVpcEndpoint": (4.0, 0.3),
    "ModifyVpcEndpoint": (4.0, 0.3),
    "DeleteVpcEndpoints": (4.0, 0.3),
    "DescribeInstanceTopology": (1.0, 1.0),
}
INSTANCES: Mapping[str, tuple[float, float]] = {
    "RunInstances": (1000.0, 2.0),
    "StartInstances": (1000.0, 2.0),
    "TerminateInstances": (1000.0, 20.0),
    "StopInstances": (1000.0, 20.0),
}

# A capacity block's last part (T26; EC2 user guide, Capacity Blocks): the warning comes so long before its end, and the
# machines are taken from so long before it on.
BLOCK_WARNING_S, BLOCK_TAKEN_S = 40 * 60.0, 30 * 60.0


def left(rate: tuple[float, float], tokens: float, passed_s: float) -> float:
    """What a bucket of `rate` holds `passed_s` after it held `tokens`."""
    size, refill = rate
    return min(size, tokens + max(0.0, passed_s) * refill)
