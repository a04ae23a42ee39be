"""Sites that were invented to break the import: each test is the part of a site that was lost, refused or misjudged."""

from pathlib import Path

import pytest

from gpucluster import catalog
from gpucluster.importer.lines import Effect
from gpucluster.importer.run import Imported, import_files
from gpucluster.spec import ClusterSpec, inspect_text

HEAD = "ClusterName=site\nSlurmctldHost=ctl\nTaskPlugin=task/cgroup\nStateSaveLocation=/var/spool/slurmctld\n"
NODES = "NodeName=n[1-4] CPUs=48 RealMemory=100000\n"
CONFINED = "ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\nConstrainDevices=yes\n"


def imported(folder: Path, lines: str, **others: str) -> tuple[Imported, ClusterSpec]:
    """The site of these lines; `others` are files by name, with `_` for the dot."""
    (folder / "slurm.conf").write_text(HEAD + lines)
    for name, text in {"cgroup_conf": CONFINED, **others}.items():
        (folder / name.replace("_", ".")).write_text(text)
    found = import_files([folder], version="26.05")
    return found, inspect_text(found.text, "x.yaml", catalog.load()).result()


def rows(found: Imported, key: str) -> list[tuple[Effect | None, str]]:
    """The heading and the reason of each row of a key that is not the same."""
    return [(row.effect, row.why) for row in found.differences if row.key == key and row.change != "same"]


def test_nodes_are_not_powered_down_after_a_job(tmp_path: Path) -> None:
    """Regression: slurmctld marked the node of each job POWER_DOWN, and without SuspendProgram no other job ran there."""
    line = "PartitionName={} Nodes=n[1-4] PowerDownOnIdle={}\n"
    found, spec = imported(tmp_path, NODES + line.format("yes", "YES") + line.format("no", "NO"))
    assert [dict(one.extra) for one in spec.partitions] == [{"DefMemPerCPU": "0"}] * 2
    assert rows(found, "PowerDownOnIdle") == [
        (None, "the hosts of a spec are always on: nothing powers them down")
    ]


def test_limit_of_cpus_of_an_exclusive_partition_costs_itself_alone(tmp_path: Path) -> None:
    """Regression: the whole site was refused as a bug of gpucluster."""
    found, spec = imported(
        tmp_path, f"{NODES}PartitionName=p Nodes=n[1-4] OverSubscribe=EXCLUSIVE MaxCPUsPerNode=24\n"
    )
    assert (spec.partitions[0].exclusive, spec.partitions[0].max_cpus_per_node) == (True, None)
    assert rows(found, "MaxCPUsPerNode") == [
        (
            Effect.WIDER,
            "not imported: with `exclusive` a job has all CPUs of its nodes, and `max_cpus_per_node` would let none start",
        )
    ]


@pytest.mark.parametrize(
    "plugin", ["", "TopologyPlugin=topology/flat\n", "TopologyPlugin=topology/default\n"]
)
def test_topology_that_slurm_does_not_read_is_not_imported(plugin: str, tmp_path: Path) -> None:
    """Regression: a topology.conf left behind came into force, and jobs over its two switches would have been refused."""
    found, spec = imported(
        tmp_path,
        f"{plugin}{NODES}PartitionName=p Nodes=n[1-4]\n",
        topology_conf="SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]\n",
    )
    assert spec.slurm is not None
    assert spec.slurm.topology is None
    assert not found.complaints
    why = (
        "Slurm reads topology.conf only with TopologyPlugin=topology/tree or topology/block: nothing changes"
    )
    assert rows(found, "Nodes") == [(None, why)] * 2
    assert not rows(found, "TopologyPlugin")


def test_machine_that_slurm_makes_for_a_job_is_told(tmp_path: Path) -> None:
    """Regression: a node of the cloud was said to be always on."""
    cloud = "NodeName=c[1-2] CPUs=8 RealMemory=9000 State=CLOUD\nPartitionName=p Nodes=n[1-4],c[1-2]\n"
    found, _ = imported(tmp_path, NODES + cloud)
    assert [one for one in rows(found, "State") if one[0]] == [
        (
            Effect.REFUSED,
            "ResumeProgram of the site makes this machine, and nothing makes the hosts of a spec: take out those that "
            "are not there, their jobs wait",
        )
    ]


def test_memory_of_a_node_that_is_left_out_is_not_made_up(tmp_path: Path) -> None:
    """Regression: the head of the spec counted nodes that do not exist yet."""
    found, _ = imported(tmp_path, f"{NODES}NodeName=f[1-9] State=FUTURE\nPartitionName=p Nodes=n[1-4]\n")
    assert not [one for one in found.made.made_up if "memory" in one]


