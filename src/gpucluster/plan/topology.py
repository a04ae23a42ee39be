"""The topology: one leaf a zone, and nothing above, so that Slurm keeps every gang in one zone.

Within a zone AWS promises no more locality than that without placement groups, so all pools share the leaf.
"""

from collections.abc import Sequence

from gpucluster.plan.model import Leaf, Pool


def leaves(zones: Sequence[str], pools: Sequence[Pool]) -> tuple[Leaf, ...]:
    """The leaves that have slots, in the order of `zones`."""
    made = (
        Leaf(name=zone, slots=tuple(s for pool in pools for s in pool.slots if s.zone == zone))
        for zone in zones
    )
    return tuple(leaf for leaf in made if leaf.slots)
