"""The AWS part: region, tags, images, machines, and the zones that offer them."""

import difflib
from collections import Counter
from collections.abc import Iterator

from gpucluster.catalog import Catalog, Machine
from gpucluster.catalog.image import lacking_in_image
from gpucluster.catalog.tag_limits import most_on_every_resource
from gpucluster.spec.aws import Image
from gpucluster.spec.aws_fields import KMS_ARN
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import require
from gpucluster.spec.pools import run_by
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules import s3_places
from gpucluster.spec.rules.findings import (
    PARTITION,
    advice,
    error,
    not_sold,
    or_none,
    other_partition,
    repeated,
    unknown_machine,
    warning,
)
from gpucluster.spec.rules.network import zones_of
from gpucluster.text import quoted

OWN_TAGS = 10  # of the cluster: its name, role, pool, slot, and those of a launch
# The API server refuses an EC2NodeClass with one of them in `tags` (Karpenter's definition of the kind). Our tags are on every
# resource, and Karpenter's role may end what carries its own.
OF_CLUSTERS = "kubernetes.io/cluster"
OF_KARPENTER = (
    "eks:eks-cluster-name",
    "karpenter.k8s.aws/ec2nodeclass",
    "karpenter.sh/nodeclaim",
    "karpenter.sh/nodepool",
)
MOST_TAGS = most_on_every_resource() - OWN_TAGS


