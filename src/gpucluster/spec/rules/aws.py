"""What stands on AWS: region, zones, room for addresses, machines and where they are sold."""

from collections import Counter
from collections.abc import Iterator

from gpucluster.catalog import Catalog, Machine
from gpucluster.plan.addresses import room, subnet_of
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.model import Capacity, ClusterSpec
from gpucluster.spec.part import written
from gpucluster.spec.problem import Finding, quoted
from gpucluster.spec.rules.findings import error, not_sold, repeated, unknown_machine, warning


def region(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    region = written(spec.aws).region
    if region not in catalog.regions:
        near = did_you_mean(region, catalog.regions)
        yield error(
            "aws", "region", id="unknown-region", says=f"{quoted(region)} is not a region we know{near}"
        )


def zones(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    zones = written(spec.aws).network.zones
    yield from repeated(zones, ("aws", "network", "zones"), "the zone")
    region = written(spec.aws).region
    known = catalog.regions.get(region, ())
    for index, zone in enumerate(zones if known else ()):
        if zone not in known:
            says = f"{quoted(zone)} is not a zone of {region} ({known[0]} to {known[-1]})"
            yield error("aws", "network", "zones", index, id="zone-not-in-region", says=says)


def head(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    name = written(spec.head).machine
    machine = catalog.machines.get(name)
    if machine is None:
        yield unknown_machine(name, ("head", "machine"), catalog)
        return
    if machine.gpu is not None:
        says = f"'{name}' has {machine.gpu.count} GPUs, and no job runs on the head"
        yield warning("head", "machine", id="head-with-gpu", says=says)
    region = written(spec.aws).region
    if region in catalog.regions and region not in machine.zones_selling:
        yield warning("head", "machine", id="machine-not-sold", says=not_sold(name, region, catalog))


def network_room(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    network = written(spec.aws).network
    known = catalog.regions.get(written(spec.aws).region, ())
    for zone in (zone for zone in network.zones if zone in known):
        wanted = sum(
            written(pool.nodes).max
            for pool in spec.pools
            if any(zone in _zones_of(spec, s) for s in pool.capacity)
        )
        subnet = subnet_of(network.cidr, zone)
        if wanted > room(subnet):
            says = f"{zone} gets {subnet}, with room for {room(subnet)} nodes, and the pools want up to {wanted} there"
            yield error("aws", "network", "cidr", id="network-too-small", says=says)
            return


def machines_alike(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    places = [
        (("pools", index, "capacity", position, "machines", at), catalog.machines[name])
        for position, source in enumerate(spec.pools[index].capacity)
        for at, name in enumerate(source.machines)
        if name in catalog.machines
    ]
    looks = Counter(_look(machine) for _, machine in places)
    usual = next(iter(sorted(looks, key=lambda look: -looks[look])), None)
    for path, machine in places:
        if _look(machine) != usual:
            says = f"'{machine.name}' has {_look(machine)}, the others of the pool have {usual}; a pool's nodes are alike"
            yield error(*path, id="machines-differ", says=says)


def source_machines(spec: ClusterSpec, index: int, position: int, catalog: Catalog) -> Iterator[Finding]:
    names = spec.pools[index].capacity[position].machines
    path = ("pools", index, "capacity", position, "machines")
    for at, name in enumerate(names):
        if name not in catalog.machines:
            yield unknown_machine(name, (*path, at), catalog)
    yield from repeated(names, path, "the machine")


def source_max(spec: ClusterSpec, index: int, position: int, _catalog: Catalog) -> Iterator[Finding]:
    source, most = spec.pools[index].capacity[position], written(spec.pools[index].nodes).max
    if source.max is not None and source.max > most:
        says = f"max {source.max} of a source is above the pool's max {most}"
        yield error("pools", index, "capacity", position, "max", id="max-above-pool", says=says)


def source_zones(spec: ClusterSpec, index: int, position: int, _catalog: Catalog) -> Iterator[Finding]:
    zones = spec.pools[index].capacity[position].zones or ()
    path = ("pools", index, "capacity", position, "zones")
    yield from repeated(zones, path, "the zone")
    ours = written(spec.aws).network.zones
    for at, zone in enumerate(zones):
        if zone not in ours:
            says = f"{quoted(zone)} is not one of the network's zones ({', '.join(ours)})"
            yield error(*path, at, id="zone-not-in-network", says=says)


def source_sold(spec: ClusterSpec, index: int, position: int, catalog: Catalog) -> Iterator[Finding]:
    """Letters of zones differ by account, so only counts can be compared; the real answer comes at launch."""
    source, region = spec.pools[index].capacity[position], written(spec.aws).region
    wanted = len(set(_zones_of(spec, source)))
    for at, name in enumerate(source.machines):
        machine = catalog.machines.get(name)
        if machine is None or region not in catalog.regions:
            continue
        selling = machine.zones_selling.get(region, 0)
        if selling < wanted:
            says = not_sold(name, region, catalog)
            if selling:
                zones = f"{selling} zone{'s' * (selling > 1)} of {region}, fewer than the {wanted} here"
                says = f"'{name}' is sold in {zones} (by the catalog of {catalog.date}); elsewhere it is passed over"
            place = ("pools", index, "capacity", position, "machines", at)
            yield warning(*place, id="machine-not-sold", says=says)


def _zones_of(spec: ClusterSpec, source: Capacity) -> tuple[str, ...]:
    return source.zones or written(spec.aws).network.zones


def _look(machine: Machine) -> str:
    """What a job sees of the machine, in words; Slurm and programs would tell two looks apart."""
    if machine.gpu is None:
        return f"no GPU ({machine.arch})"
    return f"{machine.gpu.count} x {machine.gpu.model} of {machine.gpu.memory_mib} MiB ({machine.arch})"
