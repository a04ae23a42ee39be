"""The report begins with what hurts: wider access, jobs that can be ended, jobs that will be refused."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from gpucluster.cli.import_ import report
from gpucluster.cli.main import app_of
from gpucluster.importer.differences import Change
from gpucluster.importer.effects import effect_of
from gpucluster.importer.lines import Effect, FileLine
from gpucluster.importer.run import import_files
from gpucluster.importer.site import Setting
from gpucluster.spec import ClusterSpec
from gpucluster.spec.decode import fields_of
from gpucluster.spec.reference import _innermost

CONF = """\
ClusterName=site
SlurmctldHost=ctl
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
{cluster}
NodeName=n[1-2] CPUs=4 RealMemory=8000 {node}
PartitionName=p Nodes=ALL Default=YES MaxTime=60 {partition}
"""
CONFINED = "ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\nConstrainDevices=yes\n"
DUMP = """\
Cluster - 'site':Fairshare=1:QOS='normal'{cluster}
QOS - 'normal':Description='x'{qos}
Parent - 'root'
Account - 'lab':Fairshare=2:QOS='normal{account}
Parent - 'lab'
User - 'ann':DefaultAccount='lab':Fairshare=1{user}
{line}
"""


def site(
    folder: Path,
    *,
    cluster: str = "",
    node: str = "",
    partition: str = "",
    cgroup: str = CONFINED,
) -> list[Path]:
    others = (
        line
        for line in ("TaskPlugin=task/cgroup", "StateSaveLocation=/var/spool/slurmctld")
        if line.partition("=")[0] not in cluster
    )
    (folder / "slurm.conf").write_text(
        CONF.format(cluster="\n".join((cluster, *others)), node=node, partition=partition)
    )
    (folder / "cgroup.conf").write_text(cgroup)
    return [folder]


def effects(files: list[Path]) -> list[tuple[Effect, str]]:
    """The heading of each row that has one, with its key or its message."""
    found = import_files(files, version="26.05")
    rows = [(row.effect, row.key) for row in found.differences]
    return [
        (effect, text)
        for effect, text in (*rows, *((c.effect, c.message) for c in found.complaints))
        if effect
    ]


@pytest.mark.parametrize(
    ("part", "line", "effect", "key"),
    [
        ("partition", "AllowAccounts=a", Effect.REFUSED, "State"),
        ("partition", "QOS=q", Effect.WIDER, "QOS"),
        ("partition", "MaxNodes=x", Effect.WIDER, "MaxNodes"),
        ("partition", "MaxMemPerNode=9000x", Effect.WIDER, "MaxMemPerNode"),
        ("partition", "MaxTime=UNLIMITED DefaultTime=380-0", Effect.ENDED, "DefaultTime"),
        ("partition", "OverTimeLimit=-1", Effect.ENDED, "OverTimeLimit"),
        ("partition", "DefMemPerCPU=4000", Effect.ENDED, "DefMemPerCPU"),
        ("cluster", "AccountingStorageEnforce=associations", Effect.WIDER, "AccountingStorageEnforce"),
        ("cluster", "JobSubmitPlugins=lua", Effect.WIDER, "JobSubmitPlugins"),
        ("cluster", "PrivateData=jobs,no_such", Effect.WIDER, "PrivateData"),
        ("cluster", "SelectTypeParameters=CR_Core", Effect.ENDED, "SelectTypeParameters"),
        ("cluster", "AccountingStorageEnforce=qos,wckeys", Effect.WIDER, "AccountingStorageEnforce"),
        ("cluster", "MCSPlugin=mcs/group", Effect.WIDER, "MCSPlugin"),
        ("cluster", "StateSaveLocation=/var/spool/slurm", Effect.ENDED, "StateSaveLocation"),
        ("cluster", "SlurmdSpoolDir=/var/spool/slurm/d", Effect.ENDED, "SlurmdSpoolDir"),
        ("cluster", "TaskPlugin=task/affinity", Effect.ENDED, "TaskPlugin"),
        ("cluster", "TaskPlugin=task/none", Effect.ENDED, "TaskPlugin"),
        ("cluster", "DownNodes=n2 State=DOWN Reason=fire", Effect.WIDER, "State"),
        ("cgroup", "ConstrainSwapSpace=yes", Effect.ENDED, "ConstrainRAMSpace"),
        ("cgroup", "ConstrainRAMSpace=no\nConstrainSwapSpace=yes", Effect.ENDED, "ConstrainRAMSpace"),
        ("cgroup", CONFINED + "AllowedRAMSpace=150.5", Effect.ENDED, "AllowedRAMSpace"),
        ("cgroup", "ConstrainRAMSpace=yes", Effect.ENDED, "ConstrainSwapSpace"),
        ("cgroup", "ConstrainRAMSpace=yes\nConstrainSwapSpace=no", Effect.ENDED, "ConstrainSwapSpace"),
        ("cgroup", CONFINED + "AllowedSwapSpace=50", Effect.ENDED, "AllowedSwapSpace"),
        ("cgroup", CONFINED + "MinRAMSpace=500", Effect.ENDED, "MinRAMSpace"),
        ("cgroup", CONFINED + "MaxRAMPercent=80", Effect.WIDER, "MaxRAMPercent"),
        ("node", "State=DRAIN", Effect.WIDER, "State"),
        ("cluster", "PrologFlags=X11", Effect.REFUSED, "PrologFlags"),
        ("cluster", "Licenses=a:0", Effect.REFUSED, "Licenses"),
        ("node", "Gres=gpu:a100:2,craynetwork:4", Effect.REFUSED, "Gres"),
        ("node", "Gres=gpu:a100:1,gpu:v100:1", Effect.REFUSED, "Gres"),
        ("node", "Gres=gpu:a100:2,ssd_scratch:900", Effect.REFUSED, "Gres"),
        ("node", "Gres=ssd_scratch:900", Effect.REFUSED, "Gres"),
        ("node", "Gres=gpu:a100:2,bandwidth:lustre:no_consume:4G", Effect.REFUSED, "Gres"),
        ("node", "Gres=gpu:a100:2,a:b:c:1", Effect.REFUSED, "Gres"),
        ("cluster", "AccountingStorageEnforce=1", Effect.WIDER, "AccountingStorageEnforce"),
        ("cluster", "AccountingStorageEnforce=2", Effect.WIDER, "AccountingStorageEnforce"),
        ("cluster", "AccountingStorageEnforce=limits|qos", Effect.WIDER, "AccountingStorageEnforce"),
    ],
)  # fmt: skip
def test_row_is_under_its_heading(part: str, line: str, effect: Effect, key: str, tmp_path: Path) -> None:
    assert effects(site(tmp_path, **{part: line})) == [(effect, key)]


def test_limits_of_a_partition_that_nobody_can_use_widen_nothing(tmp_path: Path) -> None:
    """Regression: its QOS stood under wider access, although the partition is DOWN until somebody writes its rules."""
    found = import_files(site(tmp_path, partition="AllowAccounts=a QOS=q"), version="26.05")
    assert [(row.effect, row.key) for row in found.differences if row.effect] == [(Effect.REFUSED, "State")]
    assert any(
        "its AllowAccounts and QOS are not imported, and without them" in one for one in found.made.sentences
    )


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("cluster", ""),
        ("cluster", "AccountingStorageEnforce=none"),
        ("cluster", "Licenses=matlab:4"),
        ("cluster", "PrivateData=cloud"),
        ("cluster", "PrivateData=jobs,usage"),
        ("cluster", "SwitchType=switch/none"),
        ("cluster", "MCSPlugin=mcs/none"),
        ("cluster", "TaskPlugin=affinity,cgroup"),
        ("cluster", "StateSaveLocation=/var/spool/slurmctld/"),
        ("cluster", "SlurmdSpoolDir=/var/spool/slurmd/"),
        ("cgroup", "ConstrainRAMSpace=1\nConstrainSwapSpace=up\nConstrainDevices=TRUE"),
        ("cgroup", CONFINED + "AllowedRAMSpace=100\nAllowedSwapSpace=0\nMaxRAMPercent=100\nMinRAMSpace=30"),
        ("node", "State=UNKNOWN"),
        ("node", "State=IDLE"),
        ("node", "Gres=gpu:2"),
        ("node", "Gres=gpu:a100:2"),
        ("partition", "AllowAccounts=ALL"),
        ("partition", "DefMemPerCPU=1000"),
        ("partition", "MaxNodes=UNLIMITED"),
    ],
)
def test_site_that_is_kept_has_no_row_under_a_heading(part: str, line: str, tmp_path: Path) -> None:
    assert effects(site(tmp_path, **{part: line})) == []


@pytest.mark.parametrize("key", ["constrainramspace", "constrainswapspace"])
def test_memory_that_is_no_longer_constrained_is_a_limit_less(key: str) -> None:
    """The rendered cgroup.conf has both, so no import shows it."""
    old, new = (Setting(value, FileLine("cgroup.conf", 1), key) for value in ("yes", "no"))
    at = ("cgroup.conf", "", key)
    assert [effect_of(at, old, after, "") for after in (new, None, old)] == [Effect.WIDER, Effect.WIDER, None]


GPUS = "Gres=gpu:a100:2"


@pytest.mark.parametrize(
    ("node", "devices", "found"),
    [
        (GPUS, "", [(Effect.REFUSED, "ConstrainDevices")]),
        (GPUS, "ConstrainDevices=no", [(Effect.REFUSED, "ConstrainDevices")]),
        (GPUS, "ConstrainDevices=YES", []),
        ("", "", []),
        ("", "ConstrainDevices=no", []),
    ],
)
def test_devices_that_become_constrained_are_under_a_heading(
    node: str, devices: str, found: list[tuple[Effect, str]], tmp_path: Path
) -> None:
    """cgroup.conf(5): a job then sees the devices of its GRES only. Without GPUs nothing changes."""
    cgroup = f"ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\n{devices}\n"
    files = site(tmp_path, node=node, cgroup=cgroup)
    assert effects(files) == found
    rows = import_files(files, version="26.05").differences
    (why,) = (row.why for row in rows if row.key == "ConstrainDevices")
    ends = {True: "a job sees no GPU that it did not ask for", False: "no node has a GPU: nothing changes"}
    assert why == ("" if "YES" in devices else ends[bool(node)])


def test_plugin_that_constrains_devices_says_it(tmp_path: Path) -> None:
    conf = "# TaskPlugin\nStateSaveLocation=/var/spool/slurmctld"
    rows = import_files(site(tmp_path, cluster=conf, node=GPUS), version="26.05").differences
    (row,) = (row for row in rows if row.key == "TaskPlugin")
    assert row.effect is Effect.ENDED
    assert (
        row.why
        == "without task/cgroup no cgroup ends a job above its memory, and a job sees every GPU of its nodes"
    )


@pytest.mark.parametrize("plugins", ["lua", "lua,require_timelimit", "require_timelimit"])
@pytest.mark.parametrize("node", ["", GPUS])
def test_job_submit_script_of_the_site_is_never_that_of_the_spec(
    plugins: str, node: str, tmp_path: Path
) -> None:
    """Regression: `lua` of a site with GPUs was the same as gpucluster's own script, so its rules were lost without a word."""
    files = site(tmp_path, cluster=f"JobSubmitPlugins={plugins}", node=node)
    assert effects(files) == [(Effect.WIDER, "JobSubmitPlugins")]


