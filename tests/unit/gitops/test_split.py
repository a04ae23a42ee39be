"""Edits that need two edits: the report begins with how to split them, and has no commands, which are those of each edit."""

from pathlib import Path

import pytest
from support.builders import LAB as HOSTS
from support.builders import SPEC, changed
from support.edits import NIGHT, SPARE
from support.expert_pairs import KUBE, LAB
from support.identity_edits import EDITS, LAB_WITH
from support.reviewed import a_diff

from gpucluster.gitops.model import Effects
from gpucluster.gitops.report.text import text

FIRST = (Path(__file__).parents[3] / "stacks/first.yaml").read_text()
NFS = "{mount: %s, nfs: {server: 192.0.2.99, export: /srv/data}}"


def effects(old: str, new: str) -> Effects:
    found = a_diff(old, new)
    assert found.effects is not None
    if found.effects.refused:  # the first line after the class
        assert text(found).splitlines()[2].strip() == found.effects.refused
    return found.effects


def test_renamed_partition_comes_beside_the_old_one_first() -> None:
    """Its jobs were to be moved to the new one before `pulumi up`, which makes it, and nothing closed the old one."""
    found = effects(FIRST, FIRST.replace("{name: gpu, pools", "{name: batch, pools"))
    assert found.refused.startswith("the partition gpu cannot become batch in one edit")
    assert "First add batch, and write `extra: {State: DRAIN}` in gpu" in found.refused
    assert found.steps == (), "they were those of one edit"


def test_jobs_of_a_removed_partition_move_to_one_that_stays() -> None:
    two = FIRST.replace("partitions:\n", "partitions:\n  - {name: old, pools: [h200]}\n")
    found = effects(two, FIRST)
    assert not found.refused
    assert [step.partition("    #")[0] for step in found.steps[:2]] == [
        "scontrol update partitionname=PARTITION state=drain",
        "scontrol update jobid=JOB partition=OTHER",
    ]


@pytest.mark.parametrize(
    ("base", "place", "line"),
    [(SPEC, "\npools:", f"\nstorage: [{NFS}]\npools:"), (HOSTS, "storage:\n", f"storage:\n  - {NFS}\n")],
    ids=["AWS", "hosts"],
)
def test_moved_mount_of_one_source_comes_beside_the_old_one_first(base: str, place: str, line: str) -> None:
    old, new = (base.replace(place, line % path, 1) for path in ("/data", "/scratch"))
    found = effects(old, new)
    assert "the mount /data cannot become /scratch in one edit" in found.refused
    assert found.steps == ()
    other = new.replace("/srv/data", "/srv/other")
    assert "cannot become" not in effects(old, other).refused


@pytest.mark.parametrize(
    ("old", "new", "first"), [("1.34", "1.36", "1.35"), ("1.35", "1.36", ""), ("1.36", "1.35", "")]
)
def test_eks_is_upgraded_one_minor_version_at_a_time(old: str, new: str, first: str) -> None:
    specs = [KUBE.replace('version: "1.36"', f'version: "{release}"') for release in (old, new)]
    assert all(f'"{release}"' in spec for release, spec in zip((old, new), specs, strict=True))
    found = effects(*specs)
    assert ("EKS upgrades one minor version at a time" in found.refused) == bool(first)
    assert first in found.refused
    assert bool(found.steps) != bool(first)


def test_hosts_that_become_aws_are_two_clusters() -> None:
    """It said that jobs and data are lost. No host is touched, and both clusters run."""
    found = effects(LAB, FIRST.replace("name: first", "name: lab"))
    assert found.refused.startswith("this is another cluster, beside that of the hosts")
    assert "lost" not in " ".join(what for _, what in found.lines())
    back = effects(FIRST, LAB.replace("name: lab", "name: first"))
    assert back.running == "stay on the old cluster, until it is deleted"
    assert back.steps[-1].startswith("gpucluster down first ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(HOSTS, HOSTS.replace("name: lab", "name: labor"), id="renamed hosts"),
        pytest.param(*EDITS["renamed, with accounting"], id="renamed hosts with accounting"),
        pytest.param(HOSTS, LAB_WITH, id="accounting of hosts"),
        pytest.param(*EDITS["accounting added"], id="accounting"),
        pytest.param(*EDITS["another database"], id="another database"),
    ],
)
def test_another_head_comes_before_another_identity(old: str, new: str) -> None:
    """The new head has no bundle with the old name or number, so it refused slurmctld's state, which no command had changed."""
    kept, elsewhere = (
        f"head: {{machine: m7i.xlarge, state: 100GiB{more}" for more in ("", ", address: 10.63.0.99")
    )
    old, new = (one.replace("head: {machine: m7i.xlarge", kept) for one in (old, new))
    moved = new.replace("ctl0", "ctl9").replace(kept, elsewhere)
    assert moved != new
    found = effects(old, moved)
    assert found.refused.startswith("another head cannot get another ")
    assert "First change the head" in found.refused
    assert "goes on with the old one" not in found.refused, "a new head has no old bundle"
    assert ".before-" not in found.data, "a new head writes no other name"
    assert "else they start after the change" not in found.queued, "slurmctld does not start with them"
    assert "commands" not in found.data
    assert found.steps == ()
    stays = effects(old, new)
    assert "another head" not in stays.refused
    assert stays.steps


def test_what_is_said_beside_a_split_names_no_commands() -> None:
    old, new = EDITS["another database"]
    old, new = (
        one.replace("\nstorage:\n", f"\nstorage:\n  - {NFS % path}\n", 1)
        for one, path in ((old, "/data"), (new, "/scratch"))
    )
    found = effects(old, new)
    assert found.refused.startswith("the mount /data cannot become /scratch in one edit")
    assert "the head refuses the bundle" in found.refused
    assert "command" not in found.refused + found.data
    assert found.steps == ()


_GONE = ("gpu[01-04]", "gpu[01-03]"), ("[11-14]", "[11-13]"), ('"gpu[03-04]"', "gpu03")


@pytest.mark.parametrize(
    ("edit", "gone"),
    [
        pytest.param((HOSTS, LAB_WITH), _GONE, id="accounting of hosts, and a node less"),
        pytest.param(EDITS["renamed, with accounting without accounts"], _GONE, id="renamed, and a node less"),
        pytest.param(EDITS["another database"], ((SPARE, SPARE.replace("max: 2", "max: 1")),), id="another database, and a node less"),
        pytest.param(EDITS["another database"], ((NIGHT, ""), ("[small], default", "[small, spare], default")), id="another database, and a partition less"),
    ],
)  # fmt: skip
def test_removal_comes_before_another_identity(
    edit: tuple[str, str], gone: tuple[tuple[str, str], ...]
) -> None:
    """The commands stop slurmctld, and the head asked it for the jobs that hold the bundle: it went on with the old one."""
    old, new = edit
    less = changed(new, *gone)
    found = effects(old, less)
    what = "name" if "name: labor" in new else "accounting database"
    assert (
        f"another {what} cannot come in the edit that removes or changes nodes or partitions" in found.refused
    )
    assert (
        f"First remove or change those; write the other {what} when the head has applied it" in found.refused
    )
    assert "the head refuses the bundle" not in found.refused
    assert "slurmctld is stopped" not in found.sessions
    assert ("history and fair-share of accounting stay" in found.data) is ("accounting:" in old)
    assert found.steps == ()
    assert effects(old, changed(old, *gone)).split == ""
    assert effects(changed(old, *gone), less).steps
