"""Accounting on real daemons: the accounts of a plan in slurmdbd, fair-share, limits, preemption, and faults of the database."""

import dataclasses
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from accounting import (
    FIRST_REGISTRATION,
    HeadMachine,
    apply_accounts,
    compare,
    job_of,
    reason,
    start_mariadb,
    start_slurmdbd,
    with_accounting,
)
from real_slurm import VERSIONS, RealSlurm
from support.account_rows import SITE
from support.builders import changed, on_hosts
from support.reviewed import a_diff
from support.waiting import lasting

from gpucluster import catalog
from gpucluster.agent.roles import host
from gpucluster.plan.model import SlurmLine, SlurmOnHosts
from gpucluster.plan.resolve import resolve
from gpucluster.slurm.accounts.apply import AccountsError
from gpucluster.slurm.accounts.diff import Kind
from gpucluster.spec import inspect_text

PEOPLE = ("vision", "speech", "recsys")
QUICK = ("exempt: 10m", "exempt: 1s")
MONTH_S = 31 * 86400
SOON = {  # what Slurm does each 30 s, and each five minutes
    "SchedulerParameters": "bf_continue,bf_window=1440,bf_resolution=60,bf_interval=2,sched_interval=2",
    "PriorityCalcPeriod": "1",
}


def _plan(*changes: tuple[str, str]) -> SlurmOnHosts:
    text = changed(SITE, *changes)
    plan = on_hosts(resolve(inspect_text(text, "lab.yaml", catalog.load()).result(), catalog.load()))
    lines = tuple(SlurmLine(file="slurm.conf", key=key, value=value) for key, value in SOON.items())
    return dataclasses.replace(
        plan,
        slurm=dataclasses.replace(plan.slurm, lines=lines),
        times=dataclasses.replace(plan.times, cred_expire_s=6),
    )


def _start_nodes(slurm: RealSlurm, *nodes: str) -> None:
    slurm.start_nodes(*nodes)
    listed = ",".join(nodes)
    slurm.wait(
        lambda: (
            slurm.run("sinfo", "-h", "-n", listed, "-N", "-p", "gpu", "-o", "%t").out.split()
            == ["idle"] * len(nodes)
        ),
        "idle nodes",
    )