@pytest.mark.parametrize(
    ("part", "line", "key"),
    [
        ("cgroup", "ConstrainDevices=1", "ConstrainDevices"),
        ("partition", "Default=1", "Default"),
        ("cluster", "SlurmdSpoolDir=/var/spool/slurmd/", "SlurmdSpoolDir"),
        ("cluster", "StateSaveLocation=/var/spool/slurmctld/", "StateSaveLocation"),
    ],
)
def test_other_form_of_the_same_value_is_the_same(part: str, line: str, key: str, tmp_path: Path) -> None:
    """Regression: `changed`, with a sentence of what then happens."""
    files = site(tmp_path, **{part: line}, **({} if part == "cgroup" else {"node": GPUS}))
    (row,) = (row for row in import_files(files, version="26.05").differences if row.key == key)
    assert row.change is Change.SAME


def test_site_that_names_no_state_folder_has_slurms_own(tmp_path: Path) -> None:
    """tests/slurm/test_other_state_folder.py ends the running jobs of a site whose slurmctld starts with another folder."""
    conf = "\n".join(("TaskPlugin=task/cgroup", "# StateSaveLocation"))
    (row,) = (
        row
        for row in import_files(site(tmp_path, cluster=conf), version="26.05").differences
        if row.effect is Effect.ENDED
    )
    assert (row.key, row.before, row.after) == ("StateSaveLocation", None, "/var/spool/slurmctld")
    assert "running jobs are ended, and queued ones are gone" in row.why


