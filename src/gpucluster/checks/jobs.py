"""Check jobs of an ordinary user, each a few seconds long and limited in time."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from gpucluster.checks import json_fields
from gpucluster.checks.check import (
    CheckResult,
    Location,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
    unknown,
    warned,
)
from gpucluster.checks.slurmctld import parsed
from gpucluster.slurm import hostlist, parse
from gpucluster.slurm.states import JobState
from gpucluster.slurm.values import SlurmJob
from gpucluster.text import short

# open(2) of a GPU's device file: EPERM is a refusal of the cgroup; ENXIO is allowed, but no driver answers
_OPEN = """
import errno, glob, json, os
seen = {}
for path in sorted(glob.glob("/dev/nvidia[0-9]*")):
    try:
        os.close(os.open(path, os.O_RDWR))
        seen[path] = "open"
    except OSError as error:
        seen[path] = errno.errorcode.get(error.errno, str(error.errno))
print(json.dumps({"visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""), "opened": seen}))
"""
_REFUSED = ("EPERM", "EACCES")  # by the cgroup, by the file mode
_RANK = 'echo "$SLURM_PROCID $SLURM_NTASKS ${SLURMD_NODENAME} ${SLURM_TOPOLOGY_ADDR:--}"'
SHM = "/dev/shm"  # noqa: S108  named, not written to
PRIVATE_FOLDERS = ("/tmp", "/var/tmp", SHM)  # noqa: S108  the same
# fields of a mount: ids, root in its file system, mount point, options, peers (shared:1 master:2), type
_MOUNT = re.compile(r"\d+ \d+ \S+ (?P<root>\S+) (?P<at>\S+) \S+(?P<peers>(?: [^-\s]\S*)*) - (?P<type>\S+)")
_JOB_FOLDER = re.compile(r"/([0-9]+)/\.\1/[^/]+\Z")  # BasePath/NODE/JOB/.JOB/_tmp


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiNode:
    """A job on several nodes of a pool."""

    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A task as its environment shows it. `address` is SLURM_TOPOLOGY_ADDR: the switches from the top, then the node."""

    number: int
    of: int
    node: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """Node -> its leaf switch, and the number of the job's nodes."""

    nodes: int
    leaf: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gres:
    """Steps with 1 GPU and with `count` GPUs. `isolated`: Slurm constrains devices.

    `stand_ins`: the device files of a rehearsal have no driver, so that none can be opened.
    """

    count: int
    isolated: bool
    stand_ins: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The GPUs in a step's CUDA_VISIBLE_DEVICES, and the result of open(2) for each device file."""

    visible: tuple[str, ...]
    opened: dict[str, str]

    @property
    def allowed(self) -> tuple[str, ...]:
        """Files that the step may open."""
        return tuple(sorted(path for path, word in self.opened.items() if word not in _REFUSED))

    @property
    def dead(self) -> tuple[str, ...]:
        """Files that the step may open, and whose driver refuses: EIO, ENXIO or ENODEV of a GPU that does not work."""
        return tuple(f"{path}: {self.opened[path]}" for path in self.allowed if self.opened[path] != "open")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateFolders:
    """Folders of which each job has its own."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """A one-node job in a partition."""

    partition: str
    nodes: tuple[str, ...]
    limit_s: float
    gpus: int = 0


def query_ranks(want: MultiNode | Leaves) -> tuple[Query, ...]:
    argv = (f"--nodes={want.nodes}", "--ntasks-per-node=1", "--", "sh", "-c", _RANK)
    return (Query(argv=argv, at=Location.STEP, limit_s=30),)


def parse_ranks(got: tuple[QueryOutput, ...]) -> tuple[Rank, ...]:
    """The ranks, one line of output each."""
    found: list[Rank] = []
    for line in got[0].text().splitlines():
        match = re.fullmatch(r"([0-9]{1,6}) ([0-9]{1,6}) (\S+) (\S+)", line)
        if match is None:
            raise ParseError(f"a task printed {short(line, 80)}")
        found.append(Rank(number=int(match[1]), of=int(match[2]), node=match[3], address=match[4]))
    return tuple(sorted(found, key=lambda rank: rank.number))


def evaluate_multi_node(found: tuple[Rank, ...], want: MultiNode) -> CheckResult:
    one = " (the pool has only one node)" if want.nodes == 1 else ""
    expected = f"{want.nodes} tasks on {want.nodes} nodes{one}"
    nodes = sorted({rank.node for rank in found})
    words = f"{len(found)} tasks on {listed(nodes) or 'no node'}"
    well = [r.number for r in found] == list(range(want.nodes)) and len(nodes) == want.nodes
    return (passed if well else failed)(words + one, expected)


def evaluate_leaves(found: tuple[Rank, ...], want: Leaves) -> CheckResult:
    """Each node must be below its leaf switch of the plan; a job over two leaf switches is a warning.

    The head may divide a leaf by the switches that EC2 reports: then the plan's switch is further up in the address.
    """
    expected = "each node below its leaf switch of the plan, the job below one"
    seen = {rank.node: _leaf_of(rank, want) for rank in found}
    if len(seen) < want.nodes:
        return unknown(f"{len(seen)} of {want.nodes} tasks printed their switch", expected)
    wrong = [
        f"{n} is below {s or 'no switch'}, not {want.leaf.get(n, '?')}"
        for n, s in seen.items()
        if want.leaf.get(n) != s
    ]
    if wrong:
        return failed(listed(wrong), expected)
    leaves = sorted(set(seen.values()))
    return (
        passed(f"{len(seen)} nodes below {leaves[0]}", expected)
        if len(leaves) == 1
        else warned(listed(leaves), expected)
    )


def _leaf_of(rank: Rank, want: Leaves) -> str:
    """The plan's leaf switch of the node if its address has it, else the nearest switch; empty without a switch."""
    *above, _ = rank.address.split(".")
    planned = want.leaf.get(rank.node, "")
    return planned if planned in above else "".join(above[-1:])


def query_gres(want: Gres) -> tuple[Query, ...]:
    step = ("--nodes=1", "--ntasks=1")
    return tuple(
        Query(argv=(*step, f"--gres=gpu:{n}", "--", "python3", "-c", _OPEN), at=Location.STEP, limit_s=30)
        for n in sorted({1, want.count})
    )


def parse_gres(got: tuple[QueryOutput, ...]) -> tuple[Devices, ...]:
    """The devices of each step."""
    return tuple(_devices(json_fields.table(answer.text())) for answer in got)


def evaluate_gres(found: tuple[Devices, ...], want: Gres) -> CheckResult:
    wanted = sorted({1, want.count})
    words = ", ".join(
        f"{n} requested: {len(d.visible)} visible, {len(d.allowed)} of {len(d.opened)} can be opened"
        for n, d in zip(wanted, found, strict=False)
    )
    expected = ", ".join(f"{n} requested: {n} visible, {n} can be opened" for n in wanted)
    dead = () if want.stand_ins else tuple(dict.fromkeys(word for step in found for word in step.dead))
    if dead:
        return failed(f"{words}; GPUs do not open: {short(listed(dead), 120)}", expected, dead, _DEAD)
    visible = [len(devices.visible) for devices in found] == wanted
    allowed = [len(devices.allowed) for devices in found] == wanted
    if visible and not allowed and not want.isolated:
        return warned(f"{words}; the plan does not constrain devices", expected)
    return (passed if visible and allowed else failed)(words, expected)


_DEAD = "on the node: nvidia-smi -L; dmesg | grep -i NVRM | tail; then on the head: scontrol update nodename=NODE state=drain reason='a GPU does not open', and replace it"


def query_folders(_: PrivateFolders) -> tuple[Query, ...]:
    argv = ("--nodes=1", "--ntasks=1", "--", "cat", "/proc/self/mountinfo")
    return (Query(argv=argv, at=Location.STEP, limit_s=30),)


def parse_folders(got: tuple[QueryOutput, ...]) -> tuple[str, ...]:
    """The folders that belong to the job alone, by the mounts of a step."""
    last: dict[str, bool] = {}
    for line in got[0].text().splitlines():
        match = _MOUNT.match(line)
        if match is not None:
            last[match["at"]] = bool(_JOB_FOLDER.search(match["root"])) or (
                match["type"] == "tmpfs" and match["at"] == SHM and not match["peers"].strip()
            )
    if not last:
        raise ParseError("the step printed no mounts")
    return tuple(sorted(path for path, private in last.items() if private))


def evaluate_folders(found: tuple[str, ...], want: PrivateFolders) -> CheckResult:
    shared = [path for path in want.paths if path not in found]
    expected = f"{listed(want.paths)} belong to the job alone"
    return (
        failed(f"all jobs of the node share {listed(shared)}", expected)
        if shared
        else passed(expected, expected)
    )


def query_small(want: Small) -> tuple[Query, ...]:
    size = ("--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--mem=64M", "--time=5")
    gpus = (f"--gpus={want.gpus}",) if want.gpus else ()
    argv = (f"--partition={want.partition}", *size, *gpus, "--wrap", "hostname")
    return (Query(argv=argv, at=Location.JOB, limit_s=want.limit_s),)


def parse_job(got: tuple[QueryOutput, ...]) -> SlurmJob:
    """The one job of `scontrol show job ID --json`."""
    found = parsed(got[0], parse.parse_jobs)
    if len(found) != 1:
        raise ParseError(f"scontrol lists {len(found)} jobs; expected one")
    return found[0]


def evaluate_small(found: SlurmJob, want: Small) -> CheckResult:
    expected = f"COMPLETED on a node of {want.partition}"
    nodes = f" on {short(hostlist.fold(found.nodes), 60)}" if found.nodes else ""
    words = f"job {found.id} {'+'.join(sorted(found.states))}{nodes}"
    if JobState.COMPLETED in found.states:
        return (passed if found.nodes and set(found.nodes) <= set(want.nodes) else failed)(words, expected)
    return failed(words + reasons(found), expected)


def reasons(job: SlurmJob) -> str:
    """Slurm's reason and the daemon's comment in brackets; empty without both."""
    words = "; ".join(short(one, 250) for one in (job.reason, job.admin_comment) if one not in ("", "None"))
    return f" ({words})" if words else ""


def _devices(whole: Mapping[str, Any]) -> Devices:
    opened = whole.get("opened")
    if not isinstance(opened, dict):
        raise ParseError("the step printed no devices")
    visible = json_fields.text(whole, "visible")
    return Devices(
        visible=tuple(word for word in visible.split(",") if word),
        opened={str(path): str(word) for path, word in cast("dict[object, object]", opened).items()},
    )
