"""Slurm's files of a plan: golden files of the stacks, and the effect of single fields."""

import dataclasses
import re
from pathlib import Path

import pytest
from support.account_rows import SITE
from support.builders import a_lab_plan, a_plan, an_unequal_plan, changed, on_aws, on_hosts
from support.golden_tree import Golden

import gpucluster
from gpucluster import catalog, spec
from gpucluster.plan import codec, defaults, names, plan_json
from gpucluster.plan.model import SlurmLine, SlurmPlan, Standby
from gpucluster.plan.resolve import resolve
from gpucluster.slurm.config import key_check, prolog_limits
from gpucluster.slurm.config.key_check import UnknownToSlurmError
from gpucluster.slurm.config.render import render

BURST = Path(__file__).parents[3] / "stacks/burst.yaml"
LAB = Path(__file__).parents[3] / "stacks/lab.yaml"
STEADY = Path(__file__).parents[3] / "stacks/steady.yaml"
RESEARCH = Path(__file__).parents[3] / "stacks/research.yaml"


def _files(plan: SlurmPlan) -> dict[str, str]:
    return {artifact.path: artifact.content.decode() for artifact in render(plan)}


def _conf(plan: SlurmPlan) -> str:
    return _files(plan)["slurm/slurm.conf"]


def _with_lines(*lines: SlurmLine) -> SlurmPlan:
    plan = a_plan()
    return dataclasses.replace(plan, slurm=dataclasses.replace(plan.slurm, lines=lines))


def test_burst_stack_matches_golden_files(golden: Golden) -> None:
    plan = on_aws(resolve(spec.load(BURST), catalog.load()))
    files = {artifact.path: artifact.content for artifact in render(plan)}
    golden("burst", {names.PLAN_FILE: codec.dumps(plan).encode(), **files})


def test_steady_stack_matches_golden_files(golden: Golden) -> None:
    plan = on_aws(resolve(spec.load(STEADY), catalog.load()))
    files = {artifact.path: artifact.content for artifact in render(plan)}
    golden("steady", {names.PLAN_FILE: codec.dumps(plan).encode(), **files})


def test_research_stack_matches_golden_files(golden: Golden) -> None:
    plan = on_aws(resolve(spec.load(RESEARCH), catalog.load()))
    files = {artifact.path: artifact.content for artifact in render(plan)}
    golden("research", {names.PLAN_FILE: codec.dumps(plan).encode(), **files})


def test_lab_stack_matches_golden_files(golden: Golden) -> None:
    plan = on_hosts(resolve(spec.load(LAB), catalog.load()))
    files = {artifact.path: artifact.content for artifact in render(plan)}
    golden("lab", {names.PLAN_FILE: codec.dumps(plan).encode(), **files})


def test_same_plan_renders_the_same_bytes() -> None:
    assert render(a_plan()) == render(plan_json.load_slurm(codec.dumps(a_plan())))


def test_node_reg_mem_percent_is_the_last_parameter() -> None:
    """24.11 reads `node_reg_mem_percent=90,next` as one number and logs an error."""
    (line,) = re.findall(r"^SlurmctldParameters=(.*)$", _conf(a_plan()), re.M)
    assert line.split(",")[-1].startswith("node_reg_mem_percent=")


def test_resume_timeout_covers_the_longest_boot_within_slurms_limit() -> None:
    assert "\nResumeTimeout=1260\n" in _conf(a_plan())
    wide = a_plan(("{min: 0, max: 16}", "{min: 0, max: 4000}"))
    assert "\nResumeTimeout=2760\n" in _conf(wide), "the last of 4,000 is launched after 1,500 s"
    assert "\nResumeTimeout=43260\n" in _conf(a_plan(("idle: 5m", "idle: 5m\n    boot_timeout: 12h")))
    assert 12 * 3600 + 60 <= 65535


def test_eight_jobs_of_one_gpu_fit_a_node() -> None:
    """The defaults of a GPU, times the number of GPUs, are at most what the node has."""
    plan = a_plan()
    found = re.search(r"DefCpuPerGPU=(\d+) DefMemPerCPU=(\d+)", _conf(plan))
    assert found
    shape = plan.pools[0].shape
    assert int(found[1]) * shape.gpu_count <= shape.cpus
    assert int(found[2]) * shape.cpus <= shape.real_memory_mib


def test_job_without_gpus_has_a_share_of_the_memory() -> None:
    """With DefMemPerGPU alone `sbatch -n1` took the whole memory of a node of eight GPUs: two such jobs took two nodes."""
    assert "DefMemPerGPU" not in _conf(a_plan())
    assert " DefMemPerCPU=10376 " in _conf(a_plan())


