"""Addresses: one subnet a zone, cut so that no zone's range depends on the other zones.

The network is cut in eight (AWS has had no region with more than six zones); a zone's letter says which eighth is its. So a zone that is added, removed or
moved in the list moves no address of another.
"""

import ipaddress
import string

AWS_RESERVED = 5  # in each subnet: the first four addresses and the last
HEAD_OFFSET = 10  # the head's place in its subnet; above what AWS reserves


def subnet_of(cidr: str, zone: str) -> str:
    """The zone's eighth of the network."""
    parts = list(ipaddress.IPv4Network(cidr).subnets(new_prefix=ipaddress.IPv4Network(cidr).prefixlen + 3))
    return str(parts[string.ascii_lowercase.index(zone[-1])])


def head_address(subnet: str) -> str:
    """The head's fixed private address."""
    return str(ipaddress.IPv4Network(subnet)[HEAD_OFFSET])


def room(subnet: str) -> int:
    """How many machines fit, the head's place left free."""
    return ipaddress.IPv4Network(subnet).num_addresses - AWS_RESERVED - 1
