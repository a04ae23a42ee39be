"""Rules between parts. A rule is a generator over one subject; it ends where it reads a part that is absent.

To add a rule: a function in the module of its noun, its line in a table below, a row in tests/unit/spec/test_errors.py.
"""

from collections.abc import Callable, Iterator

from gpucluster.catalog import Catalog
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.problem import Finding
from gpucluster.spec.rules import (
    access,
    aws,
    capacity,
    head,
    hosts,
    kubernetes,
    network,
    parts,
    sharing,
    slurm,
    storage,
    storage_lint,
)
from gpucluster.spec.rules.accept import accepted
from gpucluster.spec.rules.findings import parsed, run

_OF_SPEC: tuple[Callable[[ClusterSpec, Catalog], Iterator[Finding]], ...] = (
    parts.site,
    parts.orchestrator,
    parts.of_slurm,
    parts.only_slurms,
    hosts.cloud_only,
    hosts.hosts_only,
    hosts.named_once,
    hosts.how_many,
    hosts.unused_machines,
    hosts.machines,
    hosts.switches,
    hosts.people,
    aws.region,
    network.form,
    network.zones,
    network.subnets_there,
    network.endpoints_twice,
    aws.tags,
    aws.image,
    aws.jobs,
    aws.jobs_named_once,
    slurm.slurm_version,
    head.machines,
    head.state,
    head.standby,
    network.fixed_addresses,
    access.login_zone,
    access.login_reached,
    access.accounts,
    access.ranges,
    access.one_of_both,
    access.images_own,
    slurm.pool_names,
    slurm.partition_names,
    slurm.defaults,
    slurm.unused_pools,
    network.network_room,
    network.public_room,
    network.no_way_out,
    kubernetes.version,
    kubernetes.control_plane,
    kubernetes.its_pools,
    kubernetes.team_names,
    kubernetes.quotas,
    kubernetes.empty_handed,
    kubernetes.unpromised,
    storage.mounted_twice,
    storage.mounted_within,
    storage_lint.checkpoints,
    capacity.budget,
    capacity.always_on_cost,
)
_OF_POOL: tuple[Callable[[ClusterSpec, int, Catalog], Iterator[Finding]], ...] = (
    parts.of_pool_on_aws,
    hosts.pool_on_aws,
    hosts.pool_on_hosts,
    hosts.pool_machine,
    hosts.pool_addresses,
    kubernetes.pool_runs,
    kubernetes.pool_of_other,
    kubernetes.pool_of_slurm_only,
    sharing.mig,
    slurm.pool_size,
    capacity.spares,
    capacity.sources_enough,
    aws.machines_alike,
    aws.pool_image,
    aws.placement,
    storage_lint.own_disks,
)
_OF_SOURCE: tuple[Callable[[ClusterSpec, int, int, Catalog], Iterator[Finding]], ...] = (
    aws.source_machines,
    aws.source_max,
    aws.source_zones,
    aws.source_sold,
    capacity.source_id,
    capacity.source_price,
    capacity.held_place,
    capacity.held_alike,
    capacity.block_fixed,
    kubernetes.source_market,
)
_OF_STORAGE: tuple[Callable[[ClusterSpec, int, Catalog], Iterator[Finding]], ...] = (
    storage.kinds,
    storage.server,
    storage.server_export,
    storage.lustre,
    storage.links,
    storage.over_system,
    storage.of_aws,
    storage_lint.lustre_speed,
    storage_lint.lustre_zone,
    head.exports,
    hosts.mounts,
    kubernetes.storage,
)
_OF_PARTITION: tuple[Callable[[ClusterSpec, int, Catalog], Iterator[Finding]], ...] = (
    slurm.partition_pools,
    kubernetes.partition_pools,
)


def check(spec: ClusterSpec, catalog: Catalog) -> list[Finding]:
    """Everything that the rules have to say about the parts that parsed."""
    found: list[Finding] = []
    for rule in _OF_SPEC:
        found += run(rule(spec, catalog))
    for index in range(len(parsed(lambda: spec.pools))):
        for pool_rule in _OF_POOL:
            found += run(pool_rule(spec, index, catalog))
        for position in range(len(parsed(lambda index=index: spec.pools[index].capacity))):
            for source_rule in _OF_SOURCE:
                found += run(source_rule(spec, index, position, catalog))
    for index in range(len(parsed(lambda: spec.storage))):
        for storage_rule in _OF_STORAGE:
            found += run(storage_rule(spec, index, catalog))
    for index in range(len(parsed(lambda: spec.partitions))):
        for partition_rule in _OF_PARTITION:
            found += run(partition_rule(spec, index, catalog))
    return accepted(spec, found)
