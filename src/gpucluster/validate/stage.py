"""Where expectations are asked: machines, our own jobs, the cloud, and what came of the checks before.

`Stage.result` never raises for what the cluster does: it is a Result. `close` cancels our jobs and ends connections.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import slurm
from gpucluster.checks.lives import RoundTrip
from gpucluster.checks.model import (
    Answer,
    Ask,
    Check,
    Judgement,
    ParseError,
    Place,
    Verdict,
    short,
    unknown,
    warned,
)
from gpucluster.errors import GpuclusterError
from gpucluster.plan import names
from gpucluster.plan.model import ClusterPlan
from gpucluster.validate import reach, watch
from gpucluster.validate.expect import HEAD, Expectation, gangs, needed_tier
from gpucluster.validate.gangs import Gangs, NoJobError
from gpucluster.validate.reach import Reach, UnreachableError
from gpucluster.validate.results import Result, find
from gpucluster.validate.watch import Watch

GONE_S = 20.0  # the cloud's list lags behind; what still lives at a node's address after this is no lag


class NoCloudError(GpuclusterError):
    """Nobody gave us the cloud's list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a run needs to know: the plan, who submits jobs, whether root is had by sudo, and the cloud's EC2 client."""

    plan: ClusterPlan
    user: str
    sudo: bool = False
    ec2: Callable[[], Any] | None = None


class Stage:
    """One run over `selection`; the results so far are its memory."""

    def __init__(self, scene: Scene, ways: Reach, selection: Sequence[Expectation]) -> None:
        self._scene, self._ways = scene, ways
        self._selection = tuple(selection)
        self._gangs = Gangs(self._on_head)
        self._submitted = False
        self._watch: Watch | None = None
        self._left_s: float | None = None
        self._away: dict[str, str] = {}  # machine -> the first expectation that found no way in
        steady = {node for pool in scene.plan.pools for node in pool.always_on()}
        self._elastic = {n for pool in scene.plan.pools for span in pool.slots for n in span} - steady
        self.results: list[Result] = []

    def result(self, expectation: Expectation) -> Result:
        """Ask, read and judge; or say by which check it is blocked."""
        began, check = time.monotonic(), expectation.of
        blocker, step = self._blocker(expectation), ""
        if not blocker:
            judgement, blocker, step = self._judged(expectation)
        else:
            judgement = unknown(f"blocked by {blocker}", check.title)
        own = blocker in ("", self._away.get(expectation.target, ""))
        if own and not judgement.is_healthy and self._has_gone(expectation.target):
            words = f"it is off, or on its way, by now: {judgement.found}"
            judgement, blocker = warned(words, check.title), ""
        machine = self._gangs.sitting(expectation.target) or expectation.target
        result = Result(
            check=check.id,
            target=expectation.target,
            machine=machine,
            tier=needed_tier(expectation),
            title=check.title,
            verdict=judgement.verdict,
            found=short(judgement.found, 400),
            expected=short(judgement.expected, 400),
            remedy="" if judgement.verdict is Verdict.PASS else step or _remedy(check, machine),
            seconds=round(time.monotonic() - began, 3),
            culprits=judgement.culprits,
            blocked_by=blocker,
        )
        self.results.append(result)
        return result

    def close(self) -> None:
        """Cancel our jobs, end the watch and every connection. A head that is away cannot be told; jobs end by themselves."""
        try:
            self._gangs.leave()
        except GpuclusterError:
            pass
        finally:
            if self._watch is not None:
                self._watch.close()
            self._ways.close()

    def _judged(self, expectation: Expectation) -> tuple[Judgement, str, str]:
        """The judgement, the check that says why there is none, and what to do if that is not the check's own remedy."""
        check = expectation.of
        try:
            got = self._answers(check, expectation)
            return check.judge(check.parse(got), expectation.want), "", ""
        except NoJobError as error:
            return *self._without_job(expectation, error), ""
        except UnreachableError as error:
            before = self._away.setdefault(error.machine, expectation.id)
            other = "" if before == expectation.id else before
            return unknown(error.message, check.title), other, error.next_step or ""
        except GpuclusterError as error:
            return unknown(error.message, check.title), "", error.next_step or ""
        except ParseError as error:
            return unknown(str(error), check.title), "", ""

    def _has_gone(self, target: str) -> bool:
        """Is it an elastic node that slurmctld, asked now, has powered down or is about to? Then its silence is no fault."""
        ping = find(self.results, f"ctl.ping[{HEAD}]")
        if target not in self._elastic or (ping is not None and not ping.healthy):
            return False
        try:
            nodes = slurm.parse_nodes((self._on_head(slurm.ASK_NODES.argv, False, 10),))
        except (ParseError, GpuclusterError):
            return False
        return any(node.name == target and slurm.is_away(node) for node in nodes)

    def _without_job(self, expectation: Expectation, error: NoJobError) -> tuple[Judgement, str]:
        """A check of a job tells of its own; what needed the nodes of `job.multi` is blocked by it, if it was asked."""
        check, pool = expectation.of, expectation.target.partition("/")[0]
        if check.id in ("job.multi", "job.part"):
            return Judgement(verdict=error.verdict, found=error.message, expected=check.title), ""
        before = find(self.results, f"job.multi[{pool}]")
        if before is None or before.healthy:
            return unknown(error.message, check.title), ""
        return unknown(f"blocked by {before.id}", check.title), before.blocked_by or before.id

    def _answers(self, check: Check[Any, Any], expectation: Expectation) -> tuple[Answer, ...]:
        got: list[Answer] = []
        for ask in check.question(expectation.want):
            fed = got[-1].stdout.strip() if got else ""
            got.append(self._answer(ask, expectation, fed))
        return tuple(got)

    def _answer(self, ask: Ask, expectation: Expectation, fed: str) -> Answer:
        argv = tuple(word.replace("{fed}", fed) for word in ask.argv)
        match ask.at:
            case Place.SELF:
                return self._run(self._machine_of(expectation.target), argv, ask.as_user, ask.limit_s)
            case Place.HEAD:
                return self._run(HEAD, argv, ask.as_user, ask.limit_s)
            case Place.STEP:
                self._submit()
                return self._gangs.step(expectation.target, argv, ask.limit_s)
            case Place.JOB:
                return self._gangs.to_its_end(argv, ask.limit_s)
            case Place.WATCH:
                return self._round_trip(expectation)
            case Place.CLOUD:
                return Answer(code=0, stdout=json.dumps(self._listing(), default=str))

    def _run(self, machine: str, argv: Sequence[str], as_user: bool, limit_s: float) -> Answer:
        user = self._scene.user if as_user else None
        return reach.ask(self._ways, machine, argv, limit_s=limit_s, user=user, sudo=self._scene.sudo)

    def _on_head(self, argv: Sequence[str], as_user: bool, limit_s: float) -> Answer:
        return self._run(HEAD, argv, as_user, limit_s)

    def _submit(self) -> None:
        """All gangs that the selection needs, at the first need; the watch looks before."""
        if self._submitted:
            return
        self._submitted = True
        wanted = {e.target.partition("/")[0] for e in self._selection}
        ours = [gang for gang in gangs(self._scene.plan) if gang.pool in wanted]
        if any(e.check == "burst.rt" for e in self._selection):
            self._watch = Watch(lambda: self._on_head(slurm.ASK_NODES.argv, False, 10))
        self._gangs.submit(ours)

    def _machine_of(self, target: str) -> str:
        """Whom a target means; NoJobError for a seat where nobody sits."""
        if "/" not in target:
            return target
        self._submit()
        return self._gangs.node(target)

    def _round_trip(self, expectation: Expectation) -> Answer:
        """Leave all nodes, wait until this pool's are off and gone, and tell what was seen of them."""
        self._submit()
        held, seen = self._gangs.held(expectation.target), self._watch
        if seen is None:
            raise NoCloudError("nothing was watched")
        if self._left_s is None:
            self._left_s = seen.now()
            self._gangs.leave()
        want: RoundTrip = expectation.want
        seen.until_off(held.nodes, self._left_s + want.down_s - seen.now())
        listing = self._until_gone(seen.addresses(held.nodes), seen)
        return Answer(code=0, stdout=seen.story(held.nodes, round(self._left_s, 2), listing))

    def _until_gone(self, addresses: frozenset[str], seen: Watch) -> Mapping[str, Any]:
        end = seen.now() + GONE_S
        listing = self._listing()
        while watch.living_at(listing, addresses) and seen.now() < end:
            seen.pause()
            listing = self._listing()
        return listing

    def _listing(self) -> Mapping[str, Any]:
        """Every instance of the cluster that the cloud shows, in EC2's words."""
        if self._scene.ec2 is None:
            raise NoCloudError("the cloud cannot be asked from here")
        try:
            pages = (
                self._scene.ec2()
                .get_paginator("describe_instances")
                .paginate(Filters=[{"Name": f"tag:{names.TAG_CLUSTER}", "Values": [self._scene.plan.name]}])
            )
            return {"Reservations": [r for page in pages for r in page["Reservations"]]}
        except Exception as error:
            raise NoCloudError(
                f"the cloud does not say: {short(f'{type(error).__name__}: {error}')}"
            ) from error

    def _blocker(self, expectation: Expectation) -> str:
        """The id of the check that must be mended first, or nothing."""
        needs = (
            expectation.of.needs
            if "/" not in expectation.target
            else ("job.multi@pool", *expectation.of.needs)
        )
        for need in needs:
            ident, part = _need(need, expectation.target)
            before = find(self.results, ident)
            if before is None or before.healthy:
                continue
            if not part or not before.culprits or part in before.culprits:
                return before.blocked_by or before.id
        return self._away.get(self._gangs.sitting(expectation.target) or expectation.target, "")


def _need(need: str, target: str) -> tuple[str, str]:
    """`id@where:part` as the id of a result, and the part."""
    check, _, part = need.partition(":")
    check, _, where = check.partition("@")
    at = {"": target, "head": HEAD, "pool": target.partition("/")[0]}[where]
    return f"{check}[{at}]", part


def _remedy(check: Check[Any, Any], machine: str) -> str:
    return check.remedy.replace(
        "on {machine}: ", f"on {'the head' if machine == HEAD else machine}: "
    ).replace("{machine}", machine)
