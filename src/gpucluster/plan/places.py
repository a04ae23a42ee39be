"""Where a team's pods can stand. The queue counts quotas and not nodes, so the plan says which pools will do.

Kueue gives a gang, or a replica, one pool. Pods that ask for no topology get no pool that has one while their queue
has others, and those that ask get no other: so the pools of one workload have either all a topology or none.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpucluster.plan.kubernetes import CPU, GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One pool as one team sees it."""

    pool: str
    node: Mapping[str, int]  # allocatable
    most: int  # nodes
    reach: Mapping[str, int]  # the team's own there, and what it may borrow
    shared_by: tuple[str, ...]
    words: tuple[str, ...]  # of the topology's levels; none: it has no topology

    def pods(self, wanted: Mapping[str, int]) -> int:
        """How many fit its nodes and the team's share."""
        each = min(self.node.get(r, 0) // amount for r, amount in wanted.items())
        mine = min(self.reach.get(r, 0) // amount for r, amount in wanted.items())
        return min(each * self.most, mine)


def of_gang(places: Sequence[Place], nodes: int, gpus: int, word: str | None) -> tuple[Place, ...]:
    """The pools of which each holds the whole gang, on the level if it asks for one."""
    wanted = {GPU: gpus}
    able = [p for p in places if p.node.get(GPU, 0) % gpus == 0 and p.pods(wanted) >= nodes]
    if word is not None:
        return tuple(place for place in able if word in place.words)
    return _first(able, lambda _: True)


def of_service(places: Sequence[Place], wanted: Mapping[str, int], replicas: int) -> tuple[Place, ...]:
    """The pools that together hold all replicas. Where no GPU is asked for, pools without come first, alone."""
    able = [place for place in places if place.pods(wanted)]
    if not set(wanted) & {r for place in able for r in place.shared_by if r != CPU}:
        plain = [place for place in able if place.shared_by == (CPU,)]
        found = _first(plain, lambda some: held(some, wanted) >= replicas)
        if found:
            return found
    return _first(able, lambda some: held(some, wanted) >= replicas)


def held(places: Iterable[Place], wanted: Mapping[str, int]) -> int:
    """Replicas of all of them."""
    return sum(place.pods(wanted) for place in places)


def alike(places: Sequence[Place]) -> tuple[tuple[Place, ...], ...]:
    """With a topology and without, the kind of the first pool first."""
    kinds = dict.fromkeys(bool(place.words) for place in places)
    return tuple(tuple(place for place in places if bool(place.words) is kind) for kind in kinds)


def _first(places: Sequence[Place], enough: Callable[[Sequence[Place]], bool]) -> tuple[Place, ...]:
    return next((some for some in alike(places) if enough(some)), ())
