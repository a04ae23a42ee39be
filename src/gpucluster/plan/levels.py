"""How near to each other pods can ask to stand: the levels of a topology, and the nodes that tell them."""

from collections.abc import Mapping, Sequence

from gpucluster.catalog import Machine
from gpucluster.plan import names
from gpucluster.plan.kubernetes import Distribution, Level

# AWS's own labels of where a node hangs; 1 is the widest, and only a zone is always told.
_FABRIC = (
    Level(word="spine", label="topology.k8s.aws/network-node-layer-1"),
    Level(word="block", label="topology.k8s.aws/network-node-layer-2"),
    Level(word="leaf", label="topology.k8s.aws/network-node-layer-3"),
)
_ZONE, _HOST = Level(word="zone", label=names.LABEL_ZONE), Level(word="host", label=names.LABEL_HOST)
WORDS = {  # for `topology`; a host is no wish, for a gang has one pod a node
    Distribution.EKS: tuple(level.word for level in (_ZONE, *_FABRIC)),
    Distribution.EXISTING: (_ZONE.word,),
}


def stands(gpus: int, mig: Mapping[str, int], least: int, most: int) -> bool:
    """Whether a pool has a topology: whole GPUs, and nodes that stand always, for Kueue counts on what is there."""
    return gpus > 0 and not mig and least == most


def levels(distribution: Distribution, machines: Sequence[Machine]) -> tuple[Level, ...]:
    """What every node of such machines carries, widest first: Kueue passes over a node that lacks one level's label."""
    told = distribution is Distribution.EKS and all(m.network_layers >= len(_FABRIC) for m in machines)
    return (_ZONE, *(_FABRIC if told else ()), _HOST)
