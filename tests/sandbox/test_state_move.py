"""`head.state` is added to a living cluster with a running and a queued job: the state moves to the volume, and both go on."""

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
from validation import of_verdict, run_remedy, validated

from gpucluster.plan import names

pytestmark = [pytest.mark.sandbox, pytest.mark.in_order, pytest.mark.timeout(3000)]
NAME = "statemove"
UNTIL_TOLD = "until [ -e /run/go-$SLURM_JOB_ID ]; do sleep 0.2; done"
log = logging.getLogger(__name__)  # its figures: --log-cli-level=INFO
STATE_DIR = "/var/spool/slurmctld"
JOURNAL_DIR = names.JOURNAL.rpartition("/")[0]


def spec(head: str) -> str:
    return f"""
schema: 1
name: {NAME}
aws: {{region: us-east-1, network: {{cidr: 10.62.0.0/16, zones: [us-east-1a]}}}}
slurm: {{version: "24.11"}}
head: {{{head}}}
pools:
  - {{name: small, nodes: {{min: 0, max: 2}}, idle: 5m, capacity: [{{from: on-demand, machines: [g6e.2xlarge]}}]}}
partitions: [{{name: debug, pools: [small], default: true, max_time: 1h}}]
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "stacks").mkdir()
    for name in ("Pulumi.yaml", "__main__.py"):
        (folder / name).write_text((ROOT / name).read_text())
    (folder / "stacks" / f"{NAME}.yaml").write_text(spec("machine: m7i.large"))
    return folder


@pytest.fixture(scope="module")
def cluster(checkout: Path) -> Iterator[Cluster]:
    gpucluster("sandbox", "up", str(checkout / "stacks" / f"{NAME}.yaml"), timeout=1500)
    try:
        yield Cluster(NAME)
    finally:
        gpucluster("sandbox", "down", NAME)


def mounted(cluster: Cluster) -> bool:
    return all(
        cluster.exec("head", "findmnt", "-n", "-o", "SOURCE", "--mountpoint", path, check=False)
        for path in (STATE_DIR, JOURNAL_DIR)
    )


def journal(cluster: Cluster) -> int:
    """The number of events in the daemon's journal."""
    script = (
        "/opt/gpucluster/venv/bin/python",
        "-c",
        "from pathlib import Path; from gpucluster.elastic.journal import read_only; from gpucluster.plan import names; "
        "print(len(read_only(Path(names.JOURNAL))))",
    )
    return int(cluster.exec("head", *script))


