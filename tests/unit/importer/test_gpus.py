"""The GPUs of a site: types that begin with a digit, flags, MIG slices, shards; and the reasons in the report."""

from pathlib import Path

import pytest

from gpucluster import catalog
from gpucluster.errors import GpuclusterError
from gpucluster.importer.differences import Change
from gpucluster.importer.gpus import Gpus, gpus_of
from gpucluster.importer.lines import FileLine
from gpucluster.importer.run import Imported, import_files
from gpucluster.importer.site import Setting
from gpucluster.plan.resolve import resolve
from gpucluster.slurm.config.render import render
from gpucluster.spec import inspect_text


def imported(tmp_path: Path, *lines: str) -> Imported:
    (tmp_path / "slurm.conf").write_text("\n".join(("ClusterName=c", "SlurmctldHost=h0", *lines)) + "\n")
    return import_files([tmp_path], version="26.05")


def rendered(found: Imported) -> list[str]:
    plan = resolve(inspect_text(found.text, "x.yaml", catalog.load()).result(), catalog.load())
    assert plan.slurm is not None
    return next(a.content for a in render(plan) if a.path == "slurm/slurm.conf").decode().splitlines()


def why(found: Imported, key: str, change: Change) -> str:
    (row,) = [row for row in found.differences if (row.key, row.change) == (key, change)]
    return row.why


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("gpu:2080ti:8", Gpus("2080ti", 8)),
        ("gpu:3090:4", Gpus("3090", 4)),
        ("gpu:1g.10gb:7", Gpus("1g.10gb", 7)),
        ("gpu:A100:no_consume:4", Gpus("A100", 4)),
        ("gpu:no_consume:4", Gpus("", 4)),
        ("gpu:tesla_v100-pcie-16gb:2(S:0-1)", Gpus("tesla_v100-pcie-16gb", 2)),
        ("gpu", Gpus("", 1)),
        ("gpu:8", Gpus("", 8)),
        ("gpu:a100", Gpus("a100", 1)),
        ("gpu:0", Gpus()),
        ("craynetwork:4", Gpus()),
        ("gpu:a100:4,shard:16", Gpus("a100", 4, ("shards", 4))),
        ("mps:200,gpu:v100:2", Gpus("v100", 2, ("mps", 100))),
        ("gpu:a100:4,shard:6", Gpus("a100", 4)),
        ("gpu:a100:2,mps:400", Gpus("a100", 2)),
        ("gpu:a100:4(S:0,1),ssd_scratch:900", Gpus("a100", 4)),
    ],
)
def test_gpus_of_a_node(gres: str, expected: Gpus) -> None:
    """A type that begins with a digit was read as none, so the node lost its GPUs without an error."""
    assert gpus_of({"gres": Setting(gres, FileLine("slurm.conf", 1), "Gres")}) == expected


def test_nodes_keep_their_gpus_and_shards(tmp_path: Path) -> None:
    found = imported(
        tmp_path,
        "NodeName=a[1-2] CPUs=8 Gres=gpu:2080ti:4",
        "NodeName=b CPUs=8 Gres=gpu:a100:2,shard:8",
        "NodeName=c CPUs=8 Gres=gpu:1g.10gb:7",
        "PartitionName=p Nodes=a[1-2],b,c Default=YES",
    )
    nodes = [line.split() for line in rendered(found) if line.startswith("NodeName=")]
    gres = {words[0]: [word for word in words if word.startswith("Gres=")] for words in nodes}
    assert gres["NodeName=a[1-2]"] == ["Gres=gpu:2080ti:4"]
    assert gres["NodeName=b"] == ["Gres=gpu:a100:2,shard:8"]
    assert gres["NodeName=c"] == ["Gres=gpu:1g.10gb:7"]
    assert any("MIG slice of c counts as a GPU" in one for one in found.made.made_up)


def test_the_last_default_partition_is_the_default(tmp_path: Path) -> None:
    found = imported(
        tmp_path,
        "NodeName=a CPUs=8",
        "PartitionName=p Nodes=a Default=YES",
        "PartitionName=q Nodes=a Default=YES",
    )
    spec = inspect_text(found.text, "x.yaml", catalog.load()).result()
    assert [(part.name, part.default) for part in spec.partitions] == [("p", False), ("q", True)]
    assert "the last partition with Default=YES" in why(found, "Default", Change.CHANGED)


def test_a_site_wide_default_counts(tmp_path: Path) -> None:
    """It went into slurm.conf, and each partition line overruled it."""
    found = imported(
        tmp_path,
        "DefMemPerCPU=1000",
        "NodeName=a CPUs=8 RealMemory=16000",
        "PartitionName=p Nodes=a Default=YES MaxCPUsPerNode=4",
    )
    lines = rendered(found)
    assert "DefMemPerCPU=1000" in lines
    (part,) = [line for line in lines if line.startswith("PartitionName=")]
    assert "DefMemPerCPU" not in part
    assert "MaxCPUsPerNode=4" in part


