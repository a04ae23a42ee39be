"""Check that the daemon may launch machines now: `gpucluster status` of the head says what stops it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import json_fields, remedies
from gpucluster.checks.check import CheckResult, Query, QueryOutput, listed, warned
from gpucluster.checks.cloud import UP, CloudDifference, judged
from gpucluster.plan import names
from gpucluster.text import relative_time, short

QUERY = (f"{names.VENV}/bin/python", "-I", "-m", "gpucluster.elastic.inspect.status", "--json")
LIMIT_S = 60.0  # it also lists the instances
_START = "on the head: gpucluster scaling start {cluster}"
_RESUME = "on the head: gpucluster pool resume {pool} -c {cluster}"
_LOG = f"on the head: systemctl status gpucluster-elastic; {remedies.LOG} gpucluster-elastic"
_DOCTOR = "on your computer: gpucluster doctor {cluster}"
_WAIT = f"{UP}, and wait some minutes for the next dry run"
_LONGEST = 600  # characters of a sentence of the daemon
_BUDGET = "raise `budget` in the spec, then pulumi up --stack {cluster}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingWant:
    """The cluster whose daemon launches machines."""

    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStop:
    """A pool that launches nothing, and why. `resumes`: `pool resume` ends it."""

    name: str
    words: str
    resumes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRuns:
    """The daemon's dry runs: of how many launches EC2 took how many, and those that it refused, with their time."""

    of: int
    taken: int
    refused: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFound:
    """What `status` says of launches. Empty words: nothing stops them.

    `refused`: offers that EC2 refused for want of capacity; `wrong`: for another reason, which does not pass.
    """

    idle: str  # why no daemon acts; another head's may
    halted: str
    lost: tuple[str, ...]
    pools: tuple[PoolStop, ...]
    refused: tuple[str, ...]
    wrong: tuple[str, ...]
    dry: DryRuns


def query_scaling(_: ScalingWant) -> tuple[Query, ...]:
    return (Query(argv=QUERY, limit_s=LIMIT_S),)


def parse_scaling(got: tuple[QueryOutput, ...]) -> ScalingFound:
    body = json_fields.table(got[0].text())
    acts = json_fields.flag(body, "daemon") or json_fields.text(body, "holder")
    return ScalingFound(
        idle="" if acts else json_fields.text(body, "daemon_state") or "the daemon does not act",
        halted=json_fields.text(body, "halted"),
        lost=json_fields.strings(body, "lost"),
        pools=tuple(
            PoolStop(
                name=json_fields.text(one, "name"),
                words=json_fields.text(one, "stopped"),
                resumes=json_fields.flag(one, "resumes"),
            )
            for one in json_fields.members(body, "pools")
            if json_fields.text(one, "stopped")
        ),
        refused=_refused(body, for_capacity=True),
        wrong=_refused(body, for_capacity=False),
        dry=_dry_runs(body),
    )


def _dry_runs(body: Mapping[str, Any]) -> DryRuns:
    tried = json_fields.members(body, "tried")
    bad = [one for one in tried if json_fields.text(one, "words")]
    return DryRuns(
        of=int(json_fields.number(body, "offers")),
        taken=len(tried) - len(bad),
        refused=tuple(
            f"{json_fields.text(one, 'offer')} ({relative_time(json_fields.number(one, 'at'), json_fields.number(body, 'now'))}): "
            f"{json_fields.text(one, 'words')}"
            for one in bad
        ),
    )


def _refused(body: Mapping[str, Any], *, for_capacity: bool) -> tuple[str, ...]:
    return tuple(
        f"{json_fields.text(one, 'offer')}: {json_fields.text(one, 'words')}"
        for one in json_fields.members(body, "refused")
        if json_fields.flag(one, "for_capacity") is for_capacity
    )


def evaluate_scaling(found: ScalingFound, want: ScalingWant) -> CheckResult:
    """What EC2 refuses for want of capacity is a warning: it is asked again, and another offer may have it."""
    expected = "nothing stops launches"
    faults = tuple(_faults(found))
    if faults or not found.refused:
        return judged(faults, want.cluster, f"{expected}; {_proven(found.dry)}", expected)
    return warned(f"EC2 refused {listed([short(one, 200) for one in found.refused], 3)}", expected)


def _proven(dry: DryRuns) -> str:
    if not dry.taken:
        return f"none of {dry.of} launches has been tried by a dry run yet"
    return (
        f"EC2 takes {dry.taken} of {dry.of} launches in a dry run, which proves rights and parameters, "
        "and neither capacity nor quotas"
    )


def _faults(found: ScalingFound) -> Iterator[CloudDifference]:
    for words in (found.idle, *found.lost):
        if words:
            yield CloudDifference(words=short(words, _LONGEST), step=_LOG)
    if found.halted:
        step = _START if found.halted.startswith("launches are stopped") else _LOG
        yield CloudDifference(words=short(found.halted, _LONGEST), step=step)
    for words in found.wrong:
        yield CloudDifference(words=f"EC2 refuses {short(words, _LONGEST)}", step=_DOCTOR)
    for words in found.dry.refused:
        yield CloudDifference(words=f"EC2 refuses a dry run of {short(words, _LONGEST)}", step=_WAIT)
    for one in found.pools:
        step = _RESUME.replace("{pool}", one.name) if one.resumes else _BUDGET
        yield CloudDifference(words=f"{one.name}: {short(one.words, _LONGEST)}", step=step)
