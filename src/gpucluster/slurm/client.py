"""The client of slurmctld: the commands, and the calls of the daemon, one after another in one executor."""

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from gpucluster import gc_control, shell
from gpucluster.plan import names
from gpucluster.slurm import parse
from gpucluster.slurm.states import JobState
from gpucluster.slurm.values import SlurmJob, SlurmReservation, SlurmView

log = logging.getLogger("gpucluster.slurm")

SHOW_NODES = ("scontrol", "--future", "show", "nodes", "--json")  # without --future, a FUTURE node is hidden
SHOW_JOBS = ("scontrol", "show", "jobs", "--json")
SHOW_RESERVATIONS = ("scontrol", "show", "reservations", "--json")
SHOW_CONFIG = ("scontrol", "show", "config")
PING = ("scontrol", "ping", "--json")
STATISTICS = ("sdiag", "--json")
QUEUE = ("squeue", "--noheader", "--all", "--array", "--states=all", "--sort=i")
# Jobs that are neither over nor gone, for parse.parse_active. The text of the user, --nodelist, is the last field.
ACTIVE_JOBS = ("squeue", "--noheader", "--all", "--array", "--format=%A|%T|%P|%N|%n")
JOBS_BY_ID = ("squeue", "--all", "--states=all", "--json", "--jobs")

NODES_PER_CALL = 100  # nodes in one call: scontrol refuses very long hostlists (ParallelCluster, observed)
JOBS_PER_CALL = 500
MOST_BY_ID = 5000  # jobs of which squeue is asked by id; it compares each of its jobs with each id
FOR_SQUEUE = (
    "SQUEUE_",
    "SLURM_CLUSTERS",
    "SLURM_BITSTR_LEN",
    "SLURM_TIME_FORMAT",
)  # variables that change its answer
WHOLE_ARRAYS = {"SLURM_BITSTR_LEN": "0"}  # else the list of an array's tasks ends after 64 characters
NOT_DELIVERED = ("Unable to contact", "timed out", "Zero Bytes", "Connection", "ermission denied")  # 24.11
TIMEOUT_S = 30.0  # slurmctld can hold its locks for a long time; only this executor waits for it


def show_node(node: str) -> tuple[str, ...]:
    """One node. An unknown node gives exit code 1 or an empty list."""
    return ("scontrol", "show", "node", node, "--json")


def show_job(job: int) -> tuple[str, ...]:
    """One job; its array and its parts, too. An unknown job gives an empty list and exit code 0."""
    return ("scontrol", "show", "job", str(job), "--json")


class SlurmPort(Protocol):
    """The calls to Slurm that the daemon makes."""

    def read(self, at: float) -> SlurmView:
        """Nodes, jobs and reservations."""
        ...

    def update_nodes(self, nodes: Sequence[str], state: str, reason: str | None = None) -> None:
        """Set a state by scontrol's word: drain, undrain, down, power_down, power_up, resume."""
        ...

    def set_admin_comment(self, jobs: Sequence[int], text: str) -> None:
        """Write the AdminComment of jobs. No error for a job that has ended."""
        ...

    def signal(self, jobs: Sequence[int], signal: str) -> None:
        """Send `signal` to the batch scripts. No error for a job that has ended."""
        ...

    def requeue(self, jobs: Sequence[int], reason: str, *, held: bool = False) -> None:
        """Requeue running jobs, held or not. No error for a job that has ended or cannot be requeued."""
        ...

    def set_reservation(self, reservation: SlurmReservation) -> None:
        """Create the reservation, or update the one with its name. It keeps all jobs off its nodes."""
        ...

    def delete_reservation(self, name: str) -> None:
        """Delete a reservation. No error if it does not exist."""
        ...


