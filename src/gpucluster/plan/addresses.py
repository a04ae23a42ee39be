"""Addresses: one subnet a zone, cut so that no zone's range depends on the other zones.

The network is cut in eight (AWS has had no region with more than six zones); a zone's letter says which eighth is its. So a zone that is added, removed or
moved in the list moves no address of another. Public subnets are cut from the last eighth, again by the zone's letter.
"""

import ipaddress
import string

AWS_RESERVED = 5  # in each subnet: the first four addresses and the last
HEAD_OFFSET = 10  # the head's place in its subnet; above what AWS reserves
STANDBY_OFFSET = 11  # the second head's, in its own zone or in the same
FIXED = 2  # places that are kept free in every subnet, whoever is there
MOST_CUT = (
    22  # of a smaller network the last eighth is whole, and one zone's: an eighth of it would be below a /28
)


def subnet_of(cidr: str, zone: str) -> str:
    """The zone's eighth of the network."""
    parts = list(ipaddress.IPv4Network(cidr).subnets(new_prefix=ipaddress.IPv4Network(cidr).prefixlen + 3))
    return str(parts[string.ascii_lowercase.index(zone[-1])])


def public_of(cidr: str, zone: str, first: str) -> str | None:
    """The zone's part of the last eighth; in a small network the first zone has all of it, and no other has one."""
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
    """Whether a machine may have the address: inside, and none of those that AWS keeps."""
    network, wanted = ipaddress.IPv4Network(subnet), ipaddress.IPv4Address(address)
    return wanted in network and wanted not in (*list(network)[: AWS_RESERVED - 1], network.broadcast_address)


def room(subnet: str) -> int:
    """How many addresses AWS gives out."""
    return ipaddress.IPv4Network(subnet).num_addresses - AWS_RESERVED
