"""slurmdbd with MariaDB for RealSlurm: the files of the plan and the SQL of the head's agent.

    with with_accounting(version, plan) as slurm:
        apply_accounts(slurm)

systemd is absent, so the daemons are started by their programs, as the units of Debian do.
"""

import contextlib
import dataclasses
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from real_slurm import Done, RealSlurm
from support.waiting import BOUND_S

from gpucluster import artifacts
from gpucluster.agent.boot.accounting import SETUP, value_of
from gpucluster.agent.boot.boot_state import BootState, Bundle, Identity
from gpucluster.agent.machine import Machine, Reply, Services
from gpucluster.agent.services import FolderServices
from gpucluster.artifacts import Artifact
from gpucluster.plan import codec, names
from gpucluster.plan.model import SlurmPlan
from gpucluster.shell import TIMED_OUT, CommandError, Result
from gpucluster.slurm.accounts import apply as accounts
from gpucluster.slurm.accounts.diff import Difference
from gpucluster.slurm.config.render import render

FIRST_REGISTRATION = ("We can't find assoc", "No fed_mgr state file")  # 24.11, before the cluster is known


@contextlib.contextmanager
def with_accounting(version: str, plan: SlurmPlan, *users: str, nodes: bool = True) -> Iterator[RealSlurm]:
    """A cluster whose slurmctld reports to slurmdbd. `users` are made on the head, from uid 5001."""
    plan = dataclasses.replace(plan, slurm=dataclasses.replace(plan.slurm, version=version))
    with RealSlurm(version, plan, nodes=nodes) as slurm:
        for uid, user in enumerate(users, start=5001):
            slurm.must("useradd", "--uid", str(uid), "--no-create-home", user)
        start_munge(slurm)
        prepare_database(slurm, plan)
        start_mariadb(slurm)
        slurm.must("mariadb", "--batch", stdin=SETUP)
        start_slurmdbd(slurm)
        assert plan.slurm.accounting is not None
        accounts.add_missing_qos(runner(slurm), plan.slurm.accounting, plan.name)
        slurm.start_controller()
        slurm.wait(
            lambda: plan.name in slurm.run("sacctmgr", "-n", "show", "cluster").out, "the registration"
        )
        yield slurm


def start_munge(slurm: RealSlurm) -> None:
    slurm.spawn("/usr/sbin/munged", "--foreground", user="munge")
    slurm.wait(lambda: slurm.path("/run/munge/munge.socket.2").exists(), "munge's socket")


def prepare_database(slurm: RealSlurm, plan: SlurmPlan) -> None:
    files = {artifact.path: artifact.content.decode() for artifact in render(plan)}
    slurm.write(names.MARIADB_CONF, files[names.MARIADB_FILE])
    slurm.write(names.SLURMDBD_CONF, files[names.SLURMDBD_FILE], mode=0o600, owner="slurm")
    data = value_of(files[names.MARIADB_FILE], "datadir")
    if data != names.MARIADB_DATA:  # on the state volume, to which the agent moves the first data
        slurm.must("mkdir", "--parents", data.rpartition("/")[0])
        slurm.must("cp", "--archive", names.MARIADB_DATA, data)
    slurm.folder("/run/mysqld", "mysql")
    archive = value_of(files[names.SLURMDBD_FILE], "ArchiveDir")
    for folder in ("/run/slurmdbd", "/var/log/slurm", archive):
        slurm.folder(folder, "slurm")


def start_mariadb(slurm: RealSlurm) -> "subprocess.Popen[bytes]":
    process = slurm.spawn("/usr/sbin/mariadbd", "--user=mysql", name="mariadbd")
    slurm.wait(lambda: slurm.run("mariadb", "--execute", "SELECT 1").code == 0, "MariaDB answers")
    return process


def start_slurmdbd(slurm: RealSlurm) -> "subprocess.Popen[bytes]":
    process = slurm.spawn("/usr/sbin/slurmdbd", "-D", user="slurm")
    slurm.wait(lambda: slurm.run("sacctmgr", "-n", "show", "cluster").code == 0, "slurmdbd answers")
    return process


def runner(slurm: RealSlurm) -> accounts.Run:
    def run(argv: Sequence[str]) -> Result:
        done = slurm.run(*argv)
        return Result(argv=tuple(argv), code=done.code, stdout=done.out, stderr=done.err)

    return run


def compare(slurm: RealSlurm, plan: SlurmPlan | None = None, at: float | None = None) -> Difference:
    """What differs between the plan and slurmdbd."""
    wanted = slurm.plan if plan is None else plan
    assert wanted.slurm.accounting is not None
    now = time.time() if at is None else at
    return accounts.compare(runner(slurm), wanted.slurm.accounting, wanted.name, now)


def apply_accounts(slurm: RealSlurm, plan: SlurmPlan | None = None, at: float | None = None) -> Difference:
    """Apply the accounts of the plan; the changes that were made."""
    found = compare(slurm, plan, at)
    accounts.apply(runner(slurm), found.changes)
    return found


def job_of(text: str) -> str:
    """The id of `Submitted batch job 7`."""
    return text.rsplit(maxsplit=1)[-1]


def reason(slurm: RealSlurm, job: str) -> str:
    """State and reason of a job: `PENDING (QOSMaxGRESPerUser)`."""
    return slurm.run("squeue", "-h", "-j", job, "-o", "%T (%r)").out.strip()


@dataclasses.dataclass
class Secrets:
    """Secrets Manager with one value, which a test may change."""

    value: bytes

    def get_secret(self, arn: str) -> bytes:
        assert arn.startswith("arn:aws:secretsmanager:")
        return self.value


