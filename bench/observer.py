"""One look of the daemon at a real slurmctld with 10,000 waiting jobs: our process, squeue and scontrol, slurmctld.

Among the jobs are arrays, het jobs, ranges of nodes, long names, and names with ends of lines, quotes and control characters.
`python -m bench observer`; it needs root, and the Debian trees of `make test-slurm`. A process of its own makes the looks,
because its greatest memory is a figure. The time of slurmctld is that of its own diagnostics (sdiag) for one request of all
jobs, with its locks held for reading; its limit is that of one for scontrol's JSON, which is the same request. `python -m bench.observer FOLDER` is the process that looks.
"""

import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.figure import Figure, figure, unit_ms
from gpucluster.elastic.decide import decide, next_look
from gpucluster.elastic.memory import Memory
from gpucluster.elastic.model import CloudView, Observation
from gpucluster.slurm.client import Scontrol

if TYPE_CHECKING:
    from tests.slurm.real_slurm import RealSlurm

ROOT = Path(__file__).parent.parent
JOBS, NODES = 10_000, 64
OWN, CLIENT = 110.0, 110.0  # units of this machine's speed: 0.5 s where it was set
MEMORY_MIB = 150.0
LOOKS = 5
LIKE_THE_JSON = 2.0  # other programs disturb a time of the wall
SUBMIT = r"""
cd /tmp
submit() { sbatch -Q -o /dev/null --exclusive "$@" --wrap 'sleep 99999'; }
some() {
 for ((i=$1; i<=JOBS; i+=2)); do
  case $((i % 50)) in
   0) name=$'x\n1\t1\tN/A\tRUNNING\n{"job_id": 1}' ;;
   1) name=$'quote"s\\and\x01control\x1b[31m\x7f' ;;
   2) name=$(printf 'long%.0s' {1..250}) ;;
   *) name="train-$i" ;;
  esac
  case $((i % 100)) in
   10) submit -J "$name" -N1 --array=0-9%5 ;;
   20) sbatch -Q -o /dev/null -J "$name" -N1 : -N1 --wrap 'sleep 99999' ;;
   30) submit -J "$name" -N2-3 --comment "$name" -A "$name" ;;
   40) submit -J "$name" -N1 --begin=now+1hour ;;
   50) submit -J "$name" -N1 --hold ;;
   60) submit -J "$name" -N1 --dependency=afterok:1 ;;
   *) submit -J "$name" -N$((1 + i % 3)) ;;
  esac
 done
}
some 1 & some 2 & wait
"""


def run() -> Iterator[Figure]:
    """The figures of each version."""
    sys.path[:0] = [str(ROOT / part) for part in ("tests/slurm", "tests", "tools")]
    from tests.slurm import real_slurm  # noqa: PLC0415

    for version in real_slurm.VERSIONS:
        yield from _of_version(version)


def _of_version(version: str) -> Iterator[Figure]:
    from bench.decide import wide_plan  # noqa: PLC0415
    from tests.slurm.real_slurm import RealSlurm  # noqa: PLC0415

    plan = wide_plan(NODES)
    with (
        tempfile.TemporaryDirectory() as folder,
        RealSlurm(version, plan, nodes=False) as slurm,
    ):
        slurm.start_controller()
        _submit(slurm)
        for name in ("scontrol", "squeue"):
            path = Path(folder) / name
            path.write_text(f'#!/bin/sh\nexec {shlex.join(slurm._argv([name]))} "$@"\n')  # noqa: SLF001
            path.chmod(0o755)
        slurm.must("sdiag", "--reset")
        for _ in range(LOOKS):
            slurm.must("scontrol", "show", "jobs", "--json")
        _, json_ms = _requests(slurm)
        slurm.must("sdiag", "--reset")
        answer = subprocess.run(
            [sys.executable, "-m", "bench.observer", folder],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        found: dict[str, Any] = json.loads(answer.stdout)
        assert found["waiting"] >= JOBS - NODES, found
        calls, lock_ms = _requests(slurm)
        name = f"observer.{version}.{JOBS}_waiting_jobs"
        yield figure(f"{name}.own_cpu", found["own_ms"], "ms CPU", OWN * unit_ms())
        yield figure(f"{name}.client_cpu", found["client_ms"], "ms CPU", CLIENT * unit_ms())
        yield figure(f"{name}.memory", found["memory_mib"], "MiB", MEMORY_MIB)
        yield figure(f"{name}.client_memory", found["client_mib"], "MiB", MEMORY_MIB)
        yield figure(f"{name}.calls_of_squeue", calls / (LOOKS + 1), "calls", 1.5)
        yield figure(f"{name}.slurmctld_lock", lock_ms, "ms", LIKE_THE_JSON * json_ms)


def _requests(slurm: "RealSlurm") -> tuple[int, float]:
    """Return the number of requests of all jobs, and the mean milliseconds of slurmctld for one."""
    found = re.search(r"REQUEST_JOB_INFO .*count:(\d+) +ave_time:(\d+)", slurm.must("sdiag"))
    assert found is not None
    return int(found[1]), int(found[2]) / 1000


def _submit(slurm: "RealSlurm") -> None:
    began = time.monotonic()
    done = slurm.run("bash", "-c", SUBMIT.replace("JOBS", str(JOBS)), timeout=1200)
    assert not done.err, done.err[:2000]
    print(f"{JOBS} jobs submitted in {time.monotonic() - began:.0f} s", file=sys.stderr)


def look(folder: Path) -> None:
    """Look some times, decide once after each, and print what a look costs."""
    from bench.decide import NOW, some_bindings, wide_plan  # noqa: PLC0415

    plan = wide_plan(NODES)
    client = Scontrol(str(folder / "scontrol"), "/bin/false", str(folder / "squeue"), near=folder / "no")
    view = client.read(NOW)  # the first look asks for the details of some jobs
    own, others = time.process_time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(LOOKS):
        view = client.read(time.time())
        seen = Observation(slurm=view, cloud=CloudView(at=view.at, instances={}))
        decide(plan, some_bindings(plan), seen, Memory(epoch="e"), view.at)
        next_look(plan, some_bindings(plan), seen, Memory(epoch="e"), view.at)
    own = time.process_time() - own
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    client_s = after.ru_utime + after.ru_stime - others.ru_utime - others.ru_stime
    found = {
        "waiting": sum(job.pending for job in view.jobs),
        "own_ms": own / LOOKS * 1000,
        "client_ms": client_s / LOOKS * 1000,
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "client_mib": after.ru_maxrss / 1024,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    look(Path(sys.argv[1]))