def _submit(slurm: RealSlurm, user: str, *options: str, lasts: int = 300) -> str:
    return job_of(
        slurm.must("sbatch", "-o", "/dev/null", "-t", "10", *options, "--wrap", f"sleep {lasts}", user=user)
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_accounts_of_the_plan_are_in_slurmdbd_and_a_second_run_changes_nothing(version: str) -> None:
    """What sacctmgr shows afterwards is what the plan has; no daemon logs an error."""
    with with_accounting(version, _plan(), *PEOPLE) as slurm:
        assert apply_accounts(slurm).changes != ()
        assert compare(slurm).changes == ()
        shown = slurm.must(
            "sacctmgr", "-nP", "show", "assoc", "format=account,user,share,grptres,qos,defaultqos"
        )
        assert set(shown.splitlines()) >= {
            "science||3||normal,urgent|normal",
            "research||2|gres/gpu=24|normal,urgent|normal",
            "research|vision|1||normal,urgent|normal",
            "product||1||product-normal|product-normal",
        }
        qos = slurm.must(
            "sacctmgr", "-nP", "show", "qos", "format=name,priority,preempt,maxtrespu,grptresmins,flags"
        )
        assert set(qos.splitlines()) >= {
            "normal|100|||||".rstrip("|") + "||||",
            "urgent|1000|normal,product-normal|gres/gpu=16||",
            "product-normal|100|||gres/gpu=300000|NoDecay",
        }
        for program in ("slurmdbd", "slurmctld"):
            told = [
                line for line in slurm.errors(program) if not any(word in line for word in FIRST_REGISTRATION)
            ]
            assert told == []


@pytest.mark.parametrize("version", VERSIONS)
def test_names_with_dots_and_of_digits_are_slurms(version: str) -> None:
    """A user `anna.b` of the account `2026` with a long QOS submits a job."""
    account, qos = "2026", "qos.of_computational-astrophysics-at-the-department"
    plan = _plan(
        ("name: vision,", "name: anna.b,"),
        ("[vision, speech]", "[anna.b, speech]"),
        ("name: research,", f'name: "{account}",'),
        ("{name: urgent,", f"{{name: {qos},"),
        ("[normal, urgent]", f"[normal, {qos}]"),
    )
    with with_accounting(version, plan, "anna.b", "speech", "recsys") as slurm:
        assert apply_accounts(slurm).changes != ()
        assert compare(slurm).changes == ()
        _start_nodes(slurm, "gpu01")
        job = _submit(slurm, "anna.b", "-A", account, "--qos", qos)
        shown = slurm.must("squeue", "-h", "-j", job, "-o", "%u %a %q")
        assert shown.split() == ["anna.b", account, qos]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_leaves_the_spec_is_closed_and_the_records_of_others_stay(version: str) -> None:
    """Nothing is deleted: the account keeps its use, and opens again when the spec names it."""
    with with_accounting(version, _plan(), *PEOPLE) as slurm:
        apply_accounts(slurm)
        sacctmgr = ("sacctmgr", "--immediate", "add")
        slurm.must(*sacctmgr, "account", "guests", "organization=site", "description=by_hand")
        slurm.must(*sacctmgr, "user", "researcher", "account=guests")
        smaller = _plan(
            ("[vision, speech]", "[vision]"),
            (
                "  - {name: product, qos: [normal], users: [recsys], limits: {gpu_hours_per_month: 5000}}\n",
                "",
            ),
        )
        made = apply_accounts(slurm, smaller)
        closed = [change.subject for change in made.changes if change.kind is Kind.CLOSE]
        assert closed == [
            "user recsys of account product",
            "user speech of account research",
            "account product",
        ]
        assert compare(slurm, smaller).changes == ()
        refused = slurm.run("sbatch", "--wrap", "true", user="recsys")
        assert refused.code != 0
        assert "guests" in slurm.must("sacctmgr", "-nP", "show", "account", "format=account")
        apply_accounts(slurm)
        assert compare(slurm).changes == ()
        assert slurm.run("sbatch", "-H", "--wrap", "true", user="recsys").code == 0
        assert slurm.run("sbatch", "-H", "--wrap", "true", user="researcher").code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_half_applied_accounts_are_completed(version: str) -> None:
    """A run that ends after any number of its commands leaves what the next run completes."""
    with with_accounting(version, _plan(), *PEOPLE) as slurm:
        commands = [command for change in compare(slurm).changes for command in change.commands]
        for done in (1, 4, len(commands) - 1):
            for command in commands[:done]:
                slurm.run(*command)
            assert compare(slurm).changes != ()
        apply_accounts(slurm)
        assert compare(slurm).changes == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_account_that_used_less_goes_first(version: str) -> None:
    """Fair-share turns the order of two accounts' jobs: the older job waits behind that of the account without use."""
    with with_accounting(version, _plan(), *PEOPLE) as slurm:
        apply_accounts(slurm)
        _start_nodes(slurm, "gpu01")
        slurm.must("scontrol", "update", "nodename=gpu[02-04]", "state=down", "reason=test")
        used = _submit(slurm, "vision", "--gpus=8", lasts=3)
        slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "the first job has ended")
        slurm.must("scontrol", "update", "nodename=gpu01", "state=drain", "reason=test")
        older, younger = _submit(slurm, "vision", "--gpus=8"), _submit(slurm, "recsys", "--gpus=8")

        def priority(job: str) -> int:
            return int(slurm.must("squeue", "-h", "-j", job, "-o", "%Q"))

        assert priority(older) >= priority(younger), "before the use is counted"
        slurm.wait(
            lambda: priority(younger) > priority(older),
            "the account without use has the higher priority",
            150,
        )
        assert int(older) < int(younger)
        slurm.must("scontrol", "update", "nodename=gpu01", "state=resume")
        slurm.wait(lambda: reason(slurm, younger).startswith("RUNNING"), "the younger job runs")
        assert reason(slurm, older).startswith("PENDING")
        assert used not in (older, younger)


