"""An upgrade of slurmdbd from 24.11 to 26.05, before and after that of slurmctld: real daemons, one database with jobs, use and accounts."""

import re
import subprocess
import time

from accounting import HeadMachine, apply_accounts, compare, start_slurmdbd, with_accounting
from newer import Newer
from real_slurm import RealSlurm
from test_accounting import PEOPLE, _plan, _start_nodes, _submit

from gpucluster.agent.boot import accounting
from gpucluster.plan import names

OLD, NEW = "24.11", "26.05"
JOBS = (
    *("sacct", "-nP", "-a", "-S", "2020-01-01", "--duplicates", "-o"),
    "jobid,jobname,account,user,qos,partition,state,exitcode,submit,start,end,alloctres,nodelist,timelimit",
)
SHOWN = (
    ("assoc", "account,user,parentname,share,grptres,qos,defaultqos,grpsubmitjobs,comment"),
    ("qos", "name,description,priority,preempt,maxtrespu,grptresmins,flags"),
    ("account", "account,description,organization"),
    ("user", "user,defaultaccount,adminlevel"),
    ("tres", "type,name,id"),
)
USE = (
    *("sreport", "-nP", "-t", "seconds", "-T", "cpu,gres/gpu", "cluster", "AccountUtilizationByUser"),
    *("start=now-2days", "end=now"),
)
ROWS = {
    **{
        f"use by {span}": f"SELECT id, id_tres, time_start, alloc_secs FROM lab_assoc_usage_{span}_table"  # noqa: S608
        for span in ("hour", "day")
    },
    "reservations": "SELECT id_resv, resv_name, time_start, time_end, nodelist FROM lab_resv_table",
}
MOVED = {  # columns with times, by table
    "job": ("submit", "eligible", "start", "end"),
    "step": ("start", "end"),
    "event": ("start",),
}
DAY_S = 86400
INCOMPATIBLE = "Incompatible versions of client and server code"
UNIT = f"{accounting.SLURMDBD}.service"


def test_nothing_is_lost_if_slurmdbd_goes_first() -> None:
    """slurmctld 24.11 reports to slurmdbd 26.05 at once; later it is replaced, too. A job runs through both."""
    with with_accounting(OLD, _plan(), *PEOPLE) as slurm:
        _fill(slurm)
        runs = _submit_script(slurm, "vision", "until [ -e /tmp/stop ]; do sleep 0.2; done")
        slurm.wait(lambda: _state(slurm, runs) == "RUNNING", "a job runs")
        before = _seen(slurm)
        newer = Newer(slurm, NEW)
        _stop(slurm)
        start_slurmdbd(newer)
        assert _seen(slurm) == before
        assert compare(slurm).changes == ()
        _runs_a_job(slurm, "speech")

        slurm.stop_controller()
        newer.start_controller()
        _runs_a_job(newer, "recsys")
        assert _state(newer, runs) == "RUNNING"
        slurm.path("/tmp/stop").touch()
        slurm.wait(lambda: _state(newer, runs) == "COMPLETED", "the job of before ends")
        assert f"slurmdbd version {NEW}" in slurm.log("slurmdbd")


def test_records_wait_if_slurmctld_goes_first_and_the_agent_restarts_slurmdbd() -> None:
    """slurmdbd 24.11 refuses slurmctld 26.05 and its clients. Jobs go on; slurmdbd 26.05 gets every record."""
    with with_accounting(OLD, _plan(), *PEOPLE) as slurm:
        _fill(slurm)
        before = _seen(slurm)
        newer = Newer(slurm, NEW)
        slurm.stop_controller()
        newer.start_controller()
        jobs = [_submit(newer, user, lasts=1) for user in PEOPLE]
        slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "jobs end")
        assert INCOMPATIBLE in newer.run("sacctmgr", "-n", "show", "cluster").err
        assert newer.run("sbatch", "--wrap", "true", user="researcher").code != 0, "accounts are known"
        assert _waiting(newer) > 0
        assert _seen(slurm) == before

        head = HeadMachine(newer)
        head.units = {f"{name}.service": _process(slurm, name) for name in ("mariadbd", "slurmdbd")}
        head.units["mariadb.service"] = head.units.pop("mariadbd.service")
        assert accounting.run_slurmdbd(head.machine(), head.state(slurm.plan)).accounting == ""
        assert [call for call in head.calls if call[:2] == ("systemctl", "restart")] == [
            ("systemctl", "restart", UNIT)
        ]
        slurm.wait(lambda: {_state(newer, job) for job in jobs} == {"COMPLETED"}, "every record")
        assert _waiting(newer) == 0
        head.calls.clear()
        assert accounting.run_slurmdbd(head.machine(), head.state(slurm.plan)).accounting == ""
        assert not [call for call in head.calls if call[:2] == ("systemctl", "restart")], "once"


