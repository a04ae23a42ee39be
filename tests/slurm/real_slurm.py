"""Real Slurm daemons of one version on the rendered files of a plan, in namespaces of their own.

    with RealSlurm("24.11", plan) as slurm:
        slurm.start_controller()                          # munged and slurmctld, until it answers
        assert slurm.errors() == []
        slurm.start_nodes("gpu01", "gpu02")               # slurmds, each with its own name and address
        slurm.run("sbatch", "--wrap", "hostname", user="researcher")
        slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "the job is gone")

What is real: the programs of Debian's packages, the files of `slurm.config.render(plan)`, munge, names and addresses (the
head and each node have those of the plan), configless slurmds, GPUs as device files. `ADAPTATIONS` is the whole list of what
the laboratory changes in the files. Nodes of AWS are powered up by `serve_power()`: a slurmd starts for each ResumeProgram
call and ends for each SuspendProgram call. Everything ends with the `with`, also if pytest is killed.

To add a daemon, for example slurmdbd: `write` its file, `spawn` it, then `wait` for it. The tree has the packages of
`tools/slurm_lab/trees.py`, MariaDB among them.
"""

import contextlib
import json
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import pytest
from slurm_lab import trees
from support.waiting import BOUND_S, eventually

from gpucluster import agent
from gpucluster.errors import GpuclusterError
from gpucluster.plan import names
from gpucluster.plan.model import SlurmLine, SlurmPlan
from gpucluster.slurm import hostlist
from gpucluster.slurm.config.render import apply_lines, render

T = TypeVar("T")
VERSIONS = ("24.11", "26.05")
ROOT = "/mnt/merged"  # in the namespaces: the overlay of the tree
FOR_SLURMD = "/lab/slurm"  # the files with every adaptation, for `slurmd -G` beside an unchanged slurmctld
USER, UID = "researcher", 2000
_NAMESPACE = Path(__file__).with_name("namespace.py")
_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}

_HOOK = '#!/bin/sh\nexec </dev/null >/dev/null 2>&1\necho {kind} "$1" >>/lab/hooks\n'
_WAITER = """#!/bin/sh
# As the product's waiter: it ends when every node of the job is up, or the job no longer waits for them.
exec </dev/null >/dev/null 2>&1
n=0
while [ $n -lt 300 ]; do
  case "$(/usr/bin/sinfo -h -N -n "$SLURM_JOB_NODELIST" -o %T)" in *[*#~]*) ;; *) exit 0 ;; esac
  case "$(/usr/bin/squeue -h -j "$SLURM_JOB_ID" -o %T)" in CONFIGURING) ;; *) exit 0 ;; esac
  n=$((n+1)); sleep 0.2
done
exit 0
"""
PROGRAMS = {  # paths of the rendered files that gpucluster's agent installs: stand-ins, only where a test writes no other
    **{f"{names.HOOK_DIR}/{kind}": _HOOK.format(kind=kind) for kind in ("resume", "suspend", "resume_fail")},
    f"{names.HOOK_DIR}/prolog_slurmctld": _WAITER,
    names.PROLOG: "#!/bin/sh\nexit 0\n",
    names.TASK_PROLOG: "#!/bin/sh\nexit 0\n",
}


def a_file_of_the_machine(path: str) -> str:
    """The text of one of our own files on machines, by its path there."""
    return (Path(agent.__file__).parent / "units" / path.lstrip("/")).read_text()


@dataclass(frozen=True)
class Adaptation:
    """A line that the laboratory changes; `nodes`: only if slurmds are started."""

    line: SlurmLine
    because: str
    nodes: bool = True


def _set(file: str, key: str, value: str | None, because: str, *, nodes: bool = True) -> Adaptation:
    return Adaptation(SlurmLine(file=file, key=key, value=value), because, nodes)


_NO_GROUPS = "the slurmds share the host's control groups, which the laboratory does not touch"
ADAPTATIONS = (
    _set("slurm.conf", "SlurmdParameters", "config_overrides", "slurmd reports this host's cores and memory"),
    _set("slurm.conf", "ProctrackType", "proctrack/linuxproc", _NO_GROUPS),
    _set("slurm.conf", "TaskPlugin", None, _NO_GROUPS),
    _set("slurm.conf", "JobAcctGatherType", None, _NO_GROUPS),
    _set(
        "slurm.conf", "JobContainerType", None, "it needs PrologFlags=Contain, which needs proctrack/cgroup"
    ),
    _set("slurm.conf", "NamespaceType", None, "the same since 25.11"),
    _set("cgroup.conf", "CgroupPlugin", "disabled", _NO_GROUPS),
    *(
        _set("cgroup.conf", f"Constrain{what}", "no", _NO_GROUPS)
        for what in ("Cores", "Devices", "RAMSpace", "SwapSpace")
    ),
)


