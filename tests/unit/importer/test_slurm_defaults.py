"""A key of a site with Slurm's own value is not lost: without the key Slurm does the same."""

from pathlib import Path

import pytest

from gpucluster.importer.differences import Change
from gpucluster.importer.lines import Effect
from gpucluster.importer.reasons import SLURMS_OWN
from gpucluster.importer.run import import_files
from gpucluster.importer.slurm_defaults import DEFAULTS, SEEN

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
    (row,) = (r for r in import_files([folder], version="26.05").differences if r.before == value and r.place)
    assert (row.change, row.after, row.why) == (Change.SAME, None, SLURMS_OWN)


RECORDED = Path(__file__).parents[2] / "recorded/checks"


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_values_of_slurm_that_jobs_see_are_those_that_slurmctld_showed(version: str) -> None:
    """The recorded cluster has no accounting, so its slurm.conf has none of these keys; its partition has no weights of billing."""
    lines = (line.partition("=") for line in (RECORDED / version / "config.txt").read_text().splitlines())
    shown = {key.strip().lower(): value.strip() or "none" for key, _, value in lines}
    own = {key: slurms for key, (slurms, _) in SEEN["slurm.conf"].items() if key.startswith("priority")}
    assert len(own) == 5
    assert {key: shown[key] for key in own} == own
    partition = (RECORDED / version / "partition.txt").read_text()
    assert "cpu=6144," in partition
    assert "billing=6144 " in partition


GPUS = "Gres=gpu:a100:4 Weight=1"
DUMP = "Cluster - 'c':QOS='normal'\nParent - 'root'\nAccount - 'lab'\nParent - 'lab'\nUser - 'ann':DefaultAccount='lab'\n"


def test_value_that_jobs_see_and_that_is_not_slurms_is_changed(tmp_path: Path) -> None:
    """Regression: such keys stood among sixty defaults that change nothing."""
    folder = site(tmp_path, node=GPUS)
    (folder / "slurm.conf").write_text(
        (folder / "slurm.conf").read_text().replace("CPUs=2", "CPUs=32 RealMemory=128000")
    )
    (folder / "assoc.dump").write_text(DUMP)
    found = import_files([folder], version="26.05").differences
    unset = "no file of the site sets it, so the site has Slurm's own value: "
    changed = {
        row.key: (row.before, row.after, row.why.removeprefix(unset))
        for row in found
        if row.change is Change.CHANGED and row.place is None and row.why.startswith(unset)
    }
    assert changed == {
        "AuthInfo": ("cred_expire=120", "cred_expire=60", "a requeued job begins after 61 s, and began after 121 s"),
        "DefCPUPerGPU": ("none", "8", "a job without -c gets 8 CPUs for each GPU, and got one core for each task"),
        "TRESBillingWeights": ("none", "CPU=125.00,Mem=32.00G,GRES/gpu=1000", "a job is billed by these weights, and was by its CPUs"),
        "PriorityDecayHalfLife": ("7-00:00:00", "14-00:00:00", "after this time use counts half in the priority of the next jobs"),
        "PriorityFlags": ("none", "MAX_TRES", "a job is billed for the largest of its weighted parts of a node, not for their sum"),
        "PriorityWeightAge": ("0", "10000", "the time that a job waits counts in its priority"),
        "PriorityWeightFairshare": ("0", "100000", "what its account has used counts in the priority of a job"),
        "PriorityWeightQOS": ("0", "1000000", "the QOS of a job counts in its priority"),
        "PropagateResourceLimitsExcept": ("none", "MEMLOCK,NPROC", "a job has these limits from slurmd, and had those of the shell that submitted it"),
        "BatchStartTimeout": ("10", "180", "a batch job has 180 s to launch before Slurm gives up its nodes, and had 10 s"),
        "ConstrainCores": ("no", "yes", "a job runs on its own cores only, and could use each core of its nodes"),
        "LaunchParameters": ("none", "use_interactive_step", "salloc begins its shell on the first node of the job, and did where it was typed"),
        "MaxArraySize": ("1001", "20001", "the indices of an array end at 20000, and ended at 1000"),
        "MaxJobCount": ("10000", "100000", "slurmctld knows 100000 jobs at once, and refused those above 10000"),
        "PrologFlags": ("none", "Alloc,Contain", "a job has a step `extern` on each of its nodes, and Prolog runs there before its first step"),
        "UnkillableStepTimeout": ("60", "180", "a node drains 180 s after processes of a step do not end, and did after 60 s"),
    }  # fmt: skip
    assert not [row for row in found if row.change is Change.DEFAULTED and row.key in changed]
    assert {"PriorityMaxAge", "MaxTime"} <= {row.key for row in found if row.change is Change.DEFAULTED}


def test_job_that_has_its_nodes_alone_has_all_cpus(tmp_path: Path) -> None:
    folder = site(tmp_path, node="Gres=gpu:a100:2", partition="OverSubscribe=EXCLUSIVE")
    rows_ = import_files([folder], version="26.05").differences
    assert [row.change for row in rows_ if row.key == "DefCPUPerGPU"] == [Change.DEFAULTED]


def test_key_that_the_site_sets_has_its_own_row(tmp_path: Path) -> None:
    folder = site(tmp_path, settings="PropagateResourceLimitsExcept=MEMLOCK,NPROC\nAuthInfo=cred_expire=90")
    found = {row.key: row for row in import_files([folder], version="26.05").differences}
    assert found["PropagateResourceLimitsExcept"].change is Change.SAME
    assert (found["AuthInfo"].before, found["AuthInfo"].place is None) == ("cred_expire=90", False)


def test_memory_that_a_partition_begins_to_limit_refuses_jobs(tmp_path: Path) -> None:
    """S16: with MaxCPUsPerNode the rendered line has MaxMemPerCPU, and jobs with --mem=0 or --exclusive are refused."""
    rows_ = import_files([site(tmp_path, partition="MaxCPUsPerNode=1")], version="26.05").differences
    (row,) = (one for one in rows_ if one.key == "MaxMemPerCPU")
    assert (row.effect, row.before) == (Effect.REFUSED, None)
    assert (
        row.why
        == "with `max_cpus_per_node` a job has no more memory for each CPU: one above it has more CPUs, or is refused"
    )
