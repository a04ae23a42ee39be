"""Why a job of validation does not start: the cause that `why` of the head gives, or the other jobs on its nodes. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import json_fields
from gpucluster.checks.check import CheckStatus, QueryOutput, listed
from gpucluster.plan import names
from gpucluster.slurm.states import UNHEALTHY, NodeState
from gpucluster.slurm.values import ActiveJob, SlurmJob, SlurmNode
from gpucluster.text import short

WHY_S = 60.0  # it also lists the instances
# Words of `elastic.inspect.why.causes.Cause`. All others are faults, or what people or the spec set: the job cannot start.
BY_JOBS = frozenset({"resources", "priority", "max"})  # other jobs can be the cause
UNSEEN = frozenset({"unseen", "unknown"})
Leaves = Sequence[Sequence[str]]  # nodes by leaf switch
_SCREEN = (0, 1, 2)  # the exit codes with a screen: found, no such job, not seen
_DETAILS = 3  # sentences of the screen
_LONGEST = 250  # characters of each
_LEAVES = frozenset({NodeState.COMPLETING, NodeState.POWERING_DOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCause:
    """The screen of `why`: one of its causes, the sentence for it, more about it, and what a person can do."""

    name: str
    headline: str
    details: tuple[str, ...]
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals:
    """The other jobs on the nodes that a job may use. `decide`: it fits there without them, and not beside them."""

    jobs: tuple[int, ...]
    decide: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """The verdict on a job that has not started. `remedy` is empty if that of the check fits."""

    verdict: CheckStatus
    words: str
    remedy: str = ""


def why(job: int) -> tuple[str, ...]:
    """The command of the head, for root."""
    return (f"{names.VENV}/bin/python", "-I", "-m", "gpucluster.elastic.inspect.why", str(job), "--json")


def parse_cause(got: QueryOutput) -> JobCause:
    """Read what `why` prints; ParseError if it is no screen."""
    shows = got.code in _SCREEN and got.stdout.startswith("{")
    body = json_fields.table(got.stdout if shows else got.text())
    name, lines = json_fields.text(body, "cause"), json_fields.members(body, "lines")
    details = [*_words(lines, "reason"), *_words(lines, "state")]
    return JobCause(
        name=name,
        headline=json_fields.text(body, "headline"),
        details=tuple(short(words, _LONGEST) for words in details[:_DETAILS]),
        remedy="; ".join(_words(lines, "remedy")),
    )


def _words(lines: Sequence[Mapping[str, Any]], part: str) -> list[str]:
    return [json_fields.text(one, "words") for one in lines if json_fields.text(one, "part") == part]


def rivals(
    job: SlurmJob,
    nodes: Collection[SlurmNode],
    active: Collection[ActiveJob],
    leaves: Leaves,
) -> Rivals:
    """Find the other jobs on the nodes of the job's partitions that it does not exclude.

    `leaves`: it stays below one of these leaf switches; empty: it may use any nodes. A node that a job has just left is as
    busy as before.
    """
    mine = {n.name: n.states for n in nodes if not set(job.partitions).isdisjoint(n.partitions)}
    usable = mine.keys() - set(job.excluded_nodes)
    held = {one.id: usable & set(one.nodes) for one in active if one.id != job.id and not one.pending}
    left = {name for name in usable if not _LEAVES.isdisjoint(mine[name])}
    busy = left.union(*held.values())
    free = {name for name in usable - busy if UNHEALTHY.isdisjoint(mine[name])}

    def fits(some: set[str]) -> bool:
        return any(len(some & set(leaf)) >= job.node_count for leaf in leaves or (tuple(usable),))

    jobs = tuple(sorted(number for number, on in held.items() if on))
    return Rivals(jobs=jobs, decide=bool(jobs) and fits(free | busy) and not fits(free))


def judged(cause: JobCause, others: Rivals, *, ours: Collection[int] = ()) -> Delay:
    """The verdict. `ours`: the jobs of this run.

    Only if `why` knows no cause but busy nodes, a limit of instances or the queue, other jobs can be the cause.
    """
    if cause.name in UNSEEN:
        return Delay(verdict=CheckStatus.UNKNOWN, words=short(cause.headline, _LONGEST))
    details = "; ".join(cause.details)
    if cause.name not in BY_JOBS:
        words = f"{cause.headline}; {details}" if details else cause.headline
        return Delay(verdict=CheckStatus.FAIL, words=words, remedy=cause.remedy)
    if others.decide or (others.jobs and cause.name != "resources"):
        named = listed([f"{one} (of this run)" if one in ours else f"{one}" for one in others.jobs])
        return Delay(
            verdict=CheckStatus.UNKNOWN,
            words=f"others use the nodes: job{'s' if len(others.jobs) > 1 else ''} {named}",
        )
    beside = "other jobs are not why" if others.jobs else "no other job uses its nodes"
    return Delay(verdict=CheckStatus.FAIL, words=f"{beside}; {details or cause.headline}")
