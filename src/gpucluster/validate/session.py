"""Run the checks on machines, in validation's own jobs and in the cloud, and store the results.

`Session.result` never raises for a fault of the cluster: the fault is a Result. `close` cancels our jobs and ends
connections.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpucluster.checks import slurmctld
from gpucluster.checks.check import (
    Check,
    CheckResult,
    Location,
    ParseError,
    Query,
    QueryOutput,
    need_of,
    unknown,
    warned,
)
from gpucluster.checks.power_saving import PowerCycle
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import SlurmPlan
from gpucluster.plan.names import ROLE_HEAD
from gpucluster.slurm.values import SlurmNode
from gpucluster.validate import node_sampler, reach
from gpucluster.validate.cloud_reader import CloudReader, NoCloudError
from gpucluster.validate.expect import needed_tier
from gpucluster.validate.expectation import CLOUD, Expectation
from gpucluster.validate.launches import pools_with_jobs
from gpucluster.validate.node_sampler import NodeSampler
from gpucluster.validate.pool_jobs import pool_jobs
from gpucluster.validate.reach import Reach, UnreachableError
from gpucluster.validate.results import Result, find, result_of
from gpucluster.validate.validation_jobs import NoJobError, ValidationJobs

GONE_S = 20.0  # the cloud's list may be old by this time; an instance that it lists for longer is a leftover


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The plan, the user who submits jobs, whether to use sudo for root, and a function that creates the client of a service of AWS."""

    plan: SlurmPlan
    user: str
    sudo: bool = False
    aws: Callable[[str], Any] | None = None


class AnySession(Protocol):
    """One run of checks, on machines or on Kubernetes."""

    results: list[Result]

    def result(self, expectation: Expectation) -> Result:
        """The result of the expectation, also stored in `results`."""
        ...

    def close(self) -> None:
        """End everything that the run started."""
        ...


