"""The topologies of existing hosts. Pure."""

from collections.abc import Mapping

from gpucluster.plan.model import Blocks, Flat, Leaf, Spine, Topology, Tree
from gpucluster.plan.resolve.hosts import spans
from gpucluster.spec.topology import Below, Block, NamedTopology, switches
from gpucluster.spec.topology import Topology as TopologySpec


def topologies(requested: TopologySpec | None) -> tuple[Topology, ...]:
    """Every topology, in the order of the spec; none if the spec has none: all hosts then have the same distance."""
    if requested is None:
        return ()
    if requested.named is not None:
        return tuple(_named(name, one) for name, one in requested.named.items())
    if requested.block is not None:
        return (blocks(requested.block, "", default=True),)
    return () if requested.tree is None else (_tree(requested.tree, "", default=True),)


def _named(name: str, requested: NamedTopology) -> Topology:
    if requested.tree is not None:
        return _tree(requested.tree, name, default=requested.default)
    if requested.block is not None:
        return blocks(requested.block, name, default=requested.default)
    return Flat(name=name, default=requested.default)


def _tree(tree: Mapping[str, Below], name: str, *, default: bool) -> Tree:
    """Leaves first, then the switches above them from the bottom up."""
    leaves, spines = list[Leaf](), list[tuple[int, Spine]]()
    for path, below in switches(tree):
        if isinstance(below, Mapping):
            spines.append((len(path), Spine(name=path[-1], switches=tuple(below))))
        else:
            leaves.append(Leaf(name=path[-1], slots=spans(below)))
    ordered = sorted(spines, key=lambda pair: -pair[0])
    return Tree(name=name, default=default, leaves=tuple(leaves), spines=tuple(spine for _, spine in ordered))


def blocks(requested: Block, name: str, *, default: bool) -> Blocks:
    """The blocks with their sizes: without sizes the smallest block is the base."""
    smallest = min(len(hosts) for hosts in requested.blocks.values())
    return Blocks(
        name=name,
        default=default,
        blocks=tuple(Leaf(name=block, slots=spans(hosts)) for block, hosts in requested.blocks.items()),
        sizes=requested.sizes or (smallest,),
        imex=requested.imex,
    )