@pytest.mark.parametrize(
    ("enforced", "effect"),
    [
        ("", Effect.REFUSED),
        ("AccountingStorageEnforce=associations", Effect.REFUSED),
        ("AccountingStorageEnforce=safe,qos", None),
        ("AccountingStorageEnforce=safe,qos,nosteps", None),
        ("AccountingStorageEnforce=2,safe,qos", None),
        ("AccountingStorageEnforce=1", Effect.REFUSED),
        ("AccountingStorageEnforce=all", Effect.WIDER),  # with WCKeys
    ],
)
def test_accounts_that_become_enforced_refuse_jobs(
    enforced: str, effect: Effect | None, tmp_path: Path
) -> None:
    """A user of such a site without an association submitted jobs, and jobs above a limit ran."""
    (tmp_path / "assoc.dump").write_text(DUMP.format(cluster="", qos="", account="'", user="", line=""))
    found = effects(
        [
            *site(tmp_path, cluster=f"AccountingStorageType=accounting_storage/slurmdbd\n{enforced}"),
            tmp_path / "assoc.dump",
        ]
    )
    assert found == ([(effect, "AccountingStorageEnforce")] if effect else [])


@pytest.mark.parametrize(
    ("parts", "effect", "said"),
    [
        ({"user": ":QOS='normal,high'"}, Effect.REFUSED, "the user ann in lab: QOS=normal,high is not imported"),
        ({"qos": "\nQOS - 'high':Description='x'", "account": ",high'", "user": ":QOS='normal'"}, Effect.WIDER, "the user ann in lab: QOS=normal is not imported"),
        ({"account": "':MaxJobs=5"}, Effect.WIDER, "the account lab: MaxJobs=5 is not imported"),
        ({"cluster": ":GrpTRES='cpu=64'"}, Effect.WIDER, "the cluster: GrpTRES=cpu=64 is not imported"),
        ({"qos": ":MaxWall=60"}, Effect.WIDER, "the QOS normal: MaxWall=60 is not imported"),
        ({"user": ":Partition='p'"}, Effect.WIDER, "the user ann in lab: Partition=p is not imported"),
        ({"line": "User - 'O=x':DefaultAccount='lab'"}, Effect.REFUSED, "the user O=x is not imported"),
    ],
)  # fmt: skip
def test_line_of_the_dump_is_under_its_heading(
    parts: dict[str, str], effect: Effect, said: str, tmp_path: Path
) -> None:
    (tmp_path / "assoc.dump").write_text(
        DUMP.format(**{"cluster": "", "qos": "", "account": "'", "user": "", "line": "", **parts})
    )
    found = effects([*site(tmp_path, cluster="AccountingStorageEnforce=safe,qos"), tmp_path / "assoc.dump"])
    assert [(one, text.partition(":")[0] in said, text.startswith(said)) for one, text in found] == [
        (effect, True, True)
    ]


