"""Slurm's port: one look, and the few updates that the daemon makes. All in one serial lane."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

from gpucluster import shell
from gpucluster.elastic import observe
from gpucluster.elastic.model import SlurmView, Window
from gpucluster.plan import names

BATCH = 100  # nodes a call; a longer hostlist meets scontrol's own limits (ParallelCluster)
JOBS_BATCH = 500
UNHEARD = ("Unable to contact", "timed out", "Zero Bytes", "Connection", "ermission denied")  # 24.11
TIMEOUT_S = 30.0  # slurmctld can hold its locks for long; the lane waits, the daemon does not


class SlurmPort(Protocol):
    """What `act` asks of Slurm."""

    def look(self, at: float, *, windows: bool = False) -> SlurmView:
        """Nodes and jobs; our reservations too if there is reason to ask."""
        ...

    def update_nodes(self, nodes: Sequence[str], state: str, reason: str | None = None) -> None:
        """Set a state by scontrol's word: drain, undrain, down, power_down, power_up, resume."""
        ...

    def comment(self, jobs: Sequence[int], text: str) -> None:
        """Write the jobs' AdminComment; a job that is gone is no fault."""
        ...

    def signal(self, jobs: Sequence[int], signal: str) -> None:
        """Send `signal` to the batch scripts; a job that is gone is no fault."""
        ...

    def requeue(self, jobs: Sequence[int], reason: str, *, held: bool = False) -> None:
        """Queue running jobs again, held or not; one that is gone, or that may not be requeued, is no fault."""
        ...

    def open_window(self, window: Window) -> None:
        """Make the reservation, or move the one of that name: no job of others runs on its nodes meanwhile."""
        ...

    def close_window(self, name: str) -> None:
        """Delete it; one that is gone is no fault."""
        ...


class Scontrol:
    """The real one; `program` by name on PATH (the unit sets it) or absolute."""

    def __init__(
        self, program: str = "scontrol", scancel: str = "scancel", near: Path = Path(names.NEAR_CONF)
    ) -> None:
        """`near`: on the second head, by which it asks itself before a head that may be off."""
        self._program, self._scancel, self._near = program, scancel, near
        self._tasks: Mapping[int, str] = {}  # of arrays, as last seen

    def look(self, at: float, *, windows: bool = False) -> SlurmView:
        nodes = self._run((self._program, *observe.NODES[1:]))
        jobs = self._run((self._program, *observe.JOBS[1:]))
        argv = (self._program, *observe.RESERVATIONS[1:])
        kept = self._run(argv).stdout if windows else ""
        view = observe.view(nodes.stdout, jobs.stdout, at, kept)
        self._tasks = {job.id: job.task for job in view.jobs if job.task}
        return view

    def update_nodes(self, nodes: Sequence[str], state: str, reason: str | None = None) -> None:
        for start in range(0, len(nodes), BATCH):
            names = ",".join(nodes[start : start + BATCH])
            argv = [self._program, "update", f"nodename={names}", f"state={state}"]
            self._run([*argv, f"reason={reason}"] if reason else argv)

    def comment(self, jobs: Sequence[int], text: str) -> None:
        for start in range(0, len(jobs), JOBS_BATCH):
            ids = ",".join(self._names(jobs[start : start + JOBS_BATCH]))
            argv = (self._program, "update", f"jobid={ids}", f"admincomment={text}")
            self._run(argv, check=False)

    def signal(self, jobs: Sequence[int], signal: str) -> None:
        for start in range(0, len(jobs), JOBS_BATCH):
            ids = self._names(jobs[start : start + JOBS_BATCH])
            self._asked((self._scancel, f"--signal={signal}", "--batch", *ids))

    def requeue(self, jobs: Sequence[int], reason: str, *, held: bool = False) -> None:
        self.comment(jobs, reason)
        for start in range(0, len(jobs), JOBS_BATCH):
            ids = ",".join(self._names(jobs[start : start + JOBS_BATCH]))
            self._asked((self._program, "requeuehold" if held else "requeue", ids))

    def open_window(self, window: Window) -> None:
        lines = (
            f"ReservationName={window.name}",
            f"StartTime={_local(window.starts_at)}",
            f"EndTime={_local(window.ends_at)}",
            f"Nodes={','.join(window.nodes)}",
        )
        moved = self._run((self._program, "update", *lines), check=False)
        if moved.code != 0:
            argv = (self._program, "create", "reservation", *lines, "Users=root", "Flags=MAINT,IGNORE_JOBS")
            self._run(argv)

    def close_window(self, name: str) -> None:
        argv = (self._program, "delete", f"ReservationName={name}")
        self._run(argv, check=False)

    def _names(self, jobs: Sequence[int]) -> list[str]:
        """A number that is also its whole array's would mean all of its tasks."""
        return [self._tasks.get(job, str(job)) for job in jobs]

    def _asked(self, argv: tuple[str, ...]) -> None:
        """What Slurm refuses for one job (gone, ending, not to be requeued) is no fault; that nobody heard is."""
        result = self._run(argv, check=False)
        if result.code != 0 and any(words in result.stderr for words in UNHEARD):
            raise shell.CommandError(result)

    def _run(self, argv: Sequence[str], *, check: bool = True) -> shell.Result:
        env = {"SLURM_CONF": str(self._near)} if self._near.exists() else None
        return shell.run(argv, timeout_s=TIMEOUT_S, env=env, check=check)


def _local(at: float) -> str:
    """scontrol reads the head's local time."""
    return datetime.fromtimestamp(at).strftime("%Y-%m-%dT%H:%M:%S")  # noqa: DTZ006