@pytest.mark.parametrize("version", VERSIONS)
def test_fair_share_of_a_renamed_account_starts_at_zero(version: str) -> None:
    """As `diff` says: slurmdbd keeps the use of the closed account with its name."""
    rename = ("{name: research, parent", "{name: learning, parent")
    said = a_diff(SITE, changed(SITE, rename)).effects
    assert said is not None
    assert (
        "of the account research start (sbatch refuses new ones); the fair-share of learning starts at zero"
        in said.queued
    )
    with with_accounting(version, _plan(), *PEOPLE) as slurm:

        def used() -> dict[str, int]:
            shown = slurm.must("sshare", "-nP", "-A", "research,learning", "-o", "account,user,rawusage")
            rows = [line.split("|") for line in shown.splitlines()]
            return {account.strip(): int(use) for account, user, use in rows if not user}

        apply_accounts(slurm)
        _start_nodes(slurm, "gpu01")
        _submit(slurm, "vision", "--gpus=8", lasts=3)
        slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "the job has ended")
        slurm.wait(lambda: used()["research"] > 0, "its use is counted", 150)
        apply_accounts(slurm, _plan(rename))
        new = _submit(slurm, "vision", "--account=learning", "--hold")
        assert reason(slurm, new).startswith("PENDING")
        assert used()["learning"] == 0
        assert used()["research"] > 0
        assert slurm.run("sbatch", "--account=research", "--wrap", "true", user="vision").code != 0


