"""Rules between parts. A rule is a generator over one subject; it ends where it reads a part that did not parse.

To add a rule: a function, its line in a table below, a row in tests/unit/spec/test_errors.py.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from gpucluster.catalog import Catalog, Machine
from gpucluster.plan.addresses import room, subnet_of
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.model import AbsentError, Capacity, ClusterSpec
from gpucluster.spec.problem import Finding, Level, Path, quoted


def check(spec: ClusterSpec, catalog: Catalog) -> list[Finding]:
    """Everything that the rules have to say about the parts that parsed."""
    found: list[Finding] = []
    for rule in _OF_SPEC:
        found += _run(rule(spec, catalog))
    for index in range(len(_parsed(lambda: spec.pools))):
        for pool_rule in _OF_POOL:
            found += _run(pool_rule(spec, index, catalog))
        for position in range(len(_parsed(lambda index=index: spec.pools[index].capacity))):
            for source_rule in _OF_SOURCE:
                found += _run(source_rule(spec, index, position, catalog))
    for index in range(len(_parsed(lambda: spec.partitions))):
        found += _run(_partition_pools(spec, index))
    return found


def _region(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    region = spec.aws.region
    if region not in catalog.regions:
        near = did_you_mean(region, catalog.regions)
        yield _error(
            "aws", "region", id="unknown-region", says=f"{quoted(region)} is not a region we know{near}"
        )


def _zones(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    zones = spec.aws.network.zones
    yield from _repeated(zones, ("aws", "network", "zones"), "the zone")
    region = spec.aws.region
    known = catalog.regions.get(region, ())
    for index, zone in enumerate(zones if known else ()):
        if zone not in known:
            says = f"{quoted(zone)} is not a zone of {region} ({known[0]} to {known[-1]})"
            yield _error("aws", "network", "zones", index, id="zone-not-in-region", says=says)


def _slurm_version(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    version, supported = spec.slurm.version, ", ".join(catalog.slurm_supported)
    if version in catalog.slurm_supported:
        return
    if version in catalog.slurm_known:
        says = f"Slurm {version} is known but not supported yet; supported: {supported}"
    else:
        known = ", ".join(catalog.slurm_known)
        says = f"{quoted(version)} is not a Slurm release that we know ({known}); supported: {supported}"
    yield _error("slurm", "version", id="slurm-version", says=says)


def _head(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    name = spec.head.machine
    machine = catalog.machines.get(name)
    if machine is None:
        yield _unknown_machine(name, ("head", "machine"), catalog)
        return
    if machine.gpu is not None:
        says = f"'{name}' has {machine.gpu.count} GPUs, and no job runs on the head"
        yield _warning("head", "machine", id="head-with-gpu", says=says)
    region = spec.aws.region
    if region in catalog.regions and region not in machine.zones_selling:
        yield _warning("head", "machine", id="machine-not-sold", says=_not_sold(name, region, catalog))


def _pool_names(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    yield from _same_names([lambda pool=pool: pool.name for pool in spec.pools], "pools")


def _partition_names(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    yield from _same_names([lambda part=part: part.name for part in spec.partitions], "partitions")


def _defaults(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    chosen = [i for i, partition in enumerate(spec.partitions) if _or_none(lambda p=partition: p.default)]
    for index in chosen[1:]:
        says = f"there can be one default partition, and partitions[{chosen[0]}] already is it"
        yield _error("partitions", index, "default", id="two-defaults", says=says)


def _unused_pools(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    used = {name for partition in spec.partitions for name in partition.pools}
    for index, pool in enumerate(spec.pools):
        name = _or_none(lambda pool=pool: pool.name)
        if name is not None and name not in used:
            says = f"no partition uses the pool '{name}', so no job could reach it"
            yield _error("pools", index, "name", id="unused-pool", says=says)


def _network_room(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    network = spec.aws.network
    known = catalog.regions.get(spec.aws.region, ())
    for zone in (zone for zone in network.zones if zone in known):
        wanted = sum(
            pool.nodes.max for pool in spec.pools if any(zone in _zones_of(spec, s) for s in pool.capacity)
        )
        subnet = subnet_of(network.cidr, zone)
        if wanted > room(subnet):
            says = f"{zone} gets {subnet}, with room for {room(subnet)} nodes, and the pools want up to {wanted} there"
            yield _error("aws", "network", "cidr", id="network-too-small", says=says)
            return


def _pool_size(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    nodes = spec.pools[index].nodes
    if nodes.min > nodes.max:
        says = f"min {nodes.min} is above max {nodes.max}"
        yield _error("pools", index, "nodes", "min", id="min-above-max", says=says)


def _machines_alike(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
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
            yield _error(*path, id="machines-differ", says=says)


def _source_machines(spec: ClusterSpec, index: int, position: int, catalog: Catalog) -> Iterator[Finding]:
    names = spec.pools[index].capacity[position].machines
    path = ("pools", index, "capacity", position, "machines")
    for at, name in enumerate(names):
        if name not in catalog.machines:
            yield _unknown_machine(name, (*path, at), catalog)
    yield from _repeated(names, path, "the machine")


def _source_max(spec: ClusterSpec, index: int, position: int, _catalog: Catalog) -> Iterator[Finding]:
    source, most = spec.pools[index].capacity[position], spec.pools[index].nodes.max
    if source.max is not None and source.max > most:
        says = f"max {source.max} of a source is above the pool's max {most}"
        yield _error("pools", index, "capacity", position, "max", id="max-above-pool", says=says)


def _source_zones(spec: ClusterSpec, index: int, position: int, _catalog: Catalog) -> Iterator[Finding]:
    zones = spec.pools[index].capacity[position].zones or ()
    path = ("pools", index, "capacity", position, "zones")
    yield from _repeated(zones, path, "the zone")
    ours = spec.aws.network.zones
    for at, zone in enumerate(zones):
        if zone not in ours:
            says = f"{quoted(zone)} is not one of the network's zones ({', '.join(ours)})"
            yield _error(*path, at, id="zone-not-in-network", says=says)


def _source_sold(spec: ClusterSpec, index: int, position: int, catalog: Catalog) -> Iterator[Finding]:
    """Letters of zones differ by account, so only counts can be compared; the real answer comes at launch."""
    source, region = spec.pools[index].capacity[position], spec.aws.region
    wanted = len(set(_zones_of(spec, source)))
    for at, name in enumerate(source.machines):
        machine = catalog.machines.get(name)
        if machine is None or region not in catalog.regions:
            continue
        selling = machine.zones_selling.get(region, 0)
        if selling < wanted:
            says = _not_sold(name, region, catalog)
            if selling:
                zones = f"{selling} zone{'s' * (selling > 1)} of {region}, fewer than the {wanted} here"
                says = f"'{name}' is sold in {zones} (by the catalog of {catalog.date}); elsewhere it is passed over"
            place = ("pools", index, "capacity", position, "machines", at)
            yield _warning(*place, id="machine-not-sold", says=says)


def _partition_pools(spec: ClusterSpec, index: int) -> Iterator[Finding]:
    names = spec.partitions[index].pools
    path = ("partitions", index, "pools")
    yield from _repeated(names, path, "the pool")
    known = [pool.name for pool in spec.pools]
    for at, name in enumerate(names):
        if name not in known:
            near = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            yield _error(*path, at, id="unknown-pool", says=f"{quoted(name)} is not a pool{near}")


_OF_SPEC: tuple[Callable[[ClusterSpec, Catalog], Iterator[Finding]], ...] = (
    _region,
    _zones,
    _slurm_version,
    _head,
    _pool_names,
    _partition_names,
    _defaults,
    _unused_pools,
    _network_room,
)
_OF_POOL: tuple[Callable[[ClusterSpec, int, Catalog], Iterator[Finding]], ...] = (_pool_size, _machines_alike)
_OF_SOURCE: tuple[Callable[[ClusterSpec, int, int, Catalog], Iterator[Finding]], ...] = (
    _source_machines,
    _source_max,
    _source_zones,
    _source_sold,
)


def _run(found: Iterator[Finding]) -> list[Finding]:
    kept: list[Finding] = []
    try:
        for finding in found:
            kept.append(finding)  # noqa: PERF402 - what came before an absent part stays
    except AbsentError:
        pass
    return kept


def _parsed(read: Callable[[], Sequence[object]]) -> Sequence[object]:
    try:
        return read()
    except AbsentError:
        return ()


def _or_none(read: Callable[[], object]) -> object | None:
    try:
        return read()
    except AbsentError:
        return None


def _zones_of(spec: ClusterSpec, source: Capacity) -> tuple[str, ...]:
    return source.zones or spec.aws.network.zones


def _repeated(values: Sequence[str], path: Path, what: str) -> Iterator[Finding]:
    for index, value in enumerate(values):
        if value in values[:index]:
            yield _error(*path, index, id="repeated", says=f"{what} {quoted(value)} is named twice")


def _same_names(readers: Sequence[Callable[[], str]], kind: str) -> Iterator[Finding]:
    names = [_or_none(read) for read in readers]
    for index, name in enumerate(names):
        if name is not None and name in names[:index]:
            says = f"{quoted(name)} is already the name of {kind}[{names.index(name)}]"
            yield _error(kind, index, "name", id="duplicate-name", says=says)


def _look(machine: Machine) -> str:
    """What a job sees of the machine, in words; Slurm and programs would tell two looks apart."""
    if machine.gpu is None:
        return f"no GPU ({machine.arch})"
    return f"{machine.gpu.count} x {machine.gpu.model} of {machine.gpu.memory_mib} MiB ({machine.arch})"


def _unknown_machine(name: str, path: Path, catalog: Catalog) -> Finding:
    near = did_you_mean(name, catalog.machines)
    return _error(*path, id="unknown-machine", says=f"{quoted(name)} is not in the catalog{near}")


def _not_sold(name: str, region: str, catalog: Catalog) -> str:
    return (
        f"the catalog of {catalog.date} has no zone of {region} that sells '{name}'; if so, it is passed over"
    )


def _error(*path: str | int, id: str, says: str) -> Finding:  # noqa: A002 - the word of the message format
    return Finding(path=path, id=id, message=says)


def _warning(*path: str | int, id: str, says: str) -> Finding:  # noqa: A002
    return Finding(path=path, id=id, message=says, level=Level.WARNING)
