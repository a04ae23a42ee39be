"""Quotas to shares: which pool gives what to which team, and what is left.

A quota names the resource that is scarce (GPUs, slices, or CPUs where there is no GPU); pools fill it in their order.
The rest of a node (CPU, memory, EFA, huge pages) follows in proportion, so that a team's GPUs never wait for its CPUs.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Protocol, TypeVar

from gpucluster.plan.kubernetes import CPU, HUGE_PAGES, NodePool, Share, weight

Amounts = dict[str, int]


class Offer(Protocol):
    """A pool, planned or only wished for: what it is shared out by, and all that it has at its max."""

    @property
    def name(self) -> str: ...
    @property
    def shared_by(self) -> tuple[str, ...]: ...
    def offers(self) -> dict[str, int]: ...


T = TypeVar("T", bound=Offer)


def promised(pools: Sequence[Offer], quotas: Sequence[Mapping[str, int]]) -> list[dict[str, Amounts]]:
    """For each quota: pool -> everything that it is promised there. Teams fill pools in order, first come."""
    free = {pool.name: {r: pool.offers()[r] for r in pool.shared_by} for pool in pools}
    taken: list[dict[str, Amounts]] = []
    for quota in quotas:
        mine: dict[str, Amounts] = {}
        for pool in pools:
            wanted = {r: quota.get(r, 0) - _sum(mine, r) for r in pool.shared_by}
            mine[pool.name] = {r: min(wanted[r], free[pool.name][r]) for r in pool.shared_by}
            for r, amount in mine[pool.name].items():
                free[pool.name][r] -= amount
        taken.append({pool.name: _whole(pool, mine[pool.name]) for pool in pools})
    return taken


def shares(
    pools: Sequence[NodePool], quota: Mapping[str, int], mine: Mapping[str, Amounts], *, may_borrow: bool
) -> tuple[Share, ...]:
    """A team's pools, in the order in which the queue tries them."""
    return tuple(
        Share(pool=pool.name, nominal=mine[pool.name], borrow=_borrow(pool, mine[pool.name], may=may_borrow))
        for pool in in_order(pools)
        if has(pool, quota, mine[pool.name], may_borrow=may_borrow)
    )


def in_order(pools: Iterable[T]) -> list[T]:
    """As the queue tries them: CPUs alone before CPUs beside a GPU, else as in the spec."""
    return sorted(pools, key=lambda pool: pool.shared_by != (CPU,))


def has(pool: Offer, quota: Mapping[str, int], mine: Mapping[str, int], *, may_borrow: bool) -> bool:
    """Whether a team has a share: something is promised there, or it may borrow by a resource that it named."""
    return any(mine.values()) or (may_borrow and bool(set(pool.shared_by) & set(quota)))


def spare(pools: Sequence[NodePool], taken: Sequence[Mapping[str, Amounts]]) -> tuple[Share, ...]:
    """What nobody was promised."""
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


def of_node(pool: NodePool, wanted: Mapping[str, int]) -> Amounts:
    """What goes with `wanted` (GPUs, slices or CPUs) of one node: its part of everything else."""
    return _in_proportion(pool.allocatable, _part(pool, wanted, pool.allocatable), wanted)


def _whole(pool: Offer, named: Mapping[str, int]) -> Amounts:
    offers = pool.offers()
    return _in_proportion(offers, _part(pool, named, offers), named)


def _part(pool: Offer, named: Mapping[str, int], of: Mapping[str, int]) -> Fraction:
    everything = sum(of[r] * weight(r) for r in pool.shared_by)
    return Fraction(sum(named.get(r, 0) * weight(r) for r in pool.shared_by), everything)


def _in_proportion(of: Mapping[str, int], part: Fraction, named: Mapping[str, int]) -> Amounts:
    """The named amounts as they are, of the others the part, rounded down."""
    return {r: named[r] if r in named else _floor(r, all_ * part) for r, all_ in of.items()}


def _floor(resource: str, amount: Fraction) -> int:
    whole = int(amount)
    return whole - whole % 2 if resource == HUGE_PAGES else whole  # a page has 2 MiB


def _borrow(pool: NodePool, mine: Amounts, *, may: bool) -> Amounts:
    return {r: all_ - mine[r] if may else 0 for r, all_ in pool.offers().items()}


def _sum(mine: Mapping[str, Amounts], resource: str) -> int:
    return sum(amounts.get(resource, 0) for amounts in mine.values())
