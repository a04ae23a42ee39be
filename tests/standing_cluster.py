"""A cluster that answers validation's questions as a healthy one does, and can be told to answer otherwise.

It refuses as the real one does: a machine that is off is unreachable, an unknown program ends with 127.
"""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpucluster.plan.model import ClusterPlan, there
from gpucluster.validate import Expectation, expectations
from gpucluster.validate.reach import UnreachableError

Reply = tuple[int, str] | str


@dataclass
class Done:
    """testinfra's CommandResult, as far as it is read."""

    rc: int
    stdout_bytes: bytes
    stderr_bytes: bytes


class StandingCluster:
    """A Reach. `answers` replaces what a question (a part of its command line, or `machine: part`) is answered."""

    def __init__(
        self, plan: ClusterPlan, *, up: Sequence[str] = (), answers: dict[str, Reply] | None = None
    ) -> None:
        self.plan, self.up, self.answers = plan, tuple(up), dict(answers or {})
        self.asked: list[tuple[str, str]] = []
        self.closed = 0
        self.jobs: dict[int, str] = {}  # id -> state
        self.names: dict[int, str] = {}
        self.before_run: Callable[[str, str], None] = lambda _machine, _command: None
        self._wants = {e.check: e.want for e in expectations(plan)}

    def host(self, machine: str) -> "Host":
        if machine != "head" and machine not in self.up:
            raise UnreachableError(machine, "it is off", next_step="switch it on")
        return Host(self, machine)

    def close(self) -> None:
        self.closed += 1

    def living_jobs(self) -> list[int]:
        return [job for job, state in self.jobs.items() if state == "RUNNING"]

    def run(self, machine: str, command: str) -> Done:
        self.asked.append((machine, command))
        self.before_run(machine, command)
        for part, reply in self.answers.items():
            where, _, text = part.rpartition(": ")
            if text in command and where in ("", machine):
                code, out = reply if isinstance(reply, tuple) else (0, reply)
                return Done(code, out.encode(), b"" if code == 0 else out.encode())
        for pattern, make in ROWS:
            if found := re.search(pattern, command):
                return Done(0, make(self, machine, found).encode(), b"")
        return Done(127, b"", f"{command.split(maxsplit=1)[0]}: not found".encode())

    # --- what a healthy one says -------------------------------------------------------------

    def nodes(self, _machine: str, _found: re.Match[str]) -> str:
        lines = {node: line for line in self._wants["nodes.hw"].lines for node in line.nodes}
        parts = {node: p.name for p in self._wants["part.up"].partitions for node in p.nodes}
        shown = [self._node(name, line, parts[name]) for name, line in lines.items()]
        return json.dumps({"nodes": shown, "errors": []})

    def partitions(self, _machine: str, _found: re.Match[str]) -> str:
        shown = [
            {
                "name": p.name,
                "partition": {"state": ["UP"]},
                "maximums": {"time": _number(p.max_time_min), "nodes": _number(None)},
                "minimums": {"nodes": 0},
                "nodes": {"allowed_allocation": ""},
                **{who: {"allowed": "", "deny": ""} for who in ("groups", "accounts", "qos")},
            }
            for p in self._wants["part.up"].partitions
        ]
        return json.dumps({"partitions": shown, "errors": []})

    def sbatch(self, _machine: str, _found: re.Match[str]) -> str:
        job = len(self.jobs) + 1
        self.names[job] = re.search(r"--job-name=(\S+)", _found.string)[1]  # type: ignore[index]
        self.jobs[job] = "RUNNING" if "exec sleep" in _found.string else "COMPLETED"
        return f"{job}\n"

    def scancel(self, _machine: str, found: re.Match[str]) -> str:
        for job, state in self.jobs.items():
            if state == "RUNNING" and found[1] in (str(job), f"--name={self.names[job]}"):
                self.jobs[job] = "CANCELLED"
        return ""

    def job(self, _machine: str, found: re.Match[str]) -> str:
        job = int(found[1])
        nodes = ",".join(self.seated()) if self.jobs[job] == "RUNNING" else self.seated()[0]
        shown = {
            "job_id": job,
            "job_state": [self.jobs[job]],
            "nodes": nodes,
            "state_reason": "None",
            "admin_comment": "",
        }
        return json.dumps({"jobs": [shown], "errors": []})

    def ranks(self, _machine: str, _found: re.Match[str]) -> str:
        leaf = {node: leaf.name for leaf in self.plan.leaves for span in leaf.slots for node in span}
        return "".join(f"{n} 2 {node} {leaf[node]}.{node}\n" for n, node in enumerate(self.seated()))

    def gres(self, _machine: str, found: re.Match[str]) -> str:
        count = int(found[1])
        opened = {f"/dev/nvidia{n}": "ENXIO" if n < count else "EPERM" for n in range(8)}
        return json.dumps({"told": ",".join(map(str, range(count))), "opened": opened})

    def units(self, _machine: str, found: re.Match[str]) -> str:
        return "\n".join(
            f"NRestarts=0\nId={u}\nLoadState=loaded\nActiveState=active\n" for u in found[1].split()
        )

    def sums(self, machine: str, _found: re.Match[str]) -> str:
        ours = next(e.want for e in self.expected() if e.id == f"cfg.same[{machine}]")
        return "".join(f"{digest}  {path}\n" for path, digest in ours.sha256.items())

    def mounts(self, machine: str, _found: re.Match[str]) -> str:
        ours = next(e.want for e in self.expected() if e.id == f"fs.mount[{machine}]").mounts
        rows = ((m.path, m.types[0] if m.types else "ext4", m.source or "/dev/vda") for m in ours)
        return "".join(
            f"{n} 1 8:1 / {path} rw - {kind} {source} rw\n" for n, (path, kind, source) in enumerate(rows)
        )

    def expected(self) -> tuple[Expectation, ...]:
        return expectations(self.plan, up=self.up)

    def seated(self) -> tuple[str, ...]:
        return self.up[:2]

    def _node(self, name: str, line: Any, partition: str) -> dict[str, Any]:
        on = name in self.up
        return {
            "name": name,
            "state": ["IDLE"] if on else ["IDLE", "CLOUD", "POWERED_DOWN"],
            "reason": "",
            "address": f"10.0.0.{self.up.index(name) + 1}" if on else name,
            "partitions": [partition],
            "cpus": line.cpus,
            "sockets": line.sockets,
            "cores": line.cores,
            "threads": line.threads,
            "real_memory": line.memory_mib,
            "gres": line.gres,
        }


