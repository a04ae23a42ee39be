"""`gpucluster validate` of healthy clusters, ten times each: burst, steady, lab and research in the sandbox, one after the other.

The limit of the findings is none: one finding of a healthy cluster is a false alarm. The seconds have no limit; they are shown beside
the number of machines that were up. It brings up each cluster, and takes it down; it needs root and about an hour.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure, figure

RUNS = 10
STACKS = Path(__file__).parent.parent / "stacks"
NAMES = ("burst", "steady", "lab", "research")


def run() -> Iterator[Figure]:
    """Return for each stack the findings of all runs, and the median of their seconds."""
    for name in NAMES:
        yield from _of_stack(name)


def _of_stack(name: str) -> Iterator[Figure]:
    cluster = f"bench-{name}"
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / f"{cluster}.yaml"
        spec.write_text(
            (STACKS / f"{name}.yaml").read_text().replace(f"name: {name}\n", f"name: {cluster}\n", 1)
        )
        (Path(folder) / "scripts").symlink_to(STACKS / "scripts")
        try:
            _cli("sandbox", "up", str(spec))
            seen = [_validated(cluster) for _ in range(RUNS)]
            shown = json.loads(_cli("sandbox", "status", cluster, "--output", "json"))["instances"]
            machines = sum(one["state"] == "running" for one in shown)
        finally:
            _cli("sandbox", "down", cluster)
    findings = [words for _, found in seen for words in found]
    for words in findings:
        print(words, file=sys.stderr)
    yield figure(f"validate.{name}.findings_of_{RUNS}_runs", len(findings), "findings", 0.5)
    yield figure(
        f"validate.{name}.over_bare_seconds", statistics.median(taken for taken, _ in seen), "s", machines
    )


def _validated(cluster: str) -> tuple[float, list[str]]:
    """Return the seconds of one run, and what it finds."""
    began = time.monotonic()
    answer = json.loads(_cli("validate", cluster, "--output", "json", ends=(0, 1)))
    taken = time.monotonic() - began
    bad: list[dict[str, Any]] = [one for one in answer["results"] if one["verdict"] != "pass"]
    return taken, [f"{one['id']}: {one['verdict']}: {one['found']}" for one in bad]


def _cli(*argv: str, ends: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gpucluster.cli", *argv],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in ends:
        sys.exit(f"{' '.join(argv[:2])}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
