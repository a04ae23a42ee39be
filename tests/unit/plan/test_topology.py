"""Trees of any depth, blocks, and several topologies: from the spec to the plan and to Slurm's files."""

import dataclasses
from collections.abc import Mapping

import pytest
import yaml
from support.builders import LAB, a_lab_plan, a_plan, a_spec

from gpucluster import catalog
from gpucluster.plan import codec, plan_json
from gpucluster.plan.explain import explain
from gpucluster.plan.model import Blocks, Flat, SlurmOnHosts, Tree
from gpucluster.slurm.config import topology
from gpucluster.slurm.config.key_check import UnknownToSlurmError
from gpucluster.slurm.config.render import environment, render
from gpucluster.spec import inspect_text

OLD = 'topology: {tree: {spine: {leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}}}'
DEEP = 'topology: {tree: {core: {row1: {Rack_1: "gpu[01-02]"}, row2: {a: {b: gpu03, c.d: gpu04}}}}}'
BLOCK = 'topology: {block: {blocks: {b1: "gpu[01-02]", b2: "gpu[03-04]"}, sizes: [2, 4]}}'


def _plan(new: str) -> SlurmOnHosts:
    return a_lab_plan((OLD, new))


def _text(plan: SlurmOnHosts, name: str) -> str:
    return next(a.content.decode() for a in render(plan) if a.path == f"slurm/{name}")


def _lines(plan: SlurmOnHosts) -> list[str]:
    return [line for line in _text(plan, "topology.conf").splitlines() if not line.startswith("#")]


def test_tree_of_any_depth_has_leaves_first_and_the_top_last() -> None:
    assert _lines(_plan(DEEP)) == [
        "SwitchName=Rack_1 Nodes=gpu[01-02]",
        "SwitchName=b Nodes=gpu03",
        "SwitchName=c.d Nodes=gpu04",
        "SwitchName=a Switches=b,c.d",
        "SwitchName=row1 Switches=Rack_1",
        "SwitchName=row2 Switches=a",
        "SwitchName=core Switches=row1,row2",
    ]
    assert "TopologyPlugin=topology/tree" in _text(_plan(DEEP), "slurm.conf")


def test_tree_may_have_leaves_only() -> None:
    assert _lines(_plan('topology: {tree: {leaf: "gpu[01-04]"}}')) == ["SwitchName=leaf Nodes=gpu[01-04]"]


def test_blocks_have_their_sizes_in_nodes() -> None:
    assert _lines(_plan(BLOCK)) == [
        "BlockName=b1 Nodes=gpu[01-02]",
        "BlockName=b2 Nodes=gpu[03-04]",
        "BlockSizes=2,4",
    ]
    assert "TopologyPlugin=topology/block" in _text(_plan(BLOCK), "slurm.conf")


def test_blocks_with_imex_give_each_job_a_channel() -> None:
    plan = _plan(BLOCK.replace("sizes: [2, 4]", "sizes: [2, 4], imex: true"))
    assert "SwitchType=switch/nvidia_imex" in _text(plan, "slurm.conf")
    assert "SwitchType" not in _text(_plan(BLOCK), "slurm.conf")


def test_base_size_is_the_smallest_block() -> None:
    plan = _plan('topology: {block: {blocks: {b1: "gpu[01-03]", b2: gpu04}}}')
    assert _lines(plan)[-1] == "BlockSizes=1"


@pytest.mark.parametrize("text", [DEEP, BLOCK, OLD])
def test_plan_survives_its_json(text: str) -> None:
    assert plan_json.load(codec.dumps(_plan(text))) == _plan(text)


@pytest.mark.parametrize(
    ("text", "value", "why"),
    [
        (DEEP, "3 leaves below 1 switch at the top", "a job may use any nodes"),
        (BLOCK, "2 blocks, sizes 2, 4", "whole blocks"),
    ],
)
def test_explain_says_what_the_topology_does(text: str, value: str, why: str) -> None:
    spec = inspect_text(LAB.replace(OLD, text), "lab.yaml", catalog.load()).result()
    note = next(n for n in explain(spec, catalog.load(), _plan(text)) if n.path == "topology")
    assert note.value == value
    assert why in note.reason