def test_gpus_of_a_socket_have_its_cores() -> None:
    gres = [
        line.split("File=")[1].split(" Flags")[0]
        for line in _files(a_plan())["slurm/gres.conf"].splitlines()
        if "File=" in line
    ]
    assert set(gres) == {"/dev/nvidia[0-3] Cores=0-47", "/dev/nvidia[4-7] Cores=48-95"}
    lab = _files(a_lab_plan())["slurm/gres.conf"]
    assert " File=/dev/nvidia[0-3] Cores=0-55 " in lab
    assert " File=/dev/nvidia[4-7] Cores=56-111 " in lab


@pytest.mark.parametrize(
    ("sockets", "cores", "gpus", "lines"),
    [
        (1, 4, 1, ["/dev/nvidia0 Cores=0-3"]),
        (2, 4, 2, ["/dev/nvidia0 Cores=0-3", "/dev/nvidia1 Cores=4-7"]),
        (2, 4, 3, ["/dev/nvidia[0-2]"]),  # nobody knows which socket has two of three GPUs
        (2, 4, 1, ["/dev/nvidia0"]),
        (2, 1, 4, ["/dev/nvidia[0-1] Cores=0", "/dev/nvidia[2-3] Cores=1"]),
    ],
)
def test_gpus_that_do_not_divide_evenly_have_no_cores(
    sockets: int, cores: int, gpus: int, lines: list[str]
) -> None:
    plan = a_plan()
    shape = dataclasses.replace(plan.pools[0].shape, sockets=sockets, cores_per_socket=cores, gpu_count=gpus)
    one = dataclasses.replace(plan, pools=(dataclasses.replace(plan.pools[0], shape=shape),))
    found = _files(one)["slurm/gres.conf"].splitlines()
    assert [line.split("File=")[1].split(" Flags")[0] for line in found if "h200-2a" in line] == lines


@pytest.mark.parametrize(
    ("nvlink", "first", "last"),
    [
        (2, "Links=-1,1,0,0,0,0,0,0", "Links=0,0,0,0,0,0,1,-1"),
        (4, "Links=-1,1,1,1,0,0,0,0", "Links=0,0,0,0,1,1,1,-1"),
    ],
)
def test_gpus_that_nvlink_joins_in_groups_have_links(nvlink: int, first: str, last: str) -> None:
    """One line for each GPU, with the cores of its socket."""
    gres = _files(a_lab_plan(("count: 8", f"count: 8, nvlink: {nvlink}")))["slurm/gres.conf"]
    lines = [line.split("File=")[1].split(" Flags")[0] for line in gres.splitlines() if "File=" in line]
    assert len(lines) == 8
    assert lines[0] == f"/dev/nvidia0 Cores=0-55 {first}"
    assert lines[7] == f"/dev/nvidia7 Cores=56-111 {last}"


@pytest.mark.parametrize("nvlink", ["", ", nvlink: 8"])
def test_gpus_that_nvlink_joins_equally_have_no_links(nvlink: str) -> None:
    assert "Links" not in _files(a_lab_plan(("count: 8", f"count: 8{nvlink}")))["slurm/gres.conf"]
    assert "Links" not in _files(a_plan())["slurm/gres.conf"]


def test_each_pool_has_its_own_leaf_in_each_zone() -> None:
    """`-p any -N18` once got two nodes of one GPU model and sixteen of another."""
    more = "  - {name: b, nodes: 2, capacity: [{from: spot, machines: [p5.48xlarge]}]}\npartitions:"
    plan = a_plan(("partitions:", more), ("pools: [h200]", "pools: [b, h200]"))
    switches = [
        line for line in _files(plan)["slurm/topology.conf"].splitlines() if line.startswith("SwitchName")
    ]
    assert switches == [
        "SwitchName=h200-2a Nodes=h200-2a-[1-16]", "SwitchName=b-2a Nodes=b-2a-[1-2]",
        "SwitchName=h200-2b Nodes=h200-2b-[1-16]", "SwitchName=b-2b Nodes=b-2b-[1-2]",
    ]  # fmt: skip


def test_spares_are_kept_up_and_others_are_suspended() -> None:
    conf = _conf(a_plan(("idle: 5m", "idle: 5m\n    spares: 2")))
    assert "\nSuspendExcNodes=h200-2a-[1-16]:2,h200-2b-[1-16]:2\n" in conf
    assert " SuspendTime=2100 " in conf


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        ("max_time: 1d", "0-01:00:00"),
        ("max_time: 30m", "0-00:30:00"),
        ("max_time: 1d, default_time: 4h", "0-04:00:00"),
        ("max_time: 1d, default_time: 1d", "1-00:00:00"),
    ],
)
def test_default_time_is_one_hour_at_most_the_limit(times: str, shown: str) -> None:
    assert f" DefaultTime={shown} " in _conf(a_plan(("max_time: 1d", times)))


