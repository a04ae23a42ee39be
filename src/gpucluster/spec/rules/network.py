"""The network: one of its two forms, zones of the region, room for every address, places that fit."""

from collections import Counter
from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.plan.addresses import HEAD_OFFSET, MOST_CUT, public_of, room, subnet_of, usable
from gpucluster.plan.outward import endpoints, nat_zones
from gpucluster.spec.aws import Network
from gpucluster.spec.model import Capacity, ClusterSpec
from gpucluster.spec.part import AbsentError, written
from gpucluster.spec.problem import Finding, Path, quoted
from gpucluster.spec.rules.findings import error, or_none, repeated, warning

AT = ("aws", "network")
OWN, THERE = ("cidr", "zones"), ("vpc", "subnets", "public")
LUSTRE_SERVER_GIB = 1200  # a file server, and an interface, for about so much [not verified]


def form(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """`{cidr, zones}` makes a VPC, `{vpc, subnets}` takes one."""
    network = written(spec.aws).network
    wished = {key for key in (*OWN, *THERE, "nat") if or_none(lambda key=key: getattr(network, key))}
    if "vpc" not in wished and not wished & set(THERE):
        yield from _missing(network, OWN, ("the VPC's range", "its zones"))
        return
    yield from _missing(network, THERE[:2], ("which VPC", "its private subnets by zone"))
    for key in (*OWN, "nat"):
        if key in wished:
            says = (
                f"'{key}' is for a VPC that is made; one that is there has its own ranges, zones and routes"
            )
            yield error(*AT, key, id="network-form", says=says)
    if spec.kubernetes is not None:
        says = "a VPC that is there is not supported yet for a cluster with `kubernetes`"
        yield error(*AT, "vpc", id="not-supported", says=says)


def zones(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    network, region = written(spec.aws).network, written(spec.aws).region
    own = or_none(lambda: network.zones)
    if own:
        yield from repeated(written(network.zones), (*AT, "zones"), "the zone")
    known = catalog.regions.get(region, ())
    for index, zone in enumerate(network.places if known else ()):
        if zone not in known:
            says = f"{quoted(zone)} is not a zone of {region} ({known[0]} to {known[-1]})"
            place: Path = ("zones", index) if own else ("subnets", zone)
            yield error(*AT, *place, id="zone-not-in-region", says=says)


def subnets_there(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Each of the site's subnets once; public ones only beside private ones."""
    network = written(spec.aws).network
    private, public = written(network.subnets), network.public or {}
    seen = set[str]()
    for key, by_zone in (("subnets", private), ("public", public)):
        for zone, subnet in by_zone.items():
            if subnet in seen:
                yield error(*AT, key, zone, id="repeated", says=f"the subnet '{subnet}' is named twice")
            seen.add(subnet)
    for zone in public:
        if zone not in private:
            says = f"{quoted(zone)} is not one of the network's zones ({', '.join(private)})"
            yield error(*AT, "public", zone, id="zone-not-in-network", says=says)


def network_room(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Every address that the cluster may ask for at once, zone by zone; what has none (an EFA alone) costs none."""
    network = written(spec.aws).network
    cidr = written(network.cidr)
    known = catalog.regions.get(written(spec.aws).region, ())
    for zone in (zone for zone in network.places if zone in known):
        wanted = _nodes(spec, zone)
        subnet, others = subnet_of(cidr, zone), _others(spec, zone)
        free = room(subnet) - sum(others.values())
        if wanted > free:
            beside = "".join(f", beside {what}" for what in others if what != "the head")
            says = f"{zone} gets {subnet}, with room for {max(free, 0)} nodes{beside}, and the pools want up to {wanted} there"
            yield error(*AT, "cidr", id="network-too-small", says=says)
            return


def public_room(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Login machines and NAT gateways: in a small network only the first zone has a place for them."""
    network = written(spec.aws).network
    cidr, zones = written(network.cidr), network.places
    known = catalog.regions.get(written(spec.aws).region, ())
    login = or_none(lambda: written(spec.login).zone or zones[0])
    count = 0 if login is None else written(spec.login).count
    gateways = nat_zones(zones, network.nat, network.vpc)
    for zone in (zone for zone in zones if zone in known):
        needs, key = (
            (zone in gateways) + (count if zone == login else 0),
            ("nat" if zone in gateways else "cidr"),
        )
        public = public_of(cidr, zone, zones[0])
        if needs and public is None:
            says = f"a network smaller than a /{MOST_CUT} has one public subnet, in {zones[0]}; {zone} has none for {_what(zone, gateways, login)}"
            place: Path = (*AT, key) if zone in gateways else ("login", "zone")
            yield error(*place, id="network-too-small", says=says)
        elif public is not None and needs > room(public):
            says = (
                f"{zone} gets the public {public}, with room for {room(public)}, and {needs} are wanted there"
            )
            yield error("login", "count", id="network-too-small", says=says)


def endpoints_twice(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    network = written(spec.aws).network
    yield from repeated(written(network.endpoints), (*AT, "endpoints"), "the service")


def no_way_out(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Without a gateway only AWS's own services are reached."""
    network = written(spec.aws).network
    outside = [
        ("storage", index, "other")
        for index, one in enumerate(spec.storage)
        if or_none(lambda one=one: one.other) is not None
    ]
    if network.vpc is None and network.nat == "none" and outside:
        says = "without NAT nothing outside the VPC is reached; the file system must stand inside"
        yield warning(*outside[0], id="no-way-out", says=says)


def fixed_addresses(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Where the heads stand: named in a VPC that is there, inside its zone's range in one that is made."""
    network, head = written(spec.aws).network, written(spec.head)
    standby, known = head.standby, catalog.regions.get(written(spec.aws).region, ())
    wishes: list[tuple[Path, str, str | None]] = [(("head",), network.places[0], head.address)]
    if standby is not None:
        wishes.append((("head", "standby"), standby.zone, standby.address))
    for path, zone, address in wishes:
        if network.vpc is not None and address is None:
            says = "'address' is missing: in a VPC that is there nobody else knows which one is free"
            yield error(*path, id="missing-key", says=says)
        elif address is not None and network.cidr is not None and zone in known:
            subnet = subnet_of(network.cidr, zone)
            if not usable(subnet, address):
                says = f"{address} is none of {zone}'s addresses, {subnet} but the first four and the last; leave it out for the {HEAD_OFFSET}th"
                yield error(*path, "address", id="address-outside", says=says)
    if standby is not None and standby.address is not None and standby.address == head.address:
        says = f"{head.address} is the head's"
        yield error("head", "standby", "address", id="duplicate-address", says=says)


def zones_of(spec: ClusterSpec, source: Capacity) -> tuple[str, ...]:
    """Where a source is asked."""
    return source.zones or written(spec.aws).network.places


def _missing(network: Network, keys: tuple[str, ...], what: tuple[str, ...]) -> Iterator[Finding]:
    for key, meaning in zip(keys, what, strict=True):
        try:
            found = getattr(network, key)
        except AbsentError:
            continue  # it is there and wrong, which was said
        if not found:
            yield error(*AT, id="missing-key", says=f"'{key}' is missing: {meaning}")


def _nodes(spec: ClusterSpec, zone: str) -> int:
    return sum(
        written(pool.nodes).max
        for pool in spec.pools
        if any(zone in zones_of(spec, source) for source in pool.capacity)
    )


def _others(spec: ClusterSpec, zone: str) -> Counter[str]:
    """What else has an address in the zone's private subnet, in words."""
    network, found = written(spec.aws).network, Counter[str]()
    if spec.head is not None and zone == network.places[0]:
        found["the head"] += 1
    if or_none(lambda: written(written(spec.head).standby).zone) == zone:
        found["the standby"] += 1
    ssm = or_none(lambda: written(spec.access).ssm) is True
    jobs = or_none(lambda: written(spec.aws).jobs) is not None
    for _ in endpoints(network.endpoints or (), network.nat, ssm=ssm, jobs=jobs):
        found["endpoints"] += 1
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
