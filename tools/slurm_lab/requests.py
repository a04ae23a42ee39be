"""Take away what jobs ask for, on real daemons, and record what Slurm does to a running, a queued and a new job.

Each case has a partition and nodes of its own, and all cases of one group run side by side: one job runs and fills the nodes,
one waits for it, then the files change and slurmctld reads them, by a reconfigure or by its restart. Then the first job is
cancelled, and a last one is submitted.
"""

import json
import os
import re
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_lab.lab import HOST, Lab, Version
from slurm_lab.request_cases import ACCOUNT, CASES, STRANGER, USER, RequestCase, Side

WAYS = ("reconfigure", "restart")
GPUS = 4  # /dev/nvidia0 ...
LIMIT_S = 300.0
STEADY_S = 15.0  # several turns of both schedulers, which are 3 s
_CHANGED = {
    "SlurmdParameters=config_overrides\n": "",  # the hardware of a registration counts
    "PrologSlurmctld=/lab/waiter\n": "",
    "PrologFlags=Alloc,DeferBatch\n": "",
    "AuthInfo=cred_expire=5\n": "",
}
_ADDED = """EnforcePartLimits=ALL
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={host}
AccountingStorageTRES=gres/gpu
PreemptType=preempt/qos
PreemptMode=REQUEUE
"""
_SLURMDBD = f"""AuthType=auth/munge
DbdHost={HOST}
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
LogFile=/lab/slurmdbd.log
PidFile=/lab/slurmdbd.pid
"""
_SQL = (
    "create database slurm_acct_db; create user slurm@localhost identified via unix_socket; "
    "grant all on slurm_acct_db.* to slurm@localhost"
)
_MARIADB = (
    "--no-defaults",
    "--user=mysql",
    "--datadir=/lab/db",
    "--skip-networking",
    "--socket=/run/mysqld/mysqld.sock",
)
_SILENT = frozenset({"UNKNOWN", "NOT_RESPONDING", "DOWN", "FUTURE"})
_FAILED = "submission failed: "
_HELD = {"outcome": "waits", "reason": "JobHeldAdmin"}
Job = Mapping[str, Any]