def test_default_time_above_the_longest_is_the_longest(tmp_path: Path) -> None:
    """Regression: jobs of such a partition were said to end sooner. Slurm ignores such a default (read_config.c)."""
    found, _ = imported(tmp_path, f"{NODES}PartitionName=p Nodes=n[1-4] MaxTime=4:00:00 DefaultTime=1-0\n")
    assert rows(found, "DefaultTime") == [
        (None, "Slurm ignores a default above MaxTime, and takes MaxTime: nothing changes")
    ]


@pytest.mark.parametrize(
    ("sets", "hosts", "told"),
    [
        ("NodeSet=s Nodes=n1\nNodeSet=s Nodes=n2", ["n1"], ["the nodeset 's' is defined twice; the first line counts"]),
        ("NodeSet=s Nodes=ALL", ["n1", "n2", "n3", "n4"], []),
        ("NodeSet=s Nodes=t\nNodeSet=t Nodes=n[2-3]", ["n2", "n3"], []),
        ("NodeSet=s Nodes=n4 Feature=x", ["n4"], []),
        ("NodeSet=t Nodes=n3\nNodeSet=s Nodes=n4,t", ["n4"], ["'t' of Nodes is not the name of a node"]),
        ('NodeSet=s Nodes=" n1, n[3-4],"', ["n1", "n3", "n4"], []),
    ],
)  # fmt: skip
def test_sets_of_nodes_are_those_of_slurm(
    sets: str, hosts: list[str], told: list[str], tmp_path: Path
) -> None:
    """nodespec_to_hostlist of slurmctld: each line in its turn takes the name out, and adds its nodes."""
    found, spec = imported(tmp_path, f"{NODES}{sets}\nPartitionName=p Nodes=s\n")
    assert [host for pool in spec.pools for host in pool.hosts or ()] == hosts
    assert [one.message for one in found.complaints] == told


def test_partition_whose_nodes_cannot_be_read_refuses_jobs(tmp_path: Path) -> None:
    found, _ = imported(
        tmp_path,
        f"{NODES}PartitionName=p Nodes=n[1-4]\nPartitionName=q Nodes=n[4-1\nPartitionName=r Nodes=\n",
    )
    assert [(one.effect, one.message.partition(":")[0]) for one in found.complaints] == [
        (Effect.REFUSED, "Nodes='n[4-1' is not a hostlist"),
        (None, "'Nodes=' is not key=value; it is not imported"),
    ]


@pytest.mark.parametrize(
    ("line", "key", "effect"),
    [
        ("AuthAltTypes=auth/jwt", "AuthAltTypes", Effect.REFUSED),
        ("NodeFeaturesPlugins=node_features/helpers", "NodeFeaturesPlugins", Effect.REFUSED),
        ("CliFilterPlugins=cli_filter/lua", "CliFilterPlugins", Effect.WIDER),
        ("CliFilterPlugins=user_defaults,syslog", "CliFilterPlugins", None),
    ],
)
def test_plugin_that_takes_or_refuses_jobs_is_under_its_heading(
    line: str, key: str, effect: Effect | None, tmp_path: Path
) -> None:
    found, _ = imported(tmp_path, f"{line}\n{NODES}PartitionName=p Nodes=n[1-4]\n")
    assert [one for one, _ in rows(found, key)] == [effect]


DUMP = """\
QOS - 'normal':Description='x'{qos}
Cluster - 'site':Fairshare=1:QOS='normal'
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'lab':Fairshare=1:QOS='normal'
Parent - 'lab'
User - 'ann':DefaultAccount='lab':Fairshare=1
{line}
"""


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({}, []),
        (
            {"line": "User - 'root':DefaultAccount='root':Fairshare=1"},
            [(Effect.REFUSED, "the user root is not imported: root of a spec has only the account root")],
        ),
        (
            {"qos": ":LimitFactor=2.000000"},
            [(Effect.REFUSED, "the QOS normal: LimitFactor=2.000000 is not imported: its jobs have the limits of their accounts, which are lower")],
        ),
        (
            {"qos": ":LimitFactor=0.500000"},
            [(Effect.WIDER, "the QOS normal: LimitFactor=0.500000 is not imported: its jobs have the limits of their accounts, which are higher")],
        ),
    ],
)  # fmt: skip
def test_line_of_a_dump_is_told(
    parts: dict[str, str], told: list[tuple[Effect, str]], tmp_path: Path
) -> None:
    """Regression: root in an account of others was lost without a line, and `safe` alone was an alarm."""
    found, _ = imported(
        tmp_path,
        "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageEnforce=associations,limits,qos\n"
        f"{NODES}PartitionName=p Nodes=n[1-4]\n",
        assoc_dump=DUMP.format(**{"qos": "", "line": "", **parts}),
    )
    assert [(one.effect, one.message) for one in found.complaints] == told
    assert [effect for effect, _ in rows(found, "AccountingStorageEnforce")] == [None]
