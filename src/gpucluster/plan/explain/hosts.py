"""What the plan derives for hosts that exist."""

from collections.abc import Iterator

from gpucluster.plan import defaults
from gpucluster.plan.defaults import Note, of_default
from gpucluster.plan.explain import accounting, operations, partitions, topology
from gpucluster.plan.model import HostPool, Mount, NfsFromHead, SlurmOnHosts
from gpucluster.spec import ClusterSpec
from gpucluster.spec.model import Pool as PoolSpec
from gpucluster.spec.part import require


def explain(spec: ClusterSpec, plan: SlurmOnHosts) -> Iterator[Note]:
    """Every decision, in the order of the plan."""
    yield from topology.on_hosts(spec, plan)
    yield from operations.of_isolation(require(spec.slurm), plan)
    yield from operations.of_settings(plan)
    yield from operations.of_reservations(plan)
    yield from operations.of_containers(plan)
    yield from operations.of_software(plan)
    yield from accounting.of_accounting(spec, plan)
    yield from operations.of_health(spec.health, plan)
    for requested, pool in zip(spec.pools, plan.pools, strict=True):
        yield from _pool(requested, pool, spec)
    for mount in plan.storage:
        yield from _mount(mount)
    yield from partitions.of_partitions(spec, plan)
    yield Note(
        "slurm.return_to_service",
        "1",
        "a host that rebooted unexpectedly stays DOWN until an operator resumes it",
    )
    timeout = defaults.SLURMD_TIMEOUT_OF_HOSTS_S
    yield of_default("slurm.slurmd_timeout", timeout.value, timeout)
    yield of_default("times.cred_expire", plan.times.cred_expire_s, defaults.CRED_EXPIRE_S)
    yield of_default("slurm.prolog_limit", defaults.PROLOG_LIMIT_S.value, defaults.PROLOG_LIMIT_S)
    yield of_default("slurm.resume_margin", defaults.RESUME_MARGIN_S.value, defaults.RESUME_MARGIN_S)


def _pool(requested: PoolSpec, pool: HostPool, spec: ClusterSpec) -> Iterator[Note]:
    at, shape, machine = f"pools[{pool.name}]", pool.shape, spec.machines[require(requested.machine)]
    yield Note(f"{at}.nodes", str(pool.max), "every host of the spec is a node that is always on")
    if requested.boot_timeout is None:
        yield of_default(f"{at}.boot_timeout", pool.boot_timeout_s, defaults.BOOT_TIMEOUT_S)
    yield from partitions.of_nodes(pool)
    rule = defaults.MEMORY_PERCENT
    reason = f"{rule.value:g} % of the host's {machine.memory} MiB: {rule.reason}"
    yield Note(f"{at}.memory", f"{shape.real_memory_mib} MiB", reason)
    layout = f"{shape.sockets} x {shape.cores_per_socket} x {shape.threads_per_core}"
    yield Note(f"{at}.cpus", f"{shape.cpus} ({layout})", "sockets x cores x threads of the spec's `machines`")
    yield from operations.of_sharing(pool)
    yield from operations.of_environment(pool)


def _mount(mount: Mount) -> Iterator[Note]:
    if isinstance(mount.source, NfsFromHead):
        why = "the head exports it only to the addresses of the cluster, and uses a bind mount itself"
        yield Note(f"storage[{mount.path}].server", mount.source.server, why)
