"""Spec and catalog to plan. Pure; a spec that `spec.load` passed always resolves."""

from dataclasses import dataclass

from gpucluster.catalog import Catalog
from gpucluster.plan import care, defaults, on_aws, on_hosts, people
from gpucluster.plan.model import (
    Aws,
    ClusterPlan,
    Head,
    Hosts,
    Leaf,
    Login,
    Partition,
    Pool,
    Slurm,
    Spine,
    there,
)
from gpucluster.plan.on_kubernetes import kubernetes
from gpucluster.plan.storage import mount
from gpucluster.plan.topology import leaves
from gpucluster.spec import ClusterSpec
from gpucluster.spec.model import Partition as PartitionSpec
from gpucluster.spec.pools import of_slurm

PLAN_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """What hangs on where the cluster stands."""

    aws: Aws | None = None
    hosts: Hosts | None = None
    head: Head | None
    exporter: str | None = None  # address of the head, where it can export
    login: Login | None = None
    pools: tuple[Pool, ...]
    leaves: tuple[Leaf, ...]
    spines: tuple[Spine, ...] = ()


def resolve(spec: ClusterSpec, catalog: Catalog) -> ClusterPlan:
    """Take every default and decide every name, address and fact."""
    site = _on_aws(spec, catalog) if spec.hosts is None else _on_hosts(spec)
    return ClusterPlan(
        schema=PLAN_SCHEMA,
        name=spec.name,
        aws=site.aws,
        hosts=site.hosts,
        users=people.users(spec.users),
        directory=people.directory(spec.directory),
        access=people.access(spec.access),
        login=site.login,
        head=site.head,
        slurm=None if spec.slurm is None else Slurm(version=spec.slurm.version),
        kubernetes=kubernetes(spec, catalog),
        storage=tuple(mount(wish, site.exporter) for wish in spec.storage),
        pools=site.pools,
        partitions=tuple(_partition(partition) for partition in spec.partitions),
        leaves=site.leaves,
        spines=site.spines,
        times=defaults.times(max((pool.boot_timeout_s for pool in site.pools), default=0)),
        budget=care.budget(spec.budget),
    )


def _on_aws(spec: ClusterSpec, catalog: Catalog) -> _Site:
    aws = on_aws.site(spec)
    version = "" if spec.slurm is None else spec.slurm.version
    pools = tuple(on_aws.pool(pool, aws, version, catalog) for pool in of_slurm(spec))
    head = on_aws.head(spec, aws.network)
    return _Site(
        aws=aws,
        head=head,
        exporter=None if head is None else head.address,
        login=on_aws.login(spec, aws.network),
        pools=pools,
        leaves=leaves(there(spec.aws).network.places, pools),
    )


def _on_hosts(spec: ClusterSpec) -> _Site:
    wish = there(spec.hosts)
    head, switches = on_hosts.head(wish), on_hosts.switches(there(spec.slurm).topology)
    return _Site(
        hosts=on_hosts.site(wish),
        head=head,
        exporter=head.address,
        pools=tuple(on_hosts.pool(pool, spec.machines) for pool in spec.pools),
        leaves=switches[0],
        spines=switches[1],
    )


def _partition(wish: PartitionSpec) -> Partition:
    return Partition(name=wish.name, pools=wish.pools, default=wish.default, max_time_s=wish.max_time)