class Session:
    """One run over `selection`. A check that needs another check reads the result from `results`."""

    def __init__(self, context: RunContext, ways: Reach, selection: Sequence[Expectation]) -> None:
        self._context, self._ways = context, ways
        self._selection = tuple(selection)
        self._jobs = ValidationJobs(self._on_head)
        self._cloud = CloudReader(context.plan.name, context.aws)
        self._submitted = False
        self._sampler: NodeSampler | None = None
        self._released_s: float | None = None
        self._unreachable: dict[str, str] = {}  # machine -> id of the first expectation that did not reach it
        self._off: set[str] = set()  # nodes that were off then: a job of ours may launch them later
        always_on = {node for pool in context.plan.pools for node in pool.always_on()}
        self._partitions = {job.pool: job.partition for job in pool_jobs(context.plan)}
        self._elastic = {n for pool in context.plan.pools for span in pool.slots for n in span} - always_on
        self.results: list[Result] = []

    def result(self, expectation: Expectation) -> Result:
        """The result of the expectation. A check that another check blocks has an unknown result with the id of that check."""
        began, check = time.monotonic(), expectation.of
        blocker, step = self._blocker(expectation), ""
        if not blocker:
            finding, blocker, step = self._evaluated(expectation)
        else:
            finding = unknown(f"blocked by {blocker}", check.title)
        if not blocker and not finding.is_healthy:
            blocker = self._blocked_by(check.causes, expectation)
            words = f"{finding.found}; blocked by {blocker}"
            finding = unknown(words, check.title) if blocker else finding
        own = blocker in ("", self._unreachable.get(expectation.target, ""))
        if own and not finding.is_healthy and self._is_off_now(expectation.target):
            self._off.add(expectation.target)
            words = f"the node is off or powers down now: {finding.found}"
            finding, blocker = warned(words, check.title), ""
        machine = self._jobs.node_now(expectation.target) or expectation.target
        result = result_of(
            expectation,
            finding,
            machine=machine,
            tier=needed_tier(expectation),
            remedy=step or _remedy(finding.remedy or check.remedy, machine, self._context.plan.name),
            seconds=time.monotonic() - began,
            blocked_by=blocker,
        )
        self.results.append(result)
        return result

    def nodes(self) -> tuple[SlurmNode, ...]:
        """slurmctld's nodes now; GpuclusterError or ParseError without an answer."""
        return slurmctld.parse_nodes((self._on_head(slurmctld.QUERY_NODES.argv, False, 10),))

    def close(self) -> None:
        """Cancel our jobs, end the sampler and every connection. If the head cannot be reached, the jobs reach their time limit."""
        try:
            self._jobs.cancel_all()
        except GpuclusterError:
            pass
        finally:
            if self._sampler is not None:
                self._sampler.close()
            self._ways.close()

    def _evaluated(self, expectation: Expectation) -> tuple[CheckResult, str, str]:
        """The finding, the id of the check that blocks it, and a next step that replaces the check's remedy."""
        check = expectation.of
        try:
            got = self._answers(check, expectation)
            return check.evaluate(check.parse(got), expectation.want), "", ""
        except NoJobError as error:
            return *self._without_job(expectation, error), ""
        except UnreachableError as error:
            if self._was_off(expectation.target, error.machine):
                self._unreachable[error.machine] = expectation.id
                self._off.discard(error.machine)
            before = self._unreachable.setdefault(error.machine, expectation.id)
            other = "" if before == expectation.id else before
            return unknown(error.message, check.title), other, error.next_step or ""
        except GpuclusterError as error:
            return unknown(error.message, check.title), "", error.next_step or ""
        except ParseError as error:
            return unknown(str(error), check.title), "", ""

    def _is_off_now(self, target: str) -> bool:
        """Whether `target` is an elastic node that is powered down, or powers up or down now: then no answer is no fault."""
        ping = find(self.results, f"ctl.ping[{ROLE_HEAD}]")
        if target not in self._elastic or (ping is not None and not ping.healthy):
            return False
        try:
            nodes = self.nodes()
        except (ParseError, GpuclusterError):
            return False
        return any(node.name == target and slurmctld.is_off_or_changing(node) for node in nodes)

    def _without_job(self, expectation: Expectation, error: NoJobError) -> tuple[CheckResult, str]:
        """A job check reports the failure itself. `job.multi` blocks the checks on its nodes, if it has a result."""
        check, pool = expectation.of, expectation.target.partition("/")[0]
        if check.id in ("job.multi", "job.part"):
            remedy = error.next_step or ""
            finding = CheckResult(
                verdict=error.verdict, found=error.message, expected=check.title, remedy=remedy
            )
            return finding, ""
        before = find(self.results, f"job.multi[{pool}]")
        if before is None or before.healthy:
            return unknown(error.message, check.title), ""
        return unknown(f"blocked by {before.id}", check.title), before.blocked_by or before.id

    def _answers(self, check: Check[Any, Any], expectation: Expectation) -> tuple[QueryOutput, ...]:
        got: list[QueryOutput] = []
        for query in check.query(expectation.want):
            fed = got[-1].stdout.strip() if got else ""
            got.append(self._answer(query, expectation, fed))
        return tuple(got)

    def _answer(self, query: Query, expectation: Expectation, fed: str) -> QueryOutput:
        argv = tuple(self._word(word, expectation, fed) for word in query.argv)
        match query.at:
            case Location.SELF:
                return self._run(self._machine_of(expectation.target), argv, query.as_user, query.limit_s)
            case Location.HEAD:
                return self._run(ROLE_HEAD, argv, query.as_user, query.limit_s)
            case Location.STEP:
                self._submit()
                return self._jobs.step(expectation.target, argv, query.limit_s)
            case Location.JOB:
                return self._jobs.run_to_end(argv, query.limit_s)
            case Location.SAMPLES:
                return self._cycles(expectation)
            case Location.CLOUD:
                return QueryOutput(code=0, stdout=json.dumps(self._cloud.read(argv), default=str))
            case Location.API | Location.STATUS | Location.POD:
                raise ValueError(f"the machines of a cluster have no place {query.at}")

    def _word(self, word: str, expectation: Expectation, fed: str) -> str:
        if "{machine}" in word:
            return word.replace("{machine}", self._machine_of(expectation.target))
        return word.replace("{fed}", fed)

    def _run(self, machine: str, argv: Sequence[str], as_user: bool, limit_s: float) -> QueryOutput:
        user = self._context.user if as_user else None
        return reach.ask(self._ways, machine, argv, limit_s=limit_s, user=user, sudo=self._context.sudo)

    def _on_head(self, argv: Sequence[str], as_user: bool, limit_s: float) -> QueryOutput:
        return self._run(ROLE_HEAD, argv, as_user, limit_s)

    def _submit(self) -> None:
        """Submit all jobs of the selection, once. The sampler starts before, so that it sees the nodes powered down."""
        if self._submitted:
            return
        self._submitted = True
        wanted = pools_with_jobs(self._selection)
        jobs = [job for job in pool_jobs(self._context.plan) if job.pool in wanted]
        if any(e.check == "burst.rt" for e in self._selection):
            self._sampler = NodeSampler(lambda: self._on_head(slurmctld.QUERY_NODES.argv, False, 10))
        self._jobs.submit(jobs)

    def _machine_of(self, target: str) -> str:
        """The machine of a target; NoJobError if it is a node of a job that does not run."""
        if "/" not in target:
            return target
        self._submit()
        return self._jobs.node(target)

    def _cycles(self, expectation: Expectation) -> QueryOutput:
        """Release all nodes, wait until this pool's nodes are off and their instances gone, and return their samples."""
        self._submit()
        job, sampler = self._jobs.running(expectation.target), self._sampler
        if sampler is None:
            raise NoCloudError("no node was sampled")
        if self._released_s is None:
            self._released_s = sampler.now()
            self._jobs.cancel_all()
        want: PowerCycle = expectation.want
        sampler.until_off(job.nodes, self._released_s + want.down_s - sampler.now())
        listing = self._until_gone(sampler.addresses(job.nodes), sampler)
        return QueryOutput(code=0, stdout=sampler.as_json(job.nodes, round(self._released_s, 2), listing))

    def _until_gone(self, addresses: frozenset[str], sampler: NodeSampler) -> Mapping[str, Any]:
        end = sampler.now() + GONE_S
        listing = self._cloud.read()
        while node_sampler.has_instance_at(listing, addresses) and sampler.now() < end:
            sampler.pause()
            listing = self._cloud.read()
        return listing

    def _blocker(self, expectation: Expectation) -> str:
        """The id of the check that must pass first; empty if there is none."""
        in_cloud = find(self.results, f"cloud.machines[{CLOUD}]")
        if in_cloud is not None and expectation.target in in_cloud.culprits:
            return in_cloud.id
        needs = (
            expectation.of.needs
            if "/" not in expectation.target
            else ("job.multi@pool", *expectation.of.needs)
        )
        if blocker := self._blocked_by(needs, expectation):
            return blocker
        machine = self._jobs.node_now(expectation.target) or expectation.target
        return "" if self._was_off(expectation.target, machine) else self._unreachable.get(machine, "")

    def _blocked_by(self, needs: Sequence[str], expectation: Expectation) -> str:
        """The id of the first failed check among `needs`, or of what blocks that one; empty if there is none."""
        for need in needs:
            idents, part = self._need(need, expectation)
            for before in (find(self.results, ident) for ident in idents):
                if before is None or before.healthy or not before.blocks:
                    continue
                if not part or not before.culprits or part in before.culprits:
                    return before.blocked_by or before.id
        return ""

    def _was_off(self, target: str, machine: str) -> bool:
        """Whether `target` is a node of our job that was off at its own checks: their answer is old."""
        return target != machine and machine in self._off

    def _need(self, need: str, expectation: Expectation) -> tuple[tuple[str, ...], str]:
        """The ids of the results that the need names, and the part."""
        check, where, part = need_of(need)
        target, pool = expectation.target, expectation.target.partition("/")[0]
        partition = target if expectation.check == "job.part" else self._partitions.get(pool, "")
        at = {
            "": (target,),
            "head": (ROLE_HEAD,),
            "pool": (pool,),
            "nodes": self._jobs.targets_now(pool),
        }[where]
        return tuple(f"{check}[{one}]" for one in at), part.replace("{partition}", partition).replace(
            "{user}", self._context.user
        )


def _remedy(text: str, machine: str, cluster: str) -> str:
    text = text.replace("{cluster}", cluster)
    place = f"on {'the head' if machine == ROLE_HEAD else machine}: "
    return text.replace("on {machine}: ", place).replace("{machine}", machine)
