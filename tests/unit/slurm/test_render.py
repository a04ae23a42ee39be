"""Plan to Slurm's files: the whole tree of the first stack, and what other plans change."""

import dataclasses
import re
from pathlib import Path

import pytest
from builders import a_lab_plan, a_plan
from golden_tree import Golden

from gpucluster import catalog, slurm, spec
from gpucluster.plan import codec, names
from gpucluster.plan.model import ClusterPlan, SlurmLine, there
from gpucluster.plan.resolve import resolve
from gpucluster.slurm import known
from gpucluster.slurm.known import UnknownToSlurmError

BURST = Path(__file__).parents[3] / "stacks/burst.yaml"
LAB = Path(__file__).parents[3] / "stacks/lab.yaml"
STEADY = Path(__file__).parents[3] / "stacks/steady.yaml"
RESEARCH = Path(__file__).parents[3] / "stacks/research.yaml"


def _files(plan: ClusterPlan) -> dict[str, str]:
    return {artifact.path: artifact.content.decode() for artifact in slurm.render(plan)}


def _conf(plan: ClusterPlan) -> str:
    return _files(plan)["slurm/slurm.conf"]


def _with_lines(*lines: SlurmLine) -> ClusterPlan:
    plan = a_plan()
    return dataclasses.replace(plan, slurm=dataclasses.replace(there(plan.slurm), lines=lines))


def test_the_first_stack_is_the_golden_tree(golden: Golden) -> None:
    plan = resolve(spec.load(BURST), catalog.load())
    files = {artifact.path: artifact.content for artifact in slurm.render(plan)}
    golden("burst", {names.PLAN_FILE: codec.dumps(plan).encode(), **files})


def test_the_stack_with_what_was_bought_ahead_is_the_golden_tree(golden: Golden) -> None:
    plan = resolve(spec.load(STEADY), catalog.load())
    files = {artifact.path: artifact.content for artifact in slurm.render(plan)}
    golden("steady", {names.PLAN_FILE: codec.dumps(plan).encode(), **files})


def test_the_stack_with_all_storage_is_the_golden_tree(golden: Golden) -> None:
    plan = resolve(spec.load(RESEARCH), catalog.load())
    files = {artifact.path: artifact.content for artifact in slurm.render(plan)}
    golden("research", {names.PLAN_FILE: codec.dumps(plan).encode(), **files})


def test_a_cluster_on_hosts_is_its_golden_tree(golden: Golden) -> None:
    plan = resolve(spec.load(LAB), catalog.load())
    files = {artifact.path: artifact.content for artifact in slurm.render(plan)}
    golden("lab", {names.PLAN_FILE: codec.dumps(plan).encode(), **files})


def test_the_same_plan_gives_the_same_bytes() -> None:
    assert slurm.render(a_plan()) == slurm.render(codec.loads(ClusterPlan, codec.dumps(a_plan())))


def test_node_reg_mem_percent_stands_last() -> None:
    """24.11 reads `node_reg_mem_percent=90,next` as one number and logs an error."""
    (line,) = re.findall(r"^SlurmctldParameters=(.*)$", _conf(a_plan()), re.M)
    assert line.split(",")[-1].startswith("node_reg_mem_percent=")


def test_slurm_waits_longer_than_the_longest_boot_and_within_its_limit() -> None:
    assert "\nResumeTimeout=1260\n" in _conf(a_plan())
    wide = a_plan(("{min: 0, max: 16}", "{min: 0, max: 4000}"))
    assert "\nResumeTimeout=2760\n" in _conf(wide), "the last of 4,000 is launched after 1,500 s"
    assert "\nResumeTimeout=43260\n" in _conf(a_plan(("idle: 5m", "idle: 5m\n    boot_timeout: 12h")))
    assert 12 * 3600 + 60 <= 65535


def test_eight_jobs_of_one_gpu_fit_a_node() -> None:
    """What a job gets with each GPU, times the GPUs, is never more than the node has."""
    plan = a_plan()
    found = re.search(r"DefCpuPerGPU=(\d+) DefMemPerGPU=(\d+)", _conf(plan))
    assert found
    shape = plan.pools[0].shape
    assert int(found[1]) * shape.gpu_count <= shape.cpus
    assert int(found[2]) * shape.gpu_count <= shape.real_memory_mib


