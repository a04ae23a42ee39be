"""slurmctld takes the rendered files of every imported site, without an error line."""

from pathlib import Path

import pytest
from real_slurm import USER, VERSIONS, RealSlurm

from gpucluster import catalog
from gpucluster.importer.run import import_files
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text

SITES = Path(__file__).parents[1] / "support/sites"
NO_DEFAULT = "default partition not set."  # slurmctld calls this choice of a site an error
NO_GROUP = "Could not find configured group"  # AllowGroups: the group is in the directory of the site
ODD = """
ClusterName=odd
SlurmctldHost=h0
ControlMachine=h1
DefMemPerCPU=1000
MaxMemPerCPU=4000
FirstJobId=99999999999
SlurmctldDebug=loud
KillWait=65536
MaxJobCount=0
PriorityDecayHalfLife=never
SchedulerParameters=bf_interval=abc
PriorityFlags=FAIR_TREE
TopologyPlugin=topology/tree
SchedulerParameters=bf_max_job_user=50,no_such,defer
Licenses=Matlab_Dist:4,fluent@flex:10
NodeName=w1 CPUs=8 RealMemory=16000 Feature=ib,GPU_MEM:80GB,c++17 CoreSpecCount=1.5 Weight=5
NodeName=w2 CPUs=8 RealMemory=16000 Feature=ib CoreSpecCount=1.5 TmpDisk=2000
NodeName=g1 CPUs=8 RealMemory=16000 Gres=gpu:2080ti:2
NodeName=g2 CPUs=8 RealMemory=16000 Gres=gpu:a100:2,shard:8
NodeName=g3 CPUs=8 RealMemory=16000 Gres=gpu:1g.10gb:7
PartitionName=a Nodes=w[1-2] DefMemPerNode=4000 MaxMemPerNode=8000 OverTimeLimit=-1 CpuBind=nonsense State=SLEEPING
PartitionName=b Nodes=g[1-3] DefMemPerGPU=4000 TRESBillingWeights=CPU=1.0,GRES/gpu=2.0 MaxCPUsPerNode=4 Default=YES
PartitionName=closed Nodes=w1 AllowAccounts=lab
"""
OFF_FABRIC = "SwitchName=leaf1 Nodes=w[1-2]\nSwitchName=leaf2 Nodes=g1\nSwitchName=core Switches=leaf[1-2]\n"


def odd(folder: Path) -> None:
    (folder / "slurm.conf").write_text(ODD)
    (folder / "topology.conf").write_text(OFF_FABRIC)


@pytest.mark.parametrize("name", [*sorted(path.name for path in SITES.iterdir()), "odd"])
@pytest.mark.parametrize("version", VERSIONS)
def test_imported_site_is_taken(version: str, name: str, tmp_path: Path) -> None:
    """Values that ended slurmctld stood in `extra`, and DefMemPerNode beside DefMemPerCPU was an error line."""
    odd(tmp_path)
    found = import_files([tmp_path if name == "odd" else SITES / name], version=version)
    plan = resolve(inspect_text(found.text, "x.yaml", catalog.load()).result(), catalog.load())
    assert plan.slurm is not None
    with RealSlurm(version, plan, nodes=False) as slurm:
        slurm.start_controller()
        assert {row["PartitionName"] for row in slurm.show("partitions")} == {p.name for p in plan.partitions}
        assert [line for line in slurm.errors() if NO_DEFAULT not in line and NO_GROUP not in line] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_job_of_a_partition_whose_rule_is_lost_waits(version: str, tmp_path: Path) -> None:
    """What the report says of it: its jobs wait, and nobody uses the partition. Features and licences are asked for by name."""
    odd(tmp_path)
    found = import_files([tmp_path], version=version)
    plan = resolve(inspect_text(found.text, "x.yaml", catalog.load()).result(), catalog.load())
    assert plan.slurm is not None
    with RealSlurm(version, plan) as slurm:
        slurm.start_controller()
        slurm.start_nodes("w1")
        slurm.wait(
            lambda: slurm.must("sinfo", "-h", "-n", "w1", "-p", "a", "-o", "%t").strip() == "idle",
            "w1 is idle",
        )
        of_site = ("--constraint=GPU_MEM:80GB&c++17", "--licenses=Matlab_Dist:2,fluent@flex:1")
        expected = {"closed": ("PENDING", "PartitionDown"), "a": ("RUNNING", "None")}
        for partition, options in (("closed", ()), ("a", of_site)):
            place = (f"--partition={partition}", "--nodelist=w1", "--time=5")
            argv = ("sbatch", "--parsable", "--output=/dev/null", *place, *options, "--wrap=sleep 300")
            job = slurm.must(*argv, user=USER).strip()

            def shown(job: str = job) -> tuple[str, str]:
                (row,) = (row for row in slurm.show("jobs") if row["JobId"] == job)
                return row["JobState"], row["Reason"]

            slurm.wait(
                lambda: shown() not in (("PENDING", "None"), ("CONFIGURING", "None")),
                "the scheduler has seen the job",
            )
            assert shown() == expected[partition]
