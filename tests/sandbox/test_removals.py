"""A new bundle removes nodes with jobs: the head drains them, holds the bundle, and applies it when the jobs have ended.

In this order: each test goes on where the one before it ended. The bundles come from the real `pulumi up`.
"""

import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import ROOT, Cluster, gpucluster
from support.reviewed import a_diff

from gpucluster.gitops.model import WAITS
from gpucluster.plan import names

pytestmark = [pytest.mark.sandbox, pytest.mark.in_order, pytest.mark.timeout(3000)]
NAME = "removals"
UNTIL_TOLD = "until [ -e /run/go-$SLURM_JOB_ID ]; do sleep 0.2; done"
log = logging.getLogger(__name__)  # its figures: --log-cli-level=INFO


def spec(most: int, *, spare: bool = True, machine: str = "g6e.2xlarge") -> str:
    """The cluster with `most` nodes in the pool `small`, with or without the pool and the partition `spare`."""
    capacity = f"capacity: [{{from: on-demand, machines: [{machine}]}}]"
    pools = [f"  - {{name: small, nodes: {{min: 0, max: {most}}}, idle: 5m, {capacity}}}"]
    parts = ["  - {name: debug, pools: [small], default: true, max_time: 1h}"]
    if spare:
        pools.append(f"  - {{name: spare, nodes: {{min: 0, max: 2}}, idle: 5m, {capacity}}}")
        parts.append("  - {name: spare, pools: [spare], max_time: 1h}")
    return "\n".join(
        [
            "schema: 1",
            f"name: {NAME}",
            "aws: {region: us-east-1, network: {cidr: 10.61.0.0/16, zones: [us-east-1a]}}",
            'slurm: {version: "24.11"}',
            "head: {machine: m7i.large}",
            "pools:",
            *pools,
            "partitions:",
            *parts,
            "",
        ]
    )


class Changing(Cluster):
    """A cluster with the checkout from which its bundles come."""

    checkout: Path

    def up(self, text: str) -> str:
        """Run `pulumi up` with this spec; the digest of the new bundle as the head sees it."""
        (self.checkout / "stacks" / f"{NAME}.yaml").write_text(text)
        argv = [sys.executable, "-m", "gpucluster.cli", "sandbox", "shell", NAME, "--"]
        done = subprocess.run(
            [*argv, "pulumi", "up", "--yes", "--skip-preview"],
            cwd=self.checkout,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, *options: str) -> int:
        """Submit a job that runs until it is told to end."""
        return self.sbatch("-N1", "--gres=gpu:1", *options, script=UNTIL_TOLD)

    def end(self, job: int) -> None:
        """Tell the job to end."""
        self.exec(self.job(job)["batch_host"], "touch", f"/run/go-{job}")

    def status(self) -> dict[str, object]:
        s3 = self.client("s3")
        bucket = next(b["Name"] for b in s3.list_buckets()["Buckets"] if b["Name"].startswith(f"{NAME}-"))
        return json.loads(s3.get_object(Bucket=bucket, Key=names.STATUS_KEY)["Body"].read())

    def shown(self) -> dict[str, object]:
        return json.loads(gpucluster("bundle", "show", "-c", NAME, "--output", "json").stdout)

    def runs(self, job: int) -> None:
        self.wait(f"job {job} runs", lambda: self.state(job) == "RUNNING")

    def drained(self) -> set[str]:
        return {name for name, node in self.nodes().items() if "DRAIN" in node["state"]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changing]:
    checkout = tmp_path_factory.mktemp("checkout")
    (checkout / "stacks").mkdir()
    for name in ("Pulumi.yaml", "__main__.py"):
        (checkout / name).write_text((ROOT / name).read_text())
    file = checkout / "stacks" / f"{NAME}.yaml"
    file.write_text(spec(3))
    gpucluster("sandbox", "up", str(file), timeout=1500)
    try:
        made = Changing(NAME)
        made.checkout = checkout
        yield made
    finally:
        gpucluster("sandbox", "down", NAME)


@pytest.fixture(scope="module")
def jobs(cluster: Changing) -> dict[str, int]:
    return {}


