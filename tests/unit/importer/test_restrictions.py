"""AllowAccounts, AllowQos, QOS and preemption of a site become fields of the spec, where the spec has the names."""

from pathlib import Path

import pytest

from gpucluster import catalog
from gpucluster.importer.differences import Change
from gpucluster.importer.files import Folder
from gpucluster.importer.lines import Reader
from gpucluster.importer.read_site import read_site
from gpucluster.importer.refused import valid_spec
from gpucluster.importer.run import Imported, import_files
from gpucluster.importer.to_spec import to_spec
from gpucluster.plan.model import Preemption, SlurmPlan
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text

DUMP = """\
Cluster - 'site':Fairshare=1:QOS='normal'
QOS - 'normal':Description='Normal QOS default':Priority=0
QOS - 'urgent':Description='urgent':Priority=1000:Preempt=normal
Parent - 'root'
Account - 'lab_a':Description='a':Organization='a':Fairshare=2:QOS='normal,urgent'
Account - 'lab_b':Description='b':Organization='b':Fairshare=1
Parent - 'lab_a'
User - 'ann':DefaultAccount='lab_a':Fairshare=1
Parent - 'lab_b'
User - 'bob':DefaultAccount='lab_b':Fairshare=1
"""
CONF = """\
ClusterName=site
SlurmctldHost=ctl
NodeName=n[1-2] CPUs=4 RealMemory=8000
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=60 {main}
PartitionName=fast Nodes=n1 MaxTime=60 PriorityTier=5 {fast}
{cluster}
"""


def _import(folder: Path, *, main: str = "", fast: str = "", cluster: str = "", dump: str = DUMP) -> Imported:
    (folder / "slurm.conf").write_text(CONF.format(main=main, fast=fast, cluster=cluster))
    files = [folder / "slurm.conf"]
    if dump:
        (folder / "assoc.dump").write_text(dump)
        files.append(folder / "assoc.dump")
    return import_files(files, version="26.05")


def _plan(found: Imported) -> SlurmPlan:
    plan = resolve(inspect_text(found.text, "x.yaml", catalog.load()).result(), catalog.load())
    assert plan.slurm is not None
    return plan


def _class_of(found: Imported, key: str) -> list[tuple[Change, str]]:
    return [(row.change, row.why) for row in found.differences if row.key.lower() == key.lower()]


def test_lists_of_a_partition_are_fields_and_stay_the_same(tmp_path: Path) -> None:
    """An account's name may have '_', as Slurm's names have."""
    found = _import(tmp_path, main="AllowAccounts=lab_a,LAB_B", fast="AllowQos=urgent,normal QOS=urgent")
    main, fast = _plan(found).partitions
    assert (main.accounts, main.allow_qos, main.qos) == (("lab_a", "lab_b"), (), None)
    assert (fast.accounts, fast.allow_qos, fast.qos) == ((), ("urgent", "normal"), "urgent")
    for key in ("AllowAccounts", "AllowQos", "QOS"):
        assert _class_of(found, key) == [(Change.SAME, "")], key
    assert not found.complaints


PARTITION = "PreemptType=preempt/partition_prio\nPreemptMode="
QOS = "PreemptType=preempt/qos\nPreemptMode="


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        (f"{PARTITION}REQUEUE", Preemption(by="partition", mode="requeue")),
        (f"{PARTITION}cancel\nPreemptExemptTime=00:10:00", Preemption(by="partition", mode="cancel", exempt_s=600)),
        (f"{QOS}REQUEUE\nPreemptExemptTime=2", Preemption(by="qos", mode="requeue", exempt_s=120)),
    ],
)  # fmt: skip
def test_preemption_is_a_field_and_stays_the_same(cluster: str, expected: Preemption, tmp_path: Path) -> None:
    found = _import(tmp_path, cluster=cluster)
    plan = _plan(found)
    assert plan.slurm.preemption == expected
    assert plan.slurm.accounting is not None
    preempts = [one.preempts for one in plan.slurm.accounting.qos if one.name == "urgent"]
    assert preempts == [("normal",) if expected.by == "qos" else ()]
    for line in cluster.splitlines():
        assert _class_of(found, line.partition("=")[0]) == [(Change.SAME, "")], line