def region(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    region = require(spec.aws).region
    if region not in catalog.regions:
        near = _similar(region, catalog)
        yield error(
            "aws", "region", id="unknown-region", message=f"{quoted(region)} is not a known region{near}"
        )


def _similar(region: str, catalog: Catalog) -> str:
    """Return the region with swapped letters, or up to three similar regions: their names differ in one digit."""
    near = difflib.get_close_matches(region[:200], catalog.regions, n=3)
    swapped = [one for one in near if sorted(one) == sorted(region)]
    if swapped or len(near) == 1:
        return f"; did you mean '{(swapped or near)[0]}'?"
    return f"; similar are {', '.join(sorted(near))}" if near else ""


def tags(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Check the number of tags, keys that IAM takes for one, and the keys by which Karpenter knows its nodes."""
    yield from _keys(spec)
    count = len(require(spec.aws).tags)
    if count > MOST_TAGS:
        message = f"{count} tags; AWS takes {MOST_TAGS + OWN_TAGS} on a resource, and {OWN_TAGS} are the cluster's own"
        yield error("aws", "tags", id="too-many-tags", message=message)


def _keys(spec: ClusterSpec) -> Iterator[Finding]:
    seen = dict[str, str]()
    for key in require(spec.aws).tags:
        first = seen.setdefault(key.lower(), key)
        if first != key:
            message = f"{quoted(key)} and {quoted(first)} are one key for IAM, which does not compare letters by case, and refuses a role with both: keep one of them"
            yield error("aws", "tags", key, id="repeated", message=message)
        if spec.kubernetes is not None and (key in OF_KARPENTER or key.startswith(OF_CLUSTERS)):
            message = f"{quoted(key)} is reserved by Karpenter, which knows its nodes by it and ends those without a claim; choose another key"
            yield error("aws", "tags", key, id="reserved-tag", message=message)


def image(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    yield from _one_image(require(require(spec.aws).image), ("aws", "image"))


def partition(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse ARNs that no Region of the catalog takes."""
    part = require(spec.aws)
    for key in ("boundary", "kms_key"):
        arn = or_none(lambda key=key: getattr(part, key))
        if arn is not None and (message := other_partition(arn)):
            yield error("aws", key, id="bad-arn", message=message)


def kms_key(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Check the region of a key's ARN. An alias is looked up in the cluster's region."""
    part = require(spec.aws)
    arn = KMS_ARN.fullmatch(require(part.kms_key))
    if arn is not None and arn[0].startswith(PARTITION) and arn[1] != part.region:
        message = f"the key is in {arn[1]}, and the cluster in {part.region}; volumes take only keys of their region"
        yield error("aws", "kms_key", id="key-region", message=message)


def jobs(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Check the role of jobs: it needs Slurm, at least one prefix, and a policy within AWS's size limit."""
    part = require(require(spec.aws).jobs)
    if spec.slurm is None and spec.kubernetes is not None:
        yield error(
            "aws", "jobs", id="no-slurm", message="'jobs' needs a 'slurm' part, and the cluster has none"
        )
    yield from s3_places.amount(part.read, part.write, ("aws", "jobs"), "the role of jobs")


def jobs_named_once(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    part = require(require(spec.aws).jobs)
    yield from s3_places.named_once(part.read, part.write, ("aws", "jobs"), "aws.jobs.")


def boot_scripts(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse a script that a job or a pod may replace or delete: then no new node boots."""
    for at, one in enumerate(spec.pools[index].on_boot):
        for place, where in _written(spec):
            if one.script.startswith(f"{place.rstrip('/')}/"):
                message = f"{quoted(one.script)} is within {quoted(place)} of {where}: who writes there deletes it, and no new node boots. Keep it in another folder"
                yield error("pools", index, "on_boot", at, "script", id="script-is-writable", message=message)


def _written(spec: ClusterSpec) -> Iterator[tuple[str, str]]:
    """The places in S3 that jobs and pods write, each with its field."""
    if spec.aws is not None and spec.aws.jobs is not None:
        yield from ((place, "aws.jobs.write") for place in spec.aws.jobs.write)
    for team in spec.kubernetes.teams if spec.kubernetes is not None else ():
        for account in team.service_accounts:
            yield from ((place, f"service account {quoted(account.name)}") for place in account.write)


def pool_image(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    yield from _one_image(require(spec.pools[index].image), ("pools", index, "image"))


def placement(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    """Refuse or warn about a placement group that has no benefit."""
    pool, at = spec.pools[index], ("pools", index, "placement")
    if require(pool.placement) != "cluster" or spec.hosts is not None:
        return
    if all(source.source.is_reserved for source in pool.capacity):
        message = "reserved capacity has a fixed place: a placement group often makes its launch fail (T27)"
        yield error(*at, id="placement-reserved", message=message)
    if require(pool.nodes).max == 1:
        yield error(
            *at, id="placement-alone", message="a placement group has no effect on one node; remove this key"
        )
    machines = [catalog.machines[name] for source in pool.capacity for name in source.machines]
    without = [machine.name for machine in machines if not machine.efa]
    if without:
        message = f"'{without[0]}' has no EFA: a placement group helps little, and capacity is harder to get"
        yield warning(*at, id="no-efa", message=message)


def machines_alike(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    places = [
        (("pools", index, "capacity", position, "machines", at), catalog.machines[name])
        for position, source in enumerate(spec.pools[index].capacity)
        for at, name in enumerate(source.machines)
        if name in catalog.machines
    ]
    shapes = Counter(_shape(machine) for _, machine in places)
    usual = next(iter(sorted(shapes, key=lambda shape: -shapes[shape])), None)
    for path, machine in places:
        if _shape(machine) != usual:
            message = f"'{machine.name}' has {_shape(machine)}, the others of the pool have {usual}; all nodes of a pool are equal"
            yield error(*path, id="machines-differ", message=message)


def pool_without_gpu(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    """Advise on a pool with the name of a GPU model and no GPU. A pool of CPUs with another name is normal."""
    pool = spec.pools[index]
    models = {machine.gpu.model for machine in catalog.machines.values() if machine.gpu is not None}
    named = [name for source in pool.capacity for name in source.machines]
    machines = [catalog.machines[name] for name in named if name in catalog.machines]
    if pool.name in models and machines and all(machine.gpu is None for machine in machines):
        message = f"the pool has the name of a GPU, and '{machines[0].name}' has no GPU"
        yield advice("pools", index, "name", id="pool-without-gpu", message=message)


def source_machines(spec: ClusterSpec, index: int, position: int, catalog: Catalog) -> Iterator[Finding]:
    names = spec.pools[index].capacity[position].machines
    path = ("pools", index, "capacity", position, "machines")
    for at, name in enumerate(names):
        if name not in catalog.machines:
            yield unknown_machine(name, (*path, at), catalog)
    yield from repeated(names, path, "the machine")


def source_fabric(spec: ClusterSpec, index: int, position: int, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse machines with an NVSwitch that the image by name cannot start. An image by its id may have the packages."""
    aws, pool = require(spec.aws), spec.pools[index]
    image = pool.image or aws.image
    if run_by(spec, pool) != "slurm" or (image is not None and image.ami is not None):
        return
    for at, name in enumerate(pool.capacity[position].machines):
        if lacking := lacking_in_image(name):
            message = (
                f"{quoted(name)} needs {', '.join(lacking)} for its NVSwitch, and an image without the part nvlsm does not have "
                "them: its GPUs would never be ready; run `gpucluster image build --with nvlsm`, and name the image by its "
                "id in `image: {ami: …}`"
            )
            yield error(
                "pools",
                index,
                "capacity",
                position,
                "machines",
                at,
                id="image-without-nvlsm",
                message=message,
            )


def source_max(spec: ClusterSpec, index: int, position: int, _catalog: Catalog) -> Iterator[Finding]:
    source, most = spec.pools[index].capacity[position], require(spec.pools[index].nodes).max
    if source.max is not None and source.max > most:
        message = f"max {source.max} of a source is above the pool's max {most}"
        yield error("pools", index, "capacity", position, "max", id="max-above-pool", message=message)


def source_zones(spec: ClusterSpec, index: int, position: int, _catalog: Catalog) -> Iterator[Finding]:
    zones = spec.pools[index].capacity[position].zones or ()
    path = ("pools", index, "capacity", position, "zones")
    yield from repeated(zones, path, "the zone")
    ours = require(spec.aws).network.places
    for at, zone in enumerate(zones):
        if zone not in ours:
            message = f"{quoted(zone)} is not one of the network's zones ({', '.join(ours)})"
            yield error(*path, at, id="zone-not-in-network", message=message)


def source_sold(spec: ClusterSpec, index: int, position: int, catalog: Catalog) -> Iterator[Finding]:
    """Warn if too few zones offer a machine. Zone letters differ by account, so only counts are compared."""
    source, region = spec.pools[index].capacity[position], require(spec.aws).region
    wanted = len(set(zones_of(spec, source)))
    for at, name in enumerate(source.machines):
        machine = catalog.machines.get(name)
        if machine is None or region not in catalog.regions:
            continue
        selling = machine.zones_selling.get(region, 0)
        if selling < wanted:
            alone = all(set(other.machines) == {name} for other in spec.pools[index].capacity)
            outcome = "the pool never gets a node" if alone else "launches skip it"
            message = not_sold(name, region, catalog, outcome)
            if selling:
                zones = f"{selling} zone{'s' * (selling > 1)} of {region}, fewer than the {wanted} here"
                message = f"'{name}' is offered in {zones} (catalog of {catalog.date}); other zones skip it"
            place = ("pools", index, "capacity", position, "machines", at)
            yield warning(*place, id="machine-not-sold", message=message)


def _one_image(part: Image, at: Path) -> Iterator[Finding]:
    if (part.os is None) == (part.ami is None):
        yield error(
            *at,
            id="image-kind",
            message="write exactly one of 'os' and 'ami': the image that machines boot from",
        )


def _shape(machine: Machine) -> str:
    """Return the machine's properties that jobs see, as text. They must be equal within a pool."""
    if machine.gpu is None:
        return f"no GPU ({machine.arch})"
    return f"{machine.gpu.count} x {machine.gpu.model} of {machine.gpu.memory_mib} MiB ({machine.arch})"