NO_GRES = "no node of the site has such a GRES: nothing changes"


@pytest.mark.parametrize(
    ("parts", "node", "effect", "why"),
    [
        ({"account": "':GrpTRES='gres/gpu=64'"}, "", None, "no pool of Slurm has one"),
        ({"qos": ":MaxTRESPerUser='gres/gpu=64'"}, "", None, "no pool of Slurm has one"),
        ({"cluster": ":GrpTRES='gres/gpu=64,gres/fpga:x=2'"}, "", None, NO_GRES),
        ({"qos": ":MaxTRES='gres/gpu:a100=1'"}, "", None, NO_GRES),
        ({"user": ":GrpTRESMins='gres/gpu=1'"}, "", None, NO_GRES),
        ({"cluster": ":GrpTRES='gres/gpu=64,cpu=2'"}, "", Effect.WIDER, "no field for it"),
        ({"qos": ":MinTRES='gres/gpu=1'"}, "", Effect.WIDER, "no field for it"),
        ({"cluster": ":GrpTRES='gres/gpu=64'"}, GPUS, Effect.WIDER, "no field for it"),
        ({"account": "':GrpTRES='gres/gpu:v100=6'"}, GPUS, Effect.WIDER, "no field for it"),
    ],
)
def test_limit_on_what_the_site_has_none_of_is_not_wider(
    parts: dict[str, str], node: str, effect: Effect | None, why: str, tmp_path: Path
) -> None:
    """A minimum of it is a rule that refused every job."""
    (tmp_path / "assoc.dump").write_text(
        DUMP.format(**{"cluster": "", "qos": "", "account": "'", "user": "", "line": "", **parts})
    )
    files = [*site(tmp_path, cluster="AccountingStorageEnforce=safe,qos", node=node), tmp_path / "assoc.dump"]
    (told,) = import_files(files, version="26.05").complaints
    assert (told.effect, why in told.message) == (effect, True), told


