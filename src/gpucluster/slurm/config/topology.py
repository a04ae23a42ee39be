"""topology.conf for one topology, topology.yaml for several: the values of their templates."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.plan.model import Blocks, Flat, SlurmPlan, Topology

_NO_COMMON_SWITCH = "Each pool has one leaf switch in each zone, and no switch connects them: every job has nodes of one pool in one zone."
_TREE = "Switches of the spec. No switch connects two of {tops}, so no job uses nodes of both."
_ONE_TREE = "Switches of the spec. {top} connects all others, so a job may use any nodes."
_BLOCKS = "Blocks of the spec. Each size is a number of nodes."


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafLine:
    """A leaf switch of topology.conf, with its nodes."""

    name: str
    nodes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpineLine:
    """A switch of topology.conf above other switches."""

    name: str
    switches: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLine:
    """A block of topology.conf, with its nodes."""

    name: str
    nodes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyConf:
    """templates/slurm/topology.conf.j2"""

    cluster: str
    comment: str
    leaves: tuple[LeafLine, ...]
    spines: tuple[SpineLine, ...]
    blocks: tuple[BlockLine, ...]
    sizes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlLine:
    """One line of topology.yaml."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyYaml:
    """templates/slurm/topology.yaml.j2"""

    cluster: str
    lines: tuple[YamlLine, ...]


def switch_type(plan: SlurmPlan) -> str:
    """SwitchType; empty: none. Slurm has one for the whole cluster: nodes without IMEX devices give no channels (S39)."""
    imex = any(isinstance(one, Blocks) and one.imex for one in plan.topologies)
    return "switch/nvidia_imex" if imex else ""


def plugin(plan: SlurmPlan) -> str:
    """TopologyPlugin of slurm.conf. With topology.yaml Slurm ignores it, and it stays out."""
    if has_yaml(plan):
        return ""
    if any(isinstance(one, Blocks) for one in plan.topologies):
        return "topology/block"
    return "topology/tree" if plan.leaves else ""


def has_conf(plan: SlurmPlan) -> bool:
    """Whether the plan has one topology without a name."""
    return bool(plugin(plan))


def has_yaml(plan: SlurmPlan) -> bool:
    """Whether the plan has topologies with names."""
    return any(one.name for one in plan.topologies)


def topology_conf(plan: SlurmPlan) -> TopologyConf:
    blocks = next((one for one in plan.topologies if isinstance(one, Blocks)), None)
    return TopologyConf(
        cluster=plan.name,
        comment=_comment(plan, blocks),
        leaves=tuple(LeafLine(name=leaf.name, nodes=leaf.hostlist) for leaf in plan.leaves),
        spines=tuple(SpineLine(name=one.name, switches=",".join(one.switches)) for one in plan.spines),
        blocks=()
        if blocks is None
        else tuple(BlockLine(name=b.name, nodes=b.hostlist) for b in blocks.blocks),
        sizes="" if blocks is None else ",".join(map(str, blocks.sizes)),
    )


def _comment(plan: SlurmPlan, blocks: Blocks | None) -> str:
    if plan.hosts is None:
        return _NO_COMMON_SWITCH
    if blocks is not None:
        return _BLOCKS
    below = {name for spine in plan.spines for name in spine.switches}
    tops = [one.name for one in (*plan.spines, *plan.leaves) if one.name not in below]
    return _ONE_TREE.format(top=tops[0]) if len(tops) == 1 else _TREE.format(tops=", ".join(tops))


def topology_yaml(plan: SlurmPlan) -> TopologyYaml:
    lines = (YamlLine(text=line) for one in plan.topologies for line in _yaml(one))
    return TopologyYaml(cluster=plan.name, lines=tuple(lines))


def _yaml(topology: Topology) -> Iterator[str]:
    yield f"- topology: {json.dumps(topology.name)}"
    yield f"  cluster_default: {str(topology.default).lower()}"
    if isinstance(topology, Flat):
        yield "  flat: true"
    elif isinstance(topology, Blocks):
        yield "  block:"
        yield f"    block_sizes: [{', '.join(map(str, topology.sizes))}]"
        yield "    blocks:"
        yield from (_entry("block", b.name, "nodes", b.hostlist) for b in topology.blocks)
    else:
        yield "  tree:"
        yield "    switches:"
        for one in topology.spines:
            yield _entry("switch", one.name, "children", ",".join(one.switches))
        for leaf in topology.leaves:
            yield _entry("switch", leaf.name, "nodes", leaf.hostlist)


def _entry(kind: str, name: str, key: str, below: str) -> str:
    return f"      - {{{kind}: {json.dumps(name)}, {key}: {json.dumps(below)}}}"