def test_always_on_slots_are_never_suspended() -> None:
    assert "SuspendExcNodes" not in _conf(a_plan())
    assert "\nSuspendExcNodes=h200-2a-[1-2]\n" in _conf(a_plan(("min: 0", "min: 2")))
    assert "\nSuspendExcNodes=h200-2a-1\n" in _conf(a_plan(("min: 0", "min: 1")))


def test_a_cluster_without_gpus_has_no_gres() -> None:
    plan = a_plan(
        ("[p5en.48xlarge, p5e.48xlarge]", "[m7i.xlarge]"),
        ("machines: [p5en.48xlarge]", "machines: [m7i.xlarge]"),
    )
    files = _files(plan)
    assert "Gres" not in files["slurm/slurm.conf"]
    assert "DefMemPerCPU=3891" in files["slurm/slurm.conf"]
    assert "NodeName" not in files["slurm/gres.conf"]


def test_the_longest_idle_time_of_a_partition_counts() -> None:
    more = "  - {name: b, nodes: 2, idle: 1h, capacity: [{from: spot, machines: [p5.48xlarge]}]}\npartitions:"
    conf = _conf(a_plan(("partitions:", more), ("pools: [h200]", "pools: [b, h200]")))
    assert re.search(
        r"^PartitionName=gpu Nodes=h200-2a-\[1-16\],h200-2b-\[1-16\],b-2a-\[1-2\].* SuspendTime=5400 ",
        conf,
        re.M,
    )


@pytest.mark.parametrize(
    ("limit", "shown", "window"),
    [
        ("max_time: 1d", "1-00:00:00", 1440),
        ("max_time: 90m", "0-01:30:00", 1440),
        ("max_time: 61s", "0-00:02:00", 1440),
        ("max_time: 7d", "7-00:00:00", 10080),
        ("max_time: 90d", "90-00:00:00", 43200),
    ],
)
def test_a_time_limit_is_slurms_and_backfill_looks_so_far(limit: str, shown: str, window: int) -> None:
    conf = _conf(a_plan(("max_time: 1d", limit)))
    assert f" MaxTime={shown} " in conf
    assert f"bf_window={window}," in conf


def test_no_time_limit_is_unlimited() -> None:
    assert " MaxTime=UNLIMITED " in _conf(a_plan((", max_time: 1d", "")))


def test_every_cloud_name_resolves_on_the_head_and_the_head_itself() -> None:
    plan = a_plan(("max: 16", "max: 300"))
    rows = [line.split() for line in _files(plan)["head/hosts"].splitlines() if not line.startswith("#")]
    table = {name: address for address, name in rows}
    assert table.pop("burst-head") == "10.42.0.10"
    assert set(table) == {name for pool in plan.pools for span in pool.slots for name in span}
    assert all(re.fullmatch(r"192\.0\.2\.([1-9]|[1-9]\d|1\d\d|2[0-4]\d|25[0-4])", a) for a in table.values())
    assert (table["h200-2a-254"], table["h200-2a-255"]) == ("192.0.2.254", "192.0.2.1")


# --- hosts that exist -------------------------------------------------------------------------

CLOUDS = ("CLOUD", "ResumeProgram", "SuspendProgram", "SuspendTime", "Prolog=", "PrologSlurmctld", "idle_on_node_suspend",
          "DeferBatch", "salloc_wait_nodes", "DebugFlags")  # fmt: skip


def test_nodes_that_are_always_there_have_nothing_of_a_cloud() -> None:
    conf = _conf(a_lab_plan())
    assert [word for word in CLOUDS if word in conf] == []
    assert "NodeName=gpu[01-04] NodeAddr=192.0.2.[11-14] CPUs=224 " in conf
    assert "\nReturnToService=1\nRebootProgram=/sbin/reboot\nResumeTimeout=1260\n" in conf


def test_addresses_stand_in_the_order_of_the_names() -> None:
    plan = a_lab_plan(
        ('hosts: "gpu[01-04]"', 'hosts: "gpu[04,01-02],gpu03"'),
        ('"192.0.2.[11-14]"', '"192.0.2.[21-22],192.0.2.9,192.0.2.23"'),
    )
    lines = re.findall(r"^NodeName=(\S+) NodeAddr=(\S+) ", _conf(plan), re.M)
    assert lines == [("gpu04", "192.0.2.21"), ("gpu[01-03]", "192.0.2.[22,9,23]")]


def test_without_a_topology_there_is_no_file_of_one() -> None:
    files = _files(
        a_lab_plan(('  topology: {tree: {spine: {leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}}}\n', ""))
    )
    assert "slurm/topology.conf" not in files
    assert "TopologyPlugin" not in files["slurm/slurm.conf"]


