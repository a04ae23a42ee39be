"""What the plan derives for hosts that exist."""

from collections.abc import Iterator

from gpucluster.plan import defaults
from gpucluster.plan.model import ClusterPlan, Mount, Pool, there
from gpucluster.plan.note import Note, of_default
from gpucluster.spec import ClusterSpec
from gpucluster.spec.model import Pool as PoolSpec


def explain(spec: ClusterSpec, plan: ClusterPlan) -> Iterator[Note]:
    """Every decision, in the order in which the plan shows them."""
    yield from _leaves(plan)
    for wish, pool in zip(spec.pools, plan.pools, strict=True):
        yield from _pool(wish, pool, spec)
    for mount in plan.storage:
        yield from _mount(mount)
    yield Note(
        "slurm.return_to_service", "1", "a host that rebooted by itself stays down until a person has looked"
    )
    yield of_default("times.cred_expire", plan.times.cred_expire_s, defaults.CRED_EXPIRE_S)
    yield of_default("slurm.resume_margin", defaults.RESUME_MARGIN_S.value, defaults.RESUME_MARGIN_S)


def _leaves(plan: ClusterPlan) -> Iterator[Note]:
    if not plan.leaves:
        yield Note(
            "leaves", "none", "no topology was wished: Slurm takes every host for as near as any other"
        )
    for spine in plan.spines:
        why = "as wished; hosts of two spines have no common switch, and no job spans them"
        yield Note(f"spines[{spine.name}]", ", ".join(spine.leaves), why)


def _pool(wish: PoolSpec, pool: Pool, spec: ClusterSpec) -> Iterator[Note]:
    at, shape, machine = f"pools[{pool.name}]", pool.shape, spec.machines[there(wish.machine)]
    yield Note(f"{at}.nodes", str(pool.max), "every host named is a node, and always on")
    if wish.boot_timeout is None:
        yield of_default(f"{at}.boot_timeout", pool.boot_timeout_s, defaults.BOOT_TIMEOUT_S)
    rule = defaults.MEMORY_PERCENT
    reason = f"{rule.value:g} % of the nameplate's {machine.memory} MiB: {rule.reason}"
    yield Note(f"{at}.memory", f"{shape.real_memory_mib} MiB", reason)
    layout = f"{shape.sockets} x {shape.cores_per_socket} x {shape.threads_per_core}"
    yield Note(
        f"{at}.cpus", f"{shape.cpus} ({layout})", "sockets x cores x threads, as the machine is described"
    )


def _mount(mount: Mount) -> Iterator[Note]:
    if mount.nfs is not None and mount.nfs.from_head:
        why = "the head exports it to the cluster's own addresses alone, and has it by a bind mount itself"
        yield Note(f"storage[{mount.path}].server", mount.nfs.server, why)
