"""Every stack and 40 generated specs on the real slurmctld of each version: no error line, and scontrol shows the plan.

The rendered files are unchanged (`nodes=False`). `slurmd -G` reads them with the adaptations of real_slurm.py.
conftest.py checks how many plans ran.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from accounting import FIRST_REGISTRATION, apply_accounts, compare, with_accounting
from asking import finding
from real_slurm import VERSIONS, RealSlurm, errors_of
from specs import generated
from support.builders import a_lab_plan, a_lab_text

from gpucluster import catalog
from gpucluster.plan.model import AwsPool, Pool, SlurmOnAws, SlurmOnHosts, SlurmPlan
from gpucluster.plan.model.accounting import Accounting
from gpucluster.plan.resolve import resolve
from gpucluster.slurm.hostlist import expand_slurm
from gpucluster.spec import inspect_text, load

ROOT = Path(__file__).parents[2]
GENERATED = 40
UNLIMITED = "UNLIMITED"
NO_DEFAULT = "read_slurm_conf: default partition not set."  # slurmctld calls this choice of a site an error


def stacks() -> dict[str, SlurmPlan]:
    """The plans of the stacks with Slurm."""
    plans = {
        path.stem: resolve(load(path), catalog.load()) for path in sorted((ROOT / "stacks").glob("*.yaml"))
    }
    return {name: plan for name, plan in plans.items() if isinstance(plan, SlurmOnAws | SlurmOnHosts)}


@cache
def of_version(version: str) -> tuple[tuple[str, SlurmPlan], ...]:
    return tuple(generated(version, GENERATED))


@pytest.mark.parametrize("name", sorted(stacks()))
@pytest.mark.parametrize("version", VERSIONS)
def test_stack_is_taken(version: str, name: str) -> None:
    taken(version, stacks()[name])


@pytest.mark.parametrize("number", range(GENERATED))
@pytest.mark.parametrize("version", VERSIONS)
def test_generated_spec_is_taken(version: str, number: int) -> None:
    text, plan = of_version(version)[number]
    try:
        taken(version, plan)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{text}") from error


def taken(version: str, plan: SlurmPlan) -> None:
    with started(version, plan) as slurm:
        config = slurm.show("config")[0]
        assert config["ClusterName"] == plan.name
        assert config["SLURM_VERSION"].startswith(version)
        assert config["SchedulerType"] == "sched/backfill"
        assert ("tmpfs" in f"{config.get('JobContainerType')}{config.get('NamespaceType')}") == (
            plan.slurm.private_tmp is not None
        )
        nodes = {row["NodeName"]: row for row in slurm.show("nodes")}
        wanted = {name: pool for pool in plan.pools for span in pool.slots for name in span}
        assert nodes.keys() == wanted.keys()
        for name, pool in wanted.items():
            same_node(nodes[name], pool)
        same_partitions(slurm, plan)
        same_switches(slurm, plan)
        for check in ("ctl.conf", "part.up", "nodes.hw"):  # no false alarm of `validate`
            found = finding(slurm, check)
            assert found.is_healthy, f"{check}: {found.found}"
        for pool in plan.pools:
            done = slurm.gres_of(next(iter(pool.slots[0])))
            assert (done.code, errors_of(done.err)) == (0, []), done.err
            counts = re.findall(r"Gres Name=gpu .*?Count=(\d+)", done.err)
            assert sum(map(int, counts)) == pool.shape.gpu_count, done.err
        default = any(one.default for one in plan.partitions)
        said = [line.partition("error: ")[2] for line in slurm.errors() if not of_first_registration(line)]
        assert said == ([] if default else [NO_DEFAULT])
        if plan.slurm.accounting is not None:
            same_accounts(slurm, plan.slurm.accounting)


@contextmanager
def started(version: str, plan: SlurmPlan) -> Iterator[RealSlurm]:
    """slurmctld of the plan; with a database also MariaDB and slurmdbd, with the accounts of the plan."""
    if plan.slurm.accounting is not None:
        with with_accounting(version, plan, *(user.name for user in plan.users), nodes=False) as slurm:
            apply_accounts(slurm)
            yield slurm
        return
    with RealSlurm(version, plan, nodes=False) as slurm:
        slurm.start_controller()
        yield slurm


def of_first_registration(line: str) -> bool:
    return any(word in line for word in FIRST_REGISTRATION)


def same_accounts(slurm: RealSlurm, wanted: Accounting) -> None:
    """sacctmgr shows the QOS and the accounts of the plan; a second run changes nothing; slurmdbd logs no error."""
    qos = ("sacctmgr", "-nP", "show", "qos", "format=name,priority,preempt,maxtrespu,grptres,grptresmins")
    shown = {row.split("|")[0]: row.split("|")[1:] for row in slurm.must(*qos).splitlines()}
    for one in wanted.qos:
        priority, preempts, per_user, whole, minutes = shown[one.name]
        assert (int(priority), set(filter(None, preempts.split(",")))) == (one.priority, set(one.preempts))
        assert tres(per_user) == limits(gpu=one.limits.gpus_per_user, cpu=one.limits.cpus_per_user)
        assert tres(whole) == limits(gpu=one.limits.gpus)
        hours = one.gpu_hours_per_month
        assert tres(minutes) == limits(gpu=None if hours is None else hours * 60)
    accounts = (
        "sacctmgr",
        "-nP",
        "show",
        "assoc",
        "format=account,user,parentname,share,grptres,defaultqos,qos",
    )
    rows = [row.split("|") for row in slurm.must(*accounts).splitlines()]
    for one in wanted.accounts:
        found = next(row for row in rows if row[:2] == [one.name, ""])
        assert (found[2], int(found[3])) == (one.parent, one.share)
        assert (tres(found[4]), found[5], set(found[6].split(","))) == (
            limits(gpu=one.limits.gpus),
            one.qos[0],
            set(one.qos),
        )
        assert {row[1] for row in rows if row[0] == one.name} == {"", *one.users}
    assert compare(slurm).changes == ()
    assert [line for line in slurm.errors("slurmdbd") if not of_first_registration(line)] == []


def tres(text: str) -> dict[str, int]:
    """`cpu=96,gres/gpu=16` by name."""
    pairs = (one.split("=") for one in text.split(",") if one)
    return {name.removeprefix("gres/"): int(value) for name, value in pairs}


def limits(**of: int | None) -> dict[str, int]:
    return {name: value for name, value in of.items() if value is not None}


def same_node(row: dict[str, str], pool: Pool) -> None:
    shape = pool.shape
    shown = tuple(
        int(row[key]) for key in ("Sockets", "CoresPerSocket", "ThreadsPerCore", "CPUTot", "RealMemory")
    )
    sizes = (shape.sockets, shape.cores_per_socket, shape.threads_per_core, shape.cpus, shape.real_memory_mib)
    assert shown == sizes
    gpus = f"gpu:{shape.gpu_model}:{shape.gpu_count}" if shape.gpu_count else "(null)"
    assert row["Gres"].split("(S:")[0] == gpus
    assert ("CLOUD" in row["State"]) == isinstance(pool, AwsPool)


def same_partitions(slurm: RealSlurm, plan: SlurmPlan) -> None:
    shown = {row["PartitionName"]: row for row in slurm.show("partitions")}
    assert shown.keys() == {one.name for one in plan.partitions}
    for one in plan.partitions:
        row = shown[one.name]
        pools = [pool for pool in plan.pools if pool.name in one.pools]
        assert set(expand_slurm(row["Nodes"])) == {n for pool in pools for span in pool.slots for n in span}
        assert row["Default"] == ("YES" if one.default else "NO")
        assert seconds(row["MaxTime"]) == rounded(one.max_time_s)
        assert seconds(row["DefaultTime"]) == rounded(one.default_time_s)
        assert row["State"] == "UP"


def same_switches(slurm: RealSlurm, plan: SlurmPlan) -> None:
    shown = slurm.run("scontrol", "-o", "show", "topology").out
    found = dict(re.findall(r"SwitchName=(\S+) .*?Nodes=(\S+)", shown))
    for leaf in plan.leaves:
        assert set(expand_slurm(found[leaf.name])) == {name for span in leaf.slots for name in span}


def rounded(time_s: int | None) -> int | None:
    return None if time_s is None else -(-time_s // 60) * 60


def seconds(text: str) -> int | None:
    """`1-00:30:00` of scontrol in seconds; None for no limit."""
    if text == UNLIMITED:
        return None
    days, _, rest = text.rpartition("-")
    hours, minutes, secs = map(int, rest.split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + secs


EXTRA = (
    ('  version: "26.05"', '  version: "26.05"\n  extra: {KillWait: 61, SchedulerParameters: {bf_max_job_user: 50}, MaxJobCount: 777}\n  remove: [MaxArraySize]'),
    ('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", extra: {MemSpecLimit: 4096, Weight: 77}}'),
    ("default: true}", "default: true, extra: {GraceTime: 120, LLN: true}, remove: [DefMemPerCPU]}"),
)  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_extra_of_the_spec_is_what_slurmctld_shows(version: str) -> None:
    with RealSlurm(version, a_lab_plan(*EXTRA), nodes=False) as slurm:
        slurm.start_controller()
        config, node, partition = (slurm.show(what)[0] for what in ("config", "nodes", "partitions"))
        assert (config["KillWait"], config["MaxJobCount"], config["MaxArraySize"]) == (
            "61 sec",
            "777",
            "1001",
        )
        assert "bf_max_job_user=50" in config["SchedulerParameters"]
        assert (node["MemSpecLimit"], node["Weight"]) == ("4096", "77")
        assert (partition["GraceTime"], partition["LLN"], partition["DefMemPerNode"]) == (
            "120",
            "YES",
            "UNLIMITED",
        )
        assert slurm.errors() == []


REFUSED = (  # what `check` refuses in `extra`, and what slurmctld says of it
    ("FastSchedule=2", "fatal: The FastSchedule option has been removed"),
    ("FastSchedule=1", "error: Ignoring obsolete FastSchedule=1 option"),
    ("AccountingStoreJobComment=YES", "fatal: The AccountingStoreJobComment option has been removed"),
    ("SallocDefaultCommand=srun", "fatal: SallocDefaultCommand has been removed"),
    ("TaskPluginParam=Sched", "error: Bad TaskPluginParam: Sched"),
    ("SlurmSchedLogLevel=1", "error: SlurmSchedLogLevel requires SlurmSchedLogFile value"),
    ("PriorityWeightAge=1000", "error: PriorityWeightAge can only be used with SlurmDBD, ignoring"),
    ("PriorityWeightFairshare=9", "error: PriorityWeightFairshare can only be used with SlurmDBD, ignoring"),
    (
        "MessageTimeout=37",
        "error: UnkillableStepTimeout must be at least 5 times greater than MessageTimeout",
    ),
)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("line", "words"), REFUSED)
def test_keys_that_check_refuses_are_errors_of_slurmctld(version: str, line: str, words: str) -> None:
    """The parser takes them (S43). `import` wrote them into `extra` for 6 of 11 public sites."""
    key, _, value = line.partition("=")
    text = a_lab_text(('version: "26.05"', f'version: "{version}"\n  extra: {{{key}: {value}}}'))
    errors = inspect_text(text, "lab.yaml", catalog.load()).errors
    assert [one.path for one in errors] == [f"slurm.extra.{key}"]
    with RealSlurm(version, a_lab_plan(), nodes=False) as slurm:
        conf = slurm.path("/etc/slurm/slurm.conf")
        others = [row for row in conf.read_text().splitlines() if row.partition("=")[0] != key]
        conf.write_text("\n".join((*others, line, "")))
        printed = ""
        try:
            slurm.start_controller()
        except AssertionError as ended:  # slurmctld
            printed = str(ended)
        assert words in printed + slurm.log("slurmctld")
