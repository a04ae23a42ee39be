"""job_container.conf of a site: a folder that a spec does not take costs itself alone, and each node has its own line."""

from pathlib import Path

import pytest

from gpucluster import catalog
from gpucluster.importer.differences import Change
from gpucluster.importer.run import Imported, import_files
from gpucluster.spec import inspect_text

CONF = """\
ClusterName=site
SlurmctldHost=ctl
JobContainerType=job_container/tmpfs
PrologFlags=Contain
NodeName=n[1-4] CPUs=4 RealMemory=8000
PartitionName=p Nodes=ALL Default=YES
"""


def imported(folder: Path, lines: str) -> tuple[Imported, tuple[bool, str | None]]:
    """The import, and whether the /tmp of a job is private, with its folder."""
    (folder / "slurm.conf").write_text(CONF)
    (folder / "job_container.conf").write_text(lines)
    found = import_files([folder], version="24.11")
    spec = inspect_text(found.text, "x.yaml", catalog.load()).result()
    assert spec.slurm is not None
    tmp = spec.slurm.private_tmp
    return found, (tmp is None or tmp.enabled, None if tmp is None else tmp.path)


def rows(found: Imported) -> dict[tuple[str, ...], tuple[Change, str | None, str]]:
    return {
        row.names: (row.change, row.before, row.why)
        for row in found.differences
        if row.key == "BasePath" and row.before is not None
    }


@pytest.mark.parametrize(
    ("base", "reason"),
    [("/tmp/%n", "not imported: "), ("/tmp/jobs", "not imported: /tmp/jobs cannot hold the /tmp of jobs")],
)
def test_folder_that_a_spec_does_not_take_costs_itself_alone(base: str, reason: str, tmp_path: Path) -> None:
    """The whole import ended as a fault of gpucluster."""
    found, tmp = imported(tmp_path, f"BasePath={base}\n")
    assert tmp == (True, None)
    ((_, before, why),) = rows(found).values()
    assert before == base
    assert why.startswith(reason)


def test_line_of_some_nodes_is_a_row_of_theirs(tmp_path: Path) -> None:
    found, tmp = imported(tmp_path, "BasePath=/local/a\nNodeName=n[3-4] BasePath=none\n")
    assert tmp == (True, "/local/a")
    assert rows(found) == {
        (): (Change.SAME, "/local/a", ""),
        ("n3", "n4"): (Change.LOST, "none", "not imported: a spec has one folder for the /tmp of all jobs"),
    }


def test_two_folders_are_both_listed(tmp_path: Path) -> None:
    """All nodes had the last one, and the first was in no row."""
    found, tmp = imported(tmp_path, "NodeName=n[1-2] BasePath=/local/a\nNodeName=n[3-4] BasePath=/local/b\n")
    assert tmp == (True, None)
    assert {names: row[:2] for names, row in rows(found).items()} == {
        ("n1", "n2"): (Change.LOST, "/local/a"),
        ("n3", "n4"): (Change.LOST, "/local/b"),
    }


@pytest.mark.parametrize(
    ("base", "tmp"), [("/local/a", (True, "/local/a")), ("none", (False, None)), ("NONE", (False, None))]
)
def test_lines_of_all_nodes_are_one_value(base: str, tmp: tuple[bool, str | None], tmp_path: Path) -> None:
    found, made = imported(tmp_path, f"NodeName=n[1-2] BasePath={base}\nNodeName=n[3-4] BasePath={base}\n")
    assert made == tmp
    assert list(rows(found)) == [()]
