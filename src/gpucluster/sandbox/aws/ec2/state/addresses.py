"""Private addresses of a subnet. AWS keeps the first four and the last; a used address is refused (T10)."""

import ipaddress
from collections.abc import Set as AbstractSet

from gpucluster.sandbox.aws.ec2.state.values import RandomSource, Refusal, SubnetRef

_RESERVED_FIRST, _RESERVED_LAST = 4, 1


def choose(
    subnet: SubnetRef,
    used: AbstractSet[str],
    wanted: str | None,
    dice: RandomSource,
    reserved: AbstractSet[str] = frozenset(),
) -> str:
    """Return `wanted` if it is free and in the range, else a random free address outside of CIDR reservations."""
    network = ipaddress.IPv4Network(subnet.cidr)
    first, end = _RESERVED_FIRST, network.num_addresses - _RESERVED_LAST
    if wanted is not None:
        return _explicit(network, first, end, used, wanted)
    if end <= first:
        raise _full(subnet)
    start = dice.randrange(first, end)
    for offset in range(end - first):
        address = str(network[first + (start - first + offset) % (end - first)])
        if address not in used and address not in reserved:
            return address
    raise _full(subnet)


def check_room(
    subnet: SubnetRef,
    used: AbstractSet[str],
    count: int,
    wanted: str | None,
    reserved: AbstractSet[str] = frozenset(),
) -> None:
    """Refuse the launch unless `count` addresses are free and outside of CIDR reservations."""
    network = ipaddress.IPv4Network(subnet.cidr)
    first, end = _RESERVED_FIRST, network.num_addresses - _RESERVED_LAST
    if wanted is not None:
        _explicit(network, first, end, used, wanted)
    elif end - first - len({*used, *reserved}) < count:
        raise _full(subnet)


def room(subnet: SubnetRef) -> int:
    """The number of addresses that a subnet has for its users."""
    return max(0, ipaddress.IPv4Network(subnet.cidr).num_addresses - _RESERVED_FIRST - _RESERVED_LAST)


def _explicit(
    network: ipaddress.IPv4Network, first: int, end: int, used: AbstractSet[str], wanted: str
) -> str:
    try:
        address = ipaddress.IPv4Address(wanted)
    except ValueError:
        raise Refusal("InvalidParameterValue", f"Invalid IPv4 address: {wanted}") from None
    if address not in network or not first <= int(address) - int(network.network_address) < end:
        raise Refusal(
            "InvalidParameterValue", f"Address {wanted} does not fall within the subnet's address range"
        )
    if str(address) in used:
        raise Refusal("InvalidIPAddress.InUse", f"Address {wanted} is in use.")
    return str(address)


def _full(subnet: SubnetRef) -> Refusal:
    return Refusal(
        "InsufficientFreeAddressesInSubnet",
        f"The specified subnet '{subnet.id}' does not have enough free addresses to satisfy the request.",
    )