def adapted(files: Mapping[str, str], *, nodes: bool) -> dict[str, str]:
    """The rendered files of /etc/slurm by name, with the laboratory's changes."""
    found = dict(files)
    for change in ADAPTATIONS:
        if change.line.file in found and (nodes or not change.nodes):
            found[change.line.file] = apply_lines(found[change.line.file], [change.line])
    if nodes:  # Contain needs proctrack/cgroup; the other flags stay
        found["slurm.conf"] = re.sub(r"^(PrologFlags=.*?),?Contain", r"\1", found["slurm.conf"], flags=re.M)
    return found


def errors_of(log: str) -> list[str]:
    """The lines with `error:` or `fatal:`, without those of an empty StateSaveLocation (24.11) and of a busy host."""
    lines = [line for line in log.splitlines() if re.search(r"\b(error|fatal): ", line)]
    known = (_FIRST_START, _BUSY_HOST, _STALE_ERRNO)
    return [line for line in lines if not any(one.search(line) for one in known)]


_BUSY_HOST = re.compile(
    r"error: High latency for 1000 calls to gettimeofday\(\)"
    r"|slurm_bufs_sendto\(msg_type=SRUN_\w+\) failed: Connection reset by peer"  # srun had ended before
)


# 24.11 reads the value without a reset of errno, and takes its default then, which is the rendered value (S04).
_STALE_ERRNO = re.compile(
    r"error: validate_node_specs: Unable to convert node_reg_mem_percent=(100|90) value to double"
)


_FIRST_START = re.compile(
    r"error: (Could not open (node|job|reservation|trigger|part|partition) state file /var/spool/slurmctld/\w+: No such file"
    r"|NOTE: Trying backup (state|partition state) save file)"
)


@dataclass(frozen=True)
class Done:
    """The answer of a program."""

    code: int
    out: str
    err: str


@dataclass
class _Node:
    process: subprocess.Popen[bytes]
    address: str


