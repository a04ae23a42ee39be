"""How jobs of a Slurm pool share its GPUs. Pure."""

import re
from dataclasses import replace

from gpucluster.plan.model import Mig, MigSlice, Mps, NodeShape, Shards
from gpucluster.spec.kubernetes import Sharing


def shared(shape: NodeShape, requested: Sharing | None) -> NodeShape:
    """The shape with its sharing."""
    if requested is None:
        return shape
    if requested.shards is not None:
        return replace(shape, sharing=Shards(each=requested.shards))
    if requested.mps is not None:
        return replace(shape, sharing=Mps(each=requested.mps))
    profiles = sorted((requested.mig or {}).items(), key=lambda one: _size(one[0]), reverse=True)
    slices = tuple(MigSlice(profile=profile, count=count) for profile, count in profiles)
    return replace(shape, sharing=Mig(slices=slices))


def _size(profile: str) -> tuple[int, ...]:
    """Compute and memory of `3g.40gb`: the driver finds a place for all slices if the largest come first."""
    return tuple(int(number) for number in re.findall("[0-9]+", profile))
