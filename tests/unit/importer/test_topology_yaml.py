"""topology.yaml of a site: several topologies become `named`, and what does not fit is reported by its line."""

from pathlib import Path

import pytest

from gpucluster import catalog
from gpucluster.importer.differences import Change
from gpucluster.importer.run import Imported, import_files
from gpucluster.slurm.hostlist import expand_slurm
from gpucluster.spec import inspect_text

CONF = """NodeName=n[1-4] CPUs=4
PartitionName=all Nodes=n[1-4]
PartitionName=rack Nodes=n[1-4] Topology=nvl
"""
YAML = """- topology: fabric
  cluster_default: true
  tree:
    switches:
      - {switch: core, children: "leaf[1-2]"}
      - {switch: leaf1, nodes: "n[1-2]"}
      - {switch: leaf2, nodes: "n[3-4]"}
- topology: nvl
  cluster_default: false
  block:
    block_sizes: [2, 4]
    blocks:
      - {block: b1, nodes: "n[1-2]"}
      - {block: b2, nodes: "n[3-4]"}
- topology: any
  cluster_default: false
  flat: true
"""


def _import(folder: Path, yaml: str, version: str = "26.05") -> Imported:
    (folder / "slurm.conf").write_text(CONF)
    (folder / "topology.yaml").write_text(yaml)
    (folder / "topology.conf").write_text("SwitchName=ignored Nodes=n[1-4]\n")
    return import_files([folder], version=version)


def test_topologies_and_the_one_of_a_partition_are_those_of_the_site(tmp_path: Path) -> None:
    found = _import(tmp_path, YAML)
    assert not found.complaints
    spec = inspect_text(found.text, "x.yaml", catalog.load()).result()
    assert spec.slurm is not None
    assert spec.slurm.topology is not None
    named = spec.slurm.topology.named or {}
    assert list(named) == ["fabric", "nvl", "any"]
    assert named["fabric"].tree == {
        "core": {"leaf1": expand_slurm("n[1-2]"), "leaf2": expand_slurm("n[3-4]")}
    }
    assert named["nvl"].block is not None
    assert named["nvl"].block.sizes == (2, 4)
    assert [part.topology for part in spec.partitions] == [None, "nvl"]
    rows = [row for row in found.differences if row.kind == "topology.yaml"]
    assert rows
    assert {row.change for row in rows} == {Change.SAME}


def test_version_without_several_topologies_is_reported(tmp_path: Path) -> None:
    found = _import(tmp_path, YAML, "24.11")
    assert [one.message for one in found.complaints] == [
        "the topology is not imported: Slurm 24.11 cannot have several topologies; 26.05 can"
    ]
    assert "topology" not in found.text


@pytest.mark.parametrize(
    ("yaml", "told"),
    [
        ("a: b\n", "topology.yaml:1: it is no list of topologies"),
        ("- [", "topology.yaml:1: it is no YAML of this form"),
        ("- {flat: true}\n", "topology.yaml:1: a topology has no name, or that of another: ''"),
        (
            YAML.replace('"n[3-4]"}\n- topology: nvl', '"n[3-"}\n- topology: nvl'),
            "topology.yaml:7: 'n[3-' is not a hostlist",
        ),
    ],
)
def test_other_forms_are_reported_by_their_line(tmp_path: Path, yaml: str, told: str) -> None:
    found = _import(tmp_path, yaml)
    complaints = [str(one).replace(f"{tmp_path}/", "") for one in found.complaints]
    assert any(one.startswith(told) for one in complaints), complaints
    assert "topology" not in found.text


def test_topology_of_another_kind_is_reported_and_left_out(tmp_path: Path) -> None:
    """A ring became a flat topology without a word (26.05 has topology/ring and topology/torus3d)."""
    ring = '- topology: around\n  ring:\n    rings:\n      - {ring: r1, nodes: "n[1-4]"}\n'
    found = _import(tmp_path, YAML + ring)
    (complaint,) = found.complaints
    assert complaint.place.line == YAML.count("\n") + 1
    assert complaint.message == (
        "the topology 'around' is not imported: a spec has tree, block and flat, not 'ring'"
    )
    assert "around" not in found.text
    assert "nvl" in found.text