class HeadMachine:
    """The head of RealSlurm as the agent sees it: its steps run on the real files and daemons.

    systemd is absent: `systemctl` starts and stops the programs of `DAEMONS`, and `journalctl` shows their output.
    """

    DAEMONS = {  # noqa: RUF012  a table
        "slurmdbd.service": ("/usr/sbin/slurmdbd", "-D", "-s"),
    }

    def __init__(self, slurm: RealSlurm, secret: bytes | None = None) -> None:
        """`secret`: of the database on AWS; None: an existing head, whose services are a folder."""
        self.slurm, self.root = slurm, slurm.path("/")
        self.secrets = Secrets(b"" if secret is None else secret)
        self.services = FolderServices() if secret is None else cast("Services", self.secrets)
        self.units: dict[str, subprocess.Popen[bytes]] = {}
        self.calls: list[tuple[str, ...]] = []

    def state(self, plan: SlurmPlan) -> BootState:
        """The state of the agent with the bundle of this plan."""
        tree = "/srv/bundle"
        for artifact in render(plan):
            self.slurm.write(f"{tree}/{artifact.path}", artifact.content.decode())
        me = Identity(instance_id="i-1", address=plan.head.address, cluster=plan.name, region="us-east-1", bucket="b", key="k", role=names.ROLE_HEAD)  # fmt: skip
        bundle = Bundle(digest="d", etag="e", tree=self.slurm.path(tree), plan=plan, bindings=None)
        return BootState(identity=me, bundle=bundle)

    def bring(self, plan: SlurmPlan) -> None:
        """Write what Ansible brings to an existing head: its identity and the bundle."""
        folder = self.slurm.path(names.SITE_DIR)
        identity = {
            "cluster": plan.name,
            "role": names.ROLE_HEAD,
            "node": plan.head.name,
            "address": plan.head.address,
        }
        self.slurm.write(names.USER_DATA_FILE, json.dumps({**identity, "folder": str(folder)}))
        folder.mkdir(parents=True, exist_ok=True)
        plan_file = Artifact(names.PLAN_FILE, codec.dumps(plan).encode())
        (folder / names.BUNDLE_KEY).write_bytes(artifacts.pack([plan_file, *render(plan)]))

    def machine(self, at: float | None = None) -> Machine:
        """The effects; `at`: the time of its clock (Unix)."""
        return Machine(
            root=self.root,
            run=self._run,
            metadata=lambda path: path,
            services=lambda _region: self.services,
            clock=time.time if at is None else lambda: at,
            post=lambda address, port, path, body: Reply(503, b""),
            listening=self._listening,
            chown=lambda file, owner: os.fchown(file, *self._ids(owner)),
            now=time.monotonic,
            pause=time.sleep,
        )

    def _run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Result:
        self.calls.append(tuple(argv))
        words = [word.removeprefix(str(self.root).rstrip("/")) for word in argv]
        variables = [
            f"{key}={value.removeprefix(str(self.root).rstrip('/'))}" for key, value in (env or {}).items()
        ]
        if words[0] == "systemctl":
            code, out = self._systemctl(*words[1:])
            done = Done(code, out, "")
        elif words[0] == "journalctl":
            done = Done(0, self.slurm.log(f"{words[2].removesuffix('.service')}.out"), "")
        else:
            text = stdin.decode() if isinstance(stdin, bytes) else stdin
            try:
                done = self.slurm.run("env", *variables, *words, stdin=text, timeout=timeout_s)
            except subprocess.TimeoutExpired as error:
                raise CommandError(
                    Result(tuple(argv), TIMED_OUT, "", f"not done after {timeout_s:g} s")
                ) from error
        result = Result(tuple(argv), done.code, done.out, done.err)
        if check and result.code:
            raise CommandError(result)
        return result

    def _systemctl(self, verb: str, *rest: str) -> tuple[int, str]:
        unit = rest[-1]
        active = unit in self.units and self.units[unit].poll() is None
        if verb == "is-active":
            return (0 if active else 3), ""
        if verb in ("stop", "restart") and active:
            self._terminate(unit)
            self.units[unit].wait(timeout=BOUND_S)
        if verb in ("start", "restart") and (verb == "restart" or not active):
            self.slurm.path(f"/var/log/slurm/{unit.removesuffix('.service')}.out.log").unlink(missing_ok=True)
            self.slurm.folder(
                f"/run/{unit.removesuffix('.service')}", "slurm"
            )  # RuntimeDirectory= of the unit
            user = "root" if unit == "mariadb.service" else "slurm"  # mariadbd itself changes its user
            self.units[unit] = self.slurm.spawn(*self.DAEMONS[unit], user=user)
            if unit == "mariadb.service":  # Type=notify
                answers = ("mariadb", "--execute", "SELECT 1")
                self.slurm.wait(lambda: self.slurm.run(*answers).code == 0, "MariaDB answers")
        return 0, ""

    def _terminate(self, unit: str) -> None:
        if unit == "mariadb.service":  # beside that of a site
            self.slurm.must("sh", "-c", "kill $(cat /run/mysqld/mysqld.pid)")
        else:
            self.slurm.must("pkill", "--exact", Path(self.DAEMONS[unit][0]).name)

    def _listening(self, address: str, port: int) -> bool:
        code = f"import socket; socket.create_connection(({address!r}, {port}), 2).close()"
        return self.slurm.run("python3", "-c", code).code == 0

    def _ids(self, owner: str) -> tuple[int, int]:
        return int(self.slurm.must("id", "-u", owner)), int(self.slurm.must("id", "-g", owner))