CPU_POOL = (
    "partitions:\n",
    "  - {name: cpu, nodes: {min: 0, max: 4}, capacity: [{from: on-demand, machines: [m7i.2xlarge]}]}\npartitions:\n",
)
SHARED = "partitions:\n  - {name: prep, pools: [h200], max_cpus_per_node: 16}\n"


def test_jobs_without_gpus_are_accepted_while_they_have_no_other_partition() -> None:
    files = _files(a_plan())
    assert "slurm/job_submit.lua" not in files
    assert "JobSubmitPlugins" not in files["slurm/slurm.conf"]


@pytest.mark.parametrize(
    ("change", "other"),
    [
        ((CPU_POOL, ("partitions:\n", "partitions:\n  - {name: small, pools: [cpu]}\n")), "small"),
        ((("partitions:\n", SHARED),), "prep"),
    ],
)
def test_a_partition_of_gpus_refuses_other_jobs_if_they_have_a_better_one(
    change: tuple[tuple[str, str], ...], other: str
) -> None:
    files = _files(a_plan(*change))
    assert "\nJobSubmitPlugins=lua\n" in files["slurm/slurm.conf"]
    script = files["slurm/job_submit.lua"]
    assert f'["gpu"] = "request GPUs, for example --gpus=1, or use --partition={other}"' in script
    assert f'["{other}"]' not in script
    assert 'local DEFAULT = "gpu"' in script


@pytest.mark.parametrize(
    ("written", "advice"), [("true", "request GPUs, for example --gpus=1"), ("false", None)]
)
def test_the_spec_decides_whether_jobs_without_gpus_are_refused(written: str, advice: str | None) -> None:
    alone = ("max_time: 1d", f"max_time: 1d, requires_gpus: {written}")
    script = _files(a_plan(alone)).get("slurm/job_submit.lua", "")
    assert (f'["gpu"] = "{advice}",' in script) == (advice is not None)
    beside = _files(a_plan(alone, ("partitions:\n", SHARED))).get("slurm/job_submit.lua", "")
    assert ('["gpu"]' in beside) == (advice is not None)


def test_a_limit_of_cpus_is_also_one_of_memory() -> None:
    conf = _conf(a_plan(("partitions:\n", SHARED)))
    line = next(line for line in conf.splitlines() if line.startswith("PartitionName=prep "))
    assert " DefMemPerCPU=10376 MaxCPUsPerNode=16 MaxMemPerCPU=10376 " in line
    assert conf.count("MaxCPUsPerNode") == 1


def test_always_on_slots_have_a_lower_weight_than_elastic_ones() -> None:
    conf = _conf(a_plan(("min: 0", "min: 2")))
    weights = dict(re.findall(r"^NodeName=(\S+) .* Weight=(\d+) ", conf, flags=re.M))
    assert weights == {"h200-2a-[1-2]": "3", "h200-2a-[3-16]": "4", "h200-2b-[1-16]": "4"}
    always = _conf(a_plan(("{min: 0, max: 16}", "16")))
    weights = dict(re.findall(r"^NodeName=(\S+) .* Weight=(\d+) ", always, flags=re.M))
    assert weights == {"h200-2a-[1-16]": "3", "h200-2b-[1-16]": "4"}


def test_nodes_without_gpus_have_the_lowest_weight() -> None:
    conf = _conf(a_plan(CPU_POOL, ("pools: [h200]", "pools: [h200, cpu]")))
    weights = dict(re.findall(r"^NodeName=(\S+?)-\S+ .* Weight=(\d+) ", conf, flags=re.M))
    assert weights == {"h200": "4", "cpu": "2"}


def test_always_on_slots_are_never_suspended() -> None:
    assert "SuspendExcNodes" not in _conf(a_plan())
    assert "\nSuspendExcNodes=h200-2a-[1-2]\n" in _conf(a_plan(("min: 0", "min: 2")))
    assert "\nSuspendExcNodes=h200-2a-1\n" in _conf(a_plan(("min: 0", "min: 1")))


def test_cluster_without_gpus_has_no_gres() -> None:
    plan = a_plan(
        ("[p5en.48xlarge, p5e.48xlarge]", "[m7i.xlarge]"),
        ("machines: [p5en.48xlarge]", "machines: [m7i.xlarge]"),
    )
    files = _files(plan)
    assert "Gres" not in files["slurm/slurm.conf"]
    assert "DefMemPerCPU=3891" in files["slurm/slurm.conf"]
    assert "NodeName" not in files["slurm/gres.conf"]


