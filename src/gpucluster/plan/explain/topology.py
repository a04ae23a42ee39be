"""How the plan divides nodes into leaves and blocks, and why."""

from collections.abc import Iterator, Sequence

from gpucluster.plan.defaults import Note
from gpucluster.plan.model import Blocks, Flat, Leaf, SlurmOnAws, SlurmOnHosts, Tree
from gpucluster.slurm import observed_switches
from gpucluster.spec import ClusterSpec
from gpucluster.spec.part import require
from gpucluster.spec.topology import Topology

MOST = 16  # leaves or blocks with a note of their own


def on_aws(plan: SlurmOnAws) -> Iterator[Note]:
    """One leaf for each pool in each zone; the head divides those of machines that stay."""
    leaves = ", ".join(leaf.name for leaf in plan.leaves)
    why = "one leaf for each pool and zone, without a common switch: Slurm places all nodes of a job in one zone"
    yield Note("leaves", leaves, why)
    stay = frozenset(observed_switches.observed_slots(plan))
    for leaf in plan.leaves[:MOST]:
        slots = [slot for span in leaf.slots for slot in span]
        seen = sum(1 for slot in slots if slot in stay)
        yield Note(f"leaves[{leaf.name}]", _nodes(leaf), _why_of_leaf(seen, len(slots)))


def _why_of_leaf(seen: int, count: int) -> str:
    if not seen:
        return "not divided: its machines are launched for jobs, and EC2 reports their switches only then"
    part = "" if seen == count else f"{seen} of its {count} nodes are always on or reserved: "
    return f"{part}the head divides it by the switches that EC2 reports above running machines (DescribeInstanceTopology), and puts the other nodes below a switch of their own"


def on_hosts(spec: ClusterSpec, plan: SlurmOnHosts) -> Iterator[Note]:
    """The topologies of the spec."""
    if not plan.topologies:
        yield Note("topologies", "none", "the spec has no topology: Slurm treats all hosts as equally near")
    requested = require(spec.slurm).topology
    for one in plan.topologies:
        at = f"topologies[{one.name}]" if one.name else "topology"
        if isinstance(one, Blocks):
            why = "from the spec. A job gets whole blocks of the smallest size that it fits in, and `--segment` divides it"
            yield Note(
                at,
                f"{_counted(len(one.blocks), 'block', 'blocks')}, sizes {', '.join(map(str, one.sizes))}",
                why,
            )
            if not _has_sizes(requested, one.name):
                why = "the smallest block: a job of at most so many nodes gets them from one block"
                yield Note(f"{at}.sizes", ", ".join(map(str, one.sizes)), why)
            if one.imex:
                why = "each job gets its own IMEX channel; nvidia-imex of the hosts joins the nodes of a rack"
                yield Note(f"{at}.imex", "switch/nvidia_imex", why)
            yield from _each(f"{at}.blocks", one.blocks, "hosts of one block, for example an NVLink domain")
        elif isinstance(one, Flat):
            yield Note(at, "flat", "from the spec: all its nodes are equally near")
        else:
            top = sum(1 for switch in (*one.leaves, *one.spines) if not _above(one, switch.name))
            why = "two switches at the top have no connection, so no job spans them"
            one_top = "one switch is above all others, so a job may use any nodes"
            text = f"{_counted(len(one.leaves), 'leaf', 'leaves')} below {_counted(top, 'switch', 'switches')} at the top"
            yield Note(at, text, f"from the spec; {one_top if top == 1 else why}")
            yield from _each(
                f"{at}.leaves", one.leaves, "hosts of one switch: Slurm gives a job as few leaves as possible"
            )


def _has_sizes(requested: Topology | None, name: str) -> bool:
    block = require(requested).block if not name else require(require(requested).named)[name].block
    return block is not None and block.sizes is not None


def _each(at: str, leaves: Sequence[Leaf], why: str) -> Iterator[Note]:
    for leaf in leaves[:MOST]:
        yield Note(f"{at}[{leaf.name}]", _nodes(leaf), why)
    if len(leaves) > MOST:
        yield Note(
            at, f"and {len(leaves) - MOST} more", "`gpucluster render NAME --to FOLDER` writes all of them"
        )


def _counted(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def _nodes(leaf: Leaf) -> str:
    count = sum(len(span) for span in leaf.slots)
    return f"{leaf.hostlist} ({count} node{'' if count == 1 else 's'})"


def _above(tree: Tree, name: str) -> bool:
    return any(name in spine.switches for spine in tree.spines)
