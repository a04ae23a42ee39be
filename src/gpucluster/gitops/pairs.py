"""Which item of one list became which of the other, where items have no names."""

from collections.abc import Sequence
from typing import cast

from gpucluster.spec.part import Part

Pairs = tuple[tuple[int | None, int | None], ...]


def matched(old: Sequence[Part], new: Sequence[Part]) -> Pairs:
    """Equal items first, then the likest, neighbours first; what is left was removed or added."""
    left, right = dict(enumerate(old)), dict(enumerate(new))
    found: list[tuple[int | None, int | None]] = []
    ranked = sorted(
        (-_likeness(was, now), abs(i - j), i, j) for i, was in left.items() for j, now in right.items()
    )
    for likeness, _, i, j in ranked:
        if likeness < 0 and i in left and j in right:
            found.append((i, j))
            del left[i], right[j]
    found += [(i, None) for i in left]
    found += [(None, j) for j in right]
    return tuple(sorted(found, key=lambda pair: (pair[1] is None, pair[1] or 0, pair[0] or 0)))


def order_kept(pairs: Pairs) -> bool:
    """Whether the items that stayed stand in the old order."""
    stayed = [i for i, j in pairs if i is not None and j is not None]
    return stayed == sorted(stayed)


def _likeness(old: Part, new: Part) -> float:
    """How many of the wishes that both have are equal; lists count as far as they overlap."""
    if old == new:
        return float("inf")
    score = 0.0
    for name in type(new).model_fields:
        was, now = getattr(old, name), getattr(new, name)
        if was is None or now is None or was == ():
            continue
        if isinstance(was, tuple) and isinstance(now, tuple):
            score += _overlap(cast(tuple[object, ...], was), cast(tuple[object, ...], now))
        else:
            score += was == now
    return score


def _overlap(old: tuple[object, ...], new: tuple[object, ...]) -> float:
    return len({*map(repr, old)} & {*map(repr, new)}) / max(len(old), len(new), 1)
