"""Facts of a cluster on AWS: addresses of subnets, NAT gateways and endpoints, the price of a machine. Pure.

The network is divided into eight parts, because no AWS region has more than six zones. The letter of a zone selects its
part. So a zone that is added, removed or moved in the list changes no address of another zone. Public subnets are parts
of the last eighth, again by the zone's letter.
"""

import ipaddress
import string
from collections.abc import Iterable, Sequence

from gpucluster.catalog import Prices
from gpucluster.plan import defaults
from gpucluster.plan.model.values import Market

AWS_RESERVED = 5  # in each subnet: the first four addresses and the last
HEAD_OFFSET = 10  # the head's position in its subnet; above the addresses that AWS reserves
STANDBY_OFFSET = 11  # the second head's position, in its own zone or in the same one
MOST_CUT = 22  # of a smaller network the last eighth is not cut and belongs to one zone: an eighth of it would be below a /28


def subnet_of(cidr: str, zone: str) -> str:
    """The zone's eighth of the network."""
    parts = list(ipaddress.IPv4Network(cidr).subnets(new_prefix=ipaddress.IPv4Network(cidr).prefixlen + 3))
    return str(parts[string.ascii_lowercase.index(zone[-1])])


def public_of(cidr: str, zone: str, first: str) -> str | None:
    """The zone's part of the last eighth. In a small network the first zone has all of it, and no other zone has one."""
    network = ipaddress.IPv4Network(cidr)
    last = list(network.subnets(new_prefix=network.prefixlen + 3))[-1]
    if network.prefixlen <= MOST_CUT:
        return subnet_of(str(last), zone)
    return str(last) if zone == first else None


def head_address(subnet: str) -> str:
    """The head's fixed private address."""
    return str(ipaddress.IPv4Network(subnet)[HEAD_OFFSET])


def standby_address(subnet: str) -> str:
    """The second head's fixed private address."""
    return str(ipaddress.IPv4Network(subnet)[STANDBY_OFFSET])


def usable(subnet: str, address: str) -> bool:
    """Whether a machine may have the address: it is in the subnet and AWS does not reserve it."""
    network, wanted = ipaddress.IPv4Network(subnet), ipaddress.IPv4Address(address)
    return wanted in network and wanted not in (*list(network)[: AWS_RESERVED - 1], network.broadcast_address)


def room(subnet: str) -> int:
    """The number of addresses that AWS gives out."""
    return ipaddress.IPv4Network(subnet).num_addresses - AWS_RESERVED


WITHOUT_NAT = ("ec2", "secretsmanager", "sqs")  # services that machines call, in addition to S3
BY_JOBS = ("sts",)  # the agent calls it for the keys of jobs
BY_SSM = ("ec2messages", "ssm", "ssmmessages")  # and the services that Session Manager's agent calls


def nat_zones(zones: Sequence[str], requested: str | None, vpc: str | None) -> tuple[str, ...]:
    """Zones with a gateway of ours. In a VPC of the site its own routes lead to the internet."""
    if vpc is not None:
        return ()
    return {"one": tuple(zones[:1]), "per-zone": tuple(zones), "none": ()}[requested or defaults.NAT]


def endpoints(requested: Iterable[str], nat: str | None, *, ssm: bool, jobs: bool) -> tuple[str, ...]:
    """The endpoints of the spec. Without a route to the internet (`nat: none`) also those that the machines need."""
    if nat != "none":
        return tuple(sorted(set(requested)))
    needed = (*WITHOUT_NAT, *(BY_SSM if ssm else ()), *(BY_JOBS if jobs else ()))
    return tuple(sorted({*requested, *needed}))


def hourly(
    prices: Prices, region: str, machine: str, market: Market, max_price: int | None = None
) -> int | None:
    """The on-demand price: the ceiling of spot, and the price of a reservation. None: unknown, or prepaid.

    The source's own `max_price` is the ceiling of spot if it is lower, or if the on-demand price is unknown.
    """
    if market is Market.CAPACITY_BLOCK:
        return None
    if region != prices.region or machine not in prices.rows:
        return max_price
    listed = int(prices.rows[machine].scaleb(6))
    return listed if max_price is None else min(listed, max_price)