def test_a_running_job_on_a_removed_node_holds_the_bundle(cluster: Changing, jobs: dict[str, int]) -> None:
    """slurmctld ended the job with NODE_FAIL when it read the new files, and the queued jobs of the nodes with it."""
    jobs["long"] = cluster.submit("-w", "small-1a-3")
    jobs["other"] = cluster.submit("-w", "small-1a-1")
    cluster.runs(jobs["long"])
    cluster.runs(jobs["other"])
    jobs["queued"] = cluster.submit("-p", "spare", "--hold")
    before = cluster.status()["applied"]
    cluster.up(spec(2, spare=False))
    cluster.wait("the bundle is held", lambda: bool(cluster.shown()["held"]))
    gone = {"small-1a-3", "spare-1a-1", "spare-1a-2"}
    cluster.wait("its nodes are drained", lambda: gone <= cluster.drained())
    cluster.wait(
        "the status has the message", lambda: cluster.status()["detail"] == cluster.shown()["waits_for"]
    )
    status, shown = cluster.status(), cluster.shown()
    assert (status["ready"], status["applied"]) == (False, before)
    assert status["bundle"] == shown["held"] != before
    assert f"job {jobs['long']} must end on small-1a-3" in str(shown["waits_for"])
    assert f"gpucluster bundle apply {str(shown['held'])[:12]} --now" in str(shown["waits_for"])
    assert cluster.state(jobs["long"]) == "RUNNING"
    told = a_diff(spec(3), spec(2, spare=False)).effects  # what a reviewer reads is what is seen here
    assert told is not None
    assert WAITS in told.running
    assert "of a removed partition hold the bundle" in told.queued
    assert f"gpucluster bundle show -c {NAME}" in told.steps[-2]
    why = gpucluster("why", "small-1a-3", "-c", NAME).stdout
    assert "the bundle waits for the present ones" in why
    said = cluster.exec("head", "journalctl", "-u", "gpucluster-agent", "-o", "cat", "--no-pager")
    assert "is held, with all its changes, because it removes small-1a-3" in said


def test_a_queued_job_for_the_removed_nodes_waits_with_a_reason(
    cluster: Changing, jobs: dict[str, int]
) -> None:
    cluster.exec("head", "scontrol", "release", str(jobs["queued"]))
    cluster.wait(
        "it has the reason",
        lambda: cluster.job(jobs["queued"])["admin_comment"].startswith("gpucluster: [bundle]"),
    )
    assert cluster.state(jobs["queued"]) == "PENDING"
    launched = [i["node"] for i in cluster.instances()]
    assert not any(str(node).startswith("spare") for node in launched)
    why = gpucluster("why", str(jobs["queued"]), "-c", NAME).stdout
    assert "waits: all nodes of its partitions are drained: bundle" in why
    assert f"job {jobs['queued']} in the queue would be ended by Slurm" in why


def test_a_withdrawn_removal_lifts_the_drains(cluster: Changing, jobs: dict[str, int]) -> None:
    cluster.up(spec(3))
    cluster.wait("no bundle is held", lambda: not cluster.shown()["held"])
    cluster.wait("no node is drained", lambda: not cluster.drained())
    cluster.runs(jobs["queued"])
    cluster.end(jobs["queued"])
    assert cluster.state(jobs["long"]) == "RUNNING"


def test_the_bundle_is_applied_when_the_jobs_have_ended(cluster: Changing, jobs: dict[str, int]) -> None:
    cluster.wait("the queued job ended", lambda: cluster.state(jobs["queued"]) == "COMPLETED")
    cluster.up(spec(2, spare=False))
    cluster.wait("the bundle is held", lambda: bool(cluster.shown()["held"]))
    cluster.end(jobs["long"])
    cluster.wait("the job ended well", lambda: cluster.state(jobs["long"]) == "COMPLETED")
    ended = time.monotonic()
    cluster.wait("slurmctld knows it", lambda: "small-1a-3" not in cluster.nodes())
    log.info("applied_after_the_end_s: %.1f", time.monotonic() - ended)
    cluster.wait("the head is ready", lambda: cluster.status()["ready"] is True)
    assert cluster.state(jobs["other"]) == "RUNNING"
    assert set(cluster.nodes()) == {"small-1a-1", "small-1a-2"}
    assert cluster.exec("head", "ls", names.STATE_DIR).count("held-bundle") == 0


def test_changed_hardware_waits_and_now_applies_at_once(cluster: Changing, jobs: dict[str, int]) -> None:
    """slurmctld ends a job if the sockets or cores of its node change."""
    cluster.up(spec(2, spare=False, machine="g6e.12xlarge"))
    cluster.wait("the bundle is held", lambda: bool(cluster.shown()["held"]))
    shown = cluster.shown()
    assert "changes the hardware or address of small-1a-[1-2]" in str(shown["waits_for"])
    held = str(shown["held"])
    wrong = gpucluster("bundle", "apply", "0" * 64, "--now", "-c", NAME, check=False)
    assert (wrong.returncode, f"the head holds bundle {held[:12]}" in wrong.stderr) == (1, True)
    waits = gpucluster("bundle", "apply", held[:12], "-c", NAME, check=False)
    assert (waits.returncode, "--now does not wait" in waits.stderr) == (1, True)
    assert cluster.state(jobs["other"]) == "RUNNING"
    for _ in range(2):  # a repeated order is no fault
        gpucluster("bundle", "apply", held[:12], "--now", "-c", NAME)
    cluster.wait("it is applied", lambda: cluster.status()["applied"] == held)
    assert "RUNNING" not in cluster.state(jobs["other"])
    cluster.wait("no drain is left", lambda: not cluster.drained())
    assert "is applied" in gpucluster("bundle", "apply", held, "--now", "-c", NAME).stdout
    cluster.wait(
        "the order is used up",
        lambda: "bundle-release" not in cluster.exec("head", "ls", names.STATE_DIR),
    )