def test_only_pools_with_gpus_have_gres() -> None:
    files = _files(an_unequal_plan(("[g5.12xlarge]", "[m7i.xlarge]")))
    assert "\nGresTypes=gpu\n" in files["slurm/slurm.conf"]
    lines = re.findall(r"^NodeName=.*", files["slurm/slurm.conf"], re.M)
    assert {("small" in line, "Gres=gpu:" in line) for line in lines} == {(True, False), (False, True)}
    assert "small" not in files["slurm/gres.conf"]
    (line,) = re.findall(r"^PartitionName=.*", files["slurm/slurm.conf"], re.M)
    assert " DefCpuPerGPU=24 DefMemPerCPU=3891 " in line


def test_suspend_time_follows_the_longest_idle_time() -> None:
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
def test_time_limit_sets_max_time_and_backfill_window(limit: str, shown: str, window: int) -> None:
    conf = _conf(a_plan(("max_time: 1d", limit)))
    assert f" MaxTime={shown} " in conf
    assert f"bf_window={window}," in conf


def test_no_time_limit_is_unlimited() -> None:
    assert " MaxTime=UNLIMITED " in _conf(a_plan((", max_time: 1d", "")))


def test_head_resolves_every_cloud_node_and_itself() -> None:
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


def test_hosts_have_no_power_saving() -> None:
    conf = _conf(a_lab_plan())
    assert [word for word in CLOUDS if word in conf] == []
    assert "NodeName=gpu[01-04] NodeAddr=192.0.2.[11-14] CPUs=224 " in conf
    assert "\nRebootProgram=/sbin/reboot\nResumeTimeout=1260\n" in conf


def test_addresses_have_the_order_of_names() -> None:
    plan = a_lab_plan(
        ('hosts: "gpu[01-04]"', 'hosts: "gpu[04,01-02],gpu03"'),
        ('"192.0.2.[11-14]"', '"192.0.2.[21-22],192.0.2.9,192.0.2.23"'),
    )
    lines = re.findall(r"^NodeName=(\S+) NodeAddr=(\S+) ", _conf(plan), re.M)
    assert lines == [("gpu04", "192.0.2.21"), ("gpu[01-03]", "192.0.2.[22,9,23]")]


def test_plan_without_topology_has_no_topology_conf() -> None:
    files = _files(
        a_lab_plan(('  topology: {tree: {spine: {leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}}}\n', ""))
    )
    assert "slurm/topology.conf" not in files
    assert "TopologyPlugin" not in files["slurm/slurm.conf"]


def test_every_host_resolves_all_hosts() -> None:
    lines = [line for line in _files(a_lab_plan())["head/hosts"].splitlines() if not line.startswith("#")]
    assert lines == ["192.0.2.10 ctl0", *(f"192.0.2.{10 + n} gpu0{n}" for n in range(1, 5))]


# --- the lines in which a rehearsal differs ---------------------------------------------------


def test_line_is_replaced_in_place() -> None:
    conf = _conf(_with_lines(SlurmLine(file="slurm.conf", key="ProctrackType", value="proctrack/linuxproc")))
    assert "proctrack/cgroup" not in conf
    assert conf.splitlines().index("ProctrackType=proctrack/linuxproc") < conf.splitlines().index(
        "ReturnToService=2"
    )


def test_lines_are_added_and_removed() -> None:
    conf = _conf(
        _with_lines(
            SlurmLine(file="slurm.conf", key="SlurmdParameters", value="config_overrides"),
            SlurmLine(file="slurm.conf", key="taskplugin", value=None),
            SlurmLine(file="slurm.conf", key="Epilog", value=None),
        )
    )
    assert conf.endswith("\nSlurmdParameters=config_overrides\n")
    assert "TaskPlugin" not in conf


def test_line_changes_only_its_file() -> None:
    files = _files(_with_lines(SlurmLine(file="cgroup.conf", key="CgroupPlugin", value="cgroup/v1")))
    assert "\nCgroupPlugin=cgroup/v1\n" in files["slurm/cgroup.conf"]
    assert "cgroup/v1" not in files["slurm/slurm.conf"]


def test_line_for_unknown_file_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"slurm/slurm\.conf"):
        render(_with_lines(SlurmLine(file="slurm/slurm.conf", key="Epilog", value="x")))


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
def test_key_that_the_version_does_not_know_is_an_error(file: str, line: str, what: str) -> None:
    with pytest.raises(UnknownToSlurmError) as caught:
        key_check.check(file, f"# a comment\n\n{line}\n", catalog.slurm_facts("24.11"))
    assert caught.value.message == f"{file}: Slurm 24.11 does not know {what}: {line}"


