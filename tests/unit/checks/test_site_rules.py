"""Limits, modes, hooks, containers and accounting: recorded answers of the real programs, healthy and after a fault."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.account_rows import a_site_plan, with_containers
from support.standing_cluster import LIMITS, MEMORY, SHM

from gpucluster import agent
from gpucluster.checks import accounting, containers, hooks, limits, modes
from gpucluster.checks.check import TIMED_OUT, CheckResult, CheckStatus, ParseError, QueryOutput
from gpucluster.checks.table import CHECKS
from gpucluster.plan.model import Containers
from gpucluster.validate import expectations

RECORDED = Path(__file__).parents[2] / "recorded/checks"
PASS, FAIL, WARN = CheckStatus.PASS, CheckStatus.FAIL, CheckStatus.WARN
WANTS = {one.check: one.want for one in expectations(a_site_plan())}


def said(*texts: str) -> tuple[QueryOutput, ...]:
    return tuple(QueryOutput(code=0, stdout=text) for text in texts)


# --- limits ----------------------------------------------------------------------------------------------
WANT = limits.LimitsWant(open_files=131072)
SMALL = re.sub(
    "(Max locked memory +)unlimited +unlimited +", r"\g<1>8388608              8388608              ", LIMITS
)
FEW = LIMITS.replace("131072 ", "20000  ")
UNIT = "LimitMEMLOCK=infinity"


@pytest.mark.parametrize(
    ("slurmd", "first", "shm", "as_machine", "culprits"),
    [
        (LIMITS, LIMITS, SHM, False, ()),
        (SMALL, LIMITS, SHM, False, ("memlock",)),
        (FEW, LIMITS, SHM, False, ("nofile",)),
        (LIMITS, LIMITS, "1K-blocks\n 65536\n", False, ("/dev/shm",)),
        (SMALL, SMALL, SHM, True, ()),  # a rehearsal on a host with this limit
        (FEW, FEW, SHM, True, ()),
        (SMALL, LIMITS, SHM, True, ("memlock",)),
        (LIMITS, SMALL, SHM, True, ()),
    ],
)
def test_limits_of_slurmd_and_of_a_job(slurmd, first, shm, as_machine, culprits):
    want = replace(WANT, as_machine=as_machine)
    on_node = limits.evaluate_slurmd(limits.parse_slurmd(said("42\n", slurmd, first, shm, MEMORY)), want)
    in_job = limits.evaluate_job(limits.parse_job(said(f"{slurmd}\n{first}\n{shm}\n{MEMORY}")), want)
    assert on_node.culprits == in_job.culprits == culprits
    assert (on_node.verdict is PASS) == (not culprits)
    assert (UNIT in on_node.remedy) == bool({"memlock", "nofile"} & set(culprits))
    assert ("mount -o remount,size=50% /dev/shm" in on_node.remedy) == ("/dev/shm" in culprits)
    assert in_job.remedy == ""


def test_least_shm_is_a_part_of_the_memory():
    kib = 24684084 * limits.SHM_PERCENT // 100
    for size, verdict in ((kib, PASS), (kib - 1, FAIL)):
        found = limits.parse_slurmd(said("42\n", LIMITS, LIMITS, f"1K-blocks\n {size}\n", MEMORY))
        assert limits.evaluate_slurmd(found, WANT).verdict is verdict


def test_unit_of_slurmd_sets_the_limits_that_are_expected():
    lines = (
        (Path(agent.__file__).parent / "units/etc/systemd/system/slurmd.service.d/gpucluster.conf")
        .read_text()
        .splitlines()
    )
    assert {UNIT, f"LimitNOFILE={limits.OPEN_FILES}"} <= set(lines)


# --- modes -----------------------------------------------------------------------------------------------
FILES = modes.FilesWant(
    files=(
        modes.FileWant(path="/etc/munge/munge.key", owner="munge", modes=("400", "600")),
        modes.FileWant(path="/var/spool/gpucluster/new", owner="slurm", modes=("700",)),
    ),
    heals_missing="systemd-tmpfiles --create gpucluster.conf",
)
KEY, NEW = "400 munge /etc/munge/munge.key\n", "700 slurm /var/spool/gpucluster/new\n"


@pytest.mark.parametrize(
    ("shown", "found", "remedy"),
    [
        (KEY + NEW, "", ""),
        (KEY.replace("400", "600") + NEW, "", ""),
        (KEY.replace("400", "644") + NEW, "/etc/munge/munge.key is 0644 of munge, not 0400 of munge", "chmod 0400 /etc/munge/munge.key"),
        (KEY.replace(" munge ", " root ") + NEW, "is 0400 of root, not 0400 of munge", "chown munge /etc/munge/munge.key"),
        (KEY + NEW.replace("700 slurm", "1777 root"), "is 1777 of root", "chown slurm /var/spool/gpucluster/new; chmod 0700 /var/spool/gpucluster/new"),
    ],
)  # fmt: skip
def test_modes(shown, found, remedy):
    finding = modes.evaluate_modes(modes.parse_modes(said(shown)), FILES)
    assert (finding.verdict is PASS) == (not found)
    assert found in finding.found
    assert finding.remedy == (f"on {{machine}}: {remedy}" if remedy else "")


def test_missing_file_is_found_and_others_are_checked():
    answer = QueryOutput(
        code=1,
        stdout=KEY.replace("400", "666"),
        stderr="stat: cannot statx '/var/spool/gpucluster/new': No such file",
    )
    finding = modes.evaluate_modes(modes.parse_modes((answer,)), FILES)
    assert finding.culprits == ("/etc/munge/munge.key", "/var/spool/gpucluster/new")
    assert (
        finding.remedy
        == "on {machine}: systemd-tmpfiles --create gpucluster.conf; chmod 0400 /etc/munge/munge.key"
    )
    with pytest.raises(ParseError):
        modes.parse_modes((QueryOutput(code=1, stdout="", stderr="sudo: a password is required"),))


# --- hooks and containers --------------------------------------------------------------------------------
HOOK = hooks.HookWant(program="/bin/resume", user="slurm", node="n1", spool="/spool")


@pytest.mark.parametrize(
    ("ran", "waited", "verdict", "found"),
    [
        ((0, "77\n", ""), "taken\n", PASS, "slurm runs /bin/resume"),
        ((0, "77\n", ""), "waits\n", FAIL, "the request still waits in /spool/new"),
        ((126, "77\n", "sh: 1: exec: /bin/resume: Permission denied"), "", FAIL, "Permission denied"),
        ((1, "77\n", "resume n1 is not in the spool: [Errno 30] Read-only file system"), "", FAIL, "Read-only file system"),
        ((TIMED_OUT, "77\n", ""), "", FAIL, "no answer in time"),
    ],
)  # fmt: skip
def test_hook(ran, waited, verdict, found):
    code, out, err = ran
    answers = (QueryOutput(code=code, stdout=out, stderr=err), *said(waited))
    finding = hooks.evaluate_hook(hooks.parse_hook(answers), HOOK)
    assert (finding.verdict, found in finding.found) == (verdict, True)


# Apptainer 1.4.5 of Debian unstable: without its starter, and in a chroot, where the kernel refuses user namespaces.
NO_STARTER = "FATAL:   while executing starter: while initializing starter command: /usr/lib/x86_64-linux-gnu/apptainer/bin/starter not found, please check your installation\n"
NO_NAMESPACE = """\
INFO   : A system administrator may need to enable user namespaces, install
INFO   :   apptainer-suid, or compile with ./mconfig --with-suid
\x1b[91mERROR  : Failed to create user namespace: not allowed to create user namespace
\x1b[0m"""


@pytest.mark.parametrize(
    ("answer", "verdict", "found"),
    [
        (QueryOutput(code=0, stdout="apptainer version 1.4.5\n"), PASS, "apptainer apptainer version 1.4.5"),
        (QueryOutput(code=127, stdout="", stderr="sh: 1: apptainer: not found"), FAIL, "apptainer: not found"),
        (QueryOutput(code=127, stdout="", stderr="sh: 1: apptainer: Permission denied"), FAIL, "apptainer: Permission denied"),
        (QueryOutput(code=255, stdout="", stderr=NO_STARTER), FAIL, "starter not found"),
        (QueryOutput(code=1, stdout="", stderr=NO_NAMESPACE), FAIL, "apptainer: Failed to create user namespace"),
    ],
)  # fmt: skip
def test_container_program(answer, verdict, found):
    want = containers.Program(name="apptainer", argv=containers.APPTAINER, part="apptainer")
    finding = containers.evaluate_program(containers.parse_program((answer,)), want)
    assert (finding.verdict, found in finding.found) == (verdict, True)
    remedy = "make user namespaces" if "namespace" in found else "image build --with apptainer"
    assert (remedy in finding.remedy) == (verdict is FAIL)


def test_containers_are_checked_where_the_plan_has_them():
    for kind, program in ((Containers.APPTAINER, "apptainer"), (Containers.PYXIS, "enroot")):
        asked = {one.id: one.want for one in expectations(with_containers(a_site_plan(), kind))}
        assert asked["ctr.run[gpu01]"].name == program
        plugin = {one.path for one in asked["files.modes[head]"].files if "pyxis" in one.path}
        assert bool(plugin) == (kind is Containers.PYXIS)
    assert not [one for one in expectations(a_site_plan()) if one.check == "ctr.run"]


# --- accounting ------------------------------------------------------------------------------------------
def recorded(version: str, situation: str, check: str) -> CheckResult:
    rows = json.loads((RECORDED / version / "accounting.json").read_text())[situation][check]
    got = tuple(QueryOutput(**row) for row in rows)
    return CHECKS[check].evaluate(CHECKS[check].parse(got), WANTS[check])


@pytest.mark.parametrize("version", ["24.11", "26.05"])
@pytest.mark.parametrize("check", ["acct.db", "acct.qos", "acct.tree"])
def test_healthy_accounting(version, check):
    assert recorded(version, "healthy", check).verdict is PASS


@pytest.mark.parametrize("version", ["24.11", "26.05"])
@pytest.mark.parametrize(
    ("situation", "check", "found", "remedy"),
    [
        ("modify account where name=research set fairshare=9", "acct.tree", "account research: fairshare is 9, not 2", "name=research cluster=lab set fairshare=2"),
        ("modify qos where name=normal set MaxWall=10 GrpJobs=3", "acct.qos", "qos normal has GrpJobs 3, which no plan sets, qos normal has MaxWall 00:10:00", "set GrpJobs=-1"),
        ("slurmdbd is away", "acct.db", "slurmdbd does not answer", "systemctl restart mariadb; test $(mariadb"),
    ],
)  # fmt: skip
def test_accounting_after_a_fault(version, situation, check, found, remedy):
    finding = recorded(version, situation, check)
    assert (finding.verdict, found in finding.found, remedy in finding.remedy) == (FAIL, True, True), finding


def after(check: str, change: Callable[[dict[str, Any]], None]) -> CheckResult:
    """The finding after a change of the recorded answers of a healthy database: `qos`, `associations`, `users` and `rows`."""
    rows = json.loads((RECORDED / "24.11/accounting.json").read_text())["healthy"][check]
    texts = [row["stdout"] for row in rows]
    parts = {key: json.loads(text)[key] for key, text in zip(PARTS, texts[1:], strict=False)}
    whole = {**parts, "rows": texts[-1].splitlines()}
    change(whole)
    said_now = [json.dumps({key: whole[key]}) for key in PARTS]
    got = said(texts[0], *said_now, "".join(f"{line}\n" for line in whole["rows"]))
    return CHECKS[check].evaluate(CHECKS[check].parse(got), WANTS[check])


PARTS = ("qos", "accounts", "associations", "users")
NO_LIMIT = "|" * 10


def place(whole: dict[str, Any], account: str, user: str = "") -> dict[str, Any]:
    found = [one for one in whole["associations"] if (one["account"], one["user"]) == (account, user)]
    return found[0]


def tres(kind: str, name: str, count: int) -> list[dict[str, Any]]:
    return [{"type": kind, "name": name, "id": 1, "count": count}]


def in_partition(whole: dict[str, Any]) -> None:
    copy = json.loads(json.dumps(place(whole, "research", "vision")))
    whole["associations"].append(copy | {"partition": "gpu", "comment": ""})
    whole["rows"].append(f"research|vision|gpu{NO_LIMIT}")


def limit_in_partition(whole: dict[str, Any]) -> None:
    in_partition(whole)
    whole["rows"][-1] = "research|vision|gpu|5" + "|" * 9


def add_mallory(whole: dict[str, Any]) -> None:
    copy = json.loads(json.dumps(place(whole, "product", "recsys")))
    whole["associations"].append(copy | {"user": "mallory", "comment": ""})


def strange_name(whole: dict[str, Any]) -> None:
    whole["rows"].append("research|A b|" + "|5" + "|" * 9)


def marked_by_another(whole: dict[str, Any]) -> None:
    (urgent,) = [one for one in whole["qos"] if one["name"] == "urgent"]
    urgent |= {"description": "gpucluster other", "priority": {"set": True, "infinite": False, "number": 1}}


def nodes_of_qos(whole: dict[str, Any]) -> None:
    (urgent,) = [one for one in whole["qos"] if one["name"] == "urgent"]
    urgent["limits"]["max"]["tres"]["total"] += tres("node", "", 1)


def level(name: str, word: str) -> Callable[[dict[str, Any]], None]:
    def change(whole: dict[str, Any]) -> None:
        copy = json.loads(json.dumps(whole["users"][0]))
        others = [one for one in whole["users"] if one["name"] != name]
        whole["users"] = [*others, copy | {"name": name, "administrator_level": [word]}]

    return change


def number(count: float) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": count}


def urgent(*keys: str, value: object) -> Callable[[dict[str, Any]], None]:
    """The QOS `urgent` with another value at these keys of its JSON."""

    def change(whole: dict[str, Any]) -> None:
        (found,) = [one for one in whole["qos"] if one["name"] == "urgent"]
        for key in keys[:-1]:
            found = found[key]
        found[keys[-1]] = value

    return change


def coordinator(whole: dict[str, Any]) -> None:
    """Slurm lists the coordinators of an account for its children, too."""
    for account, direct in (("science", True), ("research", False)):
        (found,) = [one for one in whole["accounts"] if one["name"] == account]
        found["coordinators"] = [{"name": "vision", "direct": direct}]


VISION = "modify user where account=research name=vision cluster=lab set"
URGENT = "modify qos where name=urgent set"


@pytest.mark.parametrize(
    ("check", "change", "verdict", "found", "remedy"),
    [
        ("acct.tree", lambda w: place(w, "research", "vision")["qos"].append("debug"), FAIL, "user vision of account research: qos is debug,normal,urgent, not normal,urgent", f"{VISION} qos="),
        ("acct.tree", lambda w: place(w, "research", "vision")["default"].update(qos="urgent"), FAIL, "defaultqos is urgent, not normal", f"{VISION} defaultqos=-1"),
        ("acct.tree", lambda w: place(w, "research", "vision").update(shares_raw=1000), FAIL, "fairshare is 1000, not 1", f"{VISION} fairshare=1"),
        ("acct.tree", level("vision", "Administrator"), FAIL, "user vision has AdminLevel Administrator, which no plan sets", "modify user where name=vision set adminlevel=None"),
        ("acct.tree", level("ops", "Operator"), WARN, "not in the plan: AdminLevel Operator of user ops", "modify user where name=ops set adminlevel=None"),
        ("acct.tree", add_mallory, WARN, "not in the plan: user mallory of account product", "where account=product name=mallory cluster=lab set GrpSubmitJobs=0"),
        ("acct.tree", lambda w: place(w, "root")["max"]["tres"].update(total=tres("gres", "gpu", 8)), FAIL, "account root has GrpTRES gres/gpu=8, which no plan sets", "where name=root cluster=lab set GrpTRES=gres/gpu=-1"),
        ("acct.tree", lambda w: place(w, "root")["max"]["jobs"]["per"].update(submitted={"set": True, "infinite": False, "number": 0}), FAIL, "account root has GrpSubmitJobs 0", "set GrpSubmitJobs=-1"),
        ("acct.tree", lambda w: place(w, "research", "vision")["max"]["tres"]["total"].extend(tres("node", "", 1)), FAIL, "user research/vision has GrpTRES node=1", f"{VISION} GrpTRES=node=-1"),
        ("acct.tree", in_partition, WARN, "not in the plan: user vision of account research in partition gpu", "account=research name=vision partition=gpu cluster=lab set GrpSubmitJobs=0"),
        ("acct.tree", limit_in_partition, FAIL, "user research/vision/gpu has MaxJobs 5", "account=research name=vision partition=gpu cluster=lab set MaxJobs=-1"),
        ("acct.tree", strange_name, FAIL, "user research/A b has MaxJobs 5", "sacctmgr show assoc cluster=lab tree"),
        ("acct.tree", coordinator, FAIL, "user vision is a coordinator of account science, which no plan sets", "sacctmgr --immediate delete coordinator account=science names=vision"),
        ("acct.tree", lambda w: place(w, "research")["max"]["jobs"]["per"].update(submitted=number(5)), FAIL, "account research has GrpSubmitJobs 5", "where name=research cluster=lab set GrpSubmitJobs=-1"),
        ("acct.tree", lambda w: place(w, "research")["max"]["jobs"]["per"].update(accruing=number(2)), FAIL, "account research has GrpJobsAccrue 2", "set GrpJobsAccrue=-1"),
        ("acct.tree", lambda w: place(w, "research", "vision")["max"]["jobs"].update(accruing=number(2)), FAIL, "user research/vision has MaxJobsAccrue 2", f"{VISION} MaxJobsAccrue=-1"),
        ("acct.tree", lambda w: place(w, "research", "vision")["min"].update(priority_threshold=number(9)), FAIL, "user research/vision has MinPrioThreshold 9", f"{VISION} MinPrioThreshold=-1"),
        ("acct.tree", lambda w: place(w, "research").update(priority=number(9)), FAIL, "account research has Priority 9", "set Priority=-1"),
        ("acct.tree", lambda w: place(w, "science").update(flags=["UsersAreCoords"]), FAIL, "account science has Flags UsersAreCoords", "where name=science cluster=lab set Flags=NoUsersAreCoords"),
        ("acct.qos", urgent("limits", "grace_time", value=600), FAIL, "qos urgent has GraceTime 600", f"{URGENT} GraceTime=0"),
        ("acct.qos", urgent("usage_factor", value=number(0.0)), FAIL, "qos urgent has UsageFactor 0, which no plan sets", f"{URGENT} UsageFactor=1"),
        ("acct.qos", urgent("usage_factor", value=number(0.5)), FAIL, "qos urgent has UsageFactor 0.5", f"{URGENT} UsageFactor=1"),
        ("acct.qos", urgent("usage_threshold", value=number(0.2)), FAIL, "qos urgent has UsageThreshold 0.2", f"{URGENT} UsageThreshold=-1"),
        ("acct.qos", urgent("limits", "factor", value=number(2.0)), FAIL, "qos urgent has LimitFactor 2", f"{URGENT} LimitFactor=-1"),
        ("acct.qos", urgent("limits", "min", "priority_threshold", value=number(9)), FAIL, "qos urgent has MinPrioThreshold 9", f"{URGENT} MinPrioThreshold=-1"),
        ("acct.qos", urgent("limits", "max", "accruing", "per", "user", value=number(1)), FAIL, "qos urgent has MaxJobsAccruePU 1", f"{URGENT} MaxJobsAccruePU=-1"),
        ("acct.qos", urgent("limits", "max", "tres", "minutes", "per", "user", value=tres("cpu", "", 5)), FAIL, "qos urgent has MaxTRESRunMinsPU cpu=5", f"{URGENT} MaxTRESRunMinsPU=cpu=-1"),
        ("acct.qos", urgent("preempt", "mode", value=["REQUEUE"]), FAIL, "qos urgent has PreemptMode REQUEUE", f"{URGENT} PreemptMode=cluster"),
        ("acct.qos", urgent("preempt", "exempt_time", value=number(60)), FAIL, "qos urgent has PreemptExemptTime 60", f"{URGENT} PreemptExemptTime=-1"),
        ("acct.qos", urgent("flags", value=["DENY_LIMIT"]), FAIL, "qos urgent has Flags DENY_LIMIT", f"{URGENT} Flags=-1"),
        ("acct.qos", nodes_of_qos, FAIL, "qos urgent has GrpTRES node=1", "modify qos where name=urgent set GrpTRES=node=-1"),
        ("acct.qos", marked_by_another, FAIL, "the QOS urgent belongs to the cluster other", "show cluster name=other format=cluster | grep -q . || { sacctmgr --immediate modify qos where name=urgent set priority=1000"),
    ],
)  # fmt: skip
def test_change_by_hand_is_found_with_a_command_that_undoes_it(check, change, verdict, found, remedy):
    """Regression: privileges, most limits and foreign marks passed, and one remedy was `on the head: ` without a command."""
    finding = after(check, change)
    assert finding.verdict is verdict, finding
    assert found in finding.found
    assert remedy in finding.remedy
    assert re.match(r"on \{machine\}: \S", finding.remedy)


def test_more_changes_than_a_remedy_has_commands():
    def many(whole: dict[str, Any]) -> None:
        whole["rows"] += [f"research|u{n}|" + "|5" + "|" * 9 for n in range(9)]
        place(whole, "science")["shares_raw"] = 9

    remedy = after("acct.tree", many).remedy
    assert remedy.count("MaxJobs=-1") == accounting.COMMANDS
    assert remedy.endswith("; then on your computer: gpucluster accounts apply lab")


def queue(count: int) -> str:
    return json.dumps({"statistics": {"dbd_agent_queue_size": count}})


@pytest.mark.parametrize(
    ("row", "first", "second", "found"),
    [
        ("lab|192.0.2.10|6817\n", 0, 0, ""),
        ("lab|192.0.2.10|6817\n", 900, 899, ""),  # a moment with much to do
        ("lab|192.0.2.10|6817\n", 50, 50, "50 records wait"),
        ("lab|192.0.2.10|6817\n", 49, 49, ""),
        ("lab||0\n", 0, 0, "slurmdbd knows no slurmctld of lab"),
        ("", 0, 0, "slurmdbd knows no slurmctld of lab"),
    ],
)
def test_registration_and_records_that_wait(row, first, second, found):
    got = accounting.parse_database(said(row, queue(first), queue(second)))
    finding = accounting.evaluate_database(got, WANTS["acct.db"])
    assert (finding.verdict is PASS) == (not found)
    assert found in finding.found


@pytest.mark.parametrize(
    ("find", "found"),
    [
        (QueryOutput(code=0, stdout="/proc/42/fd/9\n"), ""),
        (QueryOutput(code=0, stdout=""), "slurmctld writes to another file than /jobs"),
        (
            QueryOutput(code=1, stdout="", stderr="find: '/jobs': No such file or directory"),
            "/jobs is missing",
        ),
    ],
)
def test_file_of_ended_jobs(find, found):
    finding = accounting.evaluate_log(
        accounting.parse_log((*said("42\n"), find)), accounting.JobLog(path="/jobs")
    )
    assert (finding.verdict is PASS) == (not found)
    assert found in finding.found


def test_accounting_is_expected_as_the_plan_has_it():
    units = next(one.want.units for one in expectations(a_site_plan()) if one.id == "svc.active[head]")
    assert {"mariadb.service", "slurmdbd.service"} <= set(units)
    assert "acct.log" not in WANTS
