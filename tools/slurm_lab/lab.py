"""The inside of the namespaces: an overlay of a Debian tree, munge, slurmctld, slurmds, and the looks at them."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GROUPS, SIZE = 16, 3  # partitions, nodes in each: cases run side by side, each in a partition of its own
HOST, ADDRESS = "lab", "10.42.0.1"  # slurmctld refuses a host with nothing but loopback
RESUME_S, SUSPEND_S, SILENT_S, EXPIRE_S, IDLE_S = 24, 8, 12, 5, 6
QUICK = 2  # the last partitions have a SuspendTime of IDLE_S

_HOOK = """#!/bin/sh
exec </dev/null >/dev/null 2>&1
echo "KIND $1" >> /lab/hooks
"""
_WAITER = """#!/bin/sh
exec </dev/null >/dev/null 2>&1
rm -f "/lab/ready/$SLURM_JOB_ID"
n=0
while [ ! -e "/lab/ready/$SLURM_JOB_ID" ] && [ $n -lt 300 ]; do sleep 0.2; n=$((n+1)); done
rm -f "/lab/ready/$SLURM_JOB_ID"
exit 0
"""
_CONF = """ClusterName=lab
SlurmctldHost={host}({address})
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
AuthInfo=cred_expire={expire}
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=/lab/slurmctld.log
SlurmdLogFile=/lab/slurmd-%n.log
SlurmctldParameters={parameters}idle_on_node_suspend,power_save_interval=1,node_reg_mem_percent=1
SlurmdParameters=config_overrides
SlurmdTimeout={silent}
MessageTimeout=10
TCPTimeout=2
PrologSlurmctld=/lab/waiter
PrologFlags=Alloc,DeferBatch
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
JobRequeue=1
ReturnToService=2
KillWait=2
SchedulerType=sched/backfill
SchedulerParameters=bf_continue,bf_interval=3,sched_interval=3,salloc_wait_nodes,sbatch_wait_nodes,nohold_on_prolog_fail
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ResumeProgram=/lab/resume
SuspendProgram=/lab/suspend
ResumeFailProgram=/lab/resume_fail
ResumeRate=0
SuspendRate=0
SuspendTime=INFINITE
ResumeTimeout={resume}
SuspendTimeout={suspend}
DebugFlags=Power
{more}"""


@dataclass(frozen=True)
class Version:
    """What differs in the configuration by version (S12)."""

    name: str
    parameters: str = ""
    more: str = ""
    cgroup: str = "CgroupPlugin=disabled\n"
    json: bool = True


VERSIONS = {
    v.name: v
    for v in (
        Version(
            "22.05",
            parameters="cloud_reg_addrs,",
            more="CommunicationParameters=NoAddrCache\nPrivateData=cloud\nTreeWidth=65533\n",
            cgroup="CgroupPlugin=cgroup/v1\nCgroupMountpoint=/run/cg\n",
            json=False,
        ),
        Version("24.11"),
        Version("26.05"),
    )
}


@dataclass(frozen=True)
class Look:
    """Everything at one moment: words of nodes and jobs as Slurm spells them."""

    began: float
    nodes: Mapping[str, Mapping[str, Any]]
    jobs: Mapping[int, Mapping[str, Any]]
    answered: bool = True


@dataclass
class Machine:
    """A slurmd of ours, or the memory of one."""

    process: subprocess.Popen[bytes] | None = None
    booted: float = 0.0
    ended: float = 0.0

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


def names(group: int) -> list[str]:
    return [f"g{group:02}-{n}" for n in range(1, SIZE + 1)]


class Lab:
    """Start it, command it, look at it."""

    def __init__(self, version: Version, tree: Path, nodes: Sequence[str] = ()) -> None:
        self.version = version
        self.root = Path("/mnt/merged")
        self.machines = {n: Machine() for n in nodes or [n for g in range(GROUPS) for n in names(g)]}
        self.controller: subprocess.Popen[bytes] | None = None
        self.turn = threading.Condition()
        self.seen = Look(0.0, {}, {}, answered=False)
        self.stopping = False
        self._mount(tree)
        self._configure()
        self._network()

    # --- the daemons ------------------------------------------------------------------------------
    def start(self) -> None:
        munge = ["runuser", "-u", "munge", "--", "/usr/sbin/munged", "--force"]
        self.run(munge)
        self.start_controller()
        threading.Thread(target=self._poll, daemon=True).start()
        self.wait_for(lambda look: bool(look.nodes), 30)

    def start_controller(self) -> None:
        self.controller = self._spawn("slurmctld", "-D", "-i")

    def kill_controller(self) -> None:
        if self.controller is not None:
            self.controller.send_signal(signal.SIGKILL)
            self.controller.wait()

    def boot(self, node: str, *, fresh: bool = True) -> None:
        """A machine starts; not `fresh`: one that booted before it was asked for."""
        argv = ["slurmd", "-D", "-N", node, *(["-b"] if fresh else [])]
        self.machines[node] = Machine(self._spawn(*argv), time.time() - (0 if fresh else 100_000))

    def kill(self, node: str) -> None:
        machine = self.machines[node]
        if machine.alive and machine.process is not None:
            machine.process.send_signal(signal.SIGKILL)
            machine.process.wait()
            machine.ended = time.time()

    def run(self, argv: Sequence[str], timeout: float = 60.0) -> tuple[int, str]:
        """(exit status, what it said) of a program in the tree."""
        try:
            done = subprocess.run(
                self._argv(argv), capture_output=True, text=True, timeout=timeout, check=False, env=_ENV
            )
        except subprocess.TimeoutExpired:
            return 124, "no answer"
        return done.returncode, (done.stdout + done.stderr).strip()

    def later(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """A program that goes on by itself, as srun does."""
        return self._spawn(*argv)

    def hooks(self) -> list[tuple[str, str]]:
        path = self.root / "lab/hooks"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines if " " in line]

    def expand(self, hostlist: str) -> list[str]:
        return self.run(["scontrol", "show", "hostnames", hostlist])[1].split()

    def stop(self) -> None:
        self.stopping = True
        for node in self.machines:
            self.kill(node)
        if self.controller:
            self.kill_controller()

    # --- looks ------------------------------------------------------------------------------------
    def wait_for(self, holds: Any, limit: float) -> Look:
        """The first look for which it holds; TimeoutError if there is none in time."""
        end = time.time() + limit
        with self.turn:
            while not (self.seen.answered and holds(self.seen)):
                if not self.turn.wait(max(0.05, end - time.time())) or time.time() > end:
                    raise TimeoutError
            return self.seen

    def after(self, moment: float, limit: float = 60.0) -> Look:
        """A look that began after `moment`."""
        return self.wait_for(lambda look: look.began >= moment, limit)

    def _poll(self) -> None:
        while not self.stopping:
            began = time.time()
            try:
                look = self._look(began)
            except (ValueError, KeyError, IndexError):
                look = Look(began, {}, {}, answered=False)
            if look.answered:
                self._release(look)
                with self.turn:
                    self.seen = look
                    self.turn.notify_all()
            time.sleep(max(0.05, 0.25 - (time.time() - began)))

    def _look(self, began: float) -> Look:
        """Nodes and jobs of one moment: nothing moved while both were asked."""
        look = self._asked(began)
        for _ in range(4):
            again = self._asked(time.time())
            if again.nodes == look.nodes and again.jobs == look.jobs:
                return look
            look = again
        return look

    def _asked(self, began: float) -> Look:
        if self.version.json:
            code, nodes = self.run(["scontrol", "show", "nodes", "--json"], 20)
            code2, jobs = self.run(["scontrol", "show", "jobs", "--json"], 20)
            if code or code2:
                raise ValueError
            return Look(
                began,
                {n["name"]: _json_node(n) for n in json.loads(nodes[nodes.index("{") :])["nodes"]},
                {
                    j["job_id"]: _json_job(j, self.expand_plain)
                    for j in json.loads(jobs[jobs.index("{") :])["jobs"]
                },
            )
        code, nodes = self.run(["scontrol", "show", "nodes", "-o"], 20)
        code2, jobs = self.run(["scontrol", "show", "jobs", "-o"], 20)
        if code or code2 or "NodeName=" not in nodes:
            raise ValueError
        found = [_line_node(line) for line in nodes.splitlines() if line.startswith("NodeName=")]
        lines = [line for line in jobs.splitlines() if line.startswith("JobId=")]
        return Look(began, dict(found), dict(_line_job(line, self.expand_plain) for line in lines))

    def expand_plain(self, hostlist: str) -> list[str]:
        """`g00-[1-2]` and `g00-1,g00-3`, without a program."""
        found: list[str] = []
        for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", hostlist or ""):
            stem, _, inside = part.partition("[")
            if not inside:
                found.append(stem)
                continue
            for piece in inside.rstrip("]").split(","):
                low, _, high = piece.partition("-")
                found += [f"{stem}{n}" for n in range(int(low), int(high or low) + 1)]
        return found

    def _release(self, look: Look) -> None:
        """End the waiters as the product's does: all ready, or one lost, or no longer configuring."""
        for number, job in look.jobs.items():
            states = [set(look.nodes[n]["states"]) for n in job["nodes"] if n in look.nodes]
            waits = {"POWERED_DOWN", "POWERING_UP", "NOT_RESPONDING", "POWER_UP"}
            lost = any({"DOWN", "POWERING_DOWN"} & s for s in states)
            ready = states and not any(waits & s for s in states)
            if lost or ready or "CONFIGURING" not in job["states"]:
                (self.root / f"lab/ready/{number}").touch()

    # --- making it --------------------------------------------------------------------------------
    def _argv(self, argv: Sequence[str]) -> list[str]:
        return ["chroot", str(self.root), *argv]

    def _spawn(self, *argv: str) -> subprocess.Popen[bytes]:
        with (self.root / "lab/out.log").open("ab") as out:
            return subprocess.Popen(
                self._argv(argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=_ENV,
                start_new_session=True,
            )

    def _mount(self, tree: Path) -> None:
        sh("mount", "--make-rprivate", "/")
        sh("mount", "-t", "tmpfs", "none", "/mnt")
        for name in ("upper", "work", "merged"):
            Path("/mnt", name).mkdir()
        sh(
            "mount",
            "-t",
            "overlay",
            "overlay",
            "-o",
            f"lowerdir={tree},upperdir=/mnt/upper,workdir=/mnt/work",
            str(self.root),
        )
        sh("mount", "-t", "proc", "proc", str(self.root / "proc"))
        sh("mount", "-t", "sysfs", "-o", "ro", "sysfs", str(self.root / "sys"))
        sh("mount", "-t", "tmpfs", "none", str(self.root / "dev"))
        for name, minor in (("null", 3), ("zero", 5), ("random", 8), ("urandom", 9)):
            os.mknod(self.root / "dev" / name, 0o20666, os.makedev(1, minor))
            (self.root / "dev" / name).chmod(0o666)
        (self.root / "dev/shm").mkdir()

    def _configure(self) -> None:
        lab = self.root / "lab"
        (lab / "ready").mkdir(parents=True)
        self._chown("slurm", "/lab", "/lab/ready")
        for kind in ("resume", "suspend", "resume_fail"):
            self.write(f"lab/{kind}", _HOOK.replace("KIND", kind), 0o755)
        self.write("lab/waiter", _WAITER, 0o755)
        self.write("etc/slurm/slurm.conf", self.conf(), 0o644)
        self.write("etc/slurm/cgroup.conf", self.version.cgroup, 0o644)
        every = " ".join(self.machines)
        self.write("etc/hosts", f"127.0.0.1 localhost\n{ADDRESS} {HOST} {every}\n", 0o644)
        self.write("etc/hostname", HOST + "\n", 0o644)
        nss = (self.root / "etc/nsswitch.conf").read_text()
        self.write("etc/nsswitch.conf", re.sub(r"^hosts:.*$", "hosts: files", nss, flags=re.M), 0o644)
        for path in ("var/spool/slurmctld", "var/spool/slurmd", "run/cg", "run/munge", "var/log/munge"):
            (self.root / path).mkdir(parents=True, exist_ok=True)
        self._chown("slurm", "/var/spool/slurmctld")
        self._chown("munge", "/run/munge", "/var/log/munge")
        shutil.rmtree(self.root / "run/munge", ignore_errors=True)
        (self.root / "run/munge").mkdir(mode=0o755)
        self._chown("munge", "/run/munge")

    def conf(self) -> str:
        """The text of slurm.conf."""
        lines: list[str] = []
        for port, name in enumerate(self.machines, 7001):
            lines.append(
                f"NodeName={name} NodeHostName={HOST} Port={port} CPUs=2 RealMemory=1000 State=CLOUD"
            )
        for group in range(GROUPS):
            idle = IDLE_S if group >= GROUPS - QUICK else 3000
            nodes = ",".join(names(group))
            lines.append(f"PartitionName=g{group:02} Nodes={nodes} SuspendTime={idle} MaxTime=60 State=UP")
        return self.common() + "\n".join(lines) + "\n"

    def common(self) -> str:
        """The lines of slurm.conf before those of nodes and partitions."""
        v = self.version
        return _CONF.format(
            host=HOST, address=ADDRESS, expire=EXPIRE_S, parameters=v.parameters, silent=SILENT_S,
            resume=RESUME_S, suspend=SUSPEND_S, more=v.more,
        )  # fmt: skip

    def _network(self) -> None:
        sh("hostname", HOST)
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "link", "add", "br0", "type", "bridge")
        sh("ip", "addr", "add", f"{ADDRESS}/24", "dev", "br0")
        sh("ip", "link", "set", "br0", "up")

    def write(self, path: str, text: str, mode: int) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def _chown(self, user: str, *paths: str) -> None:
        sh(*self._argv(["chown", f"{user}:{user}", *paths]))


