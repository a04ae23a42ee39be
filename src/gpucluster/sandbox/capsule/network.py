"""The network of the capsule as text for `ip -batch -`: a router with two link-local addresses and one veth per machine.

A machine has its address as a /32 and its default route over the metadata address. So every VPC range works, and machines of
different subnets reach each other as in a VPC. The host gets no address and no route.
"""

from pathlib import Path

from gpucluster import shell
from gpucluster.sandbox.paths import API_ADDRESS, BRIDGE, METADATA_ADDRESS

_SETTINGS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/send_redirects": "0",
    f"net/ipv4/conf/{BRIDGE}/send_redirects": "0",
}

# a fixed MAC: otherwise the bridge takes a machine's, and when that machine ends all neighbour entries are stale
BRIDGE_MAC = "02:00:a9:fe:a9:fe"


def prepare() -> None:
    """Create the router in the current network namespace."""
    ip(capsule_batch())
    for name, value in _SETTINGS.items():
        (Path("/proc/sys") / name).write_text(value)


def capsule_batch() -> str:
    """The router: one bridge with the addresses of the metadata service and the API."""
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
    """The machine's side: eth0 with its address, and the router."""
    return (
        "link set lo up\n"
        f"addr add {address}/32 dev eth0\n"
        "link set eth0 up\n"
        f"route add {METADATA_ADDRESS} dev eth0 src {address}\n"
        f"route add default via {METADATA_ADDRESS} dev eth0 src {address}\n"
    )


def connect(machine: str, *, link: str, address: str, mac: str) -> None:
    """Create the machine's namespace and network."""
    ip(connect_batch(machine, link=link, address=address, mac=mac))
    ip(inside_batch(address=address), netns=machine)


def disconnect(machine: str, *, address: str) -> None:
    """Remove the namespace and with it the veth pair; a missing one is no error."""
    shell.run(["ip", "netns", "del", machine], check=False)
    shell.run(["ip", "route", "del", f"{address}/32", "dev", BRIDGE], check=False)


def ip(batch: str, *, netns: str | None = None) -> None:
    """Run the lines as one `ip` batch."""
    inside = () if netns is None else ("-n", netns)
    shell.run(["ip", *inside, "-batch", "-"], stdin=batch)
