"""One burst through ParallelCluster's own resume program and through our hook and daemon, over the same cloud model.

1,000 nodes in one job, then in 250 jobs of 4. Of each: calls to the cloud, wall time, calls of scontrol; ours against
theirs as the limit. Both speak HTTP on loopback to the same door (`peer_cloud`) and ask the same scontrol, a program
that answers from files and writes down that it was asked. Nothing of ParallelCluster is changed: its table, zone,
launch template and heartbeat are where its defaults look, /var/log is an empty mount of its own, and `sudo` is a
program that just goes on (the real one would cost it more). Its time is that of the program, ours from the hook's
start until the last launch is in the journal. Needs root for that mount; the venv is made from requirements/peer.txt.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.figure import Figure, figure
from bench.peer_cloud import CLUSTER, DOMAIN, MACHINE, OPERATOR, QUEUE, REGION, RESOURCE, TABLE
from bench.peer_daemon import NODES, the_plan
from gpucluster.elastic import hook
from gpucluster.elastic.events import LaunchDone
from gpucluster.elastic.journal import read_only
from gpucluster.elastic.observe import expand

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements" / "peer.txt"
PATIENCE_S = 300.0
BURSTS = {"one_job_of_1000": NODES, "250_jobs_of_4": 4}  # name -> nodes of a job
OFF = ("IDLE", "CLOUD", "POWERED_DOWN")
WANTED = ("ALLOCATED", "CLOUD", "NOT_RESPONDING", "POWERING_UP")
UP = ("ALLOCATED", "CLOUD")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one burst cost."""

    wall_s: float
    api: Counter[str]
    refused: int
    scontrol: int


