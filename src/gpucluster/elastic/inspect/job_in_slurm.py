"""What slurmctld says of a job: its state, its reason, and the comment of the daemon. Every user may ask it."""

import json
import sys
from collections.abc import Callable, Sequence

from gpucluster import shell
from gpucluster.errors import StateError
from gpucluster.slurm import client, parse
from gpucluster.text import printable, short

SLURM_S = 30.0
Ask = Callable[[Sequence[str]], shell.Result]


def show(job: int, *, as_json: bool, ask: Ask | None = None) -> int:
    """Print the job. Exit code 0 found, 1 no such job; StateError if slurmctld does not answer."""
    done = (ask or _ask)(client.show_job(job))
    if done.code:
        raise StateError(
            f"slurmctld does not answer: {short(done.stderr)}", next_step="scontrol ping, then type it again"
        )
    found = parse.parse_jobs(done.stdout)
    rows = [
        {"job": one.task or str(one.id), "state": state, "reason": one.reason, "comment": one.admin_comment}
        for one in found
        for state in ("+".join(sorted(one.states)),)
    ]
    if as_json:
        sys.stdout.write(json.dumps({"schema": 1, "ok": bool(rows), "jobs": rows}, indent=1) + "\n")
    elif not rows:
        sys.stderr.write(
            f"error: slurmctld has no job {job}\n  next: sacct -j {job}, if the cluster has accounting\n"
        )
    for row in () if as_json else rows:
        because = f": {row['reason']}" if row["reason"] not in ("", "None") else ""
        lines = [
            f"job {row['job']} is {row['state']}{because}",
            *([f"  {row['comment']}"] if row["comment"] else []),
        ]
        sys.stdout.write("\n".join(map(printable, lines)) + "\n")
    return 0 if rows else 1


def _ask(argv: Sequence[str]) -> shell.Result:
    return shell.run(argv, check=False, timeout_s=SLURM_S)
