"""No site becomes less safe by being imported: what cannot be kept safely is not written, and the report says so."""

from pathlib import Path

import pytest

from gpucluster import catalog
from gpucluster.importer.differences import Change
from gpucluster.importer.lines import Effect
from gpucluster.importer.run import Imported, import_files
from gpucluster.spec import ClusterSpec, inspect_text

CONF = """\
ClusterName=site
SlurmctldHost=ctl
NodeName=n[1-4] CPUs=4 RealMemory=8000
PartitionName=batch Nodes=ALL Default=YES PriorityTier=2 {batch}
PartitionName=hp Nodes=ALL PriorityTier=3 {hp}
PartitionName=backfill Nodes=ALL
{cluster}
"""
DUMP = """\
Cluster - 'site':Fairshare=1:QOS='normal'
{qos}
Parent - 'root'
Account - 'lab_a':Fairshare=2:QOS='normal,urgent'
Parent - 'lab_a'
User - 'ann':DefaultAccount='lab_a':Fairshare=1
"""
BY_PARTITION = "PreemptType=preempt/partition_prio\nPreemptMode=CANCEL"
BY_QOS = "PreemptType=preempt/qos\nPreemptMode=CANCEL"


def imported(
    folder: Path, *, batch: str = "", hp: str = "", cluster: str = "", qos: str | None = None
) -> tuple[Imported, ClusterSpec]:
    (folder / "slurm.conf").write_text(CONF.format(batch=batch, hp=hp, cluster=cluster))
    files = [folder]
    if qos is not None:
        (folder / "assoc.dump").write_text(DUMP.format(qos=qos))
        files.append(folder / "assoc.dump")
    found = import_files(files, version="26.05")
    return found, inspect_text(found.text, "x.yaml", catalog.load()).result()


def why(found: Imported, key: str) -> tuple[Change, str]:
    (row,) = (
        row for row in found.differences if row.key.lower() == key.lower() and row.change is not Change.SAME
    )
    return row.change, row.why


@pytest.mark.parametrize(
    ("partition", "cluster", "key", "reason"),
    [
        ("PreemptMode=OFF", "", "PreemptMode", "a spec has one mode of preemption for all partitions"),
        ("PreemptMode=REQUEUE", "", "PreemptMode", "a spec has one mode of preemption for all partitions"),
        ("GraceTime=1h", "", "GraceTime", "GraceTime is a whole number"),
        ("", "PreemptExemptTime=31-0", "PreemptExemptTime", "`slurm.preemption.exempt` is at most 30 days"),
        ("", "PreemptExemptTime=soon", "PreemptExemptTime", "it is no time of Slurm's"),
        ("", "PreemptParameters=no_such_word", "PreemptParameters", "no_such_word"),
    ],
)  # fmt: skip
def test_preemption_without_an_exemption_of_the_site_is_not_written(
    partition: str, cluster: str, key: str, reason: str, tmp_path: Path
) -> None:
    """Regression: jobs of a partition with PreemptMode=OFF became jobs that others may end."""
    found, spec = imported(tmp_path, batch=partition, cluster=f"{BY_PARTITION}\n{cluster}")
    assert spec.slurm is not None
    assert spec.slurm.preemption is None
    rows = [row for row in found.differences if row.key == key and row.change is not Change.SAME]
    assert any(reason in row.why for row in rows), rows
    assert why(found, "PreemptType") == (
        Change.LOST,
        f"not imported: an exemption from it is lost ({key}), so jobs that are safe on the site could be ended",
    )


def test_tier_that_is_lost_takes_the_preemption_with_it(tmp_path: Path) -> None:
    """The partition of the highest tier would be the one whose jobs are ended first."""
    found, spec = imported(tmp_path, cluster=BY_PARTITION, hp="PriorityTier=high")
    assert spec.slurm is not None
    assert spec.slurm.preemption is None
    assert "(PriorityTier)" in why(found, "PreemptType")[1]


ORDER = "Slurm compares tiers, and their order is the same: nothing changes"