def run() -> Iterator[Figure]:
    """Theirs, ours, and the ratio."""
    with tempfile.TemporaryDirectory(prefix="gpucluster-peer-") as folder:
        program = _installed(Path(folder))
        commit = subprocess.run(
            ["/usr/bin/git", "-C", str(ROOT), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=False,
        )
        _say(f"commit {commit.stdout.strip()}")
        for name, size in BURSTS.items():
            theirs = _theirs(Path(folder) / f"theirs-{name}", program, size)
            ours = _ours(Path(folder) / f"ours-{name}", size)
            for who, one in (("theirs", theirs), ("ours", ours)):
                _say(
                    f"{name} {who}: {one.wall_s:.2f} s, scontrol {one.scontrol}, refused {one.refused}, {dict(one.api)}"
                )
            yield figure(f"peer.{name}.api_calls", ours.api.total(), "calls", theirs.api.total())
            yield figure(f"peer.{name}.wall", ours.wall_s, "s", theirs.wall_s)
            yield figure(f"peer.{name}.scontrol", ours.scontrol, "calls", theirs.scontrol)


def _installed(folder: Path) -> Path:
    """ParallelCluster's program in a venv of its own."""
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    pip = [str(venv / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--require-hashes", "-r", str(LOCK)], check=True)
    return venv / "bin" / "slurm_resume"


# --- theirs ----------------------------------------------------------------------------------------------
def _theirs(folder: Path, program: Path, size: int) -> Run:
    names = [f"{QUEUE}-dy-{RESOURCE}-{n}" for n in range(1, NODES + 1)]
    slurm = Slurm(folder, names)
    slurm.burst(size)
    with _cloud() as cloud:
        environ = {
            **_environ(cloud.made["endpoint"], slurm.bin),
            "CONFIG_FILE": str(_their_configuration(folder, cloud.made)),
            "SLURM_RESUME_FILE": str(slurm.resume_file(size)),
            "SLURM_BINARIES_DIR": str(slurm.bin),
        }
        hostlist = f"{QUEUE}-dy-{RESOURCE}-[1-{NODES}]"
        inside = f"mount -t tmpfs none /var/log && mkdir /var/log/parallelcluster && {shlex.join([str(program), hostlist])}"
        inside += (
            f"; code=$?; cp /var/log/parallelcluster/slurm_resume.log {shlex.quote(str(folder))}; exit $code"
        )
        began = time.time()
        subprocess.run(
            ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", inside],
            env=environ,
            check=True,
            timeout=PATIENCE_S,
        )
        ended = time.time()
        living, calls = cloud.told()
    log = (folder / "slurm_resume.log").read_text()
    assert living == NODES, f"{living} instances\n{log[-3000:]}"
    assert "ERROR" not in log, log[log.index("ERROR") - 200 :][:3000]
    return _cost(calls, slurm, began, ended)


def _their_configuration(folder: Path, made: dict[str, str]) -> Path:
    """What the cookbook writes, with the values that have no default."""
    now = datetime.now(tz=UTC).strftime("%Y-%m-%d %H:%M:%S.%f%z")
    (folder / "heartbeat").write_text(now)
    resource = {
        "Api": "run-instances",
        "CapacityType": "on-demand",
        "AllocationStrategy": "lowest-price",
        "Instances": [{"InstanceType": MACHINE}],
        "Networking": {"SubnetIds": [made["subnet"]]},
    }
    (folder / "fleet.json").write_text(json.dumps({QUEUE: {RESOURCE: resource}}))
    lines = {
        "cluster_name": CLUSTER,
        "region": REGION,
        "dynamodb_table": TABLE,
        "hosted_zone": made["zone"],
        "dns_domain": DOMAIN,
        "head_node_private_ip": "10.42.0.10",
        "head_node_hostname": "head",
        "clustermgtd_heartbeat_file_path": folder / "heartbeat",
        "fleet_config_file": folder / "fleet.json",
        "instance_id": "i-0123456789abcdef0",
    }
    text = "[slurm_resume]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items())
    (folder / "resume.conf").write_text(text)
    return folder / "resume.conf"


# --- ours ------------------------------------------------------------------------------------------------
def _ours(folder: Path, size: int) -> Run:
    prefix = the_plan().pools[0].slots[0].prefix
    slurm = Slurm(folder, [f"{prefix}{n}" for n in range(1, NODES + 1)])
    with _cloud() as cloud:
        environ = _environ(cloud.made["endpoint"], slurm.bin)
        argv = [
            sys.executable,
            "-m",
            "bench.peer_daemon",
            str(folder),
            cloud.made["subnet"],
            cloud.made["template"],
        ]
        with (
            (folder / "log").open("w") as log,
            subprocess.Popen(argv, env=environ, cwd=ROOT, stderr=log) as daemon,
        ):
            try:
                _until(lambda: "ready" in (folder / "log").read_text() and slurm.asked() >= 2)
                time.sleep(3.0)  # quiet: it has looked, and sleeps until the next reconcile
                began = time.time()
                slurm.burst(size)
                _our_hook(folder, f"{prefix}[1-{NODES}]", slurm.resume_file(size))
                _until(lambda: _launched(folder)[0] == NODES)
                living, calls = cloud.told()
            except TimeoutError:
                sys.exit((folder / "log").read_text()[-3000:])
            finally:
                daemon.send_signal(signal.SIGTERM)
    assert living == NODES, living
    return _cost(calls, slurm, began, _launched(folder)[1])


def _our_hook(folder: Path, hostlist: str, resume_file: Path) -> None:
    """The hook's own file with this run's paths in it, as Slurm runs it."""
    text = Path(hook.__file__).read_text().replace("/var/spool/gpucluster", str(folder / "spool"))
    program = folder / "resume"
    program.write_text(text.replace("/run/gpucluster/wake", str(folder / "wake")))
    argv = ["/usr/bin/python3", "-IS", str(program), hostlist]
    subprocess.run(argv, env={"SLURM_RESUME_FILE": str(resume_file)}, check=True)


def _launched(folder: Path) -> tuple[int, float]:
    """How many instances the journal has, and since when."""
    done = [e for e in read_only(folder / "journal") if isinstance(e.event, LaunchDone)]
    count = sum(len(e.event.instances) for e in done if isinstance(e.event, LaunchDone))
    return count, max((e.at for e in done), default=0.0)


# --- both ------------------------------------------------------------------------------------------------
class Slurm:
    """scontrol and what it needs, over files."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        folder.mkdir()
        self.bin, self._folder, self._names = folder / "bin", folder, names
        self.bin.mkdir()
        asked = f'all="$*"; printf "%s %s\\n" "$EPOCHREALTIME" "${{all:0:30}}" >>{folder}/asked'
        answers = (
            "*nodes*--json) cat nodes.json;; *jobs*--json) cat jobs.json;; *show\\ nodes*) cat nodes.txt;;"
        )
        self._program("scontrol", f'{asked}\ncd {folder}\ncase "$all" in {answers} esac')
        self._program("scancel", asked)
        self._program("sudo", 'exec "$@"')
        (folder / "asked").touch()
        self._tell({}, OFF, ())

    def burst(self, size: int, count: int = NODES) -> None:
        """The first `count` nodes are wanted, by jobs of so many."""
        self._tell(self._jobs(size, count), WANTED, ("RUNNING", "CONFIGURING"))

    def running(self, size: int, count: int = NODES) -> None:
        """They are up, and their jobs run."""
        self._tell(self._jobs(size, count), UP, ("RUNNING",))

    def asked(self) -> int:
        return len((self._folder / "asked").read_text().splitlines())

    def asked_between(self, began: float, ended: float) -> int:
        lines = (self._folder / "asked").read_text().splitlines()
        return sum(began <= float(line.split()[0]) <= ended for line in lines)

    def resume_file(self, size: int, count: int = NODES) -> Path:
        """As Slurm 24.11 gives it."""
        jobs = [
            {
                "extra": None, "features": None, "job_id": number, "nodes_alloc": nodes, "nodes_resume": nodes,
                "oversubscribe": "NO", "partition": "gpu", "reservation": None,
            }
            for number, nodes in self._jobs(size, count).items()
        ]  # fmt: skip
        path = self._folder / "resume.json"
        path.write_text(json.dumps({"all_nodes_resume": self._hostlist(self._names[:count]), "jobs": jobs}))
        return path

    def _jobs(self, size: int, count: int) -> dict[int, str]:
        parts = [self._names[n : n + size] for n in range(0, count, size)]
        return {number: self._hostlist(part) for number, part in enumerate(parts, 1)}

    def _hostlist(self, names: list[str]) -> str:
        stem, _, first = names[0].rpartition("-")
        return f"{stem}-[{first}-{names[-1].rpartition('-')[2]}]"

    def _tell(self, hosts: Mapping[int, str], node: Sequence[str], job: Sequence[str]) -> None:
        sizes = {number: len(expand(names)) for number, names in hosts.items()}
        states = dict.fromkeys(self._names[: sum(sizes.values())], tuple(node))
        nodes = [{"name": n, "state": states.get(n, OFF), "address": n, "hostname": n} for n in self._names]
        jobs = [
            {
                "job_id": number, "job_state": list(job), "nodes": names, "requeue": True, "batch_flag": True,
                "node_count": {"set": True, "infinite": False, "number": sizes[number]}, "partition": "gpu",
            }
            for number, names in hosts.items()
        ]  # fmt: skip
        text = "\n\n".join(
            f"NodeName={n} Arch=x86_64\n   NodeAddr={n} NodeHostName={n}\n   State={'+'.join(states.get(n, OFF))}\n"
            f"   Partitions=gpu\n   BootTime=None SlurmdStartTime=None\n   LastBusyTime=Unknown"
            for n in self._names
        )
        for name, content in (
            ("nodes.json", json.dumps({"nodes": nodes})), ("jobs.json", json.dumps({"jobs": jobs})), ("nodes.txt", text),
        ):  # fmt: skip
            draft = self._folder / f"{name}.new"
            draft.write_text(content + "\n")
            draft.rename(self._folder / name)

    def _program(self, name: str, body: str) -> None:
        (self.bin / name).write_text(f"#!/bin/bash\n{body}\n")
        (self.bin / name).chmod(0o755)


@dataclass
class Cloud:
    """The running door."""

    made: dict[str, str]
    process: "subprocess.Popen[str]"

    def told(self) -> tuple[int, list[tuple[float, str, str]]]:
        """Living instances, and every call: when, what, refused with what."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = _line(self.process)
        return answer["living"], [(at, action, code) for at, action, code in answer["calls"]]


@contextmanager
def _cloud() -> Iterator[Cloud]:
    argv = [sys.executable, "-m", "bench.peer_cloud"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        argv, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield Cloud(_line(process), process)
        finally:
            process.terminate()


def _line(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout
    return json.loads(process.stdout.readline())


def _environ(endpoint: str, programs: Path) -> dict[str, str]:
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": OPERATOR[0],
        "AWS_SECRET_ACCESS_KEY": OPERATOR[1],
        "AWS_DEFAULT_REGION": REGION,
        **({"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}),
    }


def _cost(calls: list[tuple[float, str, str]], slurm: Slurm, began: float, ended: float) -> Run:
    mine = [(action, code) for at, action, code in calls if began <= at <= ended]
    return Run(
        wall_s=ended - began,
        api=Counter(action for action, _ in mine),
        refused=sum(bool(code) for _, code in mine),
        scontrol=slurm.asked_between(began, ended),
    )


def _until(reached: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while not reached():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.05)


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