class Scontrol:
    """The client that runs scontrol and scancel; a program is a name on PATH (the unit sets it) or a path."""

    def __init__(
        self,
        program: str = "scontrol",
        scancel: str = "scancel",
        squeue: str = "squeue",
        near: Path = Path(names.STANDBY_CONF),
    ) -> None:
        """`near`: on the second head, a slurm.conf that names this head first, because the other may be off."""
        self._program, self._scancel, self._squeue, self._near = program, scancel, squeue, near
        self._tasks: Mapping[int, str] = {}  # job id -> array task, at the last read
        self._remembered: Mapping[
            tuple[str, ...], SlurmJob
        ] = {}  # by rows that do not say all of a waiting job

    def read(self, at: float) -> SlurmView:
        nodes, jobs = self._show(SHOW_NODES), self.read_jobs()
        view = parse.view(nodes, jobs, at, self._show(SHOW_RESERVATIONS))
        self._tasks = {job.id: job.task for job in view.jobs if job.task}
        return view

    def read_jobs(self) -> tuple[SlurmJob, ...]:
        """All jobs: from squeue's rows, and from its JSON those whose row does not say all of them.

        squeue is asked for the second after the first. So a job is missing only if it is new or over, and a job that has
        changed meanwhile is shown once, as it was or as it is. If a row cannot be read, all jobs are read as JSON.
        """
        try:
            with gc_control.collection_disabled():
                return self._jobs_of_rows()
        except parse.SlurmAnswerError as error:
            log.warning("squeue: %s; all jobs are read as JSON, which takes longer", error.message)
            return parse.parse_jobs(self._show(SHOW_JOBS))

    def started_at(self) -> float | None:
        """Return when the slurmctld that answers was started; None: it does not say. A takeover from another one is no start."""
        argv = (self._program, *SHOW_CONFIG[1:])
        return parse.started_at(self._run(argv, env={"TZ": "UTC0"}, check=False).stdout)

    def update_nodes(self, nodes: Sequence[str], state: str, reason: str | None = None) -> None:
        for batch in _batches(nodes, NODES_PER_CALL):
            argv = [self._program, "update", f"nodename={','.join(batch)}", f"state={state}"]
            # scontrol removes one quote at each end of a reason (update_node.c of 24.11.5 and 26.05.3)
            self._run([*argv, f'reason="{reason}"'] if reason else argv)

    def set_admin_comment(self, jobs: Sequence[int], text: str) -> None:
        for batch in _batches(self._ids(jobs), JOBS_PER_CALL):
            argv = (self._program, "update", f"jobid={','.join(batch)}", f"admincomment={text}")
            self._run(argv, check=False)

    def signal(self, jobs: Sequence[int], signal: str) -> None:
        for batch in _batches(self._ids(jobs), JOBS_PER_CALL):
            self._deliver((self._scancel, f"--signal={signal}", "--batch", *batch))

    def requeue(self, jobs: Sequence[int], reason: str, *, held: bool = False) -> None:
        self.set_admin_comment(jobs, reason)
        for batch in _batches(self._ids(jobs), JOBS_PER_CALL):
            verb = "requeuehold" if held else "requeue"
            self._deliver((self._program, verb, ",".join(batch)))

    def set_reservation(self, reservation: SlurmReservation) -> None:
        lines = (
            f"ReservationName={reservation.name}",
            f"StartTime={_local(reservation.starts_at)}",
            f"EndTime={_local(reservation.ends_at)}",
            f"Nodes={','.join(reservation.nodes)}",
        )
        moved = self._run((self._program, "update", *lines), check=False)
        if moved.code != 0:
            argv = (self._program, "create", "reservation", *lines, "Users=root", "Flags=MAINT,IGNORE_JOBS")
            self._run(argv)

    def delete_reservation(self, name: str) -> None:
        argv = (self._program, "delete", f"ReservationName={name}")
        self._run(argv, check=False)

    def _jobs_of_rows(self) -> tuple[SlurmJob, ...]:
        mark = f"~{secrets.token_urlsafe(9)}"
        found: dict[int, SlurmJob] = {}
        asked: dict[int, parse.QueueRow] = {}
        kept: dict[tuple[str, ...], SlurmJob] = {}
        for row in parse.parse_queue(self._rows(mark), mark):
            job = parse.job_of_row(row)
            if job is None and (job := self._remembered.get(row.remembered)) is not None:
                kept[row.remembered] = job
                job = replace(job, tasks=row.tasks)
            if job is None:
                asked[int(row.job)] = row
            else:
                found[job.id] = job
        if len(asked) > MOST_BY_ID:
            return parse.parse_jobs(self._show(SHOW_JOBS))
        for job in self._jobs_by_id(tuple(asked)):
            found[job.id] = job
            if job.id in asked and asked[job.id].state == JobState.PENDING and job.pending:
                kept[asked[job.id].remembered] = job
        self._remembered = kept
        return tuple(found[number] for number in sorted(found))

    def _rows(self, mark: str) -> str:
        """The format is in the environment, which other users cannot read, so they do not learn the mark from /proc."""
        env = {"SQUEUE_FORMAT2": parse.queue_format(mark), "SLURM_TIME_FORMAT": "%s"}
        return self._run((self._squeue, *QUEUE[1:]), env=env).stdout

    def _jobs_by_id(self, jobs: Sequence[int]) -> tuple[SlurmJob, ...]:
        """For one id squeue fails if the job is over, scontrol does not."""
        if not jobs:
            return ()
        if len(jobs) == 1:
            return parse.parse_jobs(self._show(show_job(jobs[0])))
        argv = (self._squeue, *JOBS_BY_ID[1:], ",".join(map(str, jobs)))
        return parse.parse_jobs(self._run(argv, env=WHOLE_ARRAYS).stdout)

    def _ids(self, jobs: Sequence[int]) -> list[str]:
        """Array tasks by their names: the id of the last task is the id of the whole array."""
        return [self._tasks.get(job, str(job)) for job in jobs]

    def _show(self, argv: Sequence[str]) -> str:
        return self._run((self._program, *argv[1:]), env=WHOLE_ARRAYS).stdout

    def _deliver(self, argv: tuple[str, ...]) -> None:
        """Run a command on jobs. Slurm may refuse single jobs; CommandError only if slurmctld did not get the command."""
        result = self._run(argv, check=False)
        if result.code != 0 and any(words in result.stderr for words in NOT_DELIVERED):
            raise shell.CommandError(result)

    def _run(
        self, argv: Sequence[str], *, check: bool = True, env: Mapping[str, str] | None = None
    ) -> shell.Result:
        near = {"SLURM_CONF": str(self._near)} if self._near.exists() else {}
        return shell.run(
            argv, timeout_s=TIMEOUT_S, env={**near, **(env or {})}, without=FOR_SQUEUE, check=check
        )


def _batches(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _local(at: float) -> str:
    """Return a time for scontrol, in the local time of the head."""
    return datetime.fromtimestamp(at).strftime("%Y-%m-%dT%H:%M:%S")  # noqa: DTZ006