def test_an_older_slurmdbd_removes_columns_of_the_newer_one() -> None:
    """It starts without an error: a backup of the database is the only way back. A standby's slurmdbd removes nothing."""
    with with_accounting(OLD, _plan(), *PEOPLE) as slurm:
        _stop(slurm)
        start_slurmdbd(Newer(slurm, NEW))
        assert "segment_size" in _columns(slurm)
        _stop(slurm)
        kept = _as_backup(slurm)
        before = _tables(slurm)
        slurm.spawn("/usr/sbin/slurmdbd", "-D", user="slurm")
        started = "slurmdbd running in background mode"
        slurm.wait(lambda: started in slurm.log("slurmdbd"), "the backup waits")
        slurm.wait(lambda: "Taking Control" in slurm.log("slurmdbd"), "it takes over")
        assert _tables(slurm) == before
        _stop(slurm, "KILL")  # it looks for the other one and does not end at SIGTERM within a minute
        slurm.path(names.SLURMDBD_CONF).write_text(kept)
        start_slurmdbd(slurm)
        assert "segment_size" not in _columns(slurm)


def _as_backup(slurm: RealSlurm) -> str:
    """Make this host the one of DbdBackupHost, and let that of DbdHost be off; slurmdbd.conf of before."""
    conf, head = slurm.path(names.SLURMDBD_CONF), slurm.plan.head.name
    text = conf.read_text()
    assert text.count(f"DbdHost={head}\n") == 1
    conf.write_text(text.replace(f"DbdHost={head}\n", f"DbdHost=gone\nDbdBackupHost={head}\n"))
    hosts = slurm.path("/etc/hosts")
    # No route leads there. On 127.0.0.0/8 slurmdbd finds itself and gives up control each second.
    hosts.write_text(f"{hosts.read_text()}203.0.113.9 gone\n")
    return text


def _tables(slurm: RealSlurm) -> str:
    """The columns of all tables."""
    of_database = f"table_schema='{names.DATABASE}'"
    what = "table_name, column_name, column_type FROM information_schema.columns"
    asked = f"SELECT {what} WHERE {of_database} ORDER BY 1, 2"
    return slurm.must("mariadb", "-N", "--execute", asked)


def _columns(slurm: RealSlurm) -> list[str]:
    shown = slurm.must("mariadb", "-N", names.DATABASE, "--execute", "SHOW COLUMNS FROM lab_job_table")
    return [line.split("\t")[0] for line in shown.splitlines()]


def _fill(slurm: RealSlurm) -> None:
    """Jobs of yesterday with their steps, their use in the tables of hours and days, and a reservation."""
    apply_accounts(slurm)
    _start_nodes(slurm, "gpu01", "gpu02")
    jobs = [_submit(slurm, user, "--gpus=1", lasts=1) for user in PEOPLE for _ in range(2)]
    jobs.append(_submit_script(slurm, "vision", "srun -n2 true; exit 3"))
    course = ("reservationname=course", "starttime=now+10days", "duration=60", "nodes=gpu02", "users=root")
    slurm.must("scontrol", "create", *course)
    ended = {"COMPLETED", "FAILED"}
    slurm.wait(lambda: {_state(slurm, job) for job in jobs} == ended, "records")
    _stop(slurm)
    start = int(time.time()) - 2 * DAY_S
    moved = "".join(
        f"UPDATE lab_{table}_table SET {', '.join(f'time_{word}=time_{word}-{DAY_S}' for word in words)};\n"  # noqa: S608
        for table, words in MOVED.items()
    )
    ran = ", ".join(f"{word}_rollup={start}" for word in ("hourly", "daily", "monthly"))
    slurm.must("mariadb", names.DATABASE, stdin=f"{moved}UPDATE lab_last_ran_table SET {ran};\n")  # noqa: S608
    start_slurmdbd(slurm)
    slurm.wait(lambda: "vision" in slurm.must(*USE), "the use of yesterday")


def _seen(slurm: RealSlurm) -> dict[str, str]:
    """What the clients show of the database, and the rows of the use."""
    found = {"jobs": slurm.must(*JOBS), "use": slurm.must(*USE)}
    for what, columns in SHOWN:
        found[what] = slurm.must("sacctmgr", "-nP", "show", what, f"format={columns}")
    for what, query in ROWS.items():
        found[what] = slurm.must("mariadb", names.DATABASE, "--execute", f"{query} ORDER BY 1, 2, 3")
    assert all(found.values()), found
    return found


def _process(slurm: RealSlurm, name: str) -> "subprocess.Popen[bytes]":
    """The last process of this program."""
    return next(one for one in reversed(slurm._spawned) if f"/usr/sbin/{name}" in str(one.args))


def _stop(slurm: RealSlurm, signal: str = "TERM") -> None:
    slurm.must("pkill", "--signal", signal, "--exact", "slurmdbd")
    slurm.wait(lambda: slurm.run("pgrep", "--exact", "slurmdbd").code == 1, "slurmdbd has ended")


def _submit_script(slurm: RealSlurm, user: str, script: str) -> str:
    return slurm.must(
        "sbatch", "--parsable", "-o", "/dev/null", "-t", "10", stdin=f"#!/bin/sh\n{script}\n", user=user
    ).strip()


def _runs_a_job(slurm: RealSlurm, user: str) -> None:
    job = _submit(slurm, user, lasts=0)
    slurm.wait(lambda: _state(slurm, job) == "COMPLETED", "a new job has its record")


def _state(slurm: RealSlurm, job: str) -> str:
    return slurm.must("sacct", "-nPX", "-a", "-j", job, "-o", "state").strip()


def _waiting(slurm: RealSlurm) -> int:
    found = re.search(r"^DBD Agent queue size:\s*(\d+)", slurm.must("sdiag"), re.MULTILINE)
    assert found is not None
    return int(found[1])