class RequestLab(Lab):
    """The laboratory with slurmdbd, and the nodes of each case."""

    def __init__(self, version: Version, tree: Path, cases: Iterable[RequestCase], way: str) -> None:
        self.cases, self.way, self.changed = tuple(cases), way, False
        super().__init__(version, tree, [node for case in self.cases for node in case.nodes])
        for number in range(GPUS):
            os.mknod(self.root / f"dev/nvidia{number}", 0o20666, os.makedev(195, number))
        self.write("etc/slurm/gres.conf", self.gres(), 0o644)
        self.write("etc/slurm/slurmdbd.conf", _SLURMDBD, 0o600)
        self._chown("slurm", "/etc/slurm/slurmdbd.conf")
        for user in (USER, STRANGER):
            self.must("useradd", user)
        self._first: dict[str, str] = {}
        self._queued: dict[str, str] = {}

    # --- files ------------------------------------------------------------------------------------
    def conf(self) -> str:
        text = self.common()
        for old, new in _CHANGED.items():
            if old not in text:
                raise RuntimeError(f"slurm.conf of the laboratory has no {old!r}")
            text = text.replace(old, new)
        sides = [(case, self._side(case)) for case in self.cases]
        licences = ",".join(side.licence.replace("ID", case.id) for case, side in sides if side.licence)
        types = self.cases[0].types[self.changed]
        lines = [f"Licenses={licences}"] if licences else []
        lines += [f"GresTypes={types}"] if types else []
        enforce = self.cases[0].enforce[self.changed]
        lines += [f"AccountingStorageEnforce={enforce}"] if enforce else []
        ports = {name: port for port, name in enumerate(self.machines, 7001)}
        for case, side in sides:
            lines += [
                f"NodeName={name} NodeHostName={HOST} Port={ports[name]} {side.node} State=UNKNOWN"
                for name in case.nodes[: side.count]
            ]
        lines += [
            f"PartitionName={side.partition.replace('ID', case.id)} SuspendTime=INFINITE"
            for case, side in sides
        ]
        return text + _ADDED.format(host=HOST) + "\n".join(lines) + "\n"

    def gres(self) -> str:
        return "".join(
            f"NodeName={name} {line}\n"
            for case in self.cases
            for name in case.nodes[: self._side(case).count]
            for line in self._side(case).gres
        )

    def _side(self, case: RequestCase) -> Side:
        return case.after if self.changed else case.before

    # --- daemons ----------------------------------------------------------------------------------
    def start(self) -> None:
        self.must("runuser", "-u", "munge", "--", "/usr/sbin/munged", "--force")
        self._start_database()
        self.controller = self._spawn("slurmctld", "-D")
        self.until(
            lambda: "lab" in self.run(["sacctmgr", "-n", "show", "cluster", "format=cluster"])[1],
            "registration",
        )
        self.until(lambda: "UP" in self.run(["scontrol", "ping"])[1], "slurmctld")
        self.sacctmgr("add", "account", ACCOUNT)
        self.sacctmgr("add", "user", USER, f"account={ACCOUNT}")
        for node in self.machines:
            self.boot(node)
        for case in self.cases:
            for command in case.setup:
                self.must(*case.words(command))
        self.until(lambda: self._registered() >= set(self.machines), "nodes")

    def _start_database(self) -> None:
        for folder, owner in (("run/mysqld", "mysql"), ("lab/db", "mysql")):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
            self._chown(owner, f"/{folder}")
        self.must("chmod", "777", "/lab")
        self.must(
            "mariadb-install-db", "--no-defaults", "--user=mysql", "--datadir=/lab/db",
            "--auth-root-authentication-method=socket",
        )  # fmt: skip
        self._spawn("/usr/sbin/mariadbd", *_MARIADB, "--innodb-lock-wait-timeout=900")
        self.until(lambda: self.run(["mariadb", "-e", "select 1"])[0] == 0, "MariaDB")
        self.must("mariadb", "-e", _SQL)
        self._spawn("runuser", "-u", "slurm", "--", "/usr/sbin/slurmdbd", "-D")
        self.until(lambda: self.run(["sacctmgr", "-n", "show", "qos"])[0] == 0, "slurmdbd")

    def _read_files(self) -> None:
        """slurmctld and the slurmds read the changed files."""
        if self.way == "reconfigure":
            self.must("scontrol", "reconfigure")
            return
        if self.controller is not None:
            self.controller.send_signal(signal.SIGTERM)
            self.controller.wait(60)
        self.controller = self._spawn("slurmctld", "-D")
        self.until(lambda: "UP" in self.run(["scontrol", "ping"])[1], "slurmctld")
        for case in self.cases:
            for node in case.nodes:
                self.kill(node)
            for node in case.nodes[: case.after.count]:
                self.boot(node, fresh=False)

    # --- the run ----------------------------------------------------------------------------------
    def record(self) -> dict[str, Any]:
        """The version, and what became of the jobs of each case."""
        recorded = self.run(["slurmctld", "-V"])[1].split()[-1]
        return {"recorded": recorded, "jobs": self._record()}

    def _record(self) -> dict[str, dict[str, Any]]:
        self._begin()
        refused = self._change()
        self._steady({**{f"{name}/first": job for name, job in self._first.items()}, **self._queued})
        before = self._jobs()
        self.must("scancel", *self._first.values())
        self._boot_changed()
        self._steady(self._queued)
        after = self._jobs()
        found = {
            case.id: {
                "running": self._running(before, case),
                "queued": self._fate_of_queued(after, case),
                "new": self._new(case),
                **({"refused": refused[case.id]} if case.id in refused else {}),
            }
            for case in self.cases
            if not case.running_of
        }
        released = self._released(
            [case for case in self.cases if found.get(case.id, {}).get("queued") == _HELD]
        )
        return {name: {**row, **released.get(name, {})} for name, row in found.items()}

    def _released(self, held: Sequence[RequestCase]) -> dict[str, dict[str, Any]]:
        """What becomes of held jobs when an operator releases them."""
        if not held:
            return {}
        jobs = {case.id: self._queued[case.id] for case in held}
        self.must("scontrol", "release", *jobs.values())
        self._steady(jobs)
        after = self._jobs()
        return {case.id: {"released": self._fate_of_queued(after, case)} for case in held}

    def _begin(self) -> None:
        """Each case has its running and its queued job."""
        for case in self.cases:
            if case.first is not None:
                self._first[case.id] = self._submit(case, case.first)
        self.until(lambda: all(self._state(n) == "RUNNING" for n in self._first.values()), "running jobs")
        for case in sorted(self.cases, key=lambda case: bool(case.depends)):
            if not case.running_of:
                self._queued[case.id] = self._submit(case, case.asks)
        self._steady(self._queued)
        wrong = {name: job for name, job in self._states(self._queued).items() if job[0] != "PENDING"}
        if wrong:
            raise RuntimeError(f"jobs that ought to wait: {wrong}")

    def _running(self, jobs: Mapping[str, Job], case: RequestCase) -> dict[str, str] | None:
        name = next((one.id for one in self.cases if one.running_of == case.id), case.id)
        return _fate_of_running(jobs, self._first.get(name, ""))

    def _boot_changed(self) -> None:
        """Machines with the new hardware take the place of the old ones."""
        nodes = [node for case in self.cases if case.is_held for node in case.nodes[: case.after.count]]
        if not nodes:
            return
        for node in nodes:
            self.kill(node)
            self.boot(node)
        self.until(lambda: self._registered() >= set(nodes), "changed nodes")
        self.must("scontrol", "update", f"nodename={','.join(nodes)}", "state=undrain")

    def _hold(self) -> None:
        """Nodes that change are drained, and their jobs end, before slurmctld reads the files."""
        held = [case for case in self.cases if case.is_held]
        if not held:
            return
        nodes = ",".join(node for case in held for node in case.nodes)
        self.must("scontrol", "update", f"nodename={nodes}", "state=drain", "reason=changes")
        self.must("scancel", *(self._first[case.id] for case in held))
        self.until(lambda: not self.run(["squeue", "-h", "-t", "R,CG", "-w", nodes])[1], "nodes without jobs")

    def _change(self) -> dict[str, str]:
        """Make the changes. Return what refused those that Slurm refuses."""
        refused: dict[str, str] = {}
        self._hold()
        for case in self.cases:
            for command in () if case.running_of else case.commands:
                code, said = self.run(case.words(command))
                if code:
                    refused[case.id] = _last(said)
        self.changed = True
        self.write("etc/slurm/slurm.conf", self.conf(), 0o644)
        self.write("etc/slurm/gres.conf", self.gres(), 0o644)
        self._read_files()
        kept = {name for case in self.cases for name in case.nodes[: case.after.count]}
        self.until(lambda: kept <= self._known(), "nodes after the change")
        return refused

    def _submit(self, case: RequestCase, asks: tuple[str, ...]) -> str:
        code, said = self._sbatch(case, asks)
        if code:
            raise RuntimeError(f"{case.id}: sbatch: {said}")
        return _number(said)

    def _sbatch(self, case: RequestCase, asks: tuple[str, ...]) -> tuple[int, str]:
        other = self._queued.get(case.depends, "") or self._first.get(case.depends, "")
        words = [word.replace("OTHER", other) for word in case.words(asks)]
        argv = [
            "sbatch",
            "--parsable",
            f"--uid={case.user}",
            "--chdir=/",
            "-o",
            "/dev/null",
            f"--job-name={case.id}",
        ]
        partition = ["-p", case.id] if case.names_partition else []
        return self.run([*argv, *partition, *words, "--wrap=exec sleep 900"])

    def _new(self, case: RequestCase) -> dict[str, str]:
        """What becomes of a job that is submitted after the change."""
        code, said = self._sbatch(case, case.asks)
        if code:
            return {"outcome": "refused", "reason": _last(said)}
        partition = self._jobs()[_number(said)]["partition"]
        return {"outcome": "taken" if partition == case.id else "taken by another partition"}

    def _fate_of_queued(self, jobs: Mapping[str, Job], case: RequestCase) -> dict[str, str]:
        job = jobs[self._queued[case.id]]
        state, reason = _state(job), job["state_reason"]
        if state == "PENDING":
            return {"outcome": "waits", "reason": reason}
        if state == "RUNNING":
            return {"outcome": "starts" if self._has(case, job) else "starts without it"}
        return {"outcome": "ended", "reason": reason}

    def _has(self, case: RequestCase, job: Job) -> bool:
        """Whether a running job has what it asks for."""
        words = " ".join(case.asks)
        if "--licenses=" in words:
            return f"LicenseName={case.id}" in self.run(["scontrol", "show", "licenses"])[1]
        if "--gres=" in words:
            return f"gres/{re.split('[=:]', words.split('--gres=')[1])[0]}" in job["tres_alloc_str"]
        if "--constraint=" in words:
            return (
                words.split("--constraint=")[1].split()[0]
                in self.run(["sinfo", "-h", "-N", "-n", job["nodes"], "-o", "%f"])[1]
            )
        return True

    # --- looks ------------------------------------------------------------------------------------
    def until(self, holds: Any, what: str, limit: float = LIMIT_S) -> None:
        end = time.time() + limit
        while not holds():
            if time.time() > end:
                raise TimeoutError(
                    f"{what}: {self.run(['squeue'])[1]}\n{self.run(['sinfo', '-N', '-o', '%N %T %E'])[1]}\n{self._log()}"
                )
            time.sleep(0.5)

    def must(self, *argv: str) -> str:
        code, said = self.run(argv)
        if code:
            raise RuntimeError(f"{' '.join(argv)}: {said}\n{self._log()}")
        return said

    def sacctmgr(self, *words: str) -> None:
        self.must("sacctmgr", "-i", *words)

    def _log(self) -> str:
        path = self.root / "lab/slurmctld.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""

    def _steady(self, numbers: Mapping[str, str]) -> None:
        """Wait until the states of these jobs stay for a while."""
        seen, since, end = self._states(numbers), time.time(), time.time() + LIMIT_S
        while time.time() - since < STEADY_S:
            time.sleep(1.0)
            now = self._states(numbers)
            if now != seen:
                changed = {name: (seen[name], now[name]) for name in now if seen[name] != now[name]}
                if time.time() > end:
                    raise TimeoutError(f"jobs that change for ever: {changed}")
                seen, since = now, time.time()

    def _states(self, numbers: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        jobs = self._jobs()
        return {
            name: (_state(jobs[number]), jobs[number]["state_reason"]) if number in jobs else ("GONE", "")
            for name, number in numbers.items()
        }

    def _state(self, number: str) -> str:
        return self.run(["squeue", "-h", "-j", number, "-o", "%T"])[1]

    def _jobs(self) -> dict[str, Job]:
        while True:
            code, text = self.run(["scontrol", "show", "jobs", "--json"])
            if code == 0:
                return {str(job["job_id"]): job for job in json.loads(text[text.index("{") :])["jobs"]}
            time.sleep(0.5)

    def _registered(self) -> set[str]:
        """The nodes whose slurmd answers."""
        code, text = self.run(["scontrol", "show", "nodes", "--json"])
        found = [] if code else json.loads(text[text.index("{") :])["nodes"]
        return {node["name"] for node in found if not _SILENT.intersection(node["state"])}

    def _known(self) -> set[str]:
        code, text = self.run(["scontrol", "show", "nodes", "--json"])
        return set() if code else {node["name"] for node in json.loads(text[text.index("{") :])["nodes"]}


def groups(only: str) -> list[tuple[RequestCase, ...]]:
    """The cases that may share one slurm.conf."""
    chosen = [case for case in CASES if only in case.id]
    every = [one for case in chosen for one in case.apart()]
    kinds = dict.fromkeys(one.of_cluster for one in every)
    return [tuple(one for one in every if one.of_cluster == kind) for kind in kinds]


def table(parts: Mapping[str, Sequence[Mapping[str, Any]]], version: str) -> dict[str, Any]:
    """The rows of all cases, from what was recorded each way."""
    found = {
        way: {name: row for part in several for name, row in part["jobs"].items()}
        for way, several in parts.items()
    }
    return {
        "source": "tools/record_slurm.py --requests, on Debian's packages",
        "slurm": version,
        "recorded": next(part["recorded"] for several in parts.values() for part in several),
        "rows": [
            {**case.facts(), **{way: rows[case.id] for way, rows in found.items()}}
            for case in CASES
            if all(case.id in rows for rows in found.values())
        ],
    }


def _fate_of_running(jobs: Mapping[str, Job], number: str) -> dict[str, str] | None:
    if not number:
        return None
    job = jobs[number]
    state, restarts = _state(job), job["restart_cnt"]
    count = restarts if isinstance(restarts, int) else restarts.get("number", 0)
    if state == "RUNNING" and not count:
        return {"outcome": "goes on"}
    if count or state == "PENDING":
        return {"outcome": "requeued"}
    return {"outcome": "ended", "reason": job["state_reason"]}


def _state(job: Job) -> str:
    words = job["job_state"]
    return words if isinstance(words, str) else words[0]


def _number(said: str) -> str:
    """The job that `sbatch --parsable` made."""
    return said.splitlines()[-1].split(";")[0]


def _last(said: str) -> str:
    """The words of a refusal."""
    lines = said.strip().splitlines()
    line = next((one for one in lines if one.strip().startswith("Error")), lines[-1])
    return line.rpartition(_FAILED)[2].strip().removeprefix("sbatch: error: ")
