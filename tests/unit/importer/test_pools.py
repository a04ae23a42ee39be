"""Nodes that differ are other pools, and names of a real site fit the spec. One bad word or topology costs itself alone."""

from pathlib import Path

import pytest

from gpucluster import catalog
from gpucluster.importer.differences import Change
from gpucluster.importer.lines import Effect
from gpucluster.importer.run import Imported, import_files
from gpucluster.plan.resolve import resolve
from gpucluster.slurm.config.render import render
from gpucluster.slurm.hostlist import expand_slurm
from gpucluster.spec import ClusterSpec, inspect_text

HEAD = (
    "ClusterName=site\nSlurmctldHost=ctl\nSelectTypeParameters=CR_Core_Memory\nTaskPlugin=task/cgroup\n"
    "StateSaveLocation=/var/spool/slurmctld\n"
)


def imported(folder: Path, lines: str, **others: str) -> tuple[Imported, ClusterSpec]:
    (folder / "slurm.conf").write_text(HEAD + lines)
    (folder / "cgroup.conf").write_text("ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\n")
    for name, text in others.items():
        (folder / f"topology.{name}").write_text(text)
    found = import_files([folder], version="26.05")
    return found, inspect_text(found.text, "x.yaml", catalog.load()).result()


def rows(found: Imported, key: str) -> list[tuple[Change, Effect | None, str]]:
    return [
        (row.change, row.effect, row.why)
        for row in found.differences
        if row.key == key and row.change is not Change.SAME
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Weight=5", "Weight=100"),
        ("TmpDisk=1000", "TmpDisk=2000"),
        ("MemSpecLimit=500", "CoreSpecCount=1"),
        ("Feature=GPU_MEM:32GB", "Feature=GPU_MEM:80GB"),
        ("Weight=5", ""),
    ],
)
def test_nodes_with_other_keys_are_another_pool(one: str, other: str, tmp_path: Path) -> None:
    """Regression: the values were dropped with a false reason, and GPUs of 32 and 80 GB became one pool."""
    found, spec = imported(
        tmp_path,
        f"NodeName=n[1-3] CPUs=4 RealMemory=8000 {one}\nNodeName=n4 CPUs=4 RealMemory=8000 {other}\n"
        "PartitionName=a Nodes=ALL Default=YES\n",
    )
    assert [pool.hosts for pool in spec.pools] == [("n1", "n2", "n3"), ("n4",)]
    for pool, words in zip(spec.pools, (one, other), strict=True):
        key, _, value = words.partition("=")
        if key == "Feature":
            assert pool.features == (value,)
        elif key:
            assert pool.extra[key] == value
    assert not [row for row in found.differences if row.effect or row.change is Change.LOST]


def test_tmpdisk_stays_with_the_file_system_that_it_is_about(tmp_path: Path) -> None:
    """Without TmpFS slurmd measures /tmp, and slurmctld drains a node with too little there: `Low TmpDisk`."""
    _, spec = imported(
        tmp_path,
        "TmpFS=/scratch\nNodeName=n[1-3] CPUs=4 RealMemory=8000 TmpDisk=800000\nPartitionName=a Nodes=ALL Default=YES\n",
    )
    assert spec.slurm is not None
    assert (spec.slurm.extra["TmpFS"], spec.pools[0].extra["TmpDisk"]) == ("/scratch", "800000")


def test_features_and_licences_of_a_real_site_fit_the_spec(tmp_path: Path) -> None:
    found, spec = imported(
        tmp_path,
        "Licenses=Matlab_Dist:4,fluent@flex:10,ansys-hpc.v2:2\n"
        "NodeName=n1 CPUs=4 RealMemory=8000 Feature=CPU_MNF:AMD,c++17,_x\nPartitionName=a Nodes=n1 Default=YES\n",
    )
    assert spec.pools[0].features == ("CPU_MNF:AMD", "c++17", "_x")
    assert spec.slurm is not None
    assert dict(spec.slurm.licenses) == {"Matlab_Dist": 4, "fluent@flex": 10, "ansys-hpc.v2": 2}
    assert rows(found, "Licenses") == []


def test_feature_that_the_spec_cannot_have_is_under_its_heading(tmp_path: Path) -> None:
    found, _ = imported(
        tmp_path, "NodeName=n1 CPUs=4 RealMemory=8000 Feature=a,b*c\nPartitionName=a Nodes=n1 Default=YES\n"
    )
    ((change, effect, why),) = rows(found, "Feature")
    assert (change, effect) == (Change.CHANGED, Effect.REFUSED)
    assert why == "not imported: the feature b*c, whose form a spec does not take"


NODES = "NodeName=n[1-6] CPUs=4 RealMemory=8000\nPartitionName=a Nodes=ALL Default=YES\n"


