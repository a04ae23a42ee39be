"""Validation's own jobs: submitted as an ordinary user, limited in time, cancelled on every exit.

All jobs of a run share a name that no other run has. So a job is cancelled even if the answer to its submission was lost.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpucluster.checks.check import CheckStatus, ParseError, QueryOutput
from gpucluster.checks.jobs import parse_job, reasons
from gpucluster.checks.slurmctld import QUERY_NODES, parse_nodes, parsed
from gpucluster.errors import GpuclusterError
from gpucluster.slurm import client, hostlist, parse
from gpucluster.slurm.pending import OTHERS_USE_NODES
from gpucluster.slurm.states import JOB_ENDED, NodeState
from gpucluster.slurm.values import SlurmJob
from gpucluster.text import short
from gpucluster.validate import job_cause
from gpucluster.validate.job_cause import Delay, JobCause, Leaves, Rivals
from gpucluster.validate.pool_jobs import PoolJob, node_targets

NAME = "gpucluster-validate"
POLL_S = 0.3

# argv, as the ordinary user, limit -> answer, on the head
RunOnHead = Callable[[Sequence[str], bool, float], QueryOutput]


class NoJobError(GpuclusterError):
    """A job of validation does not run. `verdict` is FAIL if the cluster is at fault.

    `next_step`: the remedy for the cause of this job; None if the check's own fits.
    """

    def __init__(self, verdict: CheckStatus, words: str, remedy: str = "") -> None:
        super().__init__(words, next_step=remedy or None)
        self.verdict = verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A pool's job, with its nodes."""

    spec: PoolJob
    id: int
    nodes: tuple[str, ...]


