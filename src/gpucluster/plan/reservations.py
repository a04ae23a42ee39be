"""The reservations and capacity blocks of a plan, with the field of the spec that names each."""

from collections.abc import Iterator

from gpucluster.plan.model import ClusterPlan
from gpucluster.plan.model.capacity import Source


def reserved(plan: ClusterPlan) -> Iterator[tuple[str, str, Source]]:
    """Yield id, field and source: `pools[h200].capacity[0]`. The parts of a Kubernetes pool in several zones have the pool's name."""
    part = plan.kubernetes
    pools = (*((pool.name, pool) for pool in plan.pools), *((p.of, p) for p in (part.pools if part else ())))
    for name, pool in pools:
        for source in pool.sources:
            if source.reservation is not None:
                yield source.reservation, f"pools[{name}].capacity[{source.position}]", source