def test_every_machine_resolves_every_other() -> None:
    lines = [line for line in _files(a_lab_plan())["head/hosts"].splitlines() if not line.startswith("#")]
    assert lines == ["192.0.2.10 ctl0", *(f"192.0.2.{10 + n} gpu0{n}" for n in range(1, 5))]


# --- the lines in which a rehearsal differs ---------------------------------------------------


def test_a_line_is_replaced_in_its_place() -> None:
    conf = _conf(_with_lines(SlurmLine(file="slurm.conf", key="ProctrackType", value="proctrack/linuxproc")))
    assert "proctrack/cgroup" not in conf
    assert conf.splitlines().index("ProctrackType=proctrack/linuxproc") < conf.splitlines().index(
        "ReturnToService=2"
    )


def test_a_line_that_was_not_there_is_added_and_one_is_removed() -> None:
    conf = _conf(
        _with_lines(
            SlurmLine(file="slurm.conf", key="SlurmdParameters", value="config_overrides"),
            SlurmLine(file="slurm.conf", key="taskplugin", value=None),
            SlurmLine(file="slurm.conf", key="Epilog", value=None),
        )
    )
    assert conf.endswith("\nSlurmdParameters=config_overrides\n")
    assert "TaskPlugin" not in conf


def test_a_line_of_another_file_stays_there() -> None:
    files = _files(_with_lines(SlurmLine(file="cgroup.conf", key="CgroupPlugin", value="cgroup/v1")))
    assert "\nCgroupPlugin=cgroup/v1\n" in files["slurm/cgroup.conf"]
    assert "cgroup/v1" not in files["slurm/slurm.conf"]


def test_a_line_for_no_file_is_our_mistake() -> None:
    with pytest.raises(ValueError, match=r"slurm/slurm\.conf"):
        slurm.render(_with_lines(SlurmLine(file="slurm/slurm.conf", key="Epilog", value="x")))


# --- what Slurm 24.11 does not know -----------------------------------------------------------

UNKNOWN = [
    ("slurm.conf", "SlurmctldParamters=enable_configless", "the key SlurmctldParamters"),
    (
        "slurm.conf",
        "SlurmctldParameters=enable_configless,cloud_reg_addrs",
        "'cloud_reg_addrs' of SlurmctldParameters",
    ),
    ("slurm.conf", "PrologFlags=Alloc,Wait", "'Wait' of PrologFlags"),
    ("slurm.conf", "SchedulerParameters=requeue_delay=5", "'requeue_delay' of SchedulerParameters"),
    ("slurm.conf", "LaunchParameters=use_interactive_steps", "'use_interactive_steps' of LaunchParameters"),
    ("slurm.conf", "TopologyPlugin=topology/flat", "'topology/flat' of TopologyPlugin"),
    ("slurm.conf", "TaskPlugin=task/cgroup,task/none", "'task/none' of TaskPlugin"),
    ("slurm.conf", "NodeName=a CPUs=1 State=CLOUD GresConf=x", "the key GresConf"),
    ("slurm.conf", "PartitionName=a Nodes=a MaxCPUsPerUser=8", "the key MaxCPUsPerUser"),
    ("gres.conf", "NodeName=a Name=gpu Device=/dev/nvidia0", "the key Device"),
    ("cgroup.conf", "TaskAffinity=yes", "the key TaskAffinity"),
    ("topology.conf", "SwitchName=a Node=b", "the key Node"),
]


@pytest.mark.parametrize(("file", "line", "what"), UNKNOWN, ids=[row[2] for row in UNKNOWN])
def test_what_the_version_does_not_know_is_an_error_of_ours(file: str, line: str, what: str) -> None:
    with pytest.raises(UnknownToSlurmError) as caught:
        known.check(file, f"# a comment\n\n{line}\n", catalog.slurm_facts("24.11"))
    assert caught.value.message == f"{file}: Slurm 24.11 does not know {what}: {line}"


def test_a_differing_line_is_checked_too() -> None:
    with pytest.raises(UnknownToSlurmError, match="FastSchedul"):
        slurm.render(_with_lines(SlurmLine(file="slurm.conf", key="FastSchedul", value="2")))


def test_keys_are_known_in_any_case() -> None:
    known.check("slurm.conf", "clustername=x\nNODENAME=a cpus=1\n", catalog.slurm_facts("24.11"))
