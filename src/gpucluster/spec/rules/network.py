"""The network: a new or an existing VPC, zones of the region, and enough addresses."""

from collections import Counter
from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.plan.aws import (
    HEAD_OFFSET,
    MOST_CUT,
    endpoints,
    nat_zones,
    public_of,
    room,
    subnet_of,
    usable,
)
from gpucluster.plan.eks import PLANE_ADDRESSES, POD_ADDRESSES, SYSTEM_COUNT
from gpucluster.spec.aws import Network
from gpucluster.spec.kubernetes import Runs, on_eks
from gpucluster.spec.model import Capacity, ClusterSpec
from gpucluster.spec.part import AbsentError, require
from gpucluster.spec.pools import run_by
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules.findings import error, or_none, repeated, warning
from gpucluster.text import quoted

AT = ("aws", "network")
NEW, EXISTING = ("cidr", "zones"), ("vpc", "subnets", "public")
LUSTRE_SERVER_GIB = 1200  # FSx uses one file server and interface for about this size [not verified]


def form(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """`{cidr, zones}` creates a VPC, `{vpc, subnets}` uses an existing one."""
    network = require(spec.aws).network
    requested = {key for key in (*NEW, *EXISTING, "nat") if or_none(lambda key=key: getattr(network, key))}
    if "vpc" not in requested and not requested & set(EXISTING):
        yield from _missing(network, NEW, ("the VPC's range", "its zones"))
        return
    yield from _missing(network, EXISTING[:2], ("the id of the VPC", "its private subnets by zone"))
    for key in (*NEW, "nat"):
        if key in requested:
            message = f"'{key}' is for a new VPC; an existing one has its own ranges, zones and routes"
            yield error(*AT, key, id="network-form", message=message)
    if spec.kubernetes is not None:
        message = "an existing VPC is not supported yet for a cluster with `kubernetes`"
        yield error(*AT, "vpc", id="not-supported", message=message)


def zones(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    network, region = require(spec.aws).network, require(spec.aws).region
    own = or_none(lambda: network.zones)
    if own:
        yield from repeated(require(network.zones), (*AT, "zones"), "the zone")
    known = catalog.regions.get(region, ())
    for index, zone in enumerate(network.places if known else ()):
        if zone not in known:
            message = f"{quoted(zone)} is not a zone of {region} ({known[0]} to {known[-1]})"
            place: Path = ("zones", index) if own else ("subnets", zone)
            yield error(*AT, *place, id="zone-not-in-region", message=message)


def existing_subnets(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse repeated subnets, and public subnets in a zone without a private one."""
    network = require(spec.aws).network
    private, public = require(network.subnets), network.public or {}
    seen = set[str]()
    for key, by_zone in (("subnets", private), ("public", public)):
        for zone, subnet in by_zone.items():
            if subnet in seen:
                yield error(*AT, key, zone, id="repeated", message=f"the subnet '{subnet}' is named twice")
            seen.add(subnet)
    for zone in public:
        if zone not in private:
            message = f"{quoted(zone)} is not one of the network's zones ({', '.join(private)})"
            yield error(*AT, "public", zone, id="zone-not-in-network", message=message)


def network_room(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Check that each zone's subnet has enough addresses for all nodes. An EFA-only interface needs none."""
    network = require(spec.aws).network
    cidr = require(network.cidr)
    known = catalog.regions.get(require(spec.aws).region, ())
    for zone in (zone for zone in network.places if zone in known):
        subnet, others = subnet_of(cidr, zone), _others(spec, zone)
        free = room(subnet) - sum(others.values())
        beside = "".join(f", beside {what}" for what in others if what != "the head")
        nodes, of_pods = _nodes(spec, zone, Runs.SLURM), _nodes(spec, zone, Runs.KUBERNETES)
        if on_eks(spec.kubernetes):
            wanted = nodes + of_pods * (1 + int(POD_ADDRESSES.value))
            message = f"{zone} gets {subnet}, with {max(free, 0)} free addresses{beside}, and the pools need up to {wanted} there: a node of Kubernetes holds {POD_ADDRESSES.value:g} for pods"
        else:
            wanted = nodes + of_pods
            message = f"{zone} gets {subnet}, with room for {max(free, 0)} nodes{beside}, and the pools need up to {wanted} there"
        if wanted > free:
            yield error(*AT, "cidr", id="network-too-small", message=message)
            return


def public_room(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Check the public subnets for login machines and NAT gateways. A small network has one public subnet."""
    network = require(spec.aws).network
    cidr, zones = require(network.cidr), network.places
    known = catalog.regions.get(require(spec.aws).region, ())
    login = or_none(lambda: require(spec.login).zone or zones[0])
    count = 0 if login is None else require(spec.login).count
    gateways = nat_zones(zones, network.nat, network.vpc)
    for zone in (zone for zone in zones if zone in known):
        needs, key = (
            (zone in gateways) + (count if zone == login else 0),
            ("nat" if zone in gateways else "cidr"),
        )
        public = public_of(cidr, zone, zones[0])
        if needs and public is None:
            message = f"a network smaller than a /{MOST_CUT} has one public subnet, in {zones[0]}; {zone} has none for {_what(zone, gateways, login)}"
            place: Path = (*AT, key) if zone in gateways else ("login", "zone")
            yield error(*place, id="network-too-small", message=message)
        elif public is not None and needs > room(public):
            message = (
                f"{zone} gets the public {public}, with room for {room(public)}, and {needs} are needed there"
            )
            yield error("login", "count", id="network-too-small", message=message)


def endpoints_twice(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    network = require(spec.aws).network
    yield from repeated(require(network.endpoints), (*AT, "endpoints"), "the service")


def no_way_out(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Warn about an outside file system in a network without NAT."""
    network = require(spec.aws).network
    outside = [
        ("storage", index, "other")
        for index, one in enumerate(spec.storage)
        if or_none(lambda one=one: one.other) is not None
    ]
    if network.vpc is None and network.nat == "none" and outside:
        message = "without NAT nothing outside the VPC can be reached; the file system must be inside"
        yield warning(*outside[0], id="no-way-out", message=message)


def fixed_addresses(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Check the addresses of the heads: required in an existing VPC, inside the zone's range in a new one."""
    network, head = require(spec.aws).network, require(spec.head)
    standby, known = head.standby, catalog.regions.get(require(spec.aws).region, ())
    addresses: list[tuple[Path, str, str | None]] = [(("head",), network.places[0], head.address)]
    if standby is not None:
        addresses.append((("head", "standby"), standby.zone, standby.address))
    for path, zone, address in addresses:
        if network.vpc is not None and address is None:
            message = "'address' is missing: in an existing VPC only the site knows a free address"
            yield error(*path, id="missing-key", message=message)
        elif address is not None and network.cidr is not None and zone in known:
            subnet = subnet_of(network.cidr, zone)
            if not usable(subnet, address):
                message = f"{address} is not usable in {zone}: its subnet is {subnet}, without the first four addresses and the last; without this key the head has the {HEAD_OFFSET}th"
                yield error(*path, "address", id="address-outside", message=message)
    if standby is not None and standby.address is not None and standby.address == head.address:
        message = f"{head.address} is the address of the head"
        yield error("head", "standby", "address", id="duplicate-address", message=message)


def zones_of(spec: ClusterSpec, source: Capacity) -> tuple[str, ...]:
    """Return the zones in which a source is tried."""
    return source.zones or require(spec.aws).network.places


def _missing(network: Network, keys: tuple[str, ...], what: tuple[str, ...]) -> Iterator[Finding]:
    for key, meaning in zip(keys, what, strict=True):
        try:
            found = getattr(network, key)
        except AbsentError:
            continue  # it is invalid, which is already reported
        if not found:
            yield error(*AT, id="missing-key", message=f"'{key}' is missing: {meaning}")


def _nodes(spec: ClusterSpec, zone: str, runs: Runs) -> int:
    return sum(
        require(pool.nodes).max
        for pool in spec.pools
        if run_by(spec, pool) is runs and any(zone in zones_of(spec, source) for source in pool.capacity)
    )


def _others(spec: ClusterSpec, zone: str) -> Counter[str]:
    """Count the other addresses in the zone's private subnet, by name."""
    network, found = require(spec.aws).network, Counter[str]()
    if spec.head is not None and zone == network.places[0]:
        found["the head"] += 1
    if or_none(lambda: require(require(spec.head).standby).zone) == zone:
        found["the standby"] += 1
    ssm = or_none(lambda: require(spec.access).ssm) is True
    jobs = or_none(lambda: require(spec.aws).jobs) is not None
    for _ in endpoints(network.endpoints or (), network.nat, ssm=ssm, jobs=jobs):
        found["endpoints"] += 1
    if on_eks(spec.kubernetes):
        system = or_none(lambda: require(require(spec.kubernetes).system).nodes) or int(SYSTEM_COUNT.value)
        found["the control plane"] += PLANE_ADDRESSES
        found["the nodes of add-ons"] += system * (1 + int(POD_ADDRESSES.value))
    for one in spec.storage:
        if one.efs is not None and one.efs.id is None:
            found["EFS"] += 1
        lustre = one.fsx_lustre
        if lustre is not None and lustre.id is None and lustre.zone == zone:
            found["FSx"] += 1 + -(-(lustre.size or 0) // (LUSTRE_SERVER_GIB * 1024))
    return found


def _what(zone: str, gateways: tuple[str, ...], login: object) -> str:
    parts = ("a NAT gateway" if zone in gateways else "", "login machines" if zone == login else "")
    return " and ".join(part for part in parts if part)
