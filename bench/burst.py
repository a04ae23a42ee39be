"""A burst in the sandbox, three times: the time until a node registers, and from there until its job runs.

It brings up a sandbox of its own and takes it down; it needs root. No figure uses a clock of this program: the cloud has the
time of `running`, and slurmctld's log, in milliseconds, the times of the registration and of the start of the job.
"""

import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.figure import Figure, figure
from bench.sandbox import cli, copied

# Seconds and not a ratio: they are Slurm's and the agent's intervals (a look each second), which no machine shortens.
REGISTER_LIMIT_S, RUN_LIMIT_S = 5.0, 2.0
JOBS, NODES, PATIENCE_S = 3, 2, 120.0
NAME = "bench"
LOG = "/var/log/slurm/slurmctld.log"
RESPONDING = re.compile(r"\[(\S+)\] Node (\S+) now responding")
BEGAN = re.compile(r"\[(\S+)\] .*Configuration for JobId=(\d+) is complete")


@dataclass(frozen=True, slots=True)
class Burst:
    """Seconds of one job, for its slower node."""

    register: float  # from `running` of the instance to the registration of its slurmd
    run: float  # from the last registration to the start of the job


def run() -> Iterator[Figure]:
    """Return the medians of three jobs."""
    with tempfile.TemporaryDirectory() as folder:
        spec = copied("burst", NAME, Path(folder))
        try:
            cli("sandbox", "up", str(spec))
            seen = [_burst() for _ in range(JOBS)]
        finally:
            cli("sandbox", "down", NAME)
    register = statistics.median(burst.register for burst in seen)
    began = statistics.median(burst.run for burst in seen)
    yield figure("burst.running_to_registered", register, "s", REGISTER_LIMIT_S)
    yield figure("burst.registered_to_job_running", began, "s", RUN_LIMIT_S)


def _burst() -> Burst:
    """Run one job without nodes at its start, then wait until no instance is left."""
    answer = _head("sbatch", "--parsable", f"-N{NODES}", "--gres=gpu:8", "--wrap", "sleep 2")
    job = str(int(answer))
    _wait(f"job {job} is done", lambda: "COMPLETED" in _head("scontrol", "show", "job", job))
    booted = _booted(job)
    burst = _measured(job, booted, _log())
    _wait("the nodes are gone", lambda: not _living())
    _wait("every slot is powered down", lambda: not _head("sinfo", "-h", "-N", "-t", "powering_down"))
    return burst


def _measured(job: str, booted: dict[str, float], log: str) -> Burst:
    """`booted`: node -> time at which its instance became `running`. Earlier lines of the log belong to earlier incarnations."""
    responding = {
        node: min(at for at, name in _stamped(RESPONDING, log) if name == node and at > since)
        for node, since in booted.items()
    }
    began = next(at for at, name in _stamped(BEGAN, log) if name == job)
    return Burst(
        register=max(responding[node] - since for node, since in booted.items()),
        run=began - max(responding.values()),
    )


def _stamped(pattern: re.Pattern[str], log: str) -> Iterator[tuple[float, str]]:
    for found in pattern.finditer(log):
        yield datetime.fromisoformat(f"{found[1]}+00:00").timestamp(), found[2]


def _booted(job: str) -> dict[str, float]:
    """Return the instance of each node from the journal, and the time of its `running` from the cloud."""
    python = ("/opt/gpucluster/venv/bin/python", "-m", "gpucluster.elastic.inspect.timeline")
    moments = json.loads(_head(*python, job, "--json"))
    nodes = {m["instance"]: m["slot"] for m in moments if m["what"] == "launched"}
    since = {i["id"]: i["since"] for i in _living() if i["state"] == "running"}
    booted = {node: since[instance] for instance, node in nodes.items()}
    assert len(booted) == NODES, f"{len(booted)} instances for {NODES} nodes"
    return booted


def _living() -> list[dict[str, Any]]:
    from gpucluster.sandbox import state_dir  # noqa: PLC0415 -- other benches need no sandbox
    from gpucluster.sandbox.status import control  # noqa: PLC0415

    shown = control(state_dir.living(NAME)).instances()
    nodes = [i for i in shown if i["tags"].get("gpucluster:role") == "node"]
    return [i for i in nodes if i["state"] in ("pending", "running", "shutting-down")]


def _log() -> str:
    offset = _head("date", "+%z").strip()
    assert offset == "+0000", f"the head's log is not in UTC but in {offset}"
    return _head("cat", LOG)


def _head(*argv: str) -> str:
    return cli("sandbox", "exec", NAME, "head", "--", *argv)


def _wait(what: str, seen: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not seen():
        if time.monotonic() > end:
            sys.exit(f"not within {PATIENCE_S:g} s: {what}")
        time.sleep(0.5)
