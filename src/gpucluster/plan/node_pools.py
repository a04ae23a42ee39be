"""Divide the nodes of a Kubernetes pool over its sources and, with a fabric, over its zones. Pure.

Karpenter limits each NodePool alone. So each NodePool gets its own number of nodes, and together they get no more than
`max` less the always-on nodes. EFA does not cross zones. So a pool with EFA is divided into one part for each zone, and
Kueue assigns one part to a gang.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from gpucluster.plan.model.capacity import Launch, Source
from gpucluster.plan.model.values import Market

# Karpenter's own order inside one NodePool: reserved capacity, then spot, then on-demand (karpenter.sh, "NodePools")
_RANK = {Market.RESERVATION: 0, Market.CAPACITY_BLOCK: 0, Market.SPOT: 1, Market.ON_DEMAND: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Nodes of a pool that are equal for Kueue. `zone` is None if the pool is not divided."""

    zone: str | None
    min: int
    max: int
    launches: tuple[Launch, ...]


def parts(least: int, most: int, sources: Sequence[Source], *, fabric: bool) -> tuple[Part, ...]:
    """Return the pool as one part, or as a part for each zone, the zone of the always-on nodes first.

    One zone is a part, too: a second zone then adds a part, and renames no NodePool whose nodes count in `max`.
    """
    found, first = launches(least, most, sources), sources[0].zones[0]
    zones = dict.fromkeys([first, *(zone for launch in found for zone in launch.zones)])
    if not fabric or not found:
        return (Part(zone=None, min=least, max=most, launches=found),)
    made = [_part(zone, least if zone == first else 0, found) for zone in zones]
    return tuple(part for part in made if part.max)


def launches(least: int, most: int, sources: Sequence[Source]) -> tuple[Launch, ...]:
    """Return what Karpenter may launch, in order. The always-on nodes are of the first source and count in its `max`."""
    left, made = most - least, list[Launch]()
    for some in _joined(sources):
        own = left if some[0].max is None else some[0].max - (least if some[0].position == 0 else 0)
        nodes = max(0, min(left, own))
        left -= nodes
        if nodes:
            made.append(_launch(some, nodes))
    return tuple(made)


def unused(least: int, most: int, sources: Sequence[Source]) -> tuple[int, ...]:
    """Return the positions of sources that the sources before them leave no node."""
    used = {position for launch in launches(least, most, sources) for position in launch.positions}
    always_on = {0} if least else set[int]()
    return tuple(s.position for s in sources if s.position not in used | always_on) if most > least else ()


def _joined(sources: Sequence[Source]) -> Iterator[list[Source]]:
    """Yield sources that one NodePool can try in their order: they differ only in the market, and none has a `max`."""
    for _, same in groupby(sources, lambda source: (source.machines, source.zones)):
        made: list[Source] = []
        for source in same:
            if made and not _follows(made[-1], source):
                yield made
                made = []
            made.append(source)
        yield made


def _follows(one: Source, other: Source) -> bool:
    return one.max is None and other.max is None and _RANK[one.market] < _RANK[other.market]


def _launch(some: Sequence[Source], nodes: int) -> Launch:
    return Launch(
        positions=tuple(source.position for source in some),
        markets=tuple(source.market for source in some),
        machines=some[0].machines,
        zones=some[0].zones,
        nodes=nodes,
        reservations=tuple(source.reservation for source in some if source.reservation is not None),
    )


def _part(zone: str, least: int, found: Sequence[Launch]) -> Part:
    mine = tuple(launch for one in found for launch in _of_zone(one, zone))
    return Part(zone=zone, min=least, max=least + sum(launch.nodes for launch in mine), launches=mine)


def _of_zone(launch: Launch, zone: str) -> Iterator[Launch]:
    """The launch's nodes are divided evenly; its first zones get the rest."""
    if zone not in launch.zones:
        return
    each, rest = divmod(launch.nodes, len(launch.zones))
    nodes = each + (launch.zones.index(zone) < rest)
    if nodes:
        yield replace(launch, zones=(zone,), nodes=nodes)
