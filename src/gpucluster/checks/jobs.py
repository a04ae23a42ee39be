"""What jobs show: of an ordinary user, bounded in time, a few seconds long."""

import re
from collections.abc import Mapping
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
RANK = 'echo "$SLURM_PROCID $SLURM_NTASKS ${SLURMD_NODENAME} ${SLURM_TOPOLOGY_ADDR:--}"'


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrip:
    """How long a node may take from off to running, and from its last job to off."""

    up_s: float
    down_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A node's phases with the seconds since the job was submitted, and what the cloud has at its address now."""

    node: str
    moments: tuple[tuple[float, str], ...]
    instance: str  # "" = no living instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """What was watched; the job left its nodes at `left_s`."""

    left_s: float
    lives: tuple[Life, ...]


def ask_ranks(want: Gang | Leaves) -> tuple[Ask, ...]:
    argv = (f"--nodes={want.nodes}", "--ntasks-per-node=1", "--", "sh", "-c", RANK)
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
    expected = f"{want.nodes} tasks on {want.nodes} nodes"
    nodes = sorted({rank.node for rank in found})
    said = f"{len(found)} tasks on {listed(nodes) or 'no node'}"
    well = [r.number for r in found] == list(range(want.nodes)) and len(nodes) == want.nodes
    return (passed if well else failed)(said, expected)


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
    )


def judge_small(found: Ended, want: Small) -> Judgement:
    expected = f"COMPLETED on a node of {want.partition}"
    said = f"job {found.id} {'+'.join(found.states)}" + (f" on {short(found.node, 60)}" if found.node else "")
    if "COMPLETED" in found.states:
        return (passed if found.node in want.nodes else failed)(said, expected)
    why = f" after {want.limit_s:g} s ({short(found.reason, 80)})" if found.reason not in ("", "None") else ""
    if "PENDING" in found.states and found.reason in ("Resources", "Priority"):
        return unknown(f"{said}{why}: others use the nodes", expected)
    return failed(said + why, expected)


def ask_lives(want: RoundTrip) -> tuple[Ask, ...]:
    return (Ask(at=Place.WATCH, limit_s=want.down_s),)


def parse_lives(got: tuple[Answer, ...]) -> Lives:
    """What validation itself wrote of its watch."""
    whole = answers.table(got[0].text())
    return Lives(
        left_s=answers.number(whole, "left_s"),
        lives=tuple(
            Life(
                node=answers.text(item, "node"),
                moments=tuple(
                    (answers.number(moment, "at"), answers.text(moment, "phase"))
                    for moment in answers.members(item, "moments")
                ),
                instance=answers.text(item, "instance"),
            )
            for item in answers.members(whole, "lives")
        ),
    )


PHASES = ("POWERED_DOWN", "POWERING_UP", "RUNNING", "IDLE", "POWERING_DOWN", "POWERED_DOWN")


def judge_lives(found: Lives, want: RoundTrip) -> Judgement:
    """The first life that is not as it should be speaks for all."""
    expected = f"off, up within {want.up_s:g} s, off within {want.down_s:g} s of its job, no instance left"
    if not found.lives:
        return unknown("no node was watched", expected)
    for life in found.lives:
        if said := _unseen(life, found.left_s):
            return unknown(said, expected)
        if said := _ill(life, found.left_s, want):
            return failed(said, expected)
    return passed(listed([_times(life, found.left_s) for life in found.lives]), expected)


def _unseen(life: Life, left_s: float) -> str:
    """Why this life shows no round trip, through nobody's fault."""
    if not life.moments or life.moments[0][1] != PHASES[0]:
        return f"{life.node} was {life.moments[0][1] if life.moments else 'not seen'} before the job"
    at, phase = life.moments[-1]
    return f"{life.node} has another job now" if phase == "RUNNING" and at > left_s else ""


def _ill(life: Life, left_s: float, want: RoundTrip) -> str:
    phases = tuple(phase for _, phase in life.moments)
    if phases != PHASES:
        return f"{life.node} went {' > '.join(phases)}"
    if _up_s(life) > want.up_s or _down_s(life, left_s) > want.down_s:
        return _times(life, left_s)
    return f"{life.node} is off, but {short(life.instance, 60)} lives at its address" if life.instance else ""


def _times(life: Life, left_s: float) -> str:
    return f"{life.node} up in {_up_s(life):.1f} s, off {_down_s(life, left_s):.1f} s after its job"


def _up_s(life: Life) -> float:
    return _first(life, "RUNNING") - _first(life, "POWERING_UP")


def _down_s(life: Life, left_s: float) -> float:
    return life.moments[-1][0] - left_s


def _first(life: Life, phase: str) -> float:
    return next(at for at, name in life.moments if name == phase)


def _devices(whole: Mapping[str, Any]) -> Devices:
    opened = whole.get("opened")
    if not isinstance(opened, dict):
        raise ParseError("the step opened nothing")
    told = answers.text(whole, "told")
    return Devices(
        told=tuple(word for word in told.split(",") if word),
        opened={str(path): str(word) for path, word in cast("dict[object, object]", opened).items()},
    )