def test_the_state_moves_under_a_running_and_a_queued_job(cluster: Cluster, checkout: Path) -> None:
    """An empty volume was mounted over the queue and the journal, under a slurmctld that went on writing below it."""
    running = cluster.sbatch("-N1", "--gres=gpu:1", script=UNTIL_TOLD)
    queued = cluster.sbatch("-N1", "--gres=gpu:1", "--hold", script="true")
    cluster.wait("it runs", lambda: cluster.state(running) == "RUNNING")
    began, events = cluster.job(running)["start_time"]["number"], journal(cluster)
    launched = {i["id"] for i in cluster.everything() if i["role"] == names.ROLE_NODE}
    head = [i["id"] for i in cluster.everything() if i["role"] == names.ROLE_HEAD]
    (checkout / "stacks" / f"{NAME}.yaml").write_text(spec("machine: m7i.large, state: 10GiB"))
    argv = [sys.executable, "-m", "gpucluster.cli", "sandbox", "shell", NAME, "--"]
    done = subprocess.run(
        [*argv, "pulumi", "up", "--yes", "--skip-preview"],
        cwd=checkout, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    since = time.monotonic()
    cluster.wait("the state is on the volume", lambda: mounted(cluster))
    cluster.wait("slurmctld answers", lambda: answers(cluster))
    log.info("moved_after_s: %.1f", time.monotonic() - since)
    cluster.wait("the head is ready", lambda: status(cluster)["ready"] is True)
    assert head == [i["id"] for i in cluster.everything() if i["role"] == names.ROLE_HEAD]
    now = cluster.job(running)
    assert (cluster.state(running), now["start_time"]["number"], now["restart_cnt"]) == ("RUNNING", began, 0)
    assert cluster.state(queued) == "PENDING"
    told = a_diff(spec("machine: m7i.large"), spec("machine: m7i.large, state: 10GiB")).effects
    assert told is not None, "what a reviewer reads is what is seen here"
    assert (told.running, told.queued) == ("go on", "stay in the queue")
    assert "Slurm's commands wait" in told.sessions
    assert journal(cluster) >= events
    marker = json.loads(cluster.exec("head", "cat", f"{names.STATE_MOUNT}/.gpucluster-state.json"))
    assert (marker["cluster"], marker["phase"]) == (NAME, "in-use")
    cluster.exec("head", "test", "-s", f"{STATE_DIR}.before-move/job_state")
    cluster.exec(now["batch_host"], "touch", f"/run/go-{running}")
    cluster.wait("it ends well", lambda: cluster.state(running) == "COMPLETED")
    cluster.exec("head", "scontrol", "release", str(queued))
    cluster.wait("the queued job runs", lambda: cluster.state(queued) == "COMPLETED")
    after = {i["id"] for i in cluster.everything() if i["role"] == names.ROLE_NODE}
    assert len(after - launched) <= 1, "a slot was launched twice"


def test_after_a_stop_and_a_start_the_volume_is_used_again(cluster: Cluster) -> None:
    job = cluster.sbatch("-N1", "--gres=gpu:1", "--hold", script="true")
    head = next(i["id"] for i in cluster.everything() if i["role"] == names.ROLE_HEAD)
    cluster.saved(job)
    cluster.ec2().stop_instances(InstanceIds=[head])
    cluster.wait("the head is off", lambda: state_of(cluster, head) == "stopped")
    cluster.ec2().start_instances(InstanceIds=[head])
    cluster.wait("the head is up", lambda: answers(cluster))
    assert mounted(cluster)
    assert cluster.state(job) == "PENDING"


def test_state_that_is_unmounted_is_found_and_bound_again_without_a_loss(cluster: Cluster) -> None:
    """Regression: slurmctld wrote to the root disk, and everything was healthy."""
    before = cluster.sbatch("-N1", "--gres=gpu:1", "--hold", script="true")
    cluster.saved(before)
    events = journal(cluster)
    cluster.exec("head", "umount", "--lazy", STATE_DIR, JOURNAL_DIR)
    meanwhile = cluster.sbatch("-N1", "--gres=gpu:1", "--hold", script="true")
    results = validated(cluster, "--tier", "0", "--only", "fs.mount", code=1)
    assert of_verdict(results, "fail") == {"fs.mount[head]"}
    assert f"{STATE_DIR} is not mounted" in results["fs.mount[head]"]["found"]
    run_remedy(cluster, results["fs.mount[head]"]["remedy"])
    cluster.wait("slurmctld answers", lambda: answers(cluster))
    assert mounted(cluster)
    assert {cluster.state(before), cluster.state(meanwhile)} == {"PENDING"}
    assert journal(cluster) >= events
    assert not of_verdict(validated(cluster, "--tier", "0", "--only", "fs.mount"), "fail", "unknown")
    cluster.exec("head", "scontrol", "release", str(meanwhile))
    cluster.wait("its script was kept, too", lambda: cluster.state(meanwhile) == "COMPLETED")


def state_of(cluster: Cluster, instance: str) -> str:
    return next(i["state"] for i in cluster.everything() if i["id"] == instance)


def answers(cluster: Cluster) -> bool:
    try:
        return "is UP" in cluster.exec("head", "scontrol", "ping", check=False)
    except Exception:  # noqa: BLE001 -- the machine is gone for a moment
        return False


def status(cluster: Cluster) -> dict[str, object]:
    s3 = cluster.client("s3")
    bucket = next(b["Name"] for b in s3.list_buckets()["Buckets"] if b["Name"].startswith(f"{NAME}-"))
    return json.loads(s3.get_object(Bucket=bucket, Key=names.STATUS_KEY)["Body"].read())
