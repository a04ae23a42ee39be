"""Spec and catalog to plan. Pure; a spec that `spec.load` passed always resolves."""

from gpucluster.catalog import Catalog
from gpucluster.plan import defaults, on_aws
from gpucluster.plan.model import ClusterPlan, Partition, Slurm, there
from gpucluster.plan.storage import mount
from gpucluster.plan.topology import leaves
from gpucluster.spec import ClusterSpec
from gpucluster.spec.model import Partition as PartitionSpec

PLAN_SCHEMA = 1


def resolve(spec: ClusterSpec, catalog: Catalog) -> ClusterPlan:
    """Take every default and decide every name, address and fact."""
    version, site = there(spec.slurm).version, there(spec.aws)
    aws = on_aws.site(site, version)
    pools = tuple(on_aws.pool(pool, site, catalog) for pool in spec.pools)
    return ClusterPlan(
        schema=PLAN_SCHEMA,
        name=spec.name,
        aws=aws,
        head=on_aws.head(spec.name, there(spec.head).machine, aws.network),
        slurm=Slurm(version=version),
        kubernetes=None,
        storage=tuple(mount(wish, None) for wish in spec.storage),
        pools=pools,
        partitions=tuple(_partition(partition) for partition in spec.partitions),
        leaves=leaves(site.network.zones, pools),
        times=defaults.times(max(pool.boot_timeout_s for pool in pools)),
    )


def _partition(wish: PartitionSpec) -> Partition:
    return Partition(name=wish.name, pools=wish.pools, default=wish.default, max_time_s=wish.max_time)
