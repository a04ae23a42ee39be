"""Rules between parts. A rule is a generator over one subject. It ends when it reads an absent part.

To add a rule: write a function in the module of its noun, add it to a table below, add a row in tests/unit/spec/test_errors.py.
"""

from collections.abc import Callable, Iterator
from datetime import date

from gpucluster.catalog import Catalog
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.problem import Finding
from gpucluster.spec.rules import (
    access,
    accounting,
    aws,
    capacity,
    eks,
    extra,
    head,
    hosts,
    kubernetes,
    network,
    parts,
    queueing,
    reservations,
    service_accounts,
    sharing,
    slurm,
    storage,
    storage_lint,
    topology,
)
from gpucluster.spec.rules.accept import accepted
from gpucluster.spec.rules.findings import collect, parsed

_OF_SPEC: tuple[Callable[[ClusterSpec, Catalog], Iterator[Finding]], ...] = (
    parts.site,
    parts.orchestrator,
    parts.of_slurm,
    parts.parts_of_slurm,
    hosts.cloud_only,
    hosts.no_replacement,
    hosts.hosts_only,
    hosts.named_once,
    hosts.how_many,
    hosts.unused_machines,
    hosts.machines,
    hosts.nvlink,
    topology.kinds,
    topology.versions,
    topology.names_and_hosts,
    topology.sizes,
    topology.defaults,
    hosts.people,
    aws.region,
    network.form,
    network.zones,
    network.existing_subnets,
    network.endpoints_twice,
    aws.tags,
    aws.image,
    aws.partition,
    aws.kms_key,
    aws.jobs,
    aws.jobs_named_once,
    slurm.slurm_version,
    slurm.slurm_support,
    extra.of_slurm,
    slurm.private_tmp,
    slurm.containers,
    slurm.software,
    accounting.needed,
    accounting.database,
    accounting.database_place,
    accounting.names_once,
    accounting.preemption,
    accounting.cycles,
    accounting.users_without_account,
    reservations.names_once,
    reservations.nodes,
    reservations.times,
    reservations.members,
    reservations.partitions,
    reservations.overlaps,
    head.machines,
    head.state,
    head.standby,
    network.fixed_addresses,
    access.login_zone,
    access.login_reached,
    access.accounts,
    access.ranges,
    access.one_of_both,
    access.image_user,
    slurm.pool_names,
    slurm.partition_names,
    slurm.defaults,
    slurm.unused_pools,
    network.network_room,
    network.public_room,
    network.no_way_out,
    kubernetes.version,
    kubernetes.control_plane,
    kubernetes.eks_name,
    kubernetes.node_image,
    kubernetes.its_pools,
    eks.its_fields,
    eks.system,
    eks.addons,
    eks.people,
    eks.ranges,
    eks.nat,
    eks.karpenter,
    eks.node_groups,
    eks.group_names,
    eks.kms_key,
    kubernetes.monitoring,
    kubernetes.trainer,
    kubernetes.team_names,
    kubernetes.shared_namespaces,
    kubernetes.quotas,
    kubernetes.team_without_quota,
    kubernetes.pool_without_quota,
    queueing.borrowing_limits,
    queueing.shares,
    queueing.queue_sizes,
    queueing.part_names,
    queueing.preemption,
    queueing.priority_names,
    service_accounts.service_accounts,
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
    kubernetes.source_nodes,
    kubernetes.source_weights,
    sharing.one_way,
    sharing.shards,
    sharing.mps,
    sharing.mig,
    sharing.mig_gangs,
    slurm.pool_size,
    extra.of_pool,
    capacity.spares,
    capacity.sources_enough,
    aws.machines_alike,
    aws.pool_without_gpu,
    aws.boot_scripts,
    aws.pool_image,
    aws.placement,
    storage_lint.own_disks,
)
_OF_SOURCE: tuple[Callable[[ClusterSpec, int, int, Catalog], Iterator[Finding]], ...] = (
    aws.source_machines,
    aws.source_fabric,
    aws.source_max,
    aws.source_zones,
    aws.source_sold,
    capacity.source_id,
    capacity.source_price,
    capacity.reservation_place,
    capacity.shared_reservation,
    capacity.block_fixed,
    kubernetes.source_price,
)
_OF_STORAGE: tuple[Callable[[ClusterSpec, int, Catalog], Iterator[Finding]], ...] = (
    storage.kinds,
    storage.server,
    storage.server_export,
    storage.other_options,
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
    extra.of_partition,
    slurm.partition_times,
    topology.partitions,
    slurm.partition_gpus,
    slurm.partition_cpus,
    slurm.partition_cpus_spread,
    sharing.mps_alone,
    kubernetes.partition_pools,
    accounting.partition,
)
_OF_QOS: tuple[Callable[[ClusterSpec, int, Catalog], Iterator[Finding]], ...] = (
    accounting.qos,
    accounting.limits_of_qos,
)
_OF_ACCOUNT: tuple[Callable[[ClusterSpec, int, Catalog], Iterator[Finding]], ...] = (
    accounting.account,
    accounting.users_of_account,
    accounting.limits_of_account,
    accounting.month,
)


_OF_LISTS = (
    ("storage", _OF_STORAGE),
    ("partitions", _OF_PARTITION),
    ("qos", _OF_QOS),
    ("accounts", _OF_ACCOUNT),
)


def check(spec: ClusterSpec, catalog: Catalog, file: str = "", today: date | None = None) -> list[Finding]:
    """Return all findings about the parts that are valid.

    `file`: the path of the spec, if it has one. `today`: the day on which acceptances may have ended; None: they do not end.
    """
    found = collect(parts.name_of_file(spec, file))
    for rule in _OF_SPEC:
        found += collect(rule(spec, catalog))
    for index in range(len(parsed(lambda: spec.pools))):
        for pool_rule in _OF_POOL:
            found += collect(pool_rule(spec, index, catalog))
        for position in range(len(parsed(lambda index=index: spec.pools[index].capacity))):
            for source_rule in _OF_SOURCE:
                found += collect(source_rule(spec, index, position, catalog))
    for key, rules in _OF_LISTS:
        for index in range(len(parsed(lambda key=key: getattr(spec, key)))):
            for item_rule in rules:
                found += collect(item_rule(spec, index, catalog))
    return accepted(spec, found, today)
