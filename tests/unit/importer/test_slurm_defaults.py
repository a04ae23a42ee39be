"""A key of a site with Slurm's own value is not lost: without the key Slurm does the same."""

from pathlib import Path

import pytest

from gpucluster.importer.differences import Change
from gpucluster.importer.reasons import SLURMS_OWN
from gpucluster.importer.run import import_files
from gpucluster.importer.slurm_defaults import DEFAULTS

CONF = """\
ClusterName=c
SlurmctldHost=ctl
{settings}
NodeName=n1 CPUs=2 {node}
PartitionName=p Nodes=n1 Default=YES {partition}
"""


def site(folder: Path, **parts: str) -> Path:
    """A site with a line of its own in these parts."""
    of_conf = {part: parts.get(part, "") for part in ("settings", "node", "partition")}
    (folder / "slurm.conf").write_text(CONF.format(**of_conf) + parts.get("more", ""))
    (folder / "cgroup.conf").write_text(parts.get("cgroup", ""))
    return folder


def rows(folder: Path, value: str) -> list[tuple[Change, tuple[str, ...]]]:
    """The class and the names of each setting with this value."""
    found = import_files([folder], version="26.05").differences
    return [(one.change, one.names) for one in found if one.before == value]


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("partition", "PriorityTier=1"),
        ("partition", "AllowQos=ALL"),
        ("settings", "SwitchType=switch/none"),
        ("settings", "PreemptMode=OFF"),
        ("settings", "TmpFS=/tmp"),
        ("cgroup", "AllowedRAMSpace=100"),
        ("node", "Port=6818"),
    ],
)
def test_slurms_own_value_is_not_lost(part: str, line: str, tmp_path: Path) -> None:
    ((change, _),) = rows(site(tmp_path, **{part: line}), line.partition("=")[2])
    assert change is Change.SAME


@pytest.mark.parametrize("line", ["PriorityTier=0", "AllowQos=high", "MaxCPUsPerNode=1000"])
def test_another_value_is_lost(line: str, tmp_path: Path) -> None:
    ((change, _),) = rows(site(tmp_path, partition=line), line.partition("=")[2])
    assert change is Change.LOST


def test_slurms_own_value_of_a_node_that_is_left_out_is_lost(tmp_path: Path) -> None:
    found = rows(site(tmp_path, more="NodeName=n2 CPUs=2 Port=6818\n"), "6818")
    assert found == [(Change.LOST, ("n2",))]


PARTS = {"slurm.conf": "settings", "node": "node", "partition": "partition", "cgroup.conf": "cgroup"}


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [(kind, key, value) for kind, of in DEFAULTS.items() for key, values in of.items() for value in values],
)
def test_row_of_the_table_is_of_a_key_that_the_rendered_files_lack(
    kind: str, key: str, value: str, tmp_path: Path
) -> None:
    """A key that stands in `extra` has no row."""
    folder = site(tmp_path, **{PARTS[kind]: f"{key}={value}"})
    (row,) = (r for r in import_files([folder], version="26.05").differences if r.before == value)
    assert (row.change, row.after, row.why) == (Change.SAME, None, SLURMS_OWN)
