"""The default token buckets of EC2's API (T11), and its other bounds. The stand-in throttles by the buckets, and the daemon
limits its calls by them.

Each bucket is (size, refill per second) for one account and Region; the real ones of an account may be larger.
"""

from collections.abc import Iterator, Mapping, Sequence

FILTER_VALUES = 200  # values of one filter (T21)
UNSEEN_S = 300.0  # for which a new instance may be unlisted (T20), or a listed one missing (T21)

# Source: the page on API throttling of the EC2 developer guide.
READ = (100.0, 20.0)
UNFILTERED_READ = (50.0, 10.0)  # DescribeInstances and similar calls without filter and page size
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

# The end of a capacity block (T26; EC2 user guide, Capacity Blocks): the warning comes so long before it,
# and the machines are terminated so long before it.
BLOCK_WARNING_S, BLOCK_TAKEN_S = 40 * 60.0, 30 * 60.0


def in_filters(values: Sequence[str]) -> Iterator[list[str]]:
    """Yield the values in parts that one filter takes."""
    for start in range(0, len(values), FILTER_VALUES):
        yield list(values[start : start + FILTER_VALUES])


def left(rate: tuple[float, float], tokens: float, passed_s: float) -> float:
    """Return the tokens of a bucket `passed_s` seconds after it had `tokens`."""
    size, refill = rate
    return min(size, tokens + max(0.0, passed_s) * refill)
