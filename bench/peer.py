"""One burst through ParallelCluster's own resume program, and through our hook and daemon, with the same model of EC2.

1,000 nodes in 1,000 jobs of 1 to one job of 1,000, on the machine as it is and beside one busy loop for each of its cores.
The figures are calls to the cloud, wall time and calls of scontrol and squeue. The limits of ours are their calls and half
of their wall time. Both programs run in turn, three times; the medians count. Both programs use HTTP on loopback to one API server (`peer_cloud`), and one scontrol, a program
that answers from files and records each call. ParallelCluster is unchanged: its table, zone, launch template and heartbeat
are where its defaults expect them, /var/log is an empty mount, and `sudo` is a program that only runs its arguments (the
real one would be slower). Its time is the time of the program. Ours is from the start of the hook until the last launch is
in the journal. The mount needs root. The virtual environment is made from requirements/peer.txt.
"""

import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from gpucluster.slurm.hostlist import expand_slurm
from gpucluster.slurm.parse import QueueRow

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements" / "peer.txt"
PATIENCE_S = 300.0
SIZES = (1, 4, 10, 250, NODES)  # nodes of each job; all jobs together want 1,000
TIMES = 3
WALL = 0.5  # of theirs
OFF = ("IDLE", "CLOUD", "POWERED_DOWN")
WANTED = ("ALLOCATED", "CLOUD", "NOT_RESPONDING", "POWERING_UP")
UP = ("ALLOCATED", "CLOUD")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The cost of one burst."""

    wall_s: float
    api: Counter[str]
    refused: int
    scontrol: int


def run() -> Iterator[Figure]:
    """The figures of both programs, and the ratio."""
    with tempfile.TemporaryDirectory(prefix="gpucluster-peer-") as folder:
        program = _installed(Path(folder))
        commit = subprocess.run(
            ["/usr/bin/git", "-C", str(ROOT), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=False,
        )
        _print(f"commit {commit.stdout.strip()}")
        for size in SIZES:
            yield from _pair(Path(folder), program, size, "quiet")
        with _busy():
            for size in SIZES:
                yield from _pair(Path(folder), program, size, "busy")


def _pair(folder: Path, program: Path, size: int, load: str) -> Iterator[Figure]:
    """Run both programs in turn."""
    name = f"{load}.{NODES // size}_jobs_of_{size}"
    theirs: list[Run] = []
    ours: list[Run] = []
    for number in range(TIMES):
        theirs.append(_theirs(folder / f"theirs-{name}-{number}", program, size))
        ours.append(_ours(folder / f"ours-{name}-{number}", size))
    for who, runs in (("theirs", theirs), ("ours", ours)):
        for one in runs:
            calls = f"scontrol {one.scontrol}, refused {one.refused}, {dict(one.api)}"
            _print(f"{name} {who}: {one.wall_s:.2f} s, {calls}")
    yield figure(
        f"peer.{name}.api_calls",
        _median(r.api.total() for r in ours),
        "calls",
        _median(r.api.total() for r in theirs),
    )
    yield figure(
        f"peer.{name}.wall", _median(r.wall_s for r in ours), "s", WALL * _median(r.wall_s for r in theirs)
    )
    yield figure(
        f"peer.{name}.scontrol",
        _median(r.scontrol for r in ours),
        "calls",
        _median(r.scontrol for r in theirs),
    )


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


@contextmanager
def _busy() -> Iterator[None]:
    """Other programs that always want a core: one for each."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _installed(folder: Path) -> Path:
    """Install ParallelCluster's program into its own virtual environment."""
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    pip = [str(venv / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--require-hashes", "-r", str(LOCK)], check=True)
    return venv / "bin" / "slurm_resume"


# --- ParallelCluster ------------------------------------------------------------------------------------
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
        living, calls = cloud.status()
    log = (folder / "slurm_resume.log").read_text()
    assert living == NODES, f"{living} instances\n{log[-3000:]}"
    assert "ERROR" not in log, log[log.index("ERROR") - 200 :][:3000]
    return _cost(calls, slurm, began, ended)


def _their_configuration(folder: Path, made: dict[str, str]) -> Path:
    """Write the configuration of the cookbook, with values for the settings that have no default."""
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


# --- gpucluster -----------------------------------------------------------------------------------------
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
                time.sleep(3.0)  # the daemon has done a full pass and waits for the next
                began = time.time()
                slurm.burst(size)
                _our_hook(folder, f"{prefix}[1-{NODES}]", slurm.resume_file(size))
                _until(lambda: _launched(folder)[0] == NODES)
                living, calls = cloud.status()
            except TimeoutError:
                sys.exit((folder / "log").read_text()[-3000:])
            finally:
                daemon.send_signal(signal.SIGTERM)
    assert living == NODES, living
    return _cost(calls, slurm, began, _launched(folder)[1])


def _our_hook(folder: Path, hostlist: str, resume_file: Path) -> None:
    """Write the hook with the paths of this run, as Slurm runs it."""
    text = Path(hook.__file__).read_text().replace("/var/spool/gpucluster", str(folder / "spool"))
    program = folder / "resume"
    program.write_text(text.replace("/run/gpucluster/wake", str(folder / "wake")))
    argv = ["/usr/bin/python3", "-IS", str(program), hostlist]
    subprocess.run(argv, env={"SLURM_RESUME_FILE": str(resume_file)}, check=True)


def _launched(folder: Path) -> tuple[int, float]:
    """Return the number of instances in the journal, and the time of the last launch."""
    done = [e for e in read_only(folder / "journal") if isinstance(e.event, LaunchDone)]
    count = sum(len(e.event.instances) for e in done if isinstance(e.event, LaunchDone))
    return count, max((e.at for e in done), default=0.0)


# --- both -------------------------------------------------------------------------------------------------
class Slurm:
    """A stand-in for scontrol and its answers, as files."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        folder.mkdir()
        self.bin, self._folder, self._names = folder / "bin", folder, names
        self.bin.mkdir()
        asked = f'all="$*"; printf "%s %s\\n" "$EPOCHREALTIME" "${{all:0:30}}" >>{folder}/asked'
        answers = "*nodes*--json) cat nodes.json;; *show\\ nodes*) cat nodes.txt;; *reservations*) cat reservations.json;;"
        self._program("scontrol", f'{asked}\ncd {folder}\ncase "$all" in {answers} esac')
        self._program("scancel", asked)
        mark = "mark=${SQUEUE_FORMAT2%%,*}; mark=${mark#JobId:0}"
        self._program("squeue", f'{asked}\ncd {folder}\n{mark}\nsed "s/\\x1e/$mark/g" rows')
        self._program("sudo", 'exec "$@"')
        (folder / "asked").touch()
        self._tell({}, OFF, ())

    def burst(self, size: int, count: int = NODES) -> None:
        """Jobs of this size request the first `count` nodes."""
        self._tell(self._jobs(size, count), WANTED, ("RUNNING", "CONFIGURING"))

    def running(self, size: int, count: int = NODES) -> None:
        """The nodes are up and the jobs run."""
        self._tell(self._jobs(size, count), UP, ("RUNNING",))

    def asked(self) -> int:
        return len((self._folder / "asked").read_text().splitlines())

    def asked_between(self, began: float, ended: float) -> int:
        lines = (self._folder / "asked").read_text().splitlines()
        return sum(began <= float(line.split()[0]) <= ended for line in lines)

    def resume_file(self, size: int, count: int = NODES) -> Path:
        """The JSON of Slurm 24.11."""
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
        sizes = {number: len(expand_slurm(names)) for number, names in hosts.items()}
        states = dict.fromkeys(self._names[: sum(sizes.values())], tuple(node))
        nodes = [{"name": n, "state": states.get(n, OFF), "address": n, "hostname": n} for n in self._names]
        rows = [_row(number, job[-1], names, sizes[number]) for number, names in hosts.items()]
        text = "\n\n".join(
            f"NodeName={n} Arch=x86_64\n   NodeAddr={n} NodeHostName={n}\n   State={'+'.join(states.get(n, OFF))}\n"
            f"   Partitions=gpu\n   BootTime=None SlurmdStartTime=None\n   LastBusyTime=Unknown"
            for n in self._names
        )
        for name, content in (
            ("nodes.json", json.dumps({"nodes": nodes})), ("reservations.json", '{"reservations": []}'), ("rows", "\n".join(rows)), ("nodes.txt", text),
        ):  # fmt: skip
            draft = self._folder / f"{name}.new"
            draft.write_text(content and content + "\n")
            draft.rename(self._folder / name)

    def _program(self, name: str, body: str) -> None:
        (self.bin / name).write_text(f"#!/bin/bash\n{body}\n")
        (self.bin / name).chmod(0o755)


def _row(number: int, state: str, nodes: str, count: int) -> str:
    """A row of squeue for the daemon's format. \\x1e is in the place of the mark."""
    row = QueueRow(
        job=str(number), array=str(number), task="N/A", het="N/A", state=state, nodes=str(count), max_nodes=str(count),
        tres=f"cpu={count},node={count}", partitions="gpu", batch="1", requeue="1", priority="1",
        submitted="1795000000", eligible="1795000000", time_limit="1:00:00", time_min="0:00", user="1000", restarts="0", exit_code="0:0",
        node_list=nodes, required="", excluded="", features="(null)", reservation="(null)", reason="None",
        account="(null)", admin_comment="(null)", started="1795000001",
    )  # fmt: skip
    return "".join(f"{field}\x1e" for field in row.fields)


@dataclass
class Cloud:
    """The running API server."""

    made: dict[str, str]
    process: "subprocess.Popen[str]"

    def status(self) -> tuple[int, list[tuple[float, str, str]]]:
        """Return the living instances and every call: time, action, error code."""
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


def _print(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
