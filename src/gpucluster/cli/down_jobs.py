"""The Slurm jobs that `gpucluster down` ends, as the head of the cluster counts them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpucluster.text import short

if TYPE_CHECKING:
    from gpucluster.cli.transport import Run

LIMIT_S = 20.0
MOST = 4  # users that are named


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Counts of jobs by user. `unknown` says why there are none."""

    running: Mapping[str, int]
    waiting: Mapping[str, int]
    unknown: str = ""

    def lines(self) -> Iterator[str]:
        """Return the text for people."""
        if self.unknown:
            yield f"the head does not answer: its jobs are not known ({self.unknown})"
        elif not (self.running or self.waiting):
            yield "none"
        else:
            yield from (
                f"{sum(counts.values())} {verb}: {_users(counts)}"
                for verb, counts in (("running", self.running), ("waiting", self.waiting))
                if counts
            )

    def as_json(self) -> dict[str, Any]:
        """Return the JSON values."""
        return {"running": dict(self.running), "waiting": dict(self.waiting), "unknown": self.unknown}


def jobs_of(run: "Run") -> Jobs:
    """Ask the head for at most LIMIT_S, and the time in which Systems Manager delivers a command."""
    from gpucluster.cloud.port import CloudError
    from gpucluster.errors import GpuclusterError
    from gpucluster.slurm import queue_by_user

    try:
        done = run("head", queue_by_user.ARGV, LIMIT_S)
        if done.code:
            return _unknown(f"squeue ended with code {done.code}: {done.stderr}")
        counts = queue_by_user.parse(done.stdout)
    except (CloudError, GpuclusterError) as error:
        return _unknown(getattr(error, "message", str(error)))
    return Jobs(running=counts.running, waiting=counts.waiting)


def _unknown(why: str) -> Jobs:
    return Jobs(running={}, waiting={}, unknown=short(why))


def _users(counts: Mapping[str, int]) -> str:
    """Return the users with the most jobs first."""
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    named = ", ".join(f"{short(user, 40)} {count}" for user, count in ranked[:MOST])
    return named + (f" and {len(ranked) - MOST} more users" if len(ranked) > MOST else "")