@dataclass
class RealSlurm:
    """The daemons of one cluster. Build it for each plan; it takes a second. See the module's docstring."""

    version: str
    plan: SlurmPlan
    nodes: bool = True  # slurmds will be started: apply every adaptation
    files: Mapping[str, str] = field(default_factory=dict[str, str])  # more files: absolute path -> text
    gpus: int = 16  # /dev/nvidia0 ...

    def __enter__(self) -> Self:
        tree = tree_or_skip(self.version)
        self.plan = replace(self.plan, slurm=replace(self.plan.slurm, version=self.version))
        head = self.plan.head
        wanted = {
            "tree": str(tree),
            "host": head.name,
            "addresses": list(head.addresses),
            "gpus": self.gpus,
        }
        unshare = ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child", "--"]
        argv = ["setpriv", "--pdeathsig", "KILL", "--", *unshare, sys.executable, "-I", "-S", str(_NAMESPACE)]
        self._spawned: list[subprocess.Popen[bytes]] = []
        self._nodes: dict[str, _Node] = {}
        self._stopping = threading.Event()
        self._power: threading.Thread | None = None
        self._holder = subprocess.Popen(
            [*argv, json.dumps(wanted)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert self._holder.stdout is not None
            assert self._holder.stdout.readline() == b"ready\n", "the namespaces did not start"
            children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text()
            self._leader = int(children.split()[0])
            self._prepare()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    # --- files ---------------------------------------------------------------------------------------
    def path(self, absolute: str) -> Path:
        """The file of the namespaces as a path of this host: `/etc/slurm/slurm.conf`."""
        return Path(f"/proc/{self._leader}/root{ROOT}{absolute}")

    def write(self, path: str, text: str, *, mode: int = 0o644, owner: str = "root") -> None:
        """Write a file in the namespaces."""
        at = self.path(path)
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text)
        at.chmod(mode)
        if owner != "root":
            self.must("chown", f"{owner}:{owner}", path)

    def folder(self, path: str, owner: str, mode: int = 0o755) -> None:
        """Make a folder in the namespaces."""
        self.path(path).mkdir(parents=True, exist_ok=True)
        self.path(path).chmod(mode)
        self.must("chown", f"{owner}:{owner}", path)

    def log(self, program: str) -> str:
        """The log of a daemon by its name, as the rendered files place it; of a slurmd: `slurmd-NODE`."""
        path = self.path(f"/var/log/slurm/{program}.log")
        return path.read_text(errors="replace") if path.exists() else ""

    def errors(self, program: str = "slurmctld") -> list[str]:
        """The lines of its log with `error:` or `fatal:`, without those of the first start (_FIRST_START)."""
        return errors_of(self.log(program))

    # --- programs ------------------------------------------------------------------------------------
    def run(
        self,
        *argv: str,
        user: str = "root",
        node: str | None = None,
        stdin: str | None = None,
        timeout: float = BOUND_S,
    ) -> Done:
        """Run a program on the head, or on `node`, whose slurmd runs."""
        done = subprocess.run(
            self._argv(argv, user=user, node=node),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            env=_ENV,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def must(self, *argv: str, user: str = "root", node: str | None = None, stdin: str | None = None) -> str:
        """Its standard output; AssertionError if it fails."""
        done = self.run(*argv, user=user, node=node, stdin=stdin)
        assert done.code == 0, f"{shlex.join(argv)}: {done.code}\n{done.out}\n{done.err}"
        return done.out

    def show(self, what: str, *more: str) -> list[dict[str, str]]:
        """`scontrol show WHAT` as records, for output without free text. `config` is one record."""
        text = self.must("scontrol", "-o" if what != "config" else "--all", "show", what, *more)
        if what == "config":
            pairs = (line.split("=", 1) for line in text.splitlines() if re.match(r"^\S+\s*=", line))
            return [{key.strip(): value.strip() for key, value in pairs}]
        return [
            dict(word.split("=", 1) for word in line.split() if "=" in word)
            for line in text.splitlines()
            if "=" in line
        ]

    def spawn(
        self, *argv: str, user: str = "root", node: str | None = None, name: str | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a daemon in the foreground on the head, or on `node`, whose slurmd runs. Its output is in `log(NAME.out)`."""
        self.folder("/var/log/slurm", "slurm")
        with self.path(f"/var/log/slurm/{name or Path(argv[0]).name}.out.log").open("ab") as out:
            process = subprocess.Popen(
                self._argv(argv, user=user, node=node),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=_ENV,
            )
        self._spawned.append(process)
        return process

    def wait(self, holds: Callable[[], T], what: str, within: float = BOUND_S) -> T:
        """Ask until the answer is true, and return it; AssertionError with the log of slurmctld after `within` seconds."""
        return eventually(what, holds, within=within, picture=lambda: self.log("slurmctld")[-3000:])

    # --- Slurm ---------------------------------------------------------------------------------------
    def start_munge(self) -> None:
        """Start munged, once."""
        if not self.path("/run/munge/munge.socket.2").exists():
            self.spawn("/usr/sbin/munged", "--foreground", user="munge")
            self.wait(lambda: self.path("/run/munge/munge.socket.2").exists(), "munge's socket")

    def start_controller(self, *options: str) -> None:
        """Start munged and slurmctld; return when slurmctld answers. AssertionError with its log if it ends."""
        self.start_munge()
        self.controller = self.spawn("/usr/sbin/slurmctld", "-D", *options, user="slurm")

        def answers() -> bool:
            if self.controller.poll() is not None:
                told = self.path("/var/log/slurm/slurmctld.out.log").read_text(errors="replace")
                raise AssertionError(f"slurmctld {self.version} ended:\n{told[-3000:]}")
            return self.run("scontrol", "ping").out.count(" is UP") > 0

        self.wait(answers, "slurmctld answers")

    def stop_controller(self) -> None:
        """End slurmctld as systemd does; its state is saved."""
        self.must("pkill", "--exact", "slurmctld")  # in the PID namespace of this cluster only
        self.wait(lambda: self.controller.poll() is not None, "slurmctld has ended")

    def start_nodes(self, *nodes: str, fresh: bool = True) -> None:
        """Start a slurmd for each, configless, with the node's name and address; `fresh`: as after a boot (-b)."""
        for name in nodes:
            if name not in self._nodes or self._nodes[name].process.poll() is not None:
                self._start_node(name, fresh)

    def stop_nodes(self, *nodes: str) -> None:
        """Kill their slurmds and all that runs on them, as the end of a machine does."""
        for name in nodes:
            node = self._nodes.pop(name, None)
            if node is not None:
                self._host("ip", "netns", "pids", name, then="xargs -r kill -9")
                node.process.wait()
                self._host("ip", "netns", "delete", name)

    def serve_power(self) -> None:
        """From now on a slurmd starts for each node of a ResumeProgram call, and ends for each of a SuspendProgram call."""
        self._power = threading.Thread(target=self._serve_power, daemon=True)
        self._power.start()

    def calls(self) -> list[tuple[str, list[str]]]:
        """The calls of power saving so far: (resume | suspend | resume_fail, node names)."""
        hooks = self.path("/lab/hooks")
        lines = hooks.read_text().splitlines() if hooks.exists() else []
        return [
            (line.split()[0], list(hostlist.expand(line.split()[1], most=hostlist.SLURM_MOST)))
            for line in lines
        ]

    def gres_of(self, node: str) -> Done:
        """`slurmd -G` for this node, with every adaptation of slurmds."""
        return self.run("env", f"SLURM_CONF={FOR_SLURMD}/slurm.conf", "slurmd", "-G", "-N", node)

    # --- inside --------------------------------------------------------------------------------------
    def _prepare(self) -> None:
        artifacts = {a.path: a.content.decode() for a in render(self.plan)}
        slurm = {p.removeprefix("slurm/"): t for p, t in artifacts.items() if p.startswith("slurm/")}
        for folder, nodes in ((names.SLURM_ETC, self.nodes), (FOR_SLURMD, True)):
            for name, text in adapted(slurm, nodes=nodes).items():
                self.write(f"{folder}/{name}", text)
        if "plugstack.conf" not in slurm:  # Debian's includes a pattern, which Slurm does not read: an error
            self.path(f"{names.SLURM_ETC}/plugstack.conf").unlink(missing_ok=True)
        self._hosts = f"127.0.0.1 localhost\n{artifacts[names.HOSTS_FILE]}"
        self.write("/etc/hosts", self._hosts)
        self.write("/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\n")
        self.folder("/lab", "slurm")
        for path, text in {**PROGRAMS, **self.files}.items():
            self.write(path, text, mode=0o755 if text.startswith("#!") else 0o644)
        for path in ("/var/spool/slurmctld", "/var/log/slurm", "/run/slurmctld"):
            self.folder(path, "slurm")
        for path in ("/run/munge", "/var/log/munge"):
            self.folder(path, "munge")
        for path in ("/run/slurm", "/var/spool/slurmd", "/tmp"):
            self.folder(path, "root", 0o1777 if path == "/tmp" else 0o755)
        if self.plan.slurm.private_tmp:
            self.folder(self.plan.slurm.private_tmp, "root")
        self.must("useradd", "--create-home", "--uid", str(UID), USER)

    def _argv(self, argv: Sequence[str], *, user: str = "root", node: str | None = None) -> list[str]:
        return [*self._enter(node), "chroot", *_as(user), ROOT, *argv]

    def _enter(self, node: str | None = None) -> list[str]:
        """Into the namespaces; of a node, that of its slurmd."""
        enter = [
            "nsenter",
            "--target",
            str(self._leader),
            "--mount",
            "--net",
            "--uts",
            "--ipc",
            "--pid",
            "--",
        ]
        if node is None:
            return enter
        inside = [
            "sh",
            "-c",
            'exec nsenter --target "$(cat "/mnt/nodes/$0/pid")" --mount --net --uts -- "$@"',
        ]
        return [*enter, *inside, node]

    def _host(self, *argv: str, then: str = "") -> str:
        """Run a program of this host in the namespaces."""
        words = shlex.join(argv) + (f" | {then}" if then else "")
        done = subprocess.run(
            [*self._enter(), "sh", "-c", words], capture_output=True, text=True, check=False, env=_ENV
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def _start_node(self, name: str, fresh: bool) -> None:
        head = self.plan.head
        address = self.addresses()[name]
        hosts = f"{self._hosts_without_nodes()}{address} {name}\n"
        inner = "".join(f"{a} {n}\n" for n, a in self.addresses().items() if n in self._nodes)
        self.write(f"/lab/nodes/{name}/hosts", hosts + inner)
        self.folder(f"/lab/nodes/{name}/log", "root")
        servers = ",".join(f"{a}:{head.controller_port}" for a in head.addresses)
        slurmd = ["slurmd", "-D", "-N", name, *(["-b"] if fresh else []), "--conf-server", servers]
        link = f"v{sum(1 for _ in self._nodes) + len(self._spawned)}"
        script = f"""set -e
            ip netns add {name}; ip link add {link} type veth peer name eth0 netns {name}
            ip link set {link} master br0 up
            ip -n {name} link set lo up; ip -n {name} addr add {address}/32 dev eth0; ip -n {name} link set eth0 up
            ip -n {name} route add default dev eth0 src {address}
            mkdir -p /mnt/nodes/{name}/etc /mnt/nodes/{name}/spool /mnt/nodes/{name}/run
            exec nsenter --net=/run/netns/{name} unshare --mount --uts -- sh -e -c '
                hostname {name}; echo $$ >/mnt/nodes/{name}/pid
                mount --bind /mnt/nodes/{name}/etc {ROOT}/etc/slurm
                mount --bind /mnt/nodes/{name}/spool {ROOT}/var/spool/slurmd
                mount --bind /mnt/nodes/{name}/run {ROOT}/run/slurm
                mount --bind {ROOT}/lab/nodes/{name}/hosts {ROOT}/etc/hosts
                mkdir -p {ROOT}/lab/log; mount --bind {ROOT}/lab/nodes/{name}/log {ROOT}/var/log/slurm
                {self._into_tree()} {shlex.join(slurmd)}'"""
        with self.path(f"/lab/nodes/{name}/log/out").open("ab") as out:
            process = subprocess.Popen(
                [*self._enter(), "sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=_ENV,
            )
        self._spawned.append(process)
        self._nodes[name] = _Node(process, address)

    def _into_tree(self) -> str:
        """How a slurmd gets the tree as its root; in the shell of its namespaces."""
        return f"exec chroot {ROOT}"

    def node_log(self, name: str) -> str:
        """The log of its slurmd, and what it printed."""
        folder = self.path(f"/lab/nodes/{name}/log")
        return "".join(p.read_text(errors="replace") for p in sorted(folder.iterdir()))

    def addresses(self) -> dict[str, str]:
        """The address of each node: the plan's for existing hosts, the laboratory's own for AWS (T)."""
        fixed = {name: at for pool in self.plan.pools for name, at in pool.hosts() if at}
        others = [n for pool in self.plan.pools for span in pool.slots for n in span if n not in fixed]
        return {**fixed, **{n: f"10.250.{i // 250}.{i % 250 + 2}" for i, n in enumerate(others)}}

    def _hosts_without_nodes(self) -> str:
        """On a node only the head's lines hold: the agent writes those of other nodes by the Prolog."""
        nodes = set(self.addresses())
        return "".join(
            f"{x}\n" for x in self._hosts.splitlines() if x.split()[-1:] and x.split()[-1] not in nodes
        )

    def _serve_power(self) -> None:
        done = 0
        while not self._stopping.wait(0.1):
            with contextlib.suppress(OSError):
                calls = self.calls()
                for kind, nodes in calls[done:]:
                    self.start_nodes(*nodes) if kind == "resume" else self.stop_nodes(*nodes)
                done = len(calls)

    def _end(self) -> None:
        self._stopping.set()
        if self._power is not None:
            self._power.join()
        if self._holder.stdin is not None:
            self._holder.stdin.close()
        self._holder.wait(timeout=BOUND_S)
        if self._holder.stdout is not None:
            self._holder.stdout.close()
        for process in self._spawned:
            process.wait(timeout=BOUND_S)


def _as(user: str) -> list[str]:
    return [] if user == "root" else [f"--userspec={user}:{user}"]


def tree_or_skip(version: str) -> Path:
    """The tree of this version; the test is skipped with the reason if its packages cannot be had."""
    try:
        return trees.tree(version)
    except GpuclusterError as error:
        pytest.skip(f"Slurm {version}: its Debian packages cannot be had: {str(error)[-300:]}")
