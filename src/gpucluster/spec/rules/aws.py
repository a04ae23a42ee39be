"""What stands on AWS: region, tags, images, machines and where they are sold."""

from collections import Counter
from collections.abc import Iterator

from gpucluster.catalog import Catalog, Machine
from gpucluster.plan.market import Market
from gpucluster.spec.aws import Image
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import written
from gpucluster.spec.problem import Finding, Path, quoted
from gpucluster.spec.rules.findings import error, not_sold, repeated, unknown_machine, warning
from gpucluster.spec.rules.network import zones_of

MOST_TAGS = 40  # AWS takes 50; the rest are ours, and what a launch adds
MOST_PLACES, MOST_LETTERS = 20, 1600  # of jobs in S3: a role's policies have 10240 characters in all (T37)
HELD = (Market.RESERVATION, Market.CAPACITY_BLOCK)


def region(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    region = written(spec.aws).region
    if region not in catalog.regions:
        near = did_you_mean(region, catalog.regions)
        yield error(
            "aws", "region", id="unknown-region", says=f"{quoted(region)} is not a region we know{near}"
        )


def tags(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    count = len(written(spec.aws).tags)
    if count > MOST_TAGS:
        says = f"{count} tags; AWS takes 50 on a resource, and {50 - MOST_TAGS} are the cluster's own"
        yield error("aws", "tags", id="too-many-tags", says=says)


def image(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    yield from _one_image(written(written(spec.aws).image), ("aws", "image"))


def jobs(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """A role for nobody, for nothing, or for more than a policy can say."""
    wish = written(written(spec.aws).jobs)
    if spec.slurm is None and spec.kubernetes is not None:
        yield error(
            "aws", "jobs", id="no-slurm", says="'jobs' are Slurm's, and the cluster has no 'slurm' part"
        )
    places = [*wish.read, *wish.write]
    if not places:
        says = "neither 'read' nor 'write' is there: jobs would have a role that may do nothing"
        yield error("aws", "jobs", id="missing-key", says=says)
    letters = sum(map(len, places))
    if len(places) > MOST_PLACES or letters > MOST_LETTERS:
        says = (
            f"{len(places)} places of {letters} characters; a role's policy has room for {MOST_PLACES} of "
            f"{MOST_LETTERS} characters in all: name the folder or the bucket above them"
        )
        yield error("aws", "jobs", id="too-many-places", says=says)


def jobs_named_once(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """By folder: a slash at the end changes nothing, and what is written may be read."""
    wish = written(written(spec.aws).jobs)
    seen: dict[str, str] = {}
    for key, places in (("write", wish.write), ("read", wish.read)):
        for at, place in enumerate(places):
            folder = f"{place.rstrip('/')}/"
            path = ("aws", "jobs", key, at)
            if "//" in folder.removeprefix("s3://"):
                yield error(*path, id="bad-s3", says=f"{quoted(place)} has an empty name between two slashes")
            above = next((one for one in seen if folder.startswith(one)), None)
            if above is not None:
                within = "named twice" if above == folder else f"within {quoted(above)}"
                says = f"{quoted(place)} is {within} (aws.jobs.{seen[above]}), and has its rights"
                yield error(*path, id="repeated", says=says)
            seen.setdefault(folder, key)


def pool_image(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    yield from _one_image(written(spec.pools[index].image), ("pools", index, "image"))


def placement(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    """A group that is forced where it cannot help."""
    pool, at = spec.pools[index], ("pools", index, "placement")
    if written(pool.placement) != "cluster" or spec.hosts is not None:
        return
    if all(source.source in HELD for source in pool.capacity):
        says = (
            "what was bought ahead stands where it stands: forced into a group, it is often not found (T27)"
        )
        yield error(*at, id="placement-held", says=says)
    if written(pool.nodes).max == 1:
        yield error(*at, id="placement-alone", says="a pool of one node is near nobody; leave it out")
    machines = [catalog.machines[name] for source in pool.capacity for name in source.machines]
    without = [machine.name for machine in machines if not machine.efa]
    if without:
        says = f"'{without[0]}' has no EFA: nearness gains little, and capacity is harder to have"
        yield warning(*at, id="no-efa", says=says)


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
    ours = written(spec.aws).network.places
    for at, zone in enumerate(zones):
        if zone not in ours:
            says = f"{quoted(zone)} is not one of the network's zones ({', '.join(ours)})"
            yield error(*path, at, id="zone-not-in-network", says=says)


def source_sold(spec: ClusterSpec, index: int, position: int, catalog: Catalog) -> Iterator[Finding]:
    """Letters of zones differ by account, so only counts can be compared; the real answer comes at launch."""
    source, region = spec.pools[index].capacity[position], written(spec.aws).region
    wanted = len(set(zones_of(spec, source)))
    for at, name in enumerate(source.machines):
        machine = catalog.machines.get(name)
        if machine is None or region not in catalog.regions:
            continue
        selling = machine.zones_selling.get(region, 0)
        if selling < wanted:
            alone = all(set(other.machines) == {name} for other in spec.pools[index].capacity)
            outcome = "the pool never gets a node" if alone else "it is passed over"
            says = not_sold(name, region, catalog, outcome)
            if selling:
                zones = f"{selling} zone{'s' * (selling > 1)} of {region}, fewer than the {wanted} here"
                says = f"'{name}' is sold in {zones} (by the catalog of {catalog.date}); elsewhere it is passed over"
            place = ("pools", index, "capacity", position, "machines", at)
            yield warning(*place, id="machine-not-sold", says=says)


def _one_image(wish: Image, at: Path) -> Iterator[Finding]:
    if (wish.os is None) == (wish.ami is None):
        yield error(*at, id="image-kind", says="exactly one of 'os' and 'ami' says what machines boot from")


def _look(machine: Machine) -> str:
    """What a job sees of the machine, in words; Slurm and programs would tell two looks apart."""
    if machine.gpu is None:
        return f"no GPU ({machine.arch})"
    return f"{machine.gpu.count} x {machine.gpu.model} of {machine.gpu.memory_mib} MiB ({machine.arch})"