@pytest.mark.parametrize(
    ("batch", "hp", "tiers"),
    [
        ("PriorityTier=65532", "PriorityTier=65533", (2, 3, 1)),
        ("PriorityTier=20000", "PriorityTier=20000", (2, 2, 1)),
        ("PriorityTier=0", "PriorityTier=65533", (1, 3, 2)),
        ("PriorityTier=0", "", (1, 3, 2)),
        ("", "PriorityTier=10000", (2, 10000, 1)),  # the highest of a spec
    ],
)
def test_tiers_keep_their_order(batch: str, hp: str, tiers: tuple[int, ...], tmp_path: Path) -> None:
    """Regression: tiers above 10000, and 0, became 1. Slurm only asks which of two partitions has the higher one."""
    found, spec = imported(tmp_path, cluster=BY_PARTITION, batch=batch, hp=hp)
    assert tuple(part.tier or 1 for part in spec.partitions) == tiers
    assert spec.slurm is not None
    assert spec.slurm.preemption is not None
    rows = [row for row in found.differences if row.key == "PriorityTier" and row.change is not Change.SAME]
    assert {row.why for row in rows} == ({ORDER} if max(tiers) < 10 else set())
    assert {row.effect for row in rows} <= {None}


@pytest.mark.parametrize(
    ("hp", "qos", "effect", "said"),
    [
        ("DenyAccounts=lab_a,chem_", "Parent - 'root'\nAccount - 'chem_'", Effect.WIDER, "not imported: the account chem_ of the dump is not"),
        ("DenyQos=urgent,long", "QOS - 'long':Priority", Effect.WIDER, "not imported: the QOS long of the dump is not"),
        ("DenyAccounts=lab_a,gone", "", None, "the spec has no account gone, so no job has it: nothing changes"),
        ("DenyAccounts=Lab_A", "", None, ""),
    ],
)  # fmt: skip
def test_denied_name_that_is_lost_from_a_list_is_wider_access(
    hp: str, qos: str, effect: Effect | None, said: str, tmp_path: Path
) -> None:
    """Regression: the list was `changed`, under no heading; the account gets in once it is written."""
    found, spec = imported(tmp_path, hp=hp, qos=qos)
    key = hp.partition("=")[0]
    (row,) = (row for row in found.differences if row.key == key)
    assert (row.effect, row.why) == (effect, said)
    assert key in next(part.extra for part in spec.partitions if part.name == "hp")


def test_mode_of_a_partition_that_is_the_clusters_changes_nothing(tmp_path: Path) -> None:
    found, spec = imported(tmp_path, batch="PreemptMode=CANCEL", cluster=BY_PARTITION)
    assert spec.slurm is not None
    assert spec.slurm.preemption is not None
    assert why(found, "PreemptMode") == (Change.LOST, "it is the mode of the cluster: nothing changes")


@pytest.mark.parametrize("limit", ["PreemptMode=OFF", "PreemptExemptTime=00:10:00", "GraceTime=300"])
def test_qos_with_an_exemption_takes_the_preemption_with_it(limit: str, tmp_path: Path) -> None:
    qos = f"QOS - 'normal':{limit}\nQOS - 'urgent':Priority=10:Preempt='normal'"
    found, spec = imported(tmp_path, cluster=BY_QOS, qos=qos)
    assert spec.slurm is not None
    assert spec.slurm.preemption is None
    assert any(limit.partition("=")[0] in one.message for one in found.complaints)


@pytest.mark.parametrize(
    ("rule", "qos"),
    [
        ("AllowAccounts=lab_a", None),
        ("AllowAccounts=gone", ""),
        ("DenyAccounts=lab_a", None),
        ("AllowQos=urgent", None),
        ("DenyQos=urgent", None),
        ("AllowGroups=a/b", None),
    ],
)
def test_partition_whose_access_cannot_be_kept_is_down(rule: str, qos: str | None, tmp_path: Path) -> None:
    """Regression: everybody could submit to it, and the import ended with 0."""
    found, spec = imported(tmp_path, hp=rule, qos=qos)
    states = {part.name: part.extra.get("State") for part in spec.partitions}
    assert states == {"batch": None, "hp": "DOWN", "backfill": None}
    key = rule.partition("=")[0]
    assert any(f"the partition hp is DOWN: its {key} is not imported" in one for one in found.made.made_up)
    assert f"the partition hp is DOWN: its {key}" in found.text
    assert why(found, key)[0] is Change.LOST


