"""The network between nodes as Slurm reads it: switches, blocks, and several topologies with names."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gpucluster.plan.model.pools import SlotRange, hostlist


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A switch with nodes below it, or a block: slots that share it. Leaves of two zones have no common switch."""

    name: str
    slots: tuple[SlotRange, ...]

    @property
    def hostlist(self) -> str:
        """Its slots as Slurm writes them."""
        return hostlist(self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spine:
    """A switch above other switches, which are leaves or spines. Two spines at the top have no common switch."""

    name: str
    switches: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Switches in a tree of any depth."""

    kind: ClassVar[Literal["tree"]] = "tree"
    name: str  # "": the only topology
    default: bool
    leaves: tuple[Leaf, ...]
    spines: tuple[Spine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Blocks of nodes. Each size is a number of nodes: the base, then its multiples by powers of two."""

    kind: ClassVar[Literal["block"]] = "block"
    name: str
    default: bool
    blocks: tuple[Leaf, ...]
    sizes: tuple[int, ...]
    imex: bool = False  # each job gets an IMEX channel


@dataclass(frozen=True, slots=True, kw_only=True)
class Flat:
    """All nodes are equally near. Only one of several topologies is written like this."""

    kind: ClassVar[Literal["flat"]] = "flat"
    name: str
    default: bool


Topology = Tree | Blocks | Flat