def test_added_line_is_checked() -> None:
    with pytest.raises(UnknownToSlurmError, match="FastSchedul"):
        render(_with_lines(SlurmLine(file="slurm.conf", key="FastSchedul", value="2")))


@pytest.mark.parametrize(
    "lines",
    ["clustername=x\nNODENAME=a cpus=1", "DebugFlags=gres,Power", "MpiDefault=pmix", "MpiDefault=mpi/pmix"],
)
def test_case_of_words_and_the_kind_of_a_plugin_do_not_matter(lines: str) -> None:
    """The last two lines of `extra` ended in "this is a bug of gpucluster"."""
    key_check.check("slurm.conf", lines + "\n", catalog.slurm_facts("24.11"))


def test_partition_of_unequal_pools_has_what_each_node_has() -> None:
    """The share of a GPU is the least of the pools; the backstop is the longest idle time of them."""
    (line,) = re.findall(r"^PartitionName=.*", _conf(an_unequal_plan()), re.M)
    assert " DefCpuPerGPU=12 DefMemPerCPU=3891 " in line
    assert " SuspendTime=2400 " in line
    assert "SuspendExcNodes=small-2a-1\n" in _conf(an_unequal_plan())


@pytest.mark.parametrize(("longest", "resolution"), [("2d", 60), ("49h", 600)])
def test_backfill_resolution_is_a_minute_up_to_two_days(longest: str, resolution: int) -> None:
    conf = _conf(an_unequal_plan(("max_time: 2d", f"max_time: {longest}")))
    assert f",bf_resolution={resolution}," in conf


def test_resume_timeout_follows_the_longest_boot() -> None:
    assert "\nResumeTimeout=1860\n" in _conf(an_unequal_plan())


def test_jobs_inherit_slurmds_limit_of_processes():
    """The login shell's own limit would lift it: a job that forks without an end stopped the jobs of all users."""
    (line,) = [
        x for x in _files(a_plan())["slurm/slurm.conf"].splitlines() if x.startswith("PropagateResource")
    ]
    assert "NPROC" in line.partition("=")[2].split(",")
    unit = BURST.parents[1] / "src/gpucluster/agent/units/etc/systemd/system/slurmd.service.d/gpucluster.conf"
    assert "LimitNPROC=65536" in unit.read_text().splitlines()


def test_private_tmp_can_be_turned_off():
    plan = a_plan()
    off = _files(dataclasses.replace(plan, slurm=dataclasses.replace(plan.slurm, private_tmp=None)))
    assert "slurm/job_container.conf" not in off
    assert "JobContainerType" not in off["slurm/slurm.conf"]


def _site(*changes: tuple[str, str]) -> dict[str, str]:
    text = changed(SITE, *changes)
    return _files(
        on_hosts(resolve(spec.inspect_text(text, "lab.yaml", catalog.load()).result(), catalog.load()))
    )


def test_without_a_database_slurmctld_writes_a_line_for_each_ended_job() -> None:
    files = _files(a_plan())
    assert "\nJobCompType=jobcomp/filetxt\nJobCompLoc=/var/log/slurm/jobs.log\n" in files["slurm/slurm.conf"]
    assert "AccountingStorage" not in files["slurm/slurm.conf"]
    assert not {"head/slurmdbd.conf", "head/mariadb.cnf"} & files.keys()


def test_accounting_counts_gpus_and_gpus_of_each_model() -> None:
    conf = _site()["slurm/slurm.conf"]
    assert "\nAccountingStorageHost=ctl0\n" in conf
    assert "\nAccountingStorageTRES=gres/gpu,gres/gpu:h100\n" in conf
    assert "JobComp" not in conf


def test_without_accounts_nothing_is_enforced() -> None:
    """With AccountingStorageEnforce=associations Slurm refuses every user without an account."""
    assert "\nAccountingStorageEnforce=associations,limits,qos,safe\n" in _site()["slurm/slurm.conf"]
    start = SITE.index("qos:\n  - {name")
    bare = _site(
        (SITE[start:], ""),
        (", qos: debug", ""),
        ("  preemption: {by: qos, mode: requeue, exempt: 10m}\n", ""),
    )
    assert "Enforce=" not in bare["slurm/slurm.conf"]
    assert "\nAccountingStorageType=accounting_storage/slurmdbd\n" in bare["slurm/slurm.conf"]


