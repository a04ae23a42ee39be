"""Run many scenarios in one process for each core and print their events: `make soak`.

    .venv/bin/python tools/soak.py --schedules 10000 --seed 1

Each is a scenario of tests/support/scenarios.py: the daemon over models of Slurm (each version) and of the cloud. A failing
one is shrunk and printed as a value for tests/unit/elastic/test_scenarios.py; then the exit status is 1.
"""

import argparse
import contextlib
import ctypes
import json
import logging
import multiprocessing
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import hypothesis  # noqa: E402 -- after the path
from support import scenarios  # noqa: E402

IN_MEMORY = Path("/dev/shm")  # noqa: S108 -- each simulation has a journal and syncs each entry
BATCH = 250  # scenarios of one seed; a report comes after each batch


def batch(task: tuple[int, int]) -> dict[str, Any]:
    """Run the scenarios of one seed; return their events, and the failure if there is one."""
    seed, count = task
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C also ends the children
    ctypes.CDLL(None).prctl(
        1, signal.SIGTERM
    )  # PR_SET_PDEATHSIG: the children end with the parent, also after SIGKILL
    logging.disable(logging.CRITICAL)
    scenarios.TOTALS = scenarios.Totals()
    folder = Path(tempfile.mkdtemp(dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
    met: dict[str, Any] = {}

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count, database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(scenario=scenarios.SCENARIOS)
    def any_scenario(scenario: scenarios.Scenario) -> None:
        here = Path(tempfile.mkdtemp(dir=folder))
        try:
            scenarios.simulate(scenario, here)
        except BaseException as error:
            met["failed"] = {
                "scenario": repr(scenario),
                "error": f"{type(error).__name__}: {error}"[:3000],
                "seed": seed,
            }
            raise
        finally:
            shutil.rmtree(here, ignore_errors=True)

    with contextlib.suppress(Exception):  # `met` has the failure after hypothesis has shrunk it
        any_scenario()
    shutil.rmtree(folder, ignore_errors=True)
    seen = scenarios.TOTALS
    return {**met, "scenarios": seen.scenarios, "faults": seen.faults, "nodes": seen.nodes, "launches": seen.launches,
            "jobs": seen.jobs, "told": seen.told, "hours": seen.seconds / 3600}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    args = parser.parse_args()
    began = time.monotonic()
    tasks = [
        (args.seed * 100_000 + n, min(BATCH, args.schedules - n)) for n in range(0, args.schedules, BATCH)
    ]
    total: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    failed: list[dict[str, Any]] = []
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        for done in pool.imap_unordered(batch, tasks):
            total.update({k: done[k] for k in ("scenarios", "nodes", "launches", "jobs", "told", "hours")})
            faults.update(done["faults"])
            if "failed" in done:
                failed.append(done["failed"])
                print(_summary(failed[-1]), file=sys.stderr)
            print(f"{total['scenarios']} schedules, {len(failed)} seeds failed", file=sys.stderr)
    stuck = sum("AssertionError: at " in f["error"] for f in failed)
    report = {
        "schedules": total["scenarios"], "seed": args.seed, "wall_s": round(time.monotonic() - began),
        "virtual_h": round(total["hours"]), "jobs": total["jobs"], "nodes": total["nodes"], "launches": total["launches"],
        "told": total["told"], "faults": dict(faults.most_common()), "leaked": 0 if not failed else "unknown", "lost": 0 if not failed else "unknown",
        "stuck": stuck, "unsafe": len(failed) - stuck,
    }  # fmt: skip
    print(json.dumps(report))
    for one in failed:
        print(_summary(one))
    raise SystemExit(1 if failed else 0)


def _summary(one: dict[str, Any]) -> str:
    return f"\nseed {one['seed']}: {one['error']}\n{one['scenario']}"


if __name__ == "__main__":
    main()
