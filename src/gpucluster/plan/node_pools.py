"""Divide the nodes of a Kubernetes pool over its sources and, with a fabric, over its zones. Pure.

Karpenter limits each NodePool alone. So each NodePool gets its own number of nodes, and together they get no more than
`max` less the always-on nodes. EFA does not cross zones. So a pool with EFA is divided into one part for each zone, and
Kueue assigns one part to a gang.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Protocol, TypeVar

from gpucluster.plan.model.capacity import Launch, Source
from gpucluster.plan.model.values import Market

# Karpenter's own order inside one NodePool: reserved capacity, then spot, then on-demand (karpenter.sh, "NodePools")
_RANK = {Market.RESERVATION: 0, Market.CAPACITY_BLOCK: 0, Market.SPOT: 1, Market.ON_DEMAND: 2}


class _Limited(Protocol):
    """A source of the plan or of the spec."""

    @property
    def max(self) -> int | None: ...


T = TypeVar("T", bound=_Limited)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Nodes of a pool that are equal for Kueue. `zone` is None if the pool is not divided."""

    zone: str | None
    min: int
    max: int
    launches: tuple[Launch, ...]
    always_on: Mapping[int, int] = field(default_factory=dict[int, int])  # position of a source -> nodes


def parts(least: int, most: int, sources: Sequence[Source], *, fabric: bool) -> tuple[Part, ...]:
    """Return the pool as one part, or as a part for each zone, the zone of the always-on nodes first.

    One zone is a part, too: a second zone then adds a part, and renames no NodePool whose nodes count in `max`. Always-on
    nodes alone are parts only in several zones.
    """
    found = launches(least, most, sources)
    by_zone = {sources[0].zones[0]: dict[int, int]()}
    for source, nodes, zone in filled(least, sources):
        by_zone.setdefault(zone, {})[source.position] = nodes
    zones = dict.fromkeys([*by_zone, *(zone for launch in found for zone in launch.zones)])
    if not fabric or not (found or len(by_zone) > 1):
        fixed = always_on(least, sources)
        return (Part(zone=None, min=least, max=most, launches=found, always_on=fixed),)
    made = [_part(zone, by_zone.get(zone, {}), found) for zone in zones]
    return tuple(part for part in made if part.max)


def filled(least: int, sources: Sequence[Source]) -> Iterator[tuple[Source, int, str]]:
    """Yield the sources that have always-on nodes, with their number and their zone.

    The nodes fill the sources in order, each up to its `max`. Those of a source are in one zone: that of the first source, if it has it.
    """
    for source, nodes in in_turn(least, sources):
        first = sources[0].zones[0]
        if nodes:
            yield source, nodes, first if first in source.zones else source.zones[0]


def in_turn(count: int, sources: Iterable[T]) -> Iterator[tuple[T, int]]:
    """Yield how many of `count` nodes each source gives, if they are used in order, each up to its `max`."""
    for source in sources:
        nodes = count if source.max is None else min(count, source.max)
        yield source, nodes
        count -= nodes


def always_on(least: int, sources: Sequence[Source]) -> dict[int, int]:
    """Return the always-on nodes of each source, by position."""
    return {source.position: nodes for source, nodes, _ in filled(least, sources)}


def always_on_zones(least: int, sources: Sequence[Source]) -> dict[str, int]:
    """Return the always-on nodes of each zone."""
    found = dict[str, int]()
    for _, nodes, zone in filled(least, sources):
        found[zone] = found.get(zone, 0) + nodes
    return found


def in_one_zone(least: int, sources: Sequence[Source]) -> int:
    """Return the most always-on nodes that are in one zone."""
    return max(always_on_zones(least, sources).values(), default=0)


def launches(least: int, most: int, sources: Sequence[Source]) -> tuple[Launch, ...]:
    """Return what Karpenter may launch, in order. The always-on nodes of a source count in its `max`."""
    left, made, fixed = most - least, list[Launch](), always_on(least, sources)
    for some in _joined(sources):
        own = left if some[0].max is None else some[0].max - fixed.get(some[0].position, 0)
        nodes = max(0, min(left, own))
        left -= nodes
        if nodes:
            made.append(_launch(some, nodes))
    return tuple(made)


def unused(least: int, most: int, sources: Sequence[Source]) -> tuple[int, ...]:
    """Return the positions of sources that the sources before them leave no node."""
    used = {position for launch in launches(least, most, sources) for position in launch.positions}
    fixed = always_on(least, sources).keys()
    return tuple(s.position for s in sources if s.position not in used | fixed) if most > least else ()


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


def _part(zone: str, fixed: Mapping[int, int], found: Sequence[Launch]) -> Part:
    mine, least = tuple(launch for one in found for launch in _of_zone(one, zone)), sum(fixed.values())
    most = least + sum(launch.nodes for launch in mine)
    return Part(zone=zone, min=least, max=most, launches=mine, always_on=fixed)


def _of_zone(launch: Launch, zone: str) -> Iterator[Launch]:
    """The launch's nodes are divided evenly; its first zones get the rest."""
    if zone not in launch.zones:
        return
    each, rest = divmod(launch.nodes, len(launch.zones))
    nodes = each + (launch.zones.index(zone) < rest)
    if nodes:
        yield replace(launch, zones=(zone,), nodes=nodes)


def stays(always_on: int, spares: int) -> int:
    """Return how many nodes of an idle pool stay on, over all its zones. The daemon counts idle always-on nodes as spares."""
    return max(always_on, spares)