@pytest.mark.parametrize(
    ("partition", "key", "change", "reason"),
    [
        ("MaxTime=30 DefaultTime=60", "DefaultTime", Change.CHANGED, "Slurm ignores a default above MaxTime, and takes MaxTime: nothing changes"),
        ("MaxTime=30 DefaultTime=0", "DefaultTime", Change.CHANGED, "a time of a spec is at least 1 min"),
        ("DefaultTime=abc", "DefaultTime", Change.CHANGED, "it is no time of Slurm's"),
        ("MaxTime=1:2:3:4", "MaxTime", Change.CHANGED, "it is no time of Slurm's"),
        ("MaxTime=500-0", "MaxTime", Change.CHANGED, "a time of a spec is at most 365 days"),
        ("PriorityTier=65533", "PriorityTier", Change.LOST, "Slurm compares tiers, and their order is the same: nothing changes"),
        ("PriorityTier=high", "PriorityTier", Change.LOST, "not imported: it is no number"),
        ("Priority=10", "PriorityTier", Change.MOVED, "Priority is PriorityTier now"),
        ("PreemptMode=requeue", "PreemptMode", Change.LOST, "not imported: the field `slurm.preemption`"),
        ("GraceTime=1h", "GraceTime", Change.LOST, "not imported: GraceTime is a whole number of 0 to 4294967295"),
        ("TRESBillingWeights=GRES/gpu=2.0", "TRESBillingWeights", Change.LOST, "needs `slurm.accounting` for gres/gpu"),
        ("OverSubscribe=FORCE:4", "OverSubscribe", Change.LOST, "not imported: the field `exclusive`"),
        ("TRESBillingWeights=CPU=1.0,license/matlab=5.0", "TRESBillingWeights", Change.CHANGED, "a weight of a licence is not kept"),
    ],
)  # fmt: skip
def test_reason_for_a_partition(
    tmp_path: Path, partition: str, key: str, change: Change, reason: str
) -> None:
    found = imported(tmp_path, "NodeName=a CPUs=8", f"PartitionName=p Nodes=a {partition}")
    assert reason in why(found, key, change)


@pytest.mark.parametrize(
    ("line", "key", "change", "reason"),
    [
        ("FirstJobId=99999999999", "FirstJobId", Change.LOST, "not imported: FirstJobId is a whole number of 1 to 67043328"),
        ("SlurmctldDebug=loud", "SlurmctldDebug", Change.LOST, "not imported: SlurmctldDebug is one of quiet"),
        ("SchedulerParameters=bf_interval=abc", "SchedulerParameters", Change.CHANGED, "bf_interval of SchedulerParameters is a number"),
        ("PriorityWeightTRES=cpu=1000,license/matlab=50", "PriorityWeightTRES", Change.CHANGED, "a weight of a licence is not kept"),
        ("SelectTypeParameters=CR_Core_Memory,CR_ONE_TASK_PER_CORE", "SelectTypeParameters", Change.CHANGED, "without --ntasks-per-core=1 a task gets a thread of a core, and had a core"),
        ("SelectTypeParameters=CR_Core,CR_ONE_TASK_PER_CORE", "SelectTypeParameters", Change.CHANGED, "is ended above it; without --ntasks-per-core=1 a task"),
        ("ReturnToService=3", "ReturnToService", Change.CHANGED, "the daemon's table of node states"),
        ("SrunProlog=/site/prolog", "SrunProlog", Change.LOST, "a path or a plugin of the site's machines"),
        ("MpiDefault=pmix", "MpiDefault", Change.LOST, "a path or a plugin of the site's machines"),
        ("DebugFlags=Power", "DebugFlags", Change.LOST, "gpucluster writes Power itself where it is needed"),
        ("MaxNodeCount=64", "MaxNodeCount", Change.LOST, "not imported: the nodes are those of the field `pools`"),
    ],
)  # fmt: skip
def test_reason_for_a_key_of_the_file(
    tmp_path: Path, line: str, key: str, change: Change, reason: str
) -> None:
    found = imported(tmp_path, line, "NodeName=a CPUs=8", "PartitionName=p Nodes=a Default=YES")
    assert reason in why(found, key, change)


def test_a_refused_key_of_one_partition_leaves_that_of_another(tmp_path: Path) -> None:
    found = imported(
        tmp_path,
        "NodeName=a CPUs=8",
        "PartitionName=p Nodes=a GraceTime=1h Default=YES",
        "PartitionName=q Nodes=a GraceTime=60",
    )
    spec = inspect_text(found.text, "x.yaml", catalog.load()).result()
    assert [dict(part.extra) for part in spec.partitions] == [
        {"DefMemPerCPU": "0"},
        {"DefMemPerCPU": "0", "GraceTime": "60"},
    ]


