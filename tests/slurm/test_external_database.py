"""slurmdbd with an existing MariaDB of the site, over TLS: the agent's own step on real daemons, faults, and the standby's slurmdbd."""

import dataclasses
import subprocess

import pytest
from accounting import HeadMachine, start_munge
from external_database import CA, HOST, OTHER_CA, PASSWORD, PORT, USER, ExternalDatabase
from real_slurm import ROOT, VERSIONS, RealSlurm
from support.builders import a_lab_plan, a_plan
from support.waiting import BOUND_S

from gpucluster.agent.boot import accounting
from gpucluster.plan import names
from gpucluster.plan.model import Accounting, SlurmOnHosts, SlurmPlan, Standby
from gpucluster.plan.model import ExternalDatabase as Elsewhere

ARN = "arn:aws:secretsmanager:us-east-1:123456789012:secret:db-AbCdEf"
AWAY = f"accounting is away, jobs go on: the database at {HOST}:{PORT}: ERROR"


def _accounting(ca: str = CA) -> Accounting:
    return Accounting(database=Elsewhere(host=HOST, port=PORT, secret=ARN, ca=ca), keep_s=90 * 86400)


def _plan(version: str, ca: str = CA) -> SlurmOnHosts:
    plan = a_lab_plan()
    return dataclasses.replace(
        plan, slurm=dataclasses.replace(plan.slurm, version=version, accounting=_accounting(ca))
    )


def _job_ends(slurm: RealSlurm) -> str:
    job = slurm.must("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true").strip()
    slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "the job ends")
    return job


def _is_recorded(slurm: RealSlurm, job: str) -> bool:
    return slurm.run("sacct", "-nPX", "-a", "-j", job, "-o", "state").out.strip() == "COMPLETED"


@pytest.mark.parametrize("version", VERSIONS)
def test_records_go_to_the_database_by_tls_also_after_its_password_changes_and_after_it_was_away(
    version: str,
) -> None:
    plan = _plan(version)
    with RealSlurm(version, plan) as slurm:
        site = ExternalDatabase(slurm)
        server = site.start()
        start_munge(slurm)
        head = HeadMachine(slurm, site.secret())
        state = head.state(plan)
        assert accounting.run_slurmdbd(head.machine(), state).accounting == ""
        plain = ("mariadb", "--no-defaults", f"--host={HOST}", f"--port={PORT}", f"--user={USER}", f"--password={PASSWORD}", "--skip-ssl")  # fmt: skip
        assert "insecure transport are prohibited" in slurm.run(*plain, "--execute", "SELECT 1").err
        assert f"{USER}\t{HOST}" in site.sql("SHOW PROCESSLIST"), (
            "slurmdbd is connected, and the server takes TLS only"
        )
        slurm.start_controller()
        slurm.start_nodes("gpu01")
        slurm.wait(
            lambda: slurm.must("sinfo", "-h", "-n", "gpu01", "-o", "%t").split()[:1] == ["idle"], "idle"
        )
        first = _job_ends(slurm)
        slurm.wait(lambda: _is_recorded(slurm, first), "the record")

        site.sql(f"ALTER USER '{USER}'@'%' IDENTIFIED BY 'another-one'")
        head.secrets.value = site.secret("another-one")
        assert accounting.run_slurmdbd(head.machine(), state).accounting == ""
        second = _job_ends(slurm)
        slurm.wait(lambda: _is_recorded(slurm, second), "the record by the new password")

        slurm.must("pkill", "--exact", "mariadbd")
        server.wait(timeout=BOUND_S)
        third = _job_ends(slurm)
        slurm.write(
            accounting.KNOWN_TRES, "", owner="slurm"
        )  # slurmctld writes it with its state, after minutes
        _kill(slurm, head)
        told = accounting.run_slurmdbd(head.machine(), state).accounting
        assert told.startswith(f"{AWAY} 2002")
        assert f"Can't connect to server on '{HOST}'" in told
        site.start(fresh=False)
        assert accounting.run_slurmdbd(head.machine(), state).accounting == ""
        slurm.wait(lambda: _is_recorded(slurm, third), "the record of the time without a database")