ROWS: tuple[tuple[str, Callable[[StandingCluster, str, re.Match[str]], str]], ...] = (
    (
        r"scontrol ping",
        lambda c, _m, _f: json.dumps({"pings": [{"hostname": there(c.plan.head).name, "pinged": "UP"}]}),
    ),
    (r"scontrol show nodes", StandingCluster.nodes),
    (r"scontrol show partition", StandingCluster.partitions),
    (r"scontrol show job (\d+)", StandingCluster.job),
    (r"sbatch ", StandingCluster.sbatch),
    (r"scancel (.+)", StandingCluster.scancel),
    (r"sinfo ", lambda c, _m, _f: "".join(p.name + "*" * p.default + "\n" for p in c.plan.partitions)),
    (r"scontrol show slurmd", lambda _c, _m, _f: "Version                  = 24.11.5\n"),
    (r"srun .*SLURM_PROCID", StandingCluster.ranks),
    (r"srun .*--gres=gpu:(\d+)", StandingCluster.gres),
    (r"systemctl show \S+ -- (.*)", StandingCluster.units),
    (r"sha256sum", StandingCluster.sums),
    (r"mountinfo", StandingCluster.mounts),
    (r"df .*-- (.*)", lambda _c, _m, f: "Use% IUse% File\n" + "".join(f" 9% 9% {p}\n" for p in f[1].split())),
    (r"runuser .*latest/api/token", lambda _c, _m, _f: "000"),
    (r"latest/api/token", lambda _c, _m, _f: "200"),
    (r"curl .*:6890", lambda _c, _m, _f: "501"),
    (r"date --utc", lambda _c, _m, _f: "1700000000.5"),
    (r"find /dev", lambda _c, _m, _f: "".join(f"character special file:/dev/nvidia{n}\n" for n in range(8))),
    (r"unmunge", lambda _c, _m, _f: "STATUS:          Success (0)\nUID:             root (0)\n"),
    (r"munge --no-input", lambda _c, _m, _f: "MUNGE:AwQ=:"),
    (r"slurmd -C", lambda c, _m, _f: _board(c)),
    (r"instance-id", lambda _c, _m, _f: "i-00000000"),
    (r"sqlite3", lambda _c, _m, _f: '{"open": [], "launched": []}'),
)


@dataclass
class Host:
    """testinfra's Host, as far as it is used."""

    cluster: StandingCluster
    machine: str

    def run(self, command: str, *args: str, timeout_s: float) -> Done:
        whole = command % tuple(shlex.quote(arg) for arg in args)
        return self.cluster.run(self.machine, " ".join(shlex.split(whole)))


class Ec2:
    """A client that lists these instances."""

    def __init__(self, *instances: dict[str, Any]) -> None:
        self._instances = list(instances)

    def get_paginator(self, _call: str) -> "Ec2":
        return self

    def paginate(self, **_filters: Any) -> list[dict[str, Any]]:
        return [{"Reservations": [{"Instances": self._instances}]}]


HEAD = {
    "InstanceId": "i-00000000",
    "SubnetId": "s-1",
    "State": {"Name": "running"},
    "Tags": [{"Key": "gpucluster:role", "Value": "head"}],
}


def _number(value: int | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": value is None, "number": value or 0}


def _board(cluster: StandingCluster) -> str:
    shape = cluster.plan.pools[0].shape
    return (
        f"NodeName=x CPUs={shape.cpus} Boards=1 SocketsPerBoard={shape.sockets} CoresPerSocket={shape.cores_per_socket} "
        f"ThreadsPerCore={shape.threads_per_core} RealMemory={shape.real_memory_mib}\nUpTime=0\n"
    )