def test_a_whole_node_costs_the_same_by_gpus_by_cpus_and_by_memory() -> None:
    (line,) = re.findall(r"^PartitionName=gpu .*$", _site()["slurm/slurm.conf"], re.M)
    cpu, memory, gpu = re.search(
        r'TRESBillingWeights="CPU=([\d.]+),Mem=([\d.]+)G,GRES/gpu=(\d+)"', line
    ).groups()  # type: ignore[union-attr]
    whole = (224 * float(cpu), 1945600 / 1024 * float(memory), 8 * float(gpu))
    assert max(whole) / min(whole) < 1.01


def test_a_mig_slice_costs_its_share_of_the_gpu() -> None:
    """56 slices of a node of eight GPUs were billed as 56 GPUs."""
    conf = _site(
        ("count: 8}", "count: 8, memory: 80GiB}"),
        ('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", sharing: {mig: {1g.10gb: 4, 3g.40gb: 1}}}'),
        ("limits: {gpus_per_user: 16}", "limits: {cpus_per_user: 16}"),
        (", limits: {gpus: 24}", ""),
        (", limits: {gpu_hours_per_month: 5000}", ""),
    )["slurm/slurm.conf"]
    (line,) = re.findall(r"^PartitionName=gpu .*$", conf, re.M)
    assert 'G,GRES/gpu:1g.10gb=142.86,GRES/gpu:3g.40gb=428.57"' in line
    assert pytest.approx(8000, abs=1) == 8 * (4 * 142.86 + 428.57)
    assert "AccountingStorageTRES=gres/gpu,gres/gpu:1g.10gb,gres/gpu:3g.40gb\n" in conf


def test_a_partition_has_its_tier_qos_and_accounts() -> None:
    conf = _site(("qos: debug}", "qos: debug, exclusive: true, accounts: [research], allow_qos: [debug]}"))
    (line,) = re.findall(r"^PartitionName=debug .*$", conf["slurm/slurm.conf"], re.M)
    wanted = " PriorityTier=20 OverSubscribe=EXCLUSIVE QOS=debug AllowAccounts=research AllowQos=debug "
    assert wanted in line
    (other,) = re.findall(r"^PartitionName=gpu .*$", conf["slurm/slurm.conf"], re.M)
    assert not re.search("PriorityTier|EXCLUSIVE|QOS=|Allow", other)


def test_preemption_is_by_qos_or_by_partition() -> None:
    assert (
        "\nPreemptType=preempt/qos\nPreemptMode=REQUEUE\nPreemptExemptTime=0-00:10:00\n"
        in _site()["slurm/slurm.conf"]
    )
    short = _site(("exempt: 10m", "exempt: 90s"))["slurm/slurm.conf"]
    assert "\nPreemptExemptTime=0-00:01:30\n" in short, "Slurm reads seconds here, and minutes in MaxTime"
    by_tier = _site(
        ("by: qos, mode: requeue, exempt: 10m", "by: partition, mode: cancel"), (", preempts: [normal]", "")
    )
    assert "\nPreemptType=preempt/partition_prio\nPreemptMode=CANCEL\n" in by_tier["slurm/slurm.conf"]
    assert "Preempt" not in _conf(a_plan())


def test_licences_and_requeue_are_rendered() -> None:
    conf = _site(
        ("mode: requeue, exempt: 10m", "mode: cancel"), ("  licenses", "  requeue: false\n  licenses")
    )
    assert "\nLicenses=matlab:3\n" in conf["slurm/slurm.conf"]
    assert "\nJobRequeue=0\n" in conf["slurm/slurm.conf"]
    assert "\nJobRequeue=1\n" in _conf(a_plan())


def test_slurmdbds_file_has_no_password_and_is_not_sent_to_nodes() -> None:
    """Files of slurm/ are links in /etc/slurm, readable for all; slurmdbd.conf must be 0600."""
    files = _site()
    assert "slurm/slurmdbd.conf" not in files
    assert "StoragePass" not in files["head/slurmdbd.conf"]
    assert "\nStorageHost=localhost\nStorageUser=slurm\n" in files["head/slurmdbd.conf"]
    assert "\nPurgeJobAfter=730days\n" in files["head/slurmdbd.conf"]
    assert "\nskip-networking\n" in files["head/mariadb.cnf"]
    assert "\nloose_innodb_snapshot_isolation=OFF\n" in files["head/mariadb.cnf"], (
        "slurmdbd 26.05 asks for it"
    )


def test_a_database_elsewhere_is_reached_by_tls() -> None:
    secret = "arn:aws:secretsmanager:us-east-2:123456789012:secret:db-AbCdEf"
    part = f"  accounting: {{host: db.example.org, secret: '{secret}', keep: 90d}}"
    files = _files(a_plan(('  version: "24.11"', f'  version: "24.11"\n{part}')))
    assert (
        "\nStorageHost=db.example.org\nStoragePort=3306\nStorageParameters=SSL_CA="
        in files["head/slurmdbd.conf"]
    )
    assert "\nPurgeJobAfter=90days\n" in files["head/slurmdbd.conf"]
    assert "head/mariadb.cnf" not in files
    assert secret not in "".join(files.values())