@pytest.mark.parametrize(
    "rule",
    ["AllowAccounts=ALL", "AllowQos=ALL", "AllowGroups=chem", "RootOnly=NO", "RootOnly=YES", "ReqResv=YES", "AllocNodes=login1", "State=UP"],
)  # fmt: skip
def test_partition_whose_access_is_kept_is_up(rule: str, tmp_path: Path) -> None:
    _, spec = imported(tmp_path, hp=rule)
    assert [part.extra.get("State", "UP") for part in spec.partitions] == ["UP", "UP", "UP"]


def test_state_of_a_partition_is_kept(tmp_path: Path) -> None:
    _, spec = imported(tmp_path, hp="State=DRAIN")
    assert [part.extra.get("State") for part in spec.partitions] == [None, "DRAIN", None]


def test_names_that_no_job_can_have_are_left_out_of_a_list(tmp_path: Path) -> None:
    """With accounts in the spec, a name that it lacks is that of nobody."""
    found, spec = imported(
        tmp_path, qos="", hp="AllowAccounts=lab_a,gone", batch="DenyQos=gone DenyAccounts=gone"
    )
    hp = next(part for part in spec.partitions if part.name == "hp")
    assert (hp.accounts, dict(hp.extra)) == (("lab_a",), {"DefMemPerCPU": "0"})
    assert why(found, "AllowAccounts") == (Change.CHANGED, "not imported: the spec has no account gone")
    assert why(found, "DenyQos") == (
        Change.LOST,
        "the spec has no QOS gone, so no job has it: nothing changes",
    )
    assert why(found, "DenyAccounts") == (
        Change.LOST,
        "the spec has no account gone, so no job has it: nothing changes",
    )


def test_reason_for_a_list_without_accounts_names_the_file_to_add(tmp_path: Path) -> None:
    found, _ = imported(tmp_path, hp="AllowAccounts=lab_a AllowQos=urgent QOS=urgent")
    for key in ("AllowAccounts", "AllowQos", "QOS"):
        assert "; add the assoc.dump of `sacctmgr dump`" in why(found, key)[1], key


@pytest.mark.parametrize(
    ("rule", "line", "what"),
    [
        ("DenyAccounts=chem", "Parent - 'root'\nAccount - 'chem':Fairshare", "account chem"),
        ("DenyAccounts=Chem_", "Parent - 'root'\nAccount - 'chem_'", "account chem_"),
        ("DenyAccounts=chem", "Parent - 'gone'\nAccount - 'chem'", "account chem"),
        ("DenyAccounts=chem", "Parent - 'root'\nAccount - 'CHEM' x", "account chem"),
        ("DenyQos=long", "QOS - 'long':Priority", "QOS long"),
        ("DenyQos=y_", "QOS - 'Y_':Priority=2", "QOS y_"),
    ],
)  # fmt: skip
def test_rule_against_a_name_that_was_not_imported_is_lost(
    rule: str, line: str, what: str, tmp_path: Path
) -> None:
    """Regression: with the account of an unread line, *nothing changes* was said; its users come back without the rule."""
    found, spec = imported(tmp_path, hp=rule, qos=line)
    hp = next(part for part in spec.partitions if part.name == "hp")
    assert hp.extra.get("State") == "DOWN"
    change, reason = why(found, rule.partition("=")[0])
    assert (change, reason) == (
        Change.LOST,
        f"not imported: the {what} of the dump is not; the partition is DOWN",
    )


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        (BY_QOS, False),
        (BY_QOS.replace("CANCEL", "SUSPEND,GANG"), True),
        (f"{BY_QOS}\nPreemptParameters=no_such_word", True),
        (BY_PARTITION, True),
        ("", True),
    ],
)
def test_preempt_of_a_qos_without_preemption_by_qos_is_told(cluster: str, told: bool, tmp_path: Path) -> None:
    """Regression: the line was lost without a word."""
    found, spec = imported(
        tmp_path, cluster=cluster, qos="QOS - 'normal':Priority=1\nQOS - 'urgent':Preempt='normal'"
    )
    assert [one.preempts for one in spec.qos if one.name == "urgent"] == [() if told else ("normal",)]
    said = "# Preempt of the QOS urgent is left out: the spec has no preemption by QOS.\n"
    assert found.text.count(said) == told
