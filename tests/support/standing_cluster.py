"""A simulated healthy cluster for validation; single answers can be replaced.

A machine that is off is unreachable, and an unknown program ends with 127.
"""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import command_path
from gpucluster.checks.mounts import MountWant
from gpucluster.cloud.bundle_status import Published
from gpucluster.elastic.inspect.overview import Overview
from gpucluster.plan import codec, names, node_ssh
from gpucluster.plan.model import SlurmPlan
from gpucluster.validate import Expectation, expectations
from gpucluster.validate.reach import UnreachableError

Reply = tuple[int, str] | str


@dataclass
class Done:
    """The fields of testinfra's CommandResult that the code reads."""

    rc: int
    stdout_bytes: bytes
    stderr_bytes: bytes


class StandingCluster:
    """A Reach. `answers` replaces the answers to commands: a part of the command line, or `machine: part` -> the answer."""

    def __init__(
        self, plan: SlurmPlan, *, up: Sequence[str] = (), answers: dict[str, Reply] | None = None
    ) -> None:
        self.plan, self.up, self.answers = plan, tuple(up), dict(answers or {})
        self.commands: list[tuple[str, str]] = []
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
        self.commands.append((machine, command))
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

    # --- the answers of a healthy cluster ---

    def nodes(self, _machine: str, _found: re.Match[str]) -> str:
        lines = {node: line.settings for line in self._wants["nodes.hw"].lines for node in line.nodes}
        parts = {node: p.name for p in self._wants["part.up"].partitions for node in p.nodes}
        shown = [self._node(name, line, parts[name]) for name, line in lines.items()]
        return json.dumps({"nodes": shown, "errors": []})

    def partitions(self, _machine: str, _found: re.Match[str]) -> str:
        return "".join(self._partition(one) for one in self._wants["part.up"].partitions)

    def config(self, _machine: str, _found: re.Match[str]) -> str:
        own = {"hash_val": "Match", "slurm_version": f"{self.plan.slurm.version}.5"}
        values = {**own, **self._wants["ctl.conf"].values}
        lines = "".join(f"{key} = {value or '(null)'}\n" for key, value in values.items())
        return f"Configuration data as of 2026-11-23T00:00:00\n{lines}\nCgroup Support Configuration:\n"

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
        nodes = ",".join(self.job_nodes()) if self.jobs[job] == "RUNNING" else self.job_nodes()[0]
        shown = {
            "job_id": job,
            "job_state": [self.jobs[job]],
            "nodes": nodes,
            "node_count": 1,
            "requeue": True,
            "batch_flag": True,
            "state_reason": "None",
            "admin_comment": "",
        }
        return json.dumps({"jobs": [shown], "errors": []})

    def ranks(self, _machine: str, _found: re.Match[str]) -> str:
        leaf = {node: leaf.name for leaf in self.plan.leaves for span in leaf.slots for node in span}
        return "".join(f"{n} 2 {node} {leaf[node]}.{node}\n" for n, node in enumerate(self.job_nodes()))

    def gres(self, _machine: str, found: re.Match[str]) -> str:
        count = int(found[1])
        opened = {f"/dev/nvidia{n}": "open" if n < count else "EPERM" for n in range(8)}
        return json.dumps({"visible": ",".join(map(str, range(count))), "opened": opened})

    def folders(self, _machine: str, _found: re.Match[str]) -> str:
        """The mounts of a step whose folders are its own."""
        own = "".join(
            f"{n} 1 8:1 /n/7/.7/{n} {path} rw - ext4 /dev/vda rw\n"
            for n, path in enumerate(("/tmp", "/var/tmp"))
        )
        return f"{own}9 1 0:7 / /dev/shm rw - tmpfs tmpfs rw\n"

    def units(self, _machine: str, found: re.Match[str]) -> str:
        return "\n".join(
            f"NRestarts=0\nId={u}\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n"
            for u in found[1].split()
        )

    def sums(self, machine: str, _found: re.Match[str]) -> str:
        ours = next(e.want for e in self.expected() if e.id == f"cfg.same[{machine}]")
        return "".join(f"{digest}  {path}\n" for path, digest in ours.sha256.items())

    def modes(self, machine: str, _found: re.Match[str]) -> str:
        ours = next(e.want for e in self.expected() if e.id == f"files.modes[{machine}]")
        return "".join(f"{one.modes[0]} {one.owner} {one.path}\n" for one in ours.files)

    def mounts(self, machine: str, _found: re.Match[str]) -> str:
        ours = next(e.want for e in self.expected() if e.id == f"fs.mount[{machine}]").mounts
        return _mountinfo(ours)

    def job_mounts(self, _machine: str, _found: re.Match[str]) -> str:
        ours = next(e.want for e in self.expected() if e.check == "job.mounts").mounts
        return "".join(f"{n} {line}\n" for n in self.job_nodes() for line in _mountinfo(ours).splitlines())

    def storage(self, _machine: str, found: re.Match[str]) -> str:
        said = "  9%    9% 900000" if found[1] == "df" else "nfs"
        return "".join(f"0\t{path}\t{said}\n" for path in found[2].split())

    def ports(self, _machine: str, found: re.Match[str]) -> str:
        """Every port of the question is open and has a listener."""
        words = found[1].partition("\n")[0].split()
        way = "to" if "." in words[0] else "from"
        asked = [word for word in words if word.isdecimal()]
        tried = "".join(f"{way} 10.0.0.9 {port} 0 \n" for port in asked)
        return tried + "".join(f"listens {port} 0 64\n" for port in asked) + "address 10.0.0.9\n--\n"

    def resolved(self, machine: str, _found: re.Match[str]) -> str:
        ours = next(e.want for e in self.expected() if e.id == f"net.resolve[{machine}]")
        heads = "".join(f"{name} 0 {address}\n" for name, address in ours.cluster.items())
        return heads + "".join(f"{name} 0 10.0.0.7\n" for name in ours.dns) + "hosts: files dns\n"

    def exports(self, machine: str, _found: re.Match[str]) -> str:
        ours = next(e.want for e in self.expected() if e.id == f"fs.mount[{machine}]").exports
        return "".join(f"exports:{path}\n" for path in ours)

    def accounts(self, _machine: str, _found: re.Match[str]) -> str:
        rows = (
            f"passwd:{u.name}:x:{u.uid}:{u.uid}::/home/{u.name}:/bin/bash\ngroup:{u.name}:x:{u.uid}:\n"
            f"shadow:{u.name}:20700:99999:\ngroups:{u.name}:{u.name}\n"
            for u in self.plan.users
        )
        return "".join(rows) + "today:20780\n"

    def keys(self, _machine: str, _found: re.Match[str]) -> str:
        users = [user for user in self.plan.users if user.keys]
        lines = "".join(f"{user.name}:{key}\n" for user in users for key in user.keys)
        folders = "".join(f"755 root {folder}\n" for folder in (names.KEY_FOLDER, "/etc/ssh", "/etc", "/"))
        return folders + "".join(f"644 root {user.name}\n" for user in users) + f"--\n{lines}"

    def homes(self, _machine: str, _found: re.Match[str]) -> str:
        return "".join(f"{user.uid} 700 directory:/home/{user.name}\n" for user in self.plan.users) + "--\n"

    def sshd(self, machine: str, _found: re.Match[str]) -> str:
        ours = next(e.want for e in self.expected() if e.id == f"sshd.conf[{machine}]")
        return "".join(f"{key} {value}\n" for key, value in {**ours.values, **ours.among}.items())

    def operators(self, _machine: str, _found: re.Match[str]) -> str:
        access = self.plan.slurm.node_ssh
        return "".join(f"{name}\n" for name in node_ssh.operators(access)) if access else ""

    def expected(self) -> tuple[Expectation, ...]:
        return expectations(self.plan, up=self.up)

    def job_nodes(self) -> tuple[str, ...]:
        return self.up[:2]

    def _node(self, name: str, line: Any, partition: str) -> dict[str, Any]:
        on = name in self.up
        return {
            "name": name,
            "state": ["IDLE"] if on else ["IDLE", "CLOUD", "POWERED_DOWN"],
            "reason": "",
            "address": f"10.0.0.{self.up.index(name) + 1}" if on else name,
            "partitions": [partition],
            "cpus": line.hardware.cpus,
            "sockets": line.hardware.sockets,
            "cores": line.hardware.cores,
            "threads": line.hardware.threads,
            "real_memory": line.hardware.memory_mib,
            "gres": line.hardware.gres,
            "weight": line.weight,
            "active_features": list(line.features),
        }

    @staticmethod
    def _partition(one: Any) -> str:
        jobs = [f"{key}={one.values[key]}" for key in ("defcpupergpu", "defmempergpu") if key in one.values]
        shown = {"Nodes": ",".join(one.nodes), **one.values, "JobDefaults": ",".join(jobs) or "(null)"}
        return (
            f"PartitionName={one.name} " + " ".join(f"{key}={value}" for key, value in shown.items()) + "\n"
        )


LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max open files            1024                 131072               files     \n"
    "Max processes             65536                65536                processes \n"
) + "".join(
    f"Max {name:<21} unlimited            unlimited            bytes     \n"
    for name in (
        "cpu time",
        "file size",
        "data size",
        "stack size",
        "locked memory",
        "address space",
        "file locks",
    )
)
SCALES = codec.dumps(
    Overview(cluster="burst", applied="1" * 64, published=Published(bundle="1" * 64, ready=True))
)
COMMANDS = "".join(
    f"gpucluster-validate at {one} file packaged /usr/bin/{one} \n" for one in command_path.COMMANDS
)
GUARD = "table inet gpucluster {\n\tchain output {\n\t}\n}\n"
SHM = "1K-blocks\n 12342040\n"
MEMORY = "MemTotal:       24684084 kB\nMemFree:         1000000 kB\n"
ROWS: tuple[tuple[str, Callable[[StandingCluster, str, re.Match[str]], str]], ...] = (
    (r"/etc/sudoers", lambda _c, _m, _f: "root root\nsudo packaged /etc/sudoers\n--\n"),
    (r"security\.capability", lambda _c, _m, _f: '{"ended": true, "looked": 9, "files": {}}'),
    (r"type -aP", lambda _c, _m, _f: f"{COMMANDS}gpucluster-validate end\n"),
    (
        r"scontrol ping",
        lambda c, _m, _f: json.dumps({"pings": [{"hostname": c.plan.head.name, "pinged": "UP"}]}),
    ),
    (r"scontrol --future show nodes", StandingCluster.nodes),
    (r"scontrol .*show partition", StandingCluster.partitions),
    (r"scontrol show config", StandingCluster.config),
    (r"scontrol show reservations", lambda _c, _m, _f: '{"reservations": [], "errors": []}'),
    (r"scontrol show job (\d+)", StandingCluster.job),
    (r"sbatch ", StandingCluster.sbatch),
    (r"scancel (.+)", StandingCluster.scancel),
    (r"scontrol show slurmd", lambda c, _m, _f: f"Version                  = {c.plan.slurm.version}.5\n"),
    (r"srun .*SLURM_PROCID", StandingCluster.ranks),
    (r"srun .*--gres=gpu:(\d+)", StandingCluster.gres),
    (r"systemctl show \S+ -- (.*)", StandingCluster.units),
    (r"MainPID.*/proc/", lambda _c, _m, _f: "S (sleeping)\n"),
    (r"systemctl show --property=MainPID", lambda _c, _m, _f: "42\n"),
    (r"srun .*/limits", lambda _c, _m, _f: f"{LIMITS}\n{LIMITS}\n{SHM}\n{MEMORY}"),
    (r"cat /proc/(?:42|1)/limits", lambda _c, _m, _f: LIMITS),
    (r"df --block-size=1024", lambda _c, _m, _f: SHM),
    (r"cat /proc/meminfo", lambda _c, _m, _f: MEMORY),
    (r"find -L /proc/42/fd", lambda _c, _m, _f: "/proc/42/fd/9\n"),
    (r"stat --dereference", StandingCluster.modes),
    (r"dist-info/RECORD", lambda _c, _m, _f: '{"recorded": 9, "wrong": []}'),
    (
        r"cmp -s --",
        lambda _c, _m, _f: "same /opt/gpucluster/bin/health_check /opt/gpucluster/venv/health_check\n",
    ),
    (r"runuser --user=slurm -- sh ", lambda _c, _m, _f: "4711\n"),
    (r"sh -c .*/new/.* 4711$", lambda _c, _m, _f: "taken\n"),
    (r"sha256sum", StandingCluster.sums),
    (r"srun .*SLURMD_NODENAME .*mountinfo", StandingCluster.job_mounts),
    (r"srun .*mountinfo", StandingCluster.folders),
    (r"mountinfo", StandingCluster.mounts),
    (r"(?s)mktemp -d .*gpucluster-validate.* sh (df|stat) [^/]*(/.*)$", StandingCluster.storage),
    (r"(?s)/dev/tcp/.* bash (.*)$", StandingCluster.ports),
    (r"getent ahostsv4", StandingCluster.resolved),
    (r"cut -f 1 /var/lib/nfs/etab", StandingCluster.exports),
    (r"cat /var/lib/nfs/etab", lambda _c, _m, _f: "--\n"),
    (
        r"(?s)df --output=pcent,ipcent,file .* sh (/.*)$",
        lambda _c, _m, f: "Use% IUse% File\n" + "".join(f" 9% 9% {p}\n" for p in f[1].split()),
    ),
    (r"unshare --net .*nft ", lambda _c, _m, _f: f"{GUARD}--\n{GUARD}"),
    (r"modprobe --dry-run", lambda _c, _m, _f: "= net-pf-43\ninstall /bin/false \n"),
    (r"cat /proc/net/protocols", lambda _c, _m, _f: "protocol size\nTCP 2352\n"),
    (r"cat /proc/sys/kernel/modules_disabled", lambda _c, _m, _f: "0\n"),
    (r"ip_unprivileged_port_start", lambda _c, _m, _f: "1024\n"),
    (r"(?s)runuser .*import ctypes", lambda _c, _m, _f: "tried\n"),
    (r"runuser .*latest/api/token", lambda _c, _m, _f: "000"),
    (r"latest/api/token", lambda _c, _m, _f: "200"),
    (r"sh -c .*getent shadow", StandingCluster.accounts),
    (r"sh -c .*-printf", StandingCluster.keys),
    (r"sh -c .*stat --format=.%u", StandingCluster.homes),
    (r"(?s)srun .*gpucluster-validate", lambda c, _m, _f: "".join(f"{node} ok\n" for node in c.job_nodes())),
    (r"sshd -T", StandingCluster.sshd),
    (r"/etc/pam.d/sshd", lambda _c, _m, _f: "\n".join(node_ssh.ACCOUNT_STACK)),
    (r"cat /etc/gpucluster/ssh-operators", StandingCluster.operators),
    (r"ssh -F none", lambda _c, _m, _f: "x@127.0.0.1: Permission denied (publickey).\n"),
    (r"curl .*:6890", lambda _c, _m, _f: "501"),
    (r"elastic\.inspect\.status", lambda _c, _m, _f: SCALES),
    (r"compare-munge-key", lambda _c, _m, _f: '{"same": true, "version": "v1"}'),
    (r"date --utc", lambda _c, _m, _f: "1700000000.5"),
    (r"sh -ec squeue .*ps --no-headers", lambda _c, _m, _f: "--\n" * 6),
    (
        r"hostname --short.* sh (\S+)$",
        lambda c, _m, f: f"{c.plan.head.name if f[1] == 'head' else f[1]}\n{f[1]}\n",
    ),
    (r"cat /etc/hosts", lambda _c, _m, _f: "127.0.0.1 localhost\n"),
    (r"find /dev", lambda _c, _m, _f: "".join(f"character special file:/dev/nvidia{n}\n" for n in range(8))),
    (r"unmunge", lambda _c, _m, _f: "STATUS:          Success (0)\nUID:             root (0)\n"),
    (r"munge --no-input", lambda _c, _m, _f: "MUNGE:AwQ=:"),
    (r"slurmd -C", lambda c, _m, _f: _board(c)),
    (r"instance-id", lambda _c, _m, _f: "i-00000000"),
    (r"sqlite3", lambda _c, _m, _f: '{"open": [], "launched": [], "living": []}'),
)


@dataclass
class Host:
    """The methods of testinfra's Host that the code uses."""

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
    "Tags": [
        {"Key": "gpucluster:role", "Value": "head"},
        {"Key": "gpucluster:cluster", "Value": "burst"},
    ],
}


def _mountinfo(wanted: Sequence[MountWant]) -> str:
    rows = ((m.path, ",".join(("rw", *m.has)), m.types[0] if m.types else "ext4", m.source) for m in wanted)
    return "".join(
        f"{n} 1 8:1 / {path} {options} - {kind} {source or '/dev/vda'} rw\n"
        for n, (path, options, kind, source) in enumerate(rows)
    )


def _board(cluster: StandingCluster) -> str:
    shape = cluster.plan.pools[0].shape
    return (
        f"NodeName=x CPUs={shape.cpus} Boards=1 SocketsPerBoard={shape.sockets} CoresPerSocket={shape.cores_per_socket} "
        f"ThreadsPerCore={shape.threads_per_core} RealMemory={shape.real_memory_mib}\nUpTime=0\n"
    )
