"""What jobs show: of an ordinary user, bounded in time, a few seconds long."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

from gpucluster.checks import answers
from gpucluster.checks.model import (
    Answer,
    Ask,
    Judgement,
    ParseError,
    Place,
    failed,
    listed,
    passed,
    short,
    unknown,
    warned,
)

# open(2) of a GPU's device file: EPERM is the cgroup's no; ENXIO is a yes with no driver behind it
_OPEN = """
import errno, glob, json, os
seen = {}
for path in sorted(glob.glob("/dev/nvidia[0-9]*")):
    try:
        os.close(os.open(path, os.O_RDWR))
        seen[path] = "open"
    except OSError as error:
        seen[path] = errno.errorcode.get(error.errno, str(error.errno))
print(json.dumps({"told": os.environ.get("CUDA_VISIBLE_DEVICES", ""), "opened": seen}))
"""
_RANK = 'echo "$SLURM_PROCID $SLURM_NTASKS ${SLURMD_NODENAME} ${SLURM_TOPOLOGY_ADDR:--}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A job over some nodes of a pool."""

    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A task, as it sees itself; `address` is its place in Slurm's topology, from the top switch down."""

    number: int
    of: int
    node: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """Node -> its switch, and how many nodes the job has."""

    nodes: int
    leaf: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gres:
    """Steps that ask for 1 GPU and for all `count`; `isolated`: the plan has Slurm constrain devices."""

    count: int
    isolated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """What a step was told, and what each device file answered to open(2)."""

    told: tuple[str, ...]
    opened: dict[str, str]

    @property
    def allowed(self) -> tuple[str, ...]:
        """Files that the step may open; EPERM is the cgroup's refusal, EACCES the file's own mode."""
        return tuple(sorted(path for path, word in self.opened.items() if word not in ("EPERM", "EACCES")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """A one-node job in a partition."""

    partition: str
    nodes: tuple[str, ...]
    limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A job at its end, or where it was when patience ran out."""

    id: int
    states: tuple[str, ...]
    node: str
    reason: str
    comment: str = ""  # the elastic daemon's words: why the cloud gives no node


def ask_ranks(want: Gang | Leaves) -> tuple[Ask, ...]:
    argv = (f"--nodes={want.nodes}", "--ntasks-per-node=1", "--", "sh", "-c", _RANK)
    return (Ask(argv=argv, at=Place.STEP, limit_s=30),)


def parse_ranks(got: tuple[Answer, ...]) -> tuple[Rank, ...]:
    """A line of each task."""
    found: list[Rank] = []
    for line in got[0].text().splitlines():
        match = re.fullmatch(r"([0-9]{1,6}) ([0-9]{1,6}) (\S+) (\S+)", line)
        if match is None:
            raise ParseError(f"a task said {short(line, 80)}")
        found.append(Rank(number=int(match[1]), of=int(match[2]), node=match[3], address=match[4]))
    return tuple(sorted(found, key=lambda rank: rank.number))


def judge_gang(found: tuple[Rank, ...], want: Gang) -> Judgement:
    one = " (the pool has no second one to test a gang on)" if want.nodes == 1 else ""
    expected = f"{want.nodes} tasks on {want.nodes} nodes{one}"
    nodes = sorted({rank.node for rank in found})
    said = f"{len(found)} tasks on {listed(nodes) or 'no node'}"
    well = [r.number for r in found] == list(range(want.nodes)) and len(nodes) == want.nodes
    return (passed if well else failed)(said + one, expected)


def judge_leaves(found: tuple[Rank, ...], want: Leaves) -> Judgement:
    """The switch above each node is the plan's, and a job has one switch."""
    expected = "each node below the plan's leaf, the job below one"
    seen = {rank.node: rank.address.split(".")[-2] if "." in rank.address else "" for rank in found}
    if len(seen) < want.nodes:
        return unknown(f"{len(seen)} of {want.nodes} tasks told their place", expected)
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


def ask_gres(want: Gres) -> tuple[Ask, ...]:
    step = ("--nodes=1", "--ntasks=1")
    return tuple(
        Ask(argv=(*step, f"--gres=gpu:{n}", "--", "python3", "-c", _OPEN), at=Place.STEP, limit_s=30)
        for n in sorted({1, want.count})
    )


def parse_gres(got: tuple[Answer, ...]) -> tuple[Devices, ...]:
    """What each step saw."""
    return tuple(_devices(answers.table(answer.text())) for answer in got)


def judge_gres(found: tuple[Devices, ...], want: Gres) -> Judgement:
    wanted = sorted({1, want.count})
    said = ", ".join(
        f"{n} asked: told {len(d.told)}, may open {len(d.allowed)} of {len(d.opened)}"
        for n, d in zip(wanted, found, strict=False)
    )
    expected = ", ".join(f"{n} asked: told {n}, may open {n}" for n in wanted)
    told = [len(devices.told) for devices in found] == wanted
    kept = [len(devices.allowed) for devices in found] == wanted
    if told and not kept and not want.isolated:
        return warned(f"{said}; the plan itself leaves devices open", expected)
    return (passed if told and kept else failed)(said, expected)


def ask_small(want: Small) -> tuple[Ask, ...]:
    size = ("--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--mem=64M", "--time=5")
    argv = (f"--partition={want.partition}", *size, "--wrap", "hostname")
    return (Ask(argv=argv, at=Place.JOB, limit_s=want.limit_s),)


def parse_job(got: tuple[Answer, ...]) -> Ended:
    """`scontrol show job ID --json`."""
    jobs = answers.objects(got[0], "jobs")
    if len(jobs) != 1:
        raise ParseError(f"{len(jobs)} jobs where one was expected")
    return Ended(
        id=int(answers.number(jobs[0], "job_id")),
        states=answers.words(jobs[0], "job_state"),
        node=answers.text(jobs[0], "nodes"),
        reason=answers.text(jobs[0], "state_reason"),
        comment=answers.text(jobs[0], "admin_comment"),
    )


def judge_small(found: Ended, want: Small) -> Judgement:
    expected = f"COMPLETED on a node of {want.partition}"
    said = f"job {found.id} {'+'.join(found.states)}" + (f" on {short(found.node, 60)}" if found.node else "")
    if "COMPLETED" in found.states:
        return (passed if found.node in want.nodes else failed)(said, expected)
    waits = f" after {want.limit_s:g} s" if not found.states or "PENDING" in found.states else ""
    said += waits + because(found.reason, found.comment)
    if is_queued(found.states, found.reason):
        return unknown(f"{said}: others use the nodes", expected)
    return failed(said, expected)


def is_queued(states: Collection[str], reason: str) -> bool:
    """A job that waits for others' nodes says nothing against the cluster; every other wait does."""
    return "PENDING" in states and reason in ("Resources", "Priority")


def because(*words: str) -> str:
    """Slurm's reason and the daemon's comment, where there are any."""
    said = "; ".join(short(word, 250) for word in words if word not in ("", "None"))
    return f" ({said})" if said else ""


def _devices(whole: Mapping[str, Any]) -> Devices:
    opened = whole.get("opened")
    if not isinstance(opened, dict):
        raise ParseError("the step opened nothing")
    told = answers.text(whole, "told")
    return Devices(
        told=tuple(word for word in told.split(",") if word),
        opened={str(path): str(word) for path, word in cast("dict[object, object]", opened).items()},
    )