def test_another_name_of_the_head_is_not_kept(tmp_path: Path) -> None:
    found = imported(
        tmp_path, "ControlMachine=h1", "NodeName=a CPUs=8", "PartitionName=p Nodes=a Default=YES"
    )
    assert not [line for line in rendered(found) if line.startswith("ControlMachine")]


def test_nodes_keep_their_features(tmp_path: Path) -> None:
    """`sbatch -C ib` of the site works on: nodes with other features are another pool."""
    found = imported(
        tmp_path,
        'NodeName=a[1-2] CPUs=8 Feature="ib, amd"',
        "NodeName=a3 CPUs=8 Feature=amd",
        "PartitionName=p Nodes=a[1-3] Default=YES",
    )
    features = {
        words[0]: next(word for word in words if word.startswith("Feature="))
        .removeprefix("Feature=")
        .split(",")
        for line in rendered(found)
        if line.startswith("NodeName=") and (words := line.split())
    }
    assert {"ib", "amd"} <= set(features["NodeName=a[1-2]"])
    assert "amd" in features["NodeName=a3"]
    assert "ib" not in features["NodeName=a3"]
    assert {
        row.why for row in found.differences if row.key == "Feature" and row.change is Change.CHANGED
    } == {"gpucluster adds the names of the pool, the machine and the GPU model"}


def test_a_site_with_too_many_pools_is_refused_with_the_reason(tmp_path: Path) -> None:
    """It ended after 17 seconds as a fault of gpucluster."""
    nodes = [f"NodeName=n{i} CPUs=2 RealMemory={2000 + i}" for i in range(3000)]
    with pytest.raises(GpuclusterError, match="divide the 3000 nodes into 3000 sets of the same hardware"):
        imported(tmp_path, *nodes, "PartitionName=p Nodes=ALL Default=YES")


@pytest.mark.parametrize(
    ("gres", "reasons"),
    [
        ("gpu:4", ["the GPUs of a spec have a type, here `gpu`"]),
        ("gpu:a100:2,gpu:v100:2", ["a machine of a spec has GPUs of one type"]),
        ("gpu:a100:no_consume:4", ["a spec has no no_consume"]),
        ("gpu:a100:4,craynetwork:4", ["a spec has no GRES craynetwork"]),
        ("gpu:a100:4,shard:6", ["a spec gives each GPU as many parts"]),
        ("gpu:a100:4,ssd_scratch:900", ["a spec has no GRES ssd_scratch"]),
        (
            "gpu:tesla:2,bandwidth:lustre:no_consume:4G",
            ["a spec has no no_consume", "a spec has no GRES bandwidth"],
        ),
        ("gpu:a100:2,a:b:c:1", ["a spec has no GRES a:b:c:1"]),
        ("gpu:4,nic:2", ["the GPUs of a spec have a type, here `gpu`", "a spec has no GRES nic"]),
        ("gpu:a100:16", ["a machine of a spec has no more GPUs than its 8 CPUs, and at most 64"]),
    ],
)
def test_reason_for_gres_is_its_cause(gres: str, reasons: list[str], tmp_path: Path) -> None:
    """One sentence stood there for all of them."""
    found = imported(tmp_path, f"NodeName=a CPUs=8 Gres={gres}", "PartitionName=p Nodes=a Default=YES")
    assert why(found, "Gres", Change.CHANGED) == "; ".join(reasons)


@pytest.mark.parametrize(
    ("model", "slices"),
    [
        ("1g.5gb", True),
        ("a100_1g.5gb", True),
        ("nvidia_a100_80gb_pcie_3g.40gb", True),
        ("a100_1g.5gb+me", True),
        ("1c.3g.20gb", True),
        ("tesla_v100-pcie-16gb", False),
        ("a100-sxm4-80gb", False),
    ],
)
def test_type_with_a_profile_is_a_slice(model: str, slices: bool) -> None:
    """Regression: the name that NVML finds begins with that of the GPU, and its slices counted as GPUs without a word."""
    assert Gpus(model, 7).slices is slices


@pytest.mark.parametrize(
    ("gres", "reason"),
    [
        ("ssd_scratch:900", "not imported: a spec has no GRES ssd_scratch"),
        ("gpu:a100:0,nic:2", "not imported: a spec has no GRES nic"),
    ],
)
def test_reason_for_gres_of_a_node_without_gpus(gres: str, reason: str, tmp_path: Path) -> None:
    """It named two fields that take no such GRES."""
    found = imported(tmp_path, f"NodeName=a CPUs=8 Gres={gres}", "PartitionName=p Nodes=a Default=YES")
    assert why(found, "Gres", Change.LOST).startswith(reason)