class ValidationJobs:
    """The jobs of a run. Not safe for two threads."""

    def __init__(
        self,
        head: RunOnHead,
        *,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._head, self._now = head, now
        self._pause = pause or threading.Event().wait
        self._name = f"{NAME}-{secrets.token_hex(4)}"
        self._may_exist = False  # whether a job with our name may be in the queue
        self._numbers: set[int] = set()  # of all jobs of this run
        self._submitted: dict[str, tuple[PoolJob, int, float]] = {}
        self._running: dict[str, RunningJob] = {}
        self._failed: dict[str, NoJobError] = {}

    def submit(self, jobs: Sequence[PoolJob]) -> None:
        """Submit all jobs at once, so that all nodes boot at the same time."""
        for job in jobs:
            try:
                number = self._sbatch(self._argv(job))
                self._submitted[job.pool] = (job, number, self._now())
            except NoJobError as error:
                self._failed[job.pool] = error

    def running(self, pool: str) -> RunningJob:
        """The job of `pool` as soon as it runs; NoJobError if it does not start in time."""
        if pool in self._failed:
            raise self._failed[pool]
        if pool not in self._running:
            try:
                self._running[pool] = self._until_running(pool)
            except NoJobError as error:
                self._failed[pool] = error
                raise
        return self._running[pool]

    def node(self, target: str) -> str:
        """The node of the target `POOL/1`, as soon as the pool's job runs."""
        self.running(target.partition("/")[0])
        return self.node_now(target)

    def node_now(self, target: str) -> str:
        """The node of the target `POOL/1`; empty while its job does not run."""
        job = self._running.get(target.partition("/")[0])
        return (
            "" if job is None else dict(zip(node_targets(job.spec), job.nodes, strict=False)).get(target, "")
        )

    def targets_now(self, pool: str) -> tuple[str, ...]:
        """The nodes of the pool's job, by their names and as `POOL/1`; none while it does not run."""
        job = self._running.get(pool)
        return () if job is None else (*job.nodes, *node_targets(job.spec))

    def step(self, pool: str, argv: Sequence[str], limit_s: float) -> QueryOutput:
        """The output of a job step in the job of `pool`."""
        job = self.running(pool).id
        return self._head(("srun", f"--jobid={job}", "--overlap", "--quiet", *argv), True, limit_s)

    def run_to_end(self, argv: Sequence[str], limit_s: float) -> QueryOutput:
        """scontrol's answer for a new job at its end, or while it runs after `limit_s`.

        NoJobError if sbatch refuses it, or if it has not begun by then.
        """
        job, since = self._sbatch(argv), self._now()
        answer = self._show(job)
        while not _has_ended(answer) and self._now() - since < limit_s:
            self._pause(POLL_S)
            answer = self._show(job)
        try:
            if _waits(answer):
                raise self._not_running(job, answer, self._now() - since)
        finally:
            self._cancel(job)
        return answer

    def cancel_all(self) -> None:
        """Cancel every job of this run, also one without an answer to its submission."""
        if self._may_exist:
            self._head(("scancel", f"--name={self._name}"), True, 10)
            self._may_exist = False

    def _cancel(self, job: int) -> None:
        self._head(("scancel", str(job)), True, 10)

    def _argv(self, job: PoolJob) -> tuple[str, ...]:
        gpus = (f"--gres={job.gres}", "--cpus-per-gpu=1") if job.gres else ("--cpus-per-task=1",)
        excluded = ",".join(word for word in (job.exclude, *self._up_nodes(job)) if word)
        return (
            f"--partition={job.partition}",
            f"--nodes={job.nodes}",
            "--ntasks-per-node=1",
            "--mem=256M",
            *gpus,
            *((f"--exclude={excluded}",) if excluded else ()),
            f"--time={int(job.time_limit_s // 60) + 1}",
            *("--wrap", f"exec sleep {job.time_limit_s:g}"),
        )

    def _up_nodes(self, job: PoolJob) -> Iterator[str]:
        """The nodes to exclude, because they are up: a job there shows no boot. None if no others could be launched for it."""
        if not job.elastic:
            return
        try:
            nodes = parse_nodes((self._head(QUERY_NODES.argv, False, 10),))
        except ParseError as error:
            raise NoJobError(CheckStatus.UNKNOWN, f"slurmctld does not list its nodes: {error}") from error
        off = {n.name for n in nodes if NodeState.POWERED_DOWN in n.states}
        free = off - {n.name for n in nodes if NodeState.DRAIN in n.states}
        mine = {name for leaf in job.leaves for name in leaf}
        room = job.max - sum(1 for n in nodes if n.name in mine - off)
        if room >= job.nodes and any(len(free & set(leaf)) >= job.nodes for leaf in job.leaves):
            up = (n.name for n in nodes if job.partition in n.partitions and n.name not in off)
            yield hostlist.fold(up)

    def _sbatch(self, argv: Sequence[str]) -> int:
        common = ("sbatch", "--parsable", f"--job-name={self._name}", "--output=/dev/null")
        self._may_exist = True
        answer = self._head((*common, *argv), True, 20)
        word = answer.stdout.strip().partition(";")[0]
        if answer.code == 0 and word.isdecimal():
            self._numbers.add(int(word))
            return int(word)
        words = short(answer.stderr or answer.stdout) or f"exit {answer.code}"
        if "sbatch: error: " in answer.stderr:
            raise NoJobError(CheckStatus.FAIL, f"sbatch refuses the job: {words}")
        raise NoJobError(
            CheckStatus.UNKNOWN, f"no job can be submitted: {words}"
        )  # the user does not exist, or we may not run commands as this user

    def _show(self, job: int) -> QueryOutput:
        return self._head(client.show_job(job), False, 10)

    def _until_running(self, pool: str) -> RunningJob:
        if pool not in self._submitted:
            raise NoJobError(CheckStatus.UNKNOWN, f"no job was submitted in {pool}")
        spec, number, since = self._submitted[pool]
        while True:
            answer = self._show(number)
            job = _job(answer)
            if job is not None and job.running:
                return RunningJob(spec=spec, id=number, nodes=job.nodes)
            if _has_ended(answer) or self._now() - since > spec.start_s:
                try:
                    raise self._not_running(number, answer, self._now() - since, spec.leaves)
                finally:
                    self._cancel(number)  # otherwise our own next job would wait for it
            self._pause(POLL_S)

    def _not_running(
        self, number: int, answer: QueryOutput, seconds: float, leaves: Leaves = ()
    ) -> NoJobError:
        """Why the job is not running. `why` knows it only as long as the job is not cancelled."""
        try:
            job = parse_job((answer,))
        except ParseError as error:
            return NoJobError(CheckStatus.UNKNOWN, f"slurmctld does not show job {number}: {error}")
        words = f"job {number} is {'+'.join(sorted(job.states))} after {seconds:.0f} s"
        if not JOB_ENDED.isdisjoint(job.states):
            return NoJobError(CheckStatus.FAIL, f"{words}{reasons(job)}")
        try:
            cause = job_cause.parse_cause(self._head(job_cause.why(number), False, job_cause.WHY_S))
        except ParseError as error:
            verdict = CheckStatus.UNKNOWN if job.reason in OTHERS_USE_NODES else CheckStatus.FAIL
            return NoJobError(
                verdict, f"{words}{reasons(job)}; `why` of the head gives no cause: {short(str(error))}"
            )
        delay = self._delay(cause, job, leaves)
        reason = f" ({short(job.reason, 250)})" if job.reason not in ("", "None") else ""
        return NoJobError(delay.verdict, f"{words}{reason}: {delay.words}", delay.remedy)

    def _delay(self, cause: JobCause, job: SlurmJob, leaves: Leaves) -> Delay:
        if cause.name not in job_cause.BY_JOBS:
            return job_cause.judged(cause, Rivals(jobs=(), decide=False))
        try:
            nodes = parse_nodes((self._head(QUERY_NODES.argv, False, 10),))
            active = parsed(self._head(client.ACTIVE_JOBS, False, 10), parse.parse_active)
        except ParseError as error:
            words = f"{cause.headline}; who uses the nodes is not known: {error}"
            return Delay(verdict=CheckStatus.UNKNOWN, words=words)
        return job_cause.judged(cause, job_cause.rivals(job, nodes, active, leaves), ours=self._numbers)


def _job(answer: QueryOutput) -> SlurmJob | None:
    """None while slurmctld does not answer."""
    try:
        return parse_job((answer,))
    except ParseError:
        return None


def _has_ended(answer: QueryOutput) -> bool:
    job = _job(answer)
    return job is not None and not JOB_ENDED.isdisjoint(job.states)


def _waits(answer: QueryOutput) -> bool:
    """Whether slurmctld shows a job that has not begun."""
    job = _job(answer)
    return job is not None and (job.pending or job.configuring) and not _has_ended(answer)
