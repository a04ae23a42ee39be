"""Sites that were invented to break the import: each test is the part of a site that was lost, refused or misjudged."""

from pathlib import Path

import pytest

from gpucluster import catalog
from gpucluster.importer.lines import Effect
from gpucluster.importer.run import Imported, import_files
from gpucluster.spec import ClusterSpec, inspect_text

HEAD = "ClusterName=site\nSlurmctldHost=ctl\nTaskPlugin=task/cgroup\nStateSaveLocation=/var/spool/slurmctld\n"
NODES = "NodeName=n[1-4] CPUs=48 RealMemory=100000\n"
CONFINED = "ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\nConstrainDevices=yes\n"


def imported(folder: Path, lines: str, **others: str) -> tuple[Imported, ClusterSpec]:
    """The site of these lines; `others` are files by name, with `_` for the dot."""
    (folder / "slurm.conf").write_text(HEAD + lines)
    for name, text in {"cgroup_conf": CONFINED, **others}.items():
        (folder / name.replace("_", ".")).write_text(text)
    found = import_files([folder], version="26.05")
    return found, inspect_text(found.text, "x.yaml", catalog.load()).result()


def rows(found: Imported, key: str) -> list[tuple[Effect | None, str]]:
    """The heading and the reason of each row of a key that is not the same."""
    return [(row.effect, row.why) for row in found.differences if row.key == key and row.change != "same"]


def test_nodes_are_not_powered_down_after_a_job(tmp_path: Path) -> None:
    """Regression: slurmctld marked the node of each job POWER_DOWN, and without SuspendProgram no other job ran there."""
    line = "PartitionName={} Nodes=n[1-4] PowerDownOnIdle={}\n"
    found, spec = imported(tmp_path, NODES + line.format("yes", "YES") + line.format("no", "NO"))
    assert [dict(one.extra) for one in spec.partitions] == [{"DefMemPerCPU": "0"}] * 2
    assert rows(found, "PowerDownOnIdle") == [
        (None, "the hosts of a spec are always on: nothing powers them down")
    ]


def test_limit_of_cpus_of_an_exclusive_partition_costs_itself_alone(tmp_path: Path) -> None:
    """Regression: the whole site was refused as a bug of gpucluster."""
    found, spec = imported(
        tmp_path, f"{NODES}PartitionName=p Nodes=n[1-4] OverSubscribe=EXCLUSIVE MaxCPUsPerNode=24\n"
    )
    assert (spec.partitions[0].exclusive, spec.partitions[0].max_cpus_per_node) == (True, None)
    assert rows(found, "MaxCPUsPerNode") == [
        (
            Effect.WIDER,
            "not imported: with `exclusive` a job has all CPUs of its nodes, and `max_cpus_per_node` would let none start",
        )
    ]


@pytest.mark.parametrize(
    "plugin", ["", "TopologyPlugin=topology/flat\n", "TopologyPlugin=topology/default\n"]
)
def test_topology_that_slurm_does_not_read_is_not_imported(plugin: str, tmp_path: Path) -> None:
    """Regression: a topology.conf left behind came into force, and jobs over its two switches would have been refused."""
    found, spec = imported(
        tmp_path,
        f"{plugin}{NODES}PartitionName=p Nodes=n[1-4]\n",
        topology_conf="SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]\n",
    )
    assert spec.slurm is not None
    assert spec.slurm.topology is None
    assert not found.complaints
    why = (
        "Slurm reads topology.conf only with TopologyPlugin=topology/tree or topology/block: nothing changes"
    )
    assert rows(found, "Nodes") == [(None, why)] * 2
    assert not rows(found, "TopologyPlugin")