def test_one_bad_word_of_a_list_costs_itself_alone(tmp_path: Path) -> None:
    found, spec = imported(
        tmp_path, f"SchedulerParameters=bf_max_job_user=50,bf_interval=abc,no_such,defer\n{NODES}"
    )
    assert spec.slurm is not None
    assert spec.slurm.extra["SchedulerParameters"] == "bf_max_job_user=50,defer"
    ((change, _, why),) = rows(found, "SchedulerParameters")
    assert change is Change.CHANGED
    assert "'no_such'" in why
    assert "'bf_interval=abc'" in why
    assert "bf_max_job_user" not in why


def test_nodes_off_the_fabric_cost_themselves_alone(tmp_path: Path) -> None:
    """Regression: two nodes on no switch dropped the whole tree."""
    tree = (
        "SwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\nSwitchName=core Switches=leaf[1-2]\n"
    )
    found, spec = imported(tmp_path, f"TopologyPlugin=topology/tree\n{NODES}", conf=tree)
    assert spec.slurm is not None
    assert spec.slurm.topology is not None
    assert spec.slurm.topology.tree == {
        "core": {"leaf1": ("n1", "n2"), "leaf2": ("n3", "n4")},
        "off-fabric": ("n5", "n6"),
    }
    assert not found.complaints
    assert any("2 nodes are on no switch of the site" in one for one in found.made.made_up)


YAML = """- topology: topo1
  cluster_default: true
  tree:
    switches:
      - {switch: s1, nodes: "n[1-6]"}
- topology: topo2
  block:
    block_sizes: [2]
    blocks:
      - {block: b1, nodes: "n[1-2]"}
- topology: topo3
  flat: true
"""


def test_one_topology_that_does_not_fit_costs_itself_alone(tmp_path: Path) -> None:
    conf = NODES.replace("Default=YES", "Default=YES Topology=topo2")
    found, spec = imported(tmp_path, conf, yaml=YAML)
    assert spec.slurm is not None
    assert spec.slurm.topology is not None
    assert list(spec.slurm.topology.named or {}) == ["topo1", "topo3"]
    assert spec.partitions[0].topology is None
    (complaint,) = found.complaints
    assert complaint.message == "the topology topo2 is not imported: 4 nodes are in no block, for example n3"


def test_memory_of_a_cpu_is_that_of_a_thread_where_the_site_counts_cores(tmp_path: Path) -> None:
    """Regression: CPUs=36 became 72, and each kept the memory of a core: the memory was given twice."""
    found, spec = imported(
        tmp_path,
        "NodeName=n[1-4] CPUs=36 Sockets=2 CoresPerSocket=18 ThreadsPerCore=2 RealMemory=257400\n"
        "PartitionName=a Nodes=ALL Default=YES DefMemPerCPU=2000 MaxMemPerCPU=7150\n",
    )
    assert dict(spec.partitions[0].extra) == {"DefMemPerCPU": "1000", "MaxMemPerCPU": "3575"}
    counted = "the site counts a core as a CPU, gpucluster its 2 threads: the value is that of a thread"
    assert rows(found, "DefMemPerCPU") == [
        (Change.CHANGED, Effect.ENDED, f"{counted}, and a task may have one thread")
    ]
    assert rows(found, "MaxMemPerCPU") == [
        (Change.CHANGED, None, f"{counted}, a core has as much: nothing changes")
    ]


def test_partition_of_nodes_that_do_not_exist_yet_says_so(tmp_path: Path) -> None:
    found, _ = imported(
        tmp_path,
        f"{NODES}NodeName=f[1-2] CPUs=4 State=FUTURE\nPartitionName=b Nodes=f[1-2] AllowAccounts=x\n",
    )
    told = {row.why for row in found.differences if row.kind == "partition" and row.names == ("b",)}
    assert told == {"no node of the partition is imported"}
    assert not [row for row in found.differences if row.effect]


@pytest.mark.parametrize(
    ("lines", "partition", "exclusive", "memory"),
    [
        ("SelectType=select/linear\n", "", True, "0"),
        ("SelectType=select/cons_tres\n", "", False, "0"),
        ("SelectTypeParameters=CR_Core\n", "", False, None),
        ("DefMemPerCPU=500\n", "", False, None),
        ("", "DefMemPerNode=4000", False, None),
        ("", "OverSubscribe=EXCLUSIVE DefMemPerCPU=100", True, "100"),
    ],
)
def test_jobs_have_the_nodes_and_the_memory_that_they_had(
    lines: str, partition: str, exclusive: bool, memory: str | None, tmp_path: Path
) -> None:
    """select/linear gives whole nodes; where Slurm counts memory, a job without a default has all of it."""
    _, spec = imported(
        tmp_path,
        f"{lines}NodeName=n1 CPUs=4 RealMemory=8000\nPartitionName=a Nodes=n1 Default=YES {partition}\n",
    )
    (part,) = spec.partitions
    assert (part.exclusive, part.extra.get("DefMemPerCPU")) == (exclusive, memory)