@pytest.mark.parametrize("version", VERSIONS)
def test_limits_hold_jobs_with_their_reasons(version: str) -> None:
    """A QOS limits the GPUs of a user, an account the GPUs of all its jobs; a job above a limit waits."""
    with with_accounting(version, _plan(), *PEOPLE) as slurm:
        apply_accounts(slurm)
        _start_nodes(slurm, "gpu01", "gpu02", "gpu03", "gpu04")
        runs = [_submit(slurm, "vision", "--qos=urgent", "--gpus=8") for _ in range(2)]
        slurm.wait(lambda: all(reason(slurm, job).startswith("RUNNING") for job in runs), "16 GPUs run")
        held = _submit(slurm, "vision", "--qos=urgent", "--gpus=1")
        slurm.wait(lambda: reason(slurm, held) == "PENDING (QOSMaxGRESPerUser)", "the QOS holds the job")
        more = _submit(slurm, "speech", "--gpus=8")
        slurm.wait(lambda: reason(slurm, more).startswith("RUNNING"), "24 GPUs of the account run")
        above = _submit(slurm, "speech", "--gpus=1")
        slurm.wait(lambda: reason(slurm, above) == "PENDING (AssocGrpGRES)", "the account holds the job")
        other = _submit(slurm, "recsys", "--gpus=8")
        slurm.wait(lambda: reason(slurm, other).startswith("RUNNING"), "another account uses the rest")
        assert (reason(slurm, held), reason(slurm, above)) == (
            "PENDING (QOSMaxGRESPerUser)",
            "PENDING (AssocGrpGRES)",
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_an_urgent_job_preempts_and_its_victim_runs_again_to_its_end(version: str) -> None:
    with with_accounting(version, _plan(QUICK), *PEOPLE) as slurm:
        apply_accounts(slurm)
        _start_nodes(slurm, "gpu01")
        slurm.must("scontrol", "update", "nodename=gpu[02-04]", "state=down", "reason=test")
        victim = _submit(slurm, "vision", "--gpus=8", lasts=15)
        slurm.wait(lambda: reason(slurm, victim).startswith("RUNNING"), "the first job runs")
        lasting(1.5)  # the time in which a job is not preempted
        urgent = _submit(slurm, "speech", "--qos=urgent", "--gpus=8", lasts=2)
        slurm.wait(lambda: reason(slurm, urgent).startswith("RUNNING"), "the urgent job runs")
        assert reason(slurm, victim).startswith("PENDING")
        states = ("sacct", "-nPX", "-j", f"{victim},{urgent}", "--duplicates", "-o", "jobid,state")
        wanted = [f"{victim}|PREEMPTED", f"{victim}|COMPLETED", f"{urgent}|COMPLETED"]
        slurm.wait(lambda: sorted(slurm.must(*states).split()) == sorted(wanted), "both end well")


@pytest.mark.parametrize("version", VERSIONS)
def test_gpu_hours_of_a_month_stop_at_their_value_and_start_again(version: str) -> None:
    """One GPU-hour: eight GPUs for seven minutes fit (56 of 60 GPU-minutes), eight for eight minutes do not."""
    plan = _plan(("gpu_hours_per_month: 5000", "gpu_hours_per_month: 1"))
    with with_accounting(version, plan, *PEOPLE) as slurm:
        apply_accounts(slurm)
        _start_nodes(slurm, "gpu01")
        above = _submit(slurm, "recsys", "--gpus=8", "-t", "8")
        slurm.wait(
            lambda: reason(slurm, above) == "PENDING (QOSGrpGRESMinutes)", "64 minutes are above the limit"
        )
        below = _submit(slurm, "recsys", "--gpus=8", "-t", "7", lasts=40)
        slurm.wait(lambda: reason(slurm, below).startswith("RUNNING"), "56 minutes fit")
        slurm.wait(lambda: reason(slurm, below) == "", "it has ended")
        again = _submit(slurm, "recsys", "--gpus=8", "-t", "7")
        slurm.wait(lambda: reason(slurm, again) == "PENDING (QOSGrpGRESMinutes)", "its use counts")
        assert compare(slurm).changes == ()
        next_month = time.time() + MONTH_S
        made = apply_accounts(slurm, at=next_month)
        assert [(one.kind, one.subject) for one in made.changes] == [(Kind.RESET, "QOS product-normal")]
        assert compare(slurm, at=next_month).changes == ()
        slurm.wait(lambda: reason(slurm, again).startswith("RUNNING"), "the month begins with all hours")


@pytest.mark.parametrize("version", VERSIONS)
def test_timer_of_an_existing_head_resets_the_hours_once_in_a_new_month(version: str) -> None:
    """The command of gpucluster-accounts.timer, with the clock of each run. While slurmdbd is away it fails, and the next run does it."""
    november, december = (datetime(2026, month, 1, 0, 0, 1, tzinfo=UTC).timestamp() for month in (11, 12))
    shown = ("sacctmgr", "-nP", "show", "qos", "product-normal", "format=description")
    plan = _plan()
    with with_accounting(version, plan, *PEOPLE) as slurm:
        head = HeadMachine(slurm)
        head.bring(slurm.plan)
        assert host.apply_accounts(head.machine(november)) == ""
        assert slurm.must(*shown).strip() == "gpucluster lab 2026-11"
        assert compare(slurm, at=november).changes == ()
        (reset,) = compare(slurm, at=december).changes
        assert (reset.kind, reset.subject) == (Kind.RESET, "QOS product-normal")

        slurm.must("pkill", "--signal", "KILL", "--exact", "slurmdbd")
        assert host.apply_accounts(head.machine(december)).startswith("the accounts are not applied: ")
        start_slurmdbd(slurm)
        slurm.must("sacctmgr", "--immediate", "modify", "account", "research", "set", "fairshare=7")
        assert host.apply_accounts(head.machine(december)) == ""
        assert slurm.must(*shown).strip() == "gpucluster lab 2026-12"
        assert compare(slurm, at=december).changes == ()
        head.calls.clear()
        assert host.apply_accounts(head.machine(december + 86400)) == ""
        assert head.calls == [], "a second run in the month asks and changes nothing"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_database_dies_under_load_and_no_record_is_lost(version: str) -> None:
    """MariaDB, then slurmdbd, are killed while jobs start and end. Jobs go on, and later every record is there."""
    with with_accounting(version, _plan(), *PEOPLE) as slurm:
        apply_accounts(slurm)
        _start_nodes(slurm, "gpu01", "gpu02")
        first = [_submit(slurm, user, lasts=1) for user in PEOPLE for _ in range(4)]
        slurm.must("pkill", "--signal", "KILL", "--exact", "mariadbd")
        second = [_submit(slurm, user, lasts=1) for user in PEOPLE for _ in range(4)]
        slurm.must("pkill", "--signal", "KILL", "--exact", "slurmdbd")
        third = [_submit(slurm, user, lasts=1) for user in PEOPLE for _ in range(4)]
        slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "all jobs end without a database")
        with pytest.raises(AccountsError):
            compare(slurm)
        start_mariadb(slurm)
        start_slurmdbd(slurm)
        every = [*first, *second, *third]

        def recorded() -> bool:
            shown = slurm.run("sacct", "-nPX", "-a", "-j", ",".join(every), "-o", "jobid,state").out.split()
            return sorted(shown) == sorted(f"{job}|COMPLETED" for job in every)

        slurm.wait(recorded, "every job has its record")


