"""Convert quotas to shares: the amounts of each team in each pool, and the pools that fit its workloads. Pure.

A quota names the scarce resource: GPUs, slices, or CPUs on nodes without a GPU. Pools fill it in their order. The rest
of a node (CPU, memory, EFA, huge pages) follows in proportion, so that a team's GPUs never wait for its CPUs.

Kueue assigns one pool to a gang or a replica. Pods without a topology request get a pool with a topology only if their
queue has no other pool. Pods with a request get only pools with a topology. So either all pools of one workload have a
topology, or none has.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, TypeVar

from gpucluster.plan.model.capacity import Share
from gpucluster.plan.model.values import CPU, GPU, HUGE_PAGES, weight

if TYPE_CHECKING:
    from gpucluster.plan.model.kubernetes import NodePool

Amounts = dict[str, int]
ZONE = "zone"  # the level that a pool in one zone has without a topology


class Offer(Protocol):
    """A pool, planned or only in the spec: the resources of its quotas, and its total resources at max."""

    @property
    def name(self) -> str: ...
    @property
    def shared_by(self) -> tuple[str, ...]: ...
    def offers(self) -> dict[str, int]: ...


T = TypeVar("T", bound=Offer)


def promised(pools: Sequence[Offer], quotas: Sequence[Mapping[str, int]]) -> list[dict[str, Amounts]]:
    """For each quota: pool -> the guaranteed amounts there. Teams fill pools in order, the first team first."""
    offers = {pool.name: pool.offers() for pool in pools}
    free = {pool.name: {r: offers[pool.name][r] for r in pool.shared_by} for pool in pools}
    taken: list[dict[str, Amounts]] = []
    for quota in quotas:
        left = dict(quota)
        mine: dict[str, Amounts] = {}
        for pool in pools:
            mine[pool.name] = {r: min(left.get(r, 0), free[pool.name][r]) for r in pool.shared_by}
            for r, amount in mine[pool.name].items():
                left[r] = left.get(r, 0) - amount
                free[pool.name][r] -= amount
        taken.append({pool.name: _whole(pool, mine[pool.name], offers[pool.name]) for pool in pools})
    return taken


def shares(
    pools: "Sequence[NodePool]",
    quota: Mapping[str, int],
    mine: Mapping[str, Amounts],
    limits: Mapping[str, int] | None,
) -> tuple[Share, ...]:
    """A team's pools, in the order in which the queue tries them. `limits` of what it borrows; None: nothing."""
    borrow = borrowed(pools, mine, limits)
    return tuple(
        Share(pool=pool.name, nominal=mine[pool.name], borrow=borrow[pool.name])
        for pool in in_order(pools)
        if has(pool, quota, mine[pool.name], may_borrow=limits is not None)
    )


def borrowed(
    pools: Iterable[Offer], mine: Mapping[str, Amounts], limits: Mapping[str, int] | None
) -> dict[str, Amounts]:
    """The most that a team may borrow in each pool. Kueue limits each pool alone, so the pools fill a limit in their order."""
    left = dict(limits or {})
    found: dict[str, Amounts] = {}
    for pool in in_order(pools):
        offers, own = pool.offers(), mine[pool.name]
        if limits is None:
            found[pool.name] = dict.fromkeys(offers, 0)
            continue
        most = {r: min(offers[r] - own[r], left.get(r, offers[r])) for r in pool.shared_by}
        for r in left.keys() & most.keys():
            left[r] -= most[r]
        # what goes with quota and loan together: parts that are rounded down alone would lack one for a pod of both
        reach = _whole(pool, {r: own[r] + most[r] for r in pool.shared_by}, offers)
        found[pool.name] = {r: amount - own[r] for r, amount in reach.items()}
    return found


def in_order(pools: Iterable[T]) -> list[T]:
    """The order in which the queue tries them: CPUs alone before CPUs beside a GPU, else as in the spec."""
    return sorted(pools, key=lambda pool: pool.shared_by != (CPU,))


def has(pool: Offer, quota: Mapping[str, int], mine: Mapping[str, int], *, may_borrow: bool) -> bool:
    """Whether a team has a share: a guaranteed amount, or the right to borrow a resource that it named."""
    return any(mine.values()) or (may_borrow and bool(set(pool.shared_by) & set(quota)))


def spare(pools: "Sequence[NodePool]", taken: Sequence[Mapping[str, Amounts]]) -> tuple[Share, ...]:
    """The amounts that no team has."""
    return tuple(
        Share(
            pool=pool.name,
            nominal={
                r: all_ - sum(mine[pool.name][r] for mine in taken) for r, all_ in pool.offers().items()
            },
            borrow=dict.fromkeys(pool.allocatable, 0),
        )
        for pool in pools
    )


