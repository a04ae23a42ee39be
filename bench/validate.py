"""`gpucluster validate` of healthy clusters, ten times each: burst, steady, lab and research in the sandbox, one after the other.

One finding of a healthy cluster is a false alarm, and over the limit. The seconds of a run and the number of machines that were up are
on standard error. It brings up each cluster, and takes it down; it needs root and about an hour.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure, figure
from bench.sandbox import cli, copied

RUNS = 10
OF_HOSTS = "lab"  # its machines are plain until the playbook has run
NAMES = ("burst", "steady", OF_HOSTS, "research")


def run() -> Iterator[Figure]:
    """Return for each stack the number of findings of all runs."""
    for name in NAMES:
        yield from _of_stack(name)


def _of_stack(name: str) -> Iterator[Figure]:
    cluster = f"bench-{name}"
    with tempfile.TemporaryDirectory() as folder:
        spec = copied(name, cluster, Path(folder))
        try:
            cli("sandbox", "up", str(spec))
            if name == OF_HOSTS:
                _play(cluster)
            seen = [_validated(cluster) for _ in range(RUNS)]
            shown = json.loads(cli("sandbox", "status", cluster, "--output", "json"))["instances"]
            machines = sum(one["state"] == "running" for one in shown)
        finally:
            cli("sandbox", "down", cluster)
    findings = [words for _, found in seen for words in found]
    seconds = statistics.median(taken for taken, _ in seen)
    for words in (*findings, f"{name}: {seconds:.1f} s (median), machines up: {machines}"):
        print(words, file=sys.stderr)
    yield figure(f"validate.{name}.findings_of_{RUNS}_runs", len(findings), "findings", 0.5)


def _play(cluster: str) -> None:
    from gpucluster.sandbox import state_dir  # noqa: PLC0415 -- other benches need no sandbox

    inventory = state_dir.living(cluster).site / "inventory.yml"
    ansible = Path(sys.executable).parent / "ansible-playbook"
    cli("sandbox", "run", cluster, "--", str(ansible), "-i", str(inventory), "playbooks/site.yml")


def _validated(cluster: str) -> tuple[float, list[str]]:
    """Return the seconds of one run, and what it finds."""
    began = time.monotonic()
    answer = json.loads(cli("validate", cluster, "--output", "json", ends=(0, 1)))
    taken = time.monotonic() - began
    bad: list[dict[str, Any]] = [one for one in answer["results"] if one["verdict"] != "pass"]
    return taken, [f"{one['id']}: {one['verdict']}: {one['found']}" for one in bad]