@pytest.mark.parametrize("version", VERSIONS)
def test_slurmctld_starts_again_while_slurmdbd_is_away(version: str) -> None:
    """Accounts, limits and jobs are known without slurmdbd once slurmctld has had them."""
    with with_accounting(version, _plan(), *PEOPLE) as slurm:
        apply_accounts(slurm)
        _start_nodes(slurm, "gpu01")
        runs = _submit(slurm, "vision", "--gpus=1", lasts=20)
        slurm.wait(lambda: reason(slurm, runs).startswith("RUNNING"), "a job runs")
        slurm.must("pkill", "--signal", "KILL", "--exact", "slurmdbd")
        slurm.stop_controller()
        assert slurm.path("/var/spool/slurmctld/last_tres").exists()
        slurm.start_controller()
        assert reason(slurm, runs).startswith("RUNNING")
        new = _submit(slurm, "recsys", "--gpus=1", lasts=1)
        slurm.wait(lambda: reason(slurm, new) == "", "a new job runs and ends")
        assert slurm.run("sbatch", "--wrap", "true", user="researcher").code != 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_backup_of_the_database_is_restored_by_the_commands_of_the_page(version: str) -> None:
    """docs/accounting.md names both commands. Accounts, limits and records of jobs are there again."""
    page = (Path(__file__).parents[2] / "docs/accounting.md").read_text()
    dump = "mariadb-dump --single-transaction --databases slurm_acct_db"
    assert f"{dump} > backup.sql" in page
    assert "mariadb < backup.sql" in page
    with with_accounting(version, _plan(), *PEOPLE) as slurm:
        apply_accounts(slurm)
        _start_nodes(slurm, "gpu01")
        job = _submit(slurm, "vision", lasts=1)
        record = ("sacct", "-nPX", "-a", "-j", job, "-o", "jobid,account,state")
        slurm.wait(lambda: slurm.must(*record).strip() == f"{job}|research|COMPLETED", "its record")
        backup = slurm.must(*dump.split())
        slurm.must("pkill", "--exact", "slurmdbd")
        slurm.must("mariadb", "--execute", "DROP DATABASE slurm_acct_db")
        slurm.must("mariadb", stdin=backup)
        start_slurmdbd(slurm)
        assert compare(slurm).changes == ()
        assert slurm.must(*record).strip() == f"{job}|research|COMPLETED"