@pytest.mark.parametrize(("line", "value"), [("", "NO"), ("EnforcePartLimits=ANY\n", "ANY")])
def test_limits_count_at_submission_as_on_the_site(line: str, value: str, tmp_path: Path) -> None:
    _, spec = imported(tmp_path, line + NODES)
    assert spec.slurm is not None
    assert spec.slurm.extra["EnforcePartLimits"] == value


def test_mps_beside_other_nodes_of_a_partition_costs_itself_alone(tmp_path: Path) -> None:
    """Regression: `mps-alone` refused the spec, and the import ended as a bug of gpucluster."""
    (tmp_path / "slurm.conf").write_text(
        "ClusterName=c\nGresTypes=gpu,mps\nNodeName=a[1-2] CPUs=4 Gres=gpu:t4:2,mps:200\nNodeName=b CPUs=4 Gres=gpu:t4:2,mps:200\n"
        "NodeName=m CPUs=4\nPartitionName=all Nodes=a[1-2],m\nPartitionName=mps Nodes=b\n"
    )
    found = import_files([tmp_path], version="26.05")
    sharing = {
        pool.name: pool.sharing and pool.sharing.mps
        for pool in inspect_text(found.text, "c.yaml", catalog.load()).result().pools
    }
    assert sharing == {"a": None, "m": None, "b": 100}
    (row,) = (row for row in found.differences if row.key == "Gres" and row.before and row.effect)
    assert (row.names, row.effect) == (("a1", "a2"), Effect.REFUSED)
    assert row.why.startswith(
        "not imported: the GPUs of 'a' are shared by MPS, so each node of this partition"
    )


GPU = "CPUs=4 RealMemory=8000 Gres=gpu:a100:2"


def weights(spec: ClusterSpec) -> dict[str, int]:
    """The Weight of each node in the rendered slurm.conf."""
    plan = resolve(spec, catalog.load())
    assert plan.slurm is not None
    (conf,) = (one.content.decode() for one in render(plan) if one.path.endswith("/slurm.conf"))
    lines = (
        dict(word.split("=", 1) for word in line.split())
        for line in conf.splitlines()
        if line[:9] == "NodeName="
    )
    return {node: int(line["Weight"]) for line in lines for node in expand_slurm(line["NodeName"])}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (f"{GPU} Weight=2", GPU, (2, 1)),
        (GPU, f"{GPU} Weight=2", (1, 2)),
        (f"{GPU} Weight=2", "CPUs=4 RealMemory=8000", (2, 1)),
        ("CPUs=4 RealMemory=8000", GPU, (1, 1)),
        ("CPUs=4 RealMemory=8000 Weight=2", GPU, (2, 1)),
        (f"{GPU} Weight=1", GPU, (1, 1)),
        (f"{GPU} Weight=0", GPU, (0, 3)),
        (GPU, f"{GPU} Feature=x", (3, 3)),
        ("CPUs=4 RealMemory=8000", f"{GPU} Weight=5", (1, 5)),
    ],
)
def test_nodes_keep_their_order_of_preference(
    first: str, second: str, expected: tuple[int, int], tmp_path: Path
) -> None:
    """A GPU pool without Weight had 3, so it came after one with Weight=2. Slurm's own Weight is 1."""
    _, spec = imported(
        tmp_path,
        f"GresTypes=gpu\nNodeName=a1 {first}\nNodeName=b1 {second}\nPartitionName=p Nodes=ALL Default=YES\n",
    )
    assert weights(spec) == dict(zip(("a1", "b1"), expected, strict=True))


def test_nodes_of_different_partitions_have_no_order_of_preference(tmp_path: Path) -> None:
    _, spec = imported(
        tmp_path,
        f"GresTypes=gpu\nNodeName=a1 CPUs=4 RealMemory=8000\nNodeName=b1 {GPU}\nPartitionName=p Nodes=a1 Default=YES\nPartitionName=q Nodes=b1\n",
    )
    assert [dict(pool.extra) for pool in spec.pools] == [{}, {}]


@pytest.mark.parametrize("unlimited", ["", "MaxCPUsPerNode=UNLIMITED"])
@pytest.mark.parametrize("limit", ["", "MaxCPUsPerNode=2"])
def test_job_without_gpus_is_taken_where_the_site_took_it(limit: str, unlimited: str, tmp_path: Path) -> None:
    """The plan refused it in a partition of GPU nodes, because another partition has nodes for it. Nothing reported it."""
    other = "a1" if not limit else "b1"
    _, spec = imported(
        tmp_path,
        f"GresTypes=gpu\nNodeName=a1 CPUs=4 RealMemory=8000\nNodeName=b1 {GPU}\n"
        f"PartitionName=p Nodes={other} Default=YES {limit}\nPartitionName=q Nodes=b1 {unlimited}\n",
    )
    plan = resolve(spec, catalog.load())
    assert plan.slurm is not None
    assert [(one.name, one.requires_gpus) for one in plan.partitions] == [("p", False), ("q", False)]
