"""The fabric of gangs and of replicas of several nodes."""

from collections.abc import Iterator, Mapping

from gpucluster.catalog import Catalog
from gpucluster.plan import quota_shares
from gpucluster.plan.model.values import EFA, GPU
from gpucluster.plan.quota_shares import TeamPool
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import require
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules.findings import warning
from gpucluster.spec.rules.places import amounts, places_of
from gpucluster.spec.workloads import Serve, Train


def efa(one: Serve | Train, cluster: ClusterSpec | None, catalog: Catalog, path: Path) -> Iterator[Finding]:
    """Warn of pods that are too small for an EFA interface: their part of those of the node rounds to none.

    Warn, too, if the pools differ: a gang has one template, so its pods get the least of its pools.
    """
    wanted = amounts(one.resources) if isinstance(one, Serve) else {GPU: one.gpus_per_node}
    key = "resources" if isinstance(one, Serve) else "gpus_per_node"
    if one.nodes == 1 or GPU not in wanted or EFA in wanted or not all(wanted.values()):
        return
    chosen = _chosen(one, wanted, places_of(one.team, require(cluster), catalog))
    for place in chosen:
        gpus, interfaces = place.node.get(GPU, 0), place.node.get(EFA, 0)
        if interfaces and wanted[GPU] * interfaces < gpus:
            least = -(-gpus // interfaces)
            message = f"a pod with {wanted[GPU]} of the {gpus} GPUs of a node in '{place.pool}' gets none of its {interfaces} EFA interfaces, so the pods speak over TCP; a pod with {least} GPUs gets one"
            yield warning(*path, key, id="no-efa", message=message)
            return
    parts = {place.pool: place.node.get(EFA, 0) * wanted[GPU] // place.node[GPU] for place in chosen}
    ranked = sorted(parts, key=lambda pool: parts[pool])
    if ranked and parts[ranked[0]] < parts[ranked[-1]]:
        least, best = ranked[0], ranked[-1]
        over = "" if parts[least] else ", so they speak over TCP"
        message = f"a pod gets {parts[least]} EFA interfaces in each pool, because the gang may run in '{least}', too{over}; in '{best}' alone it would get {parts[best]}: use a team with GPUs of one of these pools"
        yield warning(*path, key, id="unequal-efa", message=message)


def _chosen(one: Serve | Train, wanted: Mapping[str, int], places: list[TeamPool]) -> tuple[TeamPool, ...]:
    """Return the pools that the plan will take."""
    if isinstance(one, Serve):
        return quota_shares.of_groups(places, wanted, one.nodes, one.replicas.max)
    part = one.topology
    word = None if part is None else part.required or part.preferred
    required = part is not None and part.required is not None
    return quota_shares.of_gang(places, one.nodes, one.gpus_per_node, word, required=required)
