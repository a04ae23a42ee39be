"""Slurm's port: one look, and the few updates that the daemon makes. All in one serial lane."""

from collections.abc import Sequence
from typing import Protocol

from gpucluster import shell
from gpucluster.elastic import observe
from gpucluster.elastic.model import SlurmView

BATCH = 100  # nodes a call; a longer hostlist meets scontrol's own limits (ParallelCluster)
JOBS_BATCH = 500
TIMEOUT_S = 30.0  # slurmctld can hold its locks for long; the lane waits, the daemon does not


class SlurmPort(Protocol):
    """What `act` asks of Slurm."""

    def look(self, at: float) -> SlurmView: ...

    def update_nodes(self, nodes: Sequence[str], state: str, reason: str | None = None) -> None:
        """Set a state by scontrol's word: drain, undrain, down, power_down, power_up, resume."""
        ...

    def comment(self, jobs: Sequence[int], text: str) -> None:
        """Write the jobs' AdminComment; a job that is gone is no fault."""
        ...


class Scontrol:
    """The real one; `program` by name on PATH (the unit sets it) or absolute."""

    def __init__(self, program: str = "scontrol") -> None:
        self._program = program

    def look(self, at: float) -> SlurmView:
        nodes = shell.run((self._program, *observe.NODES[1:]), timeout_s=TIMEOUT_S)
        jobs = shell.run((self._program, *observe.JOBS[1:]), timeout_s=TIMEOUT_S)
        return observe.view(nodes.stdout, jobs.stdout, at)

    def update_nodes(self, nodes: Sequence[str], state: str, reason: str | None = None) -> None:
        for start in range(0, len(nodes), BATCH):
            names = ",".join(nodes[start : start + BATCH])
            argv = [self._program, "update", f"nodename={names}", f"state={state}"]
            shell.run([*argv, f"reason={reason}"] if reason else argv, timeout_s=TIMEOUT_S)

    def comment(self, jobs: Sequence[int], text: str) -> None:
        for start in range(0, len(jobs), JOBS_BATCH):
            ids = ",".join(str(job) for job in jobs[start : start + JOBS_BATCH])
            argv = (self._program, "update", f"jobid={ids}", f"admincomment={text}")
            shell.run(argv, timeout_s=TIMEOUT_S, check=False)
