"""Validation's own jobs: submitted as an ordinary user, bounded in time, cancelled on every exit, nobody else's touched.

All jobs of a run have a name that no other run has: a submission whose answer was lost is cancelled by it.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ClusterShell.NodeSet import (  # pyright: ignore[reportMissingTypeStubs] -- it ships none
    RESOLVER_NOGROUP,
    NodeSet,
    NodeSetException,
)

from gpucluster.checks import answers, slurm
from gpucluster.checks.jobs import because, is_queued
from gpucluster.checks.model import Answer, ParseError, Verdict, short
from gpucluster.errors import GpuclusterError
from gpucluster.validate.expect import Gang, seats

NAME = "gpucluster-validate"
LOOK_S = 0.3
OVER = frozenset(
    {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "DEADLINE"}
)

# argv, as the ordinary user, limit -> answer, on the head
Head = Callable[[Sequence[str], bool, float], Answer]


class NoJobError(GpuclusterError):
    """A job of ours does not run; `verdict` says whether that is the cluster's fault."""

    def __init__(self, verdict: Verdict, words: str) -> None:
        super().__init__(words)
        self.verdict = verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A gang that runs."""

    gang: Gang
    job: int
    nodes: tuple[str, ...]


class Gangs:
    """The gangs of a run. Not safe for two threads."""

    def __init__(
        self,
        head: Head,
        *,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._head, self._now = head, now
        self._pause = pause or threading.Event().wait
        self._name = f"{NAME}-{secrets.token_hex(4)}"
        self._living = False  # may a job of ours live?
        self._submitted: dict[str, tuple[Gang, int, float]] = {}
        self._held: dict[str, Held] = {}
        self._failed: dict[str, NoJobError] = {}

    def submit(self, gangs: Sequence[Gang]) -> None:
        """Submit all at once, so that all their nodes boot together."""
        for gang in gangs:
            try:
                job = self._sbatch(self._argv(gang))
                self._submitted[gang.pool] = (gang, job, self._now())
            except NoJobError as error:
                self._failed[gang.pool] = error

    def held(self, pool: str) -> Held:
        """The gang of `pool`, once it runs; NoJobError if it does not in its time."""
        if pool in self._failed:
            raise self._failed[pool]
        if pool not in self._held:
            try:
                self._held[pool] = self._until_running(pool)
            except NoJobError as error:
                self._failed[pool] = error
                raise
        return self._held[pool]

    def node(self, seat: str) -> str:
        """Who sits at `POOL/1`."""
        self.held(seat.partition("/")[0])
        return self.sitting(seat)

    def sitting(self, seat: str) -> str:
        """The same without waiting; nobody is empty."""
        held = self._held.get(seat.partition("/")[0])
        return "" if held is None else dict(zip(seats(held.gang), held.nodes, strict=False)).get(seat, "")

    def step(self, pool: str, argv: Sequence[str], limit_s: float) -> Answer:
        """A step in the gang of `pool`, from the head."""
        job = self.held(pool).job
        return self._head(("srun", f"--jobid={job}", "--overlap", "--quiet", *argv), True, limit_s)

    def to_its_end(self, argv: Sequence[str], limit_s: float) -> Answer:
        """What scontrol says of a job of its own at its end, or when `limit_s` is over. NoJobError if it is not taken."""
        job = self._sbatch(argv)
        end = self._now() + limit_s
        answer = self._show(job)
        while not (_states(answer) & OVER) and self._now() < end:
            self._pause(LOOK_S)
            answer = self._show(job)
        self._cancel(job)
        return answer

    def leave(self) -> None:
        """Cancel every job of ours that may live, also one whose submission was never answered."""
        if self._living:
            self._head(("scancel", f"--name={self._name}"), True, 10)
            self._living = False

    def _cancel(self, job: int) -> None:
        self._head(("scancel", str(job)), True, 10)

    def _argv(self, gang: Gang) -> tuple[str, ...]:
        gpus = (f"--gres=gpu:{gang.gpus}", "--cpus-per-gpu=1") if gang.gpus else ("--cpus-per-task=1",)
        apart = ",".join(word for word in (gang.exclude, *self._warm(gang)) if word)
        return (
            f"--partition={gang.partition}",
            f"--nodes={gang.nodes}",
            "--ntasks-per-node=1",
            "--mem=256M",
            *gpus,
            *((f"--exclude={apart}",) if apart else ()),
            f"--time={int(gang.life_s // 60) + 1}",
            *("--wrap", f"exec sleep {gang.life_s:g}"),
        )

    def _warm(self, gang: Gang) -> Iterator[str]:
        """Nodes that are up: a job on them would show no boot. None, if too few others are left for the job."""
        if not gang.elastic:
            return
        try:
            nodes = slurm.parse_nodes((self._head(slurm.ASK_NODES.argv, False, 10),))
        except ParseError as error:
            raise NoJobError(Verdict.UNKNOWN, f"slurmctld does not list its nodes: {error}") from error
        cold = {n.name for n in nodes if "POWERED_DOWN" in n.states and "DRAIN" not in n.states}
        warm = {n.name for n in nodes if gang.partition in n.partitions and "POWERED_DOWN" not in n.states}
        if any(len(cold & set(leaf)) >= gang.nodes for leaf in gang.leaves):
            yield str(NodeSet(",".join(warm), resolver=RESOLVER_NOGROUP))

    def _sbatch(self, argv: Sequence[str]) -> int:
        common = ("sbatch", "--parsable", f"--job-name={self._name}", "--output=/dev/null")
        self._living = True
        answer = self._head((*common, *argv), True, 20)
        word = answer.stdout.strip().partition(";")[0]
        if answer.code == 0 and word.isdecimal():
            return int(word)
        said = short(answer.stderr or answer.stdout) or f"exit {answer.code}"
        if "sbatch: error: " in answer.stderr:
            raise NoJobError(Verdict.FAIL, f"the job is refused: {said}")
        raise NoJobError(
            Verdict.UNKNOWN, f"no job can be submitted: {said}"
        )  # no such user, no way to be him

    def _show(self, job: int) -> Answer:
        return self._head(("scontrol", "show", "job", str(job), "--json"), False, 10)

    def _until_running(self, pool: str) -> Held:
        if pool not in self._submitted:
            raise NoJobError(Verdict.UNKNOWN, f"no job was submitted in {pool}")
        gang, job, since = self._submitted[pool]
        while True:
            answer = self._show(job)
            states = _states(answer)
            if "RUNNING" in states and "CONFIGURING" not in states:
                return Held(gang=gang, job=job, nodes=_nodes(answer))
            if states & OVER or self._now() - since > gang.start_s:
                self._cancel(job)  # or our own next job would wait behind it
                raise _not_running(job, answer, states, self._now() - since)
            self._pause(LOOK_S)


def _states(answer: Answer) -> frozenset[str]:
    """Empty while slurmctld does not say."""
    try:
        return frozenset(
            w for job in answers.objects(answer, "jobs") for w in answers.words(job, "job_state")
        )
    except ParseError:
        return frozenset()


def _nodes(answer: Answer) -> tuple[str, ...]:
    hostlist = answers.text(answers.objects(answer, "jobs")[0], "nodes")
    try:
        return tuple(str(n) for n in NodeSet(hostlist, resolver=RESOLVER_NOGROUP))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    except NodeSetException as error:
        raise NoJobError(Verdict.UNKNOWN, f"slurmctld says {short(hostlist, 60)} for nodes") from error


def _not_running(job: int, answer: Answer, states: frozenset[str], seconds: float) -> NoJobError:
    try:
        shown = answers.objects(answer, "jobs")[0]
        reason, comment = answers.text(shown, "state_reason"), answers.text(shown, "admin_comment")
    except (ParseError, IndexError) as error:
        return NoJobError(Verdict.UNKNOWN, f"slurmctld says nothing of job {job}: {error}")
    said = f"job {job} is {'+'.join(sorted(states))} after {seconds:.0f} s{because(reason, comment)}"
    if is_queued(states, reason):
        return NoJobError(Verdict.UNKNOWN, f"{said}: others use the nodes")
    return NoJobError(Verdict.FAIL, said)