def test_a_standby_runs_the_backup_of_slurmdbd_with_the_same_database() -> None:
    secret = "arn:aws:secretsmanager:us-east-2:123456789012:secret:db-AbCdEf"
    part = f"  accounting: {{host: db.example.org, secret: '{secret}'}}"
    changes = [('  version: "24.11"', f'  version: "24.11"\n{part}')]
    alone = _files(a_plan(*changes))
    assert "BackupHost" not in alone["head/slurmdbd.conf"] + alone["slurm/slurm.conf"]
    plan = a_plan(*changes)
    standby = Standby(machine="m7i.2xlarge", zone="us-east-2b", address="10.42.1.10", state="/home")
    files = _files(dataclasses.replace(plan, head=dataclasses.replace(plan.head, standby=standby)))
    assert f"\nDbdBackupHost={plan.name}-standby\n" in files["head/slurmdbd.conf"]
    assert f"\nAccountingStorageBackupHost={plan.name}-standby\n" in files["slurm/slurm.conf"]


def test_every_key_of_slurmdbds_file_is_known_to_the_version() -> None:
    facts = catalog.slurm_facts("24.11")
    with pytest.raises(UnknownToSlurmError):
        key_check.check("slurmdbd.conf", "StoragePasword=x\n", facts)


def test_mig_slices_have_a_line_each_with_the_cores_of_their_gpu() -> None:
    plan = a_lab_plan(
        ("count: 8}", "count: 8, memory: 80GiB}"),
        ('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", sharing: {mig: {1g.10gb: 4, 3g.40gb: 1}}}'),
    )
    files = {artifact.path: artifact.content.decode() for artifact in render(plan)}
    lines = [line for line in files["slurm/gres.conf"].splitlines() if line.startswith("NodeName")]
    assert len(lines) == 8 * 5
    assert (
        lines[0]
        == "NodeName=gpu[01-04] AutoDetect=off Name=gpu Type=3g.40gb MultipleFiles=/dev/nvidia0,/dev/gpucluster-mig/0-0-gi,/dev/gpucluster-mig/0-0-ci Cores=0-55 Flags=nvidia_gpu_env"
    )
    assert " Type=1g.10gb MultipleFiles=/dev/nvidia7,/dev/gpucluster-mig/7-4-gi," in lines[-1]
    assert " Cores=56-111 " in lines[-1]
    assert " Gres=gpu:3g.40gb:8,gpu:1g.10gb:32 " in files["slurm/slurm.conf"]
    assert (
        " DefCpuPerGPU=4 " in files["slurm/slurm.conf"]
    )  # 5 would be three cores, and the last slices had none


def test_shards_are_a_type_of_their_own() -> None:
    plan = a_lab_plan(('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", sharing: {shards: 4}}'))
    files = {artifact.path: artifact.content.decode() for artifact in render(plan)}
    assert (
        files["slurm/gres.conf"].splitlines()[-1] == "NodeName=gpu[01-04] AutoDetect=off Name=shard Count=32"
    )
    assert "\nGresTypes=gpu,shard\n" in files["slurm/slurm.conf"]
    assert " Gres=gpu:h100:8,shard:32 " in files["slurm/slurm.conf"]


def test_mps_uses_every_gpu_of_a_node_and_a_node_is_of_one_user() -> None:
    """By default Slurm uses one GPU of a node for MPS; a server of MPS has one user."""
    plan = a_lab_plan(('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", sharing: {mps: 50}}'))
    files = {artifact.path: artifact.content.decode() for artifact in render(plan)}
    last = files["slurm/gres.conf"].splitlines()[-1]
    assert last == "NodeName=gpu[01-04] AutoDetect=off Name=mps Count=400 Flags=all_sharing"
    assert "\nGresTypes=gpu,mps\n" in files["slurm/slurm.conf"]
    assert " Gres=gpu:h100:8,mps:400 " in files["slurm/slurm.conf"]
    (partition,) = (one for one in files["slurm/slurm.conf"].splitlines() if one.startswith("PartitionName="))
    assert " ExclusiveUser=YES" in partition