def of_node(pool: "NodePool", wanted: Mapping[str, int]) -> Amounts:
    """The amounts that go with `wanted` (GPUs, slices or CPUs) of one node: the same part of all other resources."""
    return _in_proportion(pool.allocatable, _part(pool, wanted, pool.allocatable), wanted)


def _whole(pool: Offer, named: Mapping[str, int], offers: Mapping[str, int]) -> Amounts:
    return _in_proportion(offers, _part(pool, named, offers), named)


def _part(pool: Offer, named: Mapping[str, int], of: Mapping[str, int]) -> Fraction:
    everything = sum(of[r] * weight(r) for r in pool.shared_by)
    return Fraction(sum(named.get(r, 0) * weight(r) for r in pool.shared_by), everything)


def _in_proportion(of: Mapping[str, int], part: Fraction, named: Mapping[str, int]) -> Amounts:
    """The named amounts unchanged, of the others the part, rounded down."""
    top, bottom = part.numerator, part.denominator  # ten times as fast as a product with a Fraction
    return {r: named[r] if r in named else _even(r, all_ * top // bottom) for r, all_ in of.items()}


def _even(resource: str, whole: int) -> int:
    return whole - whole % 2 if resource == HUGE_PAGES else whole  # a page has 2 MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamPool:
    """One pool from the view of one team."""

    pool: str
    node: Mapping[str, int]  # allocatable
    most: int  # nodes
    reach: Mapping[str, int]  # the team's own amount there, and the amount that it may borrow
    shared_by: tuple[str, ...]
    words: tuple[str, ...]  # levels of the topology; empty: the pool has no topology
    one_zone: bool = False  # all its nodes are in one zone, with or without a topology
    together: int = 0  # of a pool with a topology: the most nodes in one zone

    def pods(self, wanted: Mapping[str, int]) -> int:
        """The number of pods that fit its nodes and the team's share."""
        each = min(self.node.get(r, 0) // amount for r, amount in wanted.items())
        mine = min(self.reach.get(r, 0) // amount for r, amount in wanted.items())
        return min(each * self.most, mine)


def of_gang(
    places: Sequence[TeamPool], nodes: int, gpus: int, word: str | None, *, required: bool = False
) -> tuple[TeamPool, ...]:
    """The pools that each fit the whole gang, on the requested level if there is one. `required`: in one zone, too."""
    wanted = {GPU: gpus}
    able = [p for p in places if p.node.get(GPU, 0) % gpus == 0 and p.pods(wanted) >= nodes]
    if word is not None:
        able = [p for p in able if word in p.words or (word == ZONE and p.one_zone)]
    if word is not None and required:
        able = [p for p in able if not p.words or p.together * (p.node[GPU] // gpus) >= nodes]
    return _first(able, lambda _: True)


def of_service(places: Sequence[TeamPool], wanted: Mapping[str, int], replicas: int) -> tuple[TeamPool, ...]:
    """The pools that together fit all replicas. Without GPU requests, pools without GPUs come first, alone."""
    able = [place for place in places if place.pods(wanted)]
    if not set(wanted) & {r for place in able for r in place.shared_by if r != CPU}:
        plain = [place for place in able if place.shared_by == (CPU,)]
        found = _first(plain, lambda some: pods_of(some, wanted) >= replicas)
        if found:
            return found
    return _first(able, lambda some: pods_of(some, wanted) >= replicas)


def of_groups(
    places: Sequence[TeamPool], wanted: Mapping[str, int], nodes: int, replicas: int
) -> tuple[TeamPool, ...]:
    """The first pool that fits all replicas of several nodes. One pool, so that no replica spans two; EFA does not cross zones."""
    return tuple(place for place in places if place.pods(wanted) >= nodes * replicas)[:1]


def pods_of(places: Iterable[TeamPool], wanted: Mapping[str, int]) -> int:
    """The replicas of all pools together."""
    return sum(place.pods(wanted) for place in places)


def alike(places: Sequence[TeamPool]) -> tuple[tuple[TeamPool, ...], ...]:
    """Split into pools with and without a topology; the kind of the first pool comes first."""
    kinds = dict.fromkeys(bool(place.words) for place in places)
    return tuple(tuple(place for place in places if bool(place.words) is kind) for kind in kinds)


def _first(places: Sequence[TeamPool], enough: Callable[[Sequence[TeamPool]], bool]) -> tuple[TeamPool, ...]:
    return next((some for some in alike(places) if enough(some)), ())