@pytest.mark.parametrize(
    ("why", "cluster"),
    [
        ("`slurm.preemption.mode` is requeue or cancel", f"{PARTITION}SUSPEND,GANG"),
        ("`slurm.preemption` is by qos or partition", "PreemptType=preempt/other\nPreemptMode=REQUEUE"),
        (
            "'requeue: false' lets preempted jobs end without another run; write `mode: cancel`, or remove `slurm.requeue`",
            f"{PARTITION}REQUEUE\nJobRequeue=0",
        ),
    ],
)
def test_preemption_that_the_spec_lacks_is_in_the_list_of_differences(
    why: str, cluster: str, tmp_path: Path
) -> None:
    found = _import(tmp_path, cluster=cluster)
    assert _plan(found).slurm.preemption is None, why
    lost = (Change.LOST, f"not imported: {why}")
    assert _class_of(found, "PreemptType") == _class_of(found, "PreemptMode") == [lost]


def test_field_of_a_partition_that_a_rule_refuses_costs_itself_alone(tmp_path: Path) -> None:
    """Regression: for a field that no step takes out, the whole site was refused as a fault of gpucluster."""
    (tmp_path / "slurm.conf").write_text(CONF.format(main="", fast="", cluster=""))
    site = read_site(
        Reader(Folder(tmp_path, ())), [("slurm.conf", "slurm.conf", (tmp_path / "slurm.conf").read_text())]
    )
    made = to_spec(site, version="26.05")
    made.spec["partitions"] = [{**one, "max_cpus_per_node": 0, "tier": 0} for one in made.rows("partitions")]
    _, report = valid_spec(made, site, {})
    spec = report.result()
    assert [one.name for one in spec.partitions] == ["main", "fast"]
    assert sorted(one.message.partition(": ")[0] for one in site.complaints) == [
        "`max_cpus_per_node` of the partition fast is not imported",
        "`max_cpus_per_node` of the partition main is not imported",
        "`tier` of the partition fast is not imported",
        "`tier` of the partition main is not imported",
    ]


def test_accounts_that_a_rule_refuses_take_the_restrictions_with_them(tmp_path: Path) -> None:
    """Regression: what needs accounts stayed in the spec without them, and the import failed."""
    found = _import(
        tmp_path,
        main="AllowAccounts=lab_a",
        fast="QOS=urgent",
        cluster=f"{QOS}REQUEUE\nPriorityWeightAge=1000",
        dump=DUMP.replace("Priority=0", "Priority=0:Preempt=urgent"),  # the QOS preempt each other
    )
    plan = _plan(found)
    assert plan.slurm.accounting is None
    assert plan.slurm.preemption is None
    assert [(one.accounts, one.qos) for one in plan.partitions] == [((), None)] * 2
    ((change, why),) = _class_of(found, "PriorityWeightAge")
    assert (change, why.partition(" needs ")[2].partition(":")[0]) == (Change.LOST, "`slurm.accounting`")
    ((change, why),) = _class_of(found, "AllowAccounts")
    assert (change, why) == (
        Change.LOST,
        "not imported: the accounts of the dump are not; the partition is DOWN",
    )
    assert [one.message.partition(":")[0] for one in found.complaints] == ["the accounts are not imported"]


@pytest.mark.parametrize(
    "line", ["FastSchedule=2", "AccountingStoreJobComment=YES", "SallocDefaultCommand=srun"]
)
def test_key_that_ends_every_slurmctld_is_not_imported(line: str, tmp_path: Path) -> None:
    """Regression: the parser of all versions takes these keys, and then slurmctld ends."""
    found = _import(tmp_path, cluster=line)
    assert line.partition("=")[0] not in found.text
    assert _class_of(found, line.partition("=")[0]) == [(Change.LOST, "no Slurm of 22.05 to 26.05 knows it")]