def _several() -> SlurmOnHosts:
    """A plan of 26.05 is made by hand: the resolver's input is refused for a version that lacks it."""
    deep, blocks = _plan(DEEP).topologies[0], _plan(BLOCK).topologies[0]
    assert isinstance(deep, Tree)
    assert isinstance(blocks, Blocks)
    return dataclasses.replace(
        _plan(DEEP),
        topologies=(
            dataclasses.replace(deep, name="fabric", default=True),
            dataclasses.replace(blocks, name="nvl", default=False),
            Flat(name="any", default=False),
        ),
    )


def test_several_topologies_are_the_entries_of_topology_yaml() -> None:
    view = topology.topology_yaml(_several())
    text = environment().get_template("topology.yaml.j2").render(cluster=view.cluster, lines=view.lines)
    found: list[Mapping[str, object]] = yaml.safe_load(text)
    assert [(one["topology"], one["cluster_default"]) for one in found] == [
        ("fabric", True),
        ("nvl", False),
        ("any", False),
    ]
    assert found[0]["tree"] == {
        "switches": [
            {"switch": "a", "children": "b,c.d"},
            {"switch": "row1", "children": "Rack_1"},
            {"switch": "row2", "children": "a"},
            {"switch": "core", "children": "row1,row2"},
            {"switch": "Rack_1", "nodes": "gpu[01-02]"},
            {"switch": "b", "nodes": "gpu03"},
            {"switch": "c.d", "nodes": "gpu04"},
        ]
    }
    assert found[1]["block"] == {
        "block_sizes": [2, 4],
        "blocks": [{"block": "b1", "nodes": "gpu[01-02]"}, {"block": "b2", "nodes": "gpu[03-04]"}],
    }
    assert found[2]["flat"] is True
    assert topology.plugin(_several()) == ""
    assert not topology.has_conf(_several())
    assert topology.has_yaml(_several())


def test_partition_names_its_topology() -> None:
    plan = a_lab_plan(('"26.05"', '"24.11"'))
    named = tuple(dataclasses.replace(one, topology="nvl") for one in plan.partitions)
    with pytest.raises(
        UnknownToSlurmError, match=r"Slurm 24\.11 does not know the key Topology"
    ):  # 25.05 does
        render(dataclasses.replace(plan, partitions=named))


def test_no_default_and_a_version_without_several_topologies_are_both_reported() -> None:
    text = LAB.replace(OLD, "topology: {named: {a: {flat: true}, b: {flat: true}}}").replace("26.05", "24.11")
    problems = inspect_text(text, "lab.yaml", catalog.load()).problems
    found = {p.id: p.message for p in problems if p.id != "slurm-support"}
    assert found == {
        "default-topology": "none is the default; write `default: true` at one",
        "slurm-lacks": "Slurm 24.11 cannot have several topologies; 26.05 can",
    }


def _notes(text: str) -> dict[str, tuple[str, str]]:
    spec = inspect_text(LAB.replace(OLD, text), "lab.yaml", catalog.load()).result()
    return {note.path: (note.value, note.reason) for note in explain(spec, catalog.load(), _plan(text))}


def test_explain_has_each_leaf_and_block_with_its_nodes() -> None:
    assert _notes(DEEP)["topology.leaves[Rack_1]"][0] == "gpu[01-02] (2 nodes)"
    assert _notes(DEEP)["topology.leaves[b]"][0] == "gpu03 (1 node)"
    assert _notes(BLOCK)["topology.blocks[b2]"][0] == "gpu[03-04] (2 nodes)"


def test_explain_has_the_base_size_only_where_the_plan_decides_it() -> None:
    unsized = 'topology: {block: {blocks: {b1: "gpu[01-03]", b2: gpu04}}}'
    assert _notes(unsized)["topology.sizes"] == (
        "1", "the smallest block: a job of at most so many nodes gets them from one block",
    )  # fmt: skip
    assert "topology.sizes" not in _notes(BLOCK)


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ("{min: 0, max: 4}", "not divided: its machines are launched for jobs"),
        ("{min: 2, max: 4}", "2 of its 4 nodes are always on or reserved: the head divides it"),
        ("{min: 4, max: 4}", "the head divides it by the switches that EC2 reports"),
    ],
)
def test_explain_says_which_leaves_the_head_divides(nodes: str, why: str) -> None:
    change = ("{min: 0, max: 16}", nodes)
    notes = {note.path: note for note in explain(a_spec(change), catalog.load(), a_plan(change))}
    assert notes["leaves[h200-2a]"].value == "h200-2a-[1-4] (4 nodes)"
    assert notes["leaves[h200-2a]"].reason.startswith(why)
