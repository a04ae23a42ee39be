"""The capsule's network, as text for `ip -batch -`: a router with two link-local addresses, a veth a machine.

A machine has its address as a /32 and its default route over the metadata address, so any VPC range works,
and two machines of different subnets reach each other as in a VPC. The host gets no address and no route.
"""

from pathlib import Path

from gpucluster import shell
from gpucluster.sandbox.places import API_ADDRESS, BRIDGE, METADATA_ADDRESS

_SETTINGS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/send_redirects": "0",
    f"net/ipv4/conf/{BRIDGE}/send_redirects": "0",
}

# Its own: a bridge without one takes that of a machine, and when that machine ends all others' neighbour entries are stale.
BRIDGE_MAC = "02:00:a9:fe:a9:fe"


def prepare() -> None:
    """Make the router in the network namespace that we are in."""
    ip(capsule_batch())
    for name, value in _SETTINGS.items():
        (Path("/proc/sys") / name).write_text(value)


def capsule_batch() -> str:
    """The router: one bridge with the metadata service's address and the API's."""
    return (
        "link set lo up\n"
        f"link add {BRIDGE} address {BRIDGE_MAC} type bridge\n"
        f"addr add {METADATA_ADDRESS}/32 dev {BRIDGE}\n"
        f"addr add {API_ADDRESS}/32 dev {BRIDGE}\n"
        f"link set {BRIDGE} up\n"
    )


def connect_batch(machine: str, *, link: str, address: str, mac: str) -> str:
    """A machine's namespace, its end of the veth pair, and the route to it."""
    return (
        f"netns add {machine}\n"
        f"link add {link} type veth peer name eth0 netns {machine} address {mac}\n"
        f"link set {link} master {BRIDGE} up\n"
        f"route replace {address}/32 dev {BRIDGE}\n"
    )


def inside_batch(*, address: str) -> str:
    """What a machine sees: eth0 with its address, and the router."""
    return (
        "link set lo up\n"
        f"addr add {address}/32 dev eth0\n"
        "link set eth0 up\n"
        f"route add {METADATA_ADDRESS} dev eth0 src {address}\n"
        f"route add default via {METADATA_ADDRESS} dev eth0 src {address}\n"
    )


def connect(machine: str, *, link: str, address: str, mac: str) -> None:
    """Give the machine its namespace and network."""
    ip(connect_batch(machine, link=link, address=address, mac=mac))
    ip(inside_batch(address=address), netns=machine)


def disconnect(machine: str, *, address: str) -> None:
    """Take the namespace away, and the veth pair with it; what is not there is no error."""
    shell.run(["ip", "netns", "del", machine], check=False)
    shell.run(["ip", "route", "del", f"{address}/32", "dev", BRIDGE], check=False)


def ip(batch: str, *, netns: str | None = None) -> None:
    """Run the lines as one `ip`."""
    inside = () if netns is None else ("-n", netns)
    shell.run(["ip", *inside, "-batch", "-"], stdin=batch)