def test_jobs_of_mps_share_the_memory_of_the_server() -> None:
    """CUDA and the MPS server share memory below /dev/shm: a job's own /dev/shm would keep them apart."""
    plan = a_lab_plan(('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", sharing: {mps: 50}}'))
    text = _files(plan)["slurm/job_container.conf"]
    of_mps = "NodeName=gpu[01-04] AutoBasePath=true BasePath=/var/lib/gpucluster-tmp Dirs=/tmp,/var/tmp Shared=true"
    assert text.splitlines()[-1] == of_mps
    assert "NodeName" not in _files(a_lab_plan())["slurm/job_container.conf"]


def test_only_a_partition_of_mps_gives_a_node_to_one_user() -> None:
    files = {artifact.path: artifact.content.decode() for artifact in render(a_lab_plan())}
    assert "ExclusiveUser" not in files["slurm/slurm.conf"]


def test_profile_has_the_folders_of_software_and_only_them() -> None:
    storage = (
        "pools:\n  - name",
        "storage: [{mount: /apps, nfs: {from: head, size: 20GiB}}]\npools:\n  - name",
    )
    version = 'version: "24.11"'
    plan = a_plan(storage, (version, f"{version}\n  software: {{modules: /apps/modulefiles}}"))
    (text,) = [text for path, text in _files(plan).items() if path == names.PROFILE_FILE]
    assert "export MODULEPATH=/apps/modulefiles${MODULEPATH:+:$MODULEPATH}" in text
    assert "conda" not in text
    assert names.PROFILE_FILE not in _files(a_plan())


def test_plugstack_has_pyxis_only_if_the_spec_asks_for_it() -> None:
    version = 'version: "24.11"'
    found = _files(a_plan((version, f"{version}\n  containers: pyxis")))
    assert found["slurm/plugstack.conf"].endswith(f"\nrequired {names.PYXIS_PLUGIN} container_scope=job\n")
    assert "slurm/plugstack.conf" not in _files(a_plan((version, f"{version}\n  containers: apptainer")))


def test_task_prolog_is_on_aws_and_alone_not_with_pyxis() -> None:
    """Pyxis runs it inside the container, and a task without its TaskProlog fails. On hosts Slurm's own count of restarts stays."""
    version, line = 'version: "24.11"', f"TaskProlog={names.TASK_PROLOG}\n"
    assert line in _conf(a_plan())
    assert line in _conf(a_plan((version, f"{version}\n  containers: apptainer")))
    assert line not in _conf(a_plan((version, f"{version}\n  containers: pyxis")))
    assert line not in _conf(a_lab_plan())


def _limits(plan: SlurmPlan, version: str) -> dict[str, int]:
    plan = dataclasses.replace(plan, slurm=dataclasses.replace(plan.slurm, version=version))
    found = re.findall(r"^(\w*(?:Prolog|Epilog)Timeout|ResumeTimeout)=(\d+)$", _conf(plan), re.M)
    return {key: int(value) for key, value in found}


def test_a_prolog_has_a_time_limit_by_the_keys_of_the_version() -> None:
    """Without one slurmd waits for a Prolog that hangs until the job ends. On AWS the waiter must outlast a boot (S42)."""
    for version in ("24.11", "26.05"):
        assert _limits(a_lab_plan(), version)["PrologEpilogTimeout"] == 120
    old, new = _limits(a_plan(), "24.11"), _limits(a_plan(), "26.05")
    assert old == {"PrologEpilogTimeout": old["ResumeTimeout"] + 120, "ResumeTimeout": old["ResumeTimeout"]}
    assert new == {
        "PrologTimeout": new["ResumeTimeout"] + 120,
        "EpilogTimeout": 120,
        "ResumeTimeout": new["ResumeTimeout"],
    }


def test_the_limit_of_the_prolog_is_never_the_value_without_a_limit() -> None:
    """The longest ResumeTimeout has 16 bits, and 65534 means no limit."""
    assert prolog_limits.limits(a_plan(), 65_535)[0].seconds == "65533"
    assert prolog_limits.limits(a_plan(), 65_413)[0].seconds == "65533"


@pytest.mark.parametrize("program", ["prolog", "health_prolog", "health_epilog"])
def test_our_programs_of_prolog_and_epilog_end_before_slurmds_limit(program: str) -> None:
    """On AWS slurmd's limit is longer than a boot, so each program limits itself, before it imports what may hang."""
    text = (Path(gpucluster.__file__).parent / "agent/units/opt/gpucluster/bin" / program).read_text()
    seconds = re.search(r"signal\.alarm\((\d+)\)|^LIMIT_S = (\d+)", text, re.M)
    assert seconds is not None
    assert int(seconds[1] or seconds[2]) == defaults.PROLOG_PROGRAM_S < defaults.PROLOG_LIMIT_S.value
    assert "from gpucluster" not in text[: text.index("signal.alarm(")]