_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def sh(*argv: str) -> None:
    subprocess.run(argv, check=True)


def _json_node(item: Mapping[str, Any]) -> dict[str, Any]:
    words = item["state"] if isinstance(item["state"], list) else [item["state"]]
    return {"states": sorted(w.upper() for w in words), "reason": item.get("reason") or ""}


def _json_job(item: Mapping[str, Any], expand: Any) -> dict[str, Any]:
    words = item["job_state"] if isinstance(item["job_state"], list) else [item["job_state"]]
    count = item.get("restart_cnt", 0)
    return {
        "states": sorted(w.upper() for w in words),
        "reason": item.get("state_reason") or "",
        "nodes": expand(item.get("nodes") or ""),
        "restarts": count if isinstance(count, int) else count.get("number", 0),
        "held": _number(item.get("priority")) == 0,
        "group": item.get("partition", ""),
    }


def _number(value: Any) -> int:
    return int(value.get("number") or 0) if isinstance(value, dict) else int(value or 0)


def _line_node(line: str) -> tuple[str, dict[str, Any]]:
    word = re.search(r" State=(\S+)", line)
    reason = re.search(r" Reason=(.*?) \[[^\]]*@[^\]]*\]", line)
    if word is None:
        raise ValueError(line)
    states = word[1].upper()
    extra = ["NOT_RESPONDING"] if "*" in states else []
    return line.split(" ", 1)[0][9:], {
        "states": sorted({*states.replace("*", "").split("+"), *extra}),
        "reason": reason[1] if reason else "",
    }


def _line_job(line: str, expand: Any) -> tuple[int, dict[str, Any]]:
    fields = dict(re.findall(r"(\w+)=(\S*)", line))
    nodes = fields.get("NodeList", "")
    return int(fields["JobId"]), {
        "states": [fields["JobState"]],
        "reason": fields.get("Reason", ""),
        "nodes": expand("" if nodes == "(null)" else nodes),
        "restarts": int(fields.get("Restarts", 0)),
        "held": fields.get("Priority") == "0",
        "group": fields.get("Partition", ""),
    }
