"""Resolve spec and catalog to a plan. Pure; a spec that `spec.load` accepted always resolves."""

from collections.abc import Sequence

from gpucluster.catalog import Catalog
from gpucluster.plan import defaults
from gpucluster.plan.model import (
    ClusterPlan,
    Containers,
    KubernetesOnAws,
    Pool,
    Slurm,
    SlurmOnAws,
    SlurmOnHosts,
)
from gpucluster.plan.resolve import access, accounting, aws, hosts, isolation, operations, settings
from gpucluster.plan.resolve.aws import leaves
from gpucluster.plan.resolve.kubernetes import kubernetes
from gpucluster.plan.resolve.partitions import partitions
from gpucluster.plan.resolve.reservations import reservations
from gpucluster.plan.resolve.storage import mount
from gpucluster.plan.resolve.topology import topologies
from gpucluster.spec import ClusterSpec
from gpucluster.spec.hosts import Hosts as HostsSpec
from gpucluster.spec.model import Slurm as SlurmSpec
from gpucluster.spec.part import require
from gpucluster.spec.pools import of_slurm

PLAN_SCHEMA = 1


def resolve(spec: ClusterSpec, catalog: Catalog) -> ClusterPlan:
    """Set every default and decide every name, address and fact."""
    if spec.hosts is not None:
        return _on_hosts(spec, spec.hosts)
    if spec.slurm is not None:
        return _slurm_on_aws(spec, spec.slurm, catalog)
    return KubernetesOnAws(
        schema=PLAN_SCHEMA,
        name=spec.name,
        aws=aws.site(spec),
        storage=tuple(mount(one, None) for one in spec.storage),
        kubernetes=kubernetes(spec, require(spec.kubernetes), catalog),
    )


def _slurm_on_aws(spec: ClusterSpec, slurm: SlurmSpec, catalog: Catalog) -> SlurmOnAws:
    site = aws.site(spec)
    head = aws.head(spec, site.network)
    pools = tuple(aws.pool(pool, site, slurm.version, catalog, spec.health) for pool in of_slurm(spec))
    return SlurmOnAws(
        schema=PLAN_SCHEMA,
        name=spec.name,
        aws=site,
        image=aws.image(spec, slurm.version),
        head=head,
        login=aws.login(spec, site.network, catalog),
        access=access.access(spec.access),
        slurm=_controller(spec, slurm, catalog.machines[require(spec.head).machine].memory_mib, pools),
        kubernetes=None if spec.kubernetes is None else kubernetes(spec, spec.kubernetes, catalog),
        storage=tuple(mount(one, head.address) for one in spec.storage),
        users=access.users(spec.users),
        directory=access.directory(spec.directory),
        health=operations.health(spec.health),
        pools=pools,
        partitions=partitions(spec, pools),
        leaves=leaves(require(spec.aws).network.places, pools),
        times=defaults.times(max(pool.boot_timeout_s for pool in pools)),
        budget=operations.budget(spec.budget),
    )


def _on_hosts(spec: ClusterSpec, site: HostsSpec) -> SlurmOnHosts:
    slurm, head = require(spec.slurm), hosts.head(site)
    pools = tuple(hosts.pool(pool, spec.machines, spec.health) for pool in spec.pools)
    return SlurmOnHosts(
        schema=PLAN_SCHEMA,
        name=spec.name,
        hosts=hosts.site(site),
        head=head,
        slurm=_controller(spec, slurm, 0, pools),
        storage=tuple(mount(one, head.address) for one in spec.storage),
        users=access.users(spec.users),
        directory=access.directory(spec.directory),
        health=operations.health(spec.health),
        pools=pools,
        partitions=partitions(spec, pools),
        topologies=topologies(slurm.topology),
        times=defaults.times(max(pool.boot_timeout_s for pool in pools)),
    )


def _controller(spec: ClusterSpec, slurm: SlurmSpec, head_mib: int, pools: Sequence[Pool]) -> Slurm:
    """`head_mib`: memory of the head; 0: not known, as of a host that exists."""
    return Slurm(
        version=slurm.version,
        private_tmp=isolation.private_tmp(slurm.private_tmp, spec.storage),
        node_ssh=isolation.node_ssh(slurm.node_ssh, spec.hosts),
        software=isolation.software(slurm.software),
        containers=None if slurm.containers is None else Containers(slurm.containers),
        accounting=accounting.accounting(spec, head_mib),
        preemption=accounting.preemption(slurm.preemption),
        requeue=slurm.requeue is not False,
        licenses=accounting.licenses(spec),
        reservations=reservations(slurm.reservations, pools),
        settings=settings.settings(spec),
    )