def run(*words: str) -> tuple[int, str]:
    argv = ["import", *words]
    done = CliRunner().invoke(app_of(argv), argv)
    return done.exit_code, done.stdout


def test_report_begins_with_the_three_headings_and_counts_the_defaults(tmp_path: Path) -> None:
    site(tmp_path, partition="QOS=q")
    code, text = run(str(tmp_path), "--to", str(tmp_path / "x.yaml"))
    lines = text.splitlines()
    assert code == 1
    assert lines[0] == "access is wider:"
    assert (
        lines[1].strip().startswith(f"{tmp_path}/slurm.conf:10: QOS of partition p: q -> none; not imported")
    )
    assert lines[2:4] == ["jobs can be ended: none", "jobs that ran will be refused: none"]
    (defaults,) = (line for line in lines if line.startswith("defaulted"))
    assert defaults == "defaulted: `--all` lists the settings that only the rendered files have"
    _, whole = run(str(tmp_path), "--to", str(tmp_path / "y.yaml"), "--all")
    assert len(whole.splitlines()) > len(lines) + 30
    counted = [line for line in lines if re.search(r"[0-9] (settings|defaulted)", line)]
    assert counted == [line for line in lines if line.endswith(" same")]  # one count of one thing


def test_exit_is_0_without_a_heading_and_without_a_lost_line(tmp_path: Path) -> None:
    site(tmp_path)
    code, text = run(str(tmp_path), "--to", str(tmp_path / "x.yaml"))
    assert (code, text.splitlines()[:3]) == (
        0,
        ["access is wider: none", "jobs can be ended: none", "jobs that ran will be refused: none"],
    )


def test_exit_is_1_for_a_line_that_is_not_imported(tmp_path: Path) -> None:
    site(tmp_path, cluster="nonsense")
    code, text = run(str(tmp_path), "--to", str(tmp_path / "x.yaml"))
    assert code == 1
    assert "not imported:" in text.splitlines()


def test_json_has_the_parts_of_the_report(tmp_path: Path) -> None:
    site(tmp_path, partition="QOS=q")
    code, text = run(str(tmp_path), "--to", str(tmp_path / "x.yaml"), "--output", "json")
    found = json.loads(text)
    assert (code, found["ok"]) == (1, False)
    told = {
        title.partition(":")[0].replace(" ", "_")
        for title in report(import_files([tmp_path], version="26.05"))
    }
    parts = {part for part, rows in found["parts"].items() if rows}
    assert {"access_is_wider", "defaulted"} <= parts <= told
    assert [row["key"] for row in found["parts"]["access_is_wider"]] == ["QOS"]


SITES = Path(__file__).parents[2] / "support/sites"


def _fields(model: type, seen: set[type]) -> Iterator[str]:
    """The names of all fields of a model and of the models in it."""
    if model in seen or not issubclass(model, BaseModel):
        return
    seen.add(model)
    for name, field in fields_of(model).items():
        yield name.replace("_", "")
        for inner in _innermost(field.hint):
            if isinstance(inner, type):
                yield from _fields(inner, seen)


def test_what_the_spec_has_no_field_for_is_no_field_of_its_model(tmp_path: Path) -> None:
    """Regression: the switches of a topology that was dropped were said to have no field."""
    known = set(_fields(ClusterSpec, set()))
    assert {"licenses", "topology", "features", "gpus"} <= known
    site(tmp_path, cluster="NodeSet=x Nodes=n1\nTopologyPlugin=topology/tree", partition="LLN=maybe")
    (tmp_path / "topology.conf").write_text("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1,n2\n")
    (tmp_path / "gres.conf").write_text("AutoDetect=nvml\n")
    for folder in (tmp_path, *SITES.iterdir()):
        for row in import_files([folder], version="26.05").differences:
            if "no field for it" in row.why:
                assert row.key.lower().split()[-1] not in known, row
                assert not row.kind.startswith("topology"), row


def test_private_data_of_the_database_is_a_rule(tmp_path: Path) -> None:
    """The records of all users, under the name that slurm.conf has, too."""
    (tmp_path / "slurmdbd.conf").write_text("PrivateData=jobs,usage\n")
    site(tmp_path)
    assert effects([tmp_path]) == [(Effect.WIDER, "PrivateData")]