@pytest.mark.parametrize("version", VERSIONS)
def test_faults_of_the_login_are_told_before_slurmdbd_starts(version: str) -> None:
    """A wrong password, a certificate of another authority or for another name, and a server without TLS."""
    plan = _plan(version)
    with RealSlurm(version, plan) as slurm:
        site = ExternalDatabase(slurm)
        server = site.start()
        start_munge(slurm)
        slurm.write(accounting.KNOWN_TRES, "")  # slurmctld has run before
        head = HeadMachine(slurm, site.secret("wrong"))

        def told(plan: SlurmPlan) -> str:
            return accounting.run_slurmdbd(head.machine(), head.state(plan)).accounting

        assert told(plan).startswith(f"{AWAY} 1045 (28000): Access denied for user '{USER}'@")
        head.secrets.value = site.secret()
        assert (
            told(_plan(version, OTHER_CA))
            == f"{AWAY} 2026 (HY000): TLS/SSL error: unable to get local issuer certificate"
        )
        slurm.write(
            "/etc/hosts", slurm.path("/etc/hosts").read_text().replace(HOST, f"{HOST} db.example.net")
        )
        part = dataclasses.replace(
            _accounting(), database=dataclasses.replace(_accounting().database, host="db.example.net")
        )
        other = dataclasses.replace(plan, slurm=dataclasses.replace(plan.slurm, accounting=part))
        assert "2026 (HY000): TLS/SSL error: Hostname verification failed" in told(other)
        assert head.units == {}, "slurmdbd itself checks no certificate: it would have begun"
        slurm.must("pkill", "--exact", "mariadbd")
        server.wait(timeout=BOUND_S)
        site.configure("skip-ssl\n")
        site.start(fresh=False)
        assert (
            told(plan)
            == f"{AWAY} 2026 (HY000): TLS/SSL error: SSL is required, but the server does not support it"
        )
        assert head.units == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_slurmdbd_of_the_standby_serves_while_the_one_of_the_head_is_away(version: str) -> None:
    plan = a_plan()
    standby = Standby(machine="m7i.2xlarge", zone="us-east-2b", address="10.42.128.10", state="/home")
    plan = dataclasses.replace(
        plan,
        slurm=dataclasses.replace(plan.slurm, version=version, accounting=_accounting()),
        head=dataclasses.replace(plan.head, standby=standby),
    )
    with RealSlurm(version, plan) as slurm:
        site = ExternalDatabase(slurm)
        site.start()
        start_munge(slurm)
        for name, address in (
            (plan.head.name, plan.head.address),
            (names.standby_name(plan.name), standby.address),
        ):
            with slurm.path("/etc/hosts").open("a") as hosts:
                hosts.write(f"{address} {name}\n")
        head = HeadMachine(slurm, site.secret())
        state = head.state(plan)
        assert accounting.run_slurmdbd(head.machine(), state).accounting == ""
        backup = _start_backup(slurm, names.standby_name(plan.name), standby.address)
        slurm.wait(lambda: "slurmdbd running in background mode" in _log(slurm), "the backup waits")
        assert not head.machine().listening(standby.address, names.SLURMDBD_PORT)
        slurm.start_controller()
        shown = ("sacctmgr", "-nP", "show", "cluster", "format=cluster,controlhost")
        slurm.wait(lambda: slurm.run(*shown).out.strip() == f"{plan.name}|{plan.head.address}", "registered")

        _kill(slurm, head)
        slurm.wait(
            lambda: head.machine().listening(standby.address, names.SLURMDBD_PORT), "the backup serves", 120
        )
        job = slurm.must("sbatch", "--parsable", "--hold", "--wrap", "true").strip()
        slurm.must("scancel", job)
        record = ("sacct", "-nPX", "-a", "-j", job, "-o", "state")
        slurm.wait(lambda: slurm.run(*record).out.startswith("CANCELLED"), "the backup has the record")
        assert backup.poll() is None

        assert accounting.run_slurmdbd(head.machine(), state).accounting == ""
        slurm.wait(
            lambda: not head.machine().listening(standby.address, names.SLURMDBD_PORT), "it waits again", 120
        )
        assert slurm.must(*record).startswith("CANCELLED")


def _kill(slurm: RealSlurm, head: HeadMachine) -> None:
    """Kill slurmdbd of the head; there may be another one in the namespaces."""
    slurm.must("sh", "-c", "kill -KILL $(cat /run/slurmdbd/slurmdbd.pid)")
    head.units["slurmdbd.service"].wait(timeout=BOUND_S)


def _start_backup(slurm: RealSlurm, name: str, address: str) -> "subprocess.Popen[bytes]":
    """slurmdbd on a machine of this name and address, with files of its own."""
    text = slurm.path(names.SLURMDBD_CONF).read_text().replace("/slurmdbd.", "/slurmdbd-backup.")
    slurm.write("/lab/standby/slurmdbd.conf", text, mode=0o600, owner="slurm")
    slurm.write("/lab/standby/slurm.conf", slurm.path(f"{names.SLURM_ETC}/slurm.conf").read_text())
    script = f"""set -e
        ip addr del {address}/32 dev br0
        ip netns add {name}; ip link add vstandby type veth peer name eth0 netns {name}
        ip link set vstandby master br0 up; ip route add {address}/32 dev br0
        ip -n {name} link set lo up; ip -n {name} addr add {address}/32 dev eth0; ip -n {name} link set eth0 up
        ip -n {name} route add default dev eth0 src {address}"""
    slurm._host("sh", "-c", script)
    inner = f"hostname {name}; exec chroot --userspec=slurm:slurm {ROOT} env SLURM_CONF=/lab/standby/slurm.conf /usr/sbin/slurmdbd -D"
    argv = [
        *slurm._enter(),
        "nsenter",
        f"--net=/run/netns/{name}",
        "unshare",
        "--uts",
        "sh",
        "-e",
        "-c",
        inner,
    ]
    with slurm.path("/lab/standby/out").open("ab") as out:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    slurm._spawned.append(process)
    return process


def _log(slurm: RealSlurm) -> str:
    return slurm.path("/lab/standby/out").read_text(errors="replace") + slurm.log("slurmdbd-backup")
