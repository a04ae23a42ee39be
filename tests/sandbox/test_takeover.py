"""Two heads on one EFS: the first loses its power, the second takes over all of it, and gives it back.

In this order: each test goes on where the one before it ended.
"""

import itertools
import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from cluster import Cluster, gpucluster

from gpucluster.plan import names
from gpucluster.sandbox import places

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(300)]
NAME = "takeover"
SPEC = f"""
schema: 1
name: {NAME}
aws: {{region: us-east-1, network: {{cidr: 10.60.0.0/16, zones: [us-east-1a, us-east-1b]}}}}
slurm: {{version: "24.11"}}
head: {{machine: m7i.large, standby: {{machine: m7i.large, zone: us-east-1b, state: /state}}}}
storage: [{{mount: /state, efs: {{}}}}]
pools:
  - {{name: small, nodes: {{min: 0, max: 2}}, idle: 5m, capacity: [{{from: on-demand, machines: [g6e.2xlarge]}}]}}
partitions: [{{name: debug, pools: [small], default: true, max_time: 1h}}]
"""
FIRST, SECOND = f"{NAME}-head", f"{NAME}-standby"
LOG = "/var/log/slurm/slurmctld.log"
log = logging.getLogger(__name__)  # its figures: --log-cli-level=INFO
SAVE_S = 7.0  # slurmctld waits up to 5 s between two saves (SAVE_MAX_WAIT, 24.11); its file's time is of the second
UNTIL_TOLD = "until [ -e /tmp/go ]; do sleep 0.2; done"


class Heads(Cluster):
    """Both heads; who says `head` means the one that acts."""

    acts = "head"

    def exec(self, machine: str, *argv: str, **how: Any) -> str:
        near = ("env", f"SLURM_CONF={names.NEAR_CONF}") if self.acts == "standby" else ()
        return super().exec(self.acts, *near, *argv, **how) if machine == "head" else self.on(machine, *argv)

    def on(self, machine: str, *argv: str) -> str:
        """Of this very one."""
        return super().exec(machine, *argv, check=False)

    def daemon_says(self, machine: str) -> str:
        return self.on(machine, "journalctl", "-b", "-u", "gpucluster-elastic", "-o", "cat", "--no-pager")

    def lease(self) -> tuple[str, int, int]:
        """Whose it is by the control object: machine, epoch, beat."""
        return lease(self._bucket.get_object(**self._control)["Body"].read())

    def leases(self) -> list[tuple[str, int, int]]:
        """All that ever stood in the control object, oldest first: the bucket keeps its versions."""
        pages = self._bucket.get_paginator("list_object_versions").paginate(
            Bucket=self._control["Bucket"], Prefix=self._control["Key"]
        )
        ids = [v["VersionId"] for page in pages for v in page["Versions"]]
        bodies = (self._bucket.get_object(**self._control, VersionId=i)["Body"].read() for i in ids)
        return [lease(body) for body in bodies][::-1]

    def know_the_bucket(self) -> None:
        self._bucket = self.client("s3")
        bindings = json.loads(self.exec("head", "cat", f"{names.BUNDLE_DIR}/bindings.json"))
        self._control = {"Bucket": bindings["bucket"], "Key": names.CONTROL_KEY}

    def submit(self, script: str, *options: str) -> int:
        return self.sbatch("-N1", "--gres=gpu:1", *options, script=script)

    def instance(self) -> str:
        """The first head's."""
        return next(i["id"] for i in self.everything() if i["role"] == names.ROLE_HEAD)

    def launched(self) -> list[str]:
        return [i["id"] for i in self.everything() if i["role"] == names.ROLE_NODE]

    def both_are_up(self) -> bool:
        said = self.exec("head", "scontrol", "ping")
        return f"(primary) at {FIRST} is UP" in said and f"(backup) at {SECOND} is UP" in said


def lease(body: bytes) -> tuple[str, int, int]:
    told = json.loads(body)
    return told["holder"].partition("/")[0], told["epoch"], told["beat"]


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Heads]:
    spec = tmp_path_factory.mktemp("stack") / f"{NAME}.yaml"
    spec.write_text(SPEC)
    gpucluster("sandbox", "up", str(spec), timeout=1500)
    try:
        made = Heads(NAME)
        made.know_the_bucket()
        yield made
    finally:
        gpucluster("sandbox", "down", NAME)
        assert not (places.STATE_ROOT / NAME).exists()


@pytest.fixture(scope="module")
def jobs(heads: Heads) -> dict[str, int]:
    """One that runs until it is told to end, and one that its user holds, both from before the power went.

    The daemon has slurmctld save the start: what is not saved the other head starts again (`decide/saves.py`).
    """
    heads.wait("both heads are up", heads.both_are_up)
    held, runs = heads.submit("true", "--hold"), heads.submit(UNTIL_TOLD)
    heads.wait("the job runs", lambda: heads.state(runs) == "RUNNING")
    asked = f"have slurmctld save the start of job {runs}"
    heads.wait("it is to be saved", lambda: asked in heads.daemon_says("head"), within=30)
    told = time.monotonic()
    heads.wait("it is saved", lambda: time.monotonic() - told > SAVE_S)
    return {"runs": runs, "held": held}


def test_both_heads_are_up_and_the_daemon_of_the_first_acts(heads, jobs):
    assert heads.lease()[:2] == (FIRST, 1)
    heads.wait("the second waits", lambda: f"standby: {FIRST}/" in heads.daemon_says("standby"))
    assert "ready: " not in heads.daemon_says("standby")
    assert heads.on("standby", "scontrol", "ping") == heads.on("head", "scontrol", "ping")
    beside = heads.on("head", "ls", str(names.JOURNAL.rpartition("/")[0]))
    assert "-wal" not in beside, "over NFS a WAL's index is of one machine only"


def test_the_first_loses_its_power_and_the_second_takes_queue_job_and_lease(heads, jobs):
    began = heads.job(jobs["runs"])["start_time"]["number"]
    heads.ec2().stop_instances(InstanceIds=[heads.instance()])
    gone, heads.acts = time.monotonic(), "standby"
    heads.wait("the second holds it", lambda: heads.lease()[0] != FIRST, within=60, poll=0.1)
    log.info("daemon_takes_s: %.1f", time.monotonic() - gone)
    assert heads.lease()[:2] == (SECOND, 2)
    heads.wait(
        "its slurmctld acts", lambda: "Running as primary" in heads.on("standby", "tail", "-n", "40", LOG)
    )
    log.info("slurmctld_takes_s: %.1f", time.monotonic() - gone)
    assert (heads.state(jobs["runs"]), heads.state(jobs["held"])) == ("RUNNING", "PENDING")
    now = heads.job(jobs["runs"])
    assert (now["start_time"]["number"], now["restart_cnt"]) == (began, 0)
    ping = heads.on("standby", "scontrol", "ping")
    assert f"(primary) at {FIRST} is DOWN" in ping
    assert f"(backup) at {SECOND} is UP" in ping


def test_a_new_burst_is_launched_by_the_second(heads, jobs):
    before, began = heads.launched(), time.monotonic()
    job = heads.submit("sleep 1")
    heads.wait("it is done", lambda: heads.state(job) == "COMPLETED", within=120)
    log.info("burst_without_the_first_s: %.1f", time.monotonic() - began)
    assert len(heads.launched()) == len(before) + 1
    assert "launch r" in heads.daemon_says("standby")
    assert heads.state(jobs["runs"]) == "RUNNING"


def test_the_first_comes_back_waits_and_is_given_all_of_it_again(heads, jobs):
    new = heads.submit("true", "--hold")  # a moment before: a hand-over must not lose it
    heads.ec2().start_instances(InstanceIds=[heads.instance()])
    began = time.monotonic()
    heads.wait("the first holds it", lambda: heads.lease()[0] == FIRST, within=120)
    log.info("daemon_is_back_s: %.1f", time.monotonic() - began)
    heads.acts = "head"
    heads.wait("both heads are up", heads.both_are_up)
    said = heads.daemon_says("head")
    assert f"standby: {SECOND}/" in said.partition("ready: ")[0], "it did not wait"
    assert "Old state possible" not in heads.on("standby", "cat", LOG)
    assert heads.state(jobs["runs"]) == "RUNNING"
    assert heads.state(new) == "PENDING"
    host = heads.job(jobs["runs"])["batch_host"]
    heads.on(host, "touch", "/tmp/go")
    heads.exec("head", "scontrol", "release", f"{jobs['held']},{new}")
    for job in (jobs["runs"], jobs["held"], new):
        heads.wait(f"{job} is done", lambda job=job: heads.state(job) == "COMPLETED", within=120)
    heads.power_down()
    heads.wait("every node is gone", heads.all_gone, within=120)


def test_never_did_two_act_and_no_slot_had_two_instances(heads, jobs):
    stood = heads.leases()
    assert len(stood) > 20
    turns = [key for key, _ in itertools.groupby(lease[:2] for lease in stood)]
    assert [turn for turn in turns if turn[0]] == [(FIRST, 1), (SECOND, 2), (FIRST, 3)]
    epochs = [epoch for _, epoch, _ in stood]
    assert epochs == sorted(epochs)
    fence, events = json.loads(heads.exec("head", "python3", "-c", READ, names.JOURNAL))
    assert fence == 3
    lives = list(told_lives(events))
    assert sorted(i for _, i in lives if i) == sorted(heads.launched()), (
        "one is not in the journal, or is lost"
    )
    living: set[str] = set()
    for slot, instance in lives:
        assert not (instance and slot in living), f"{slot} has two: {lives}"
        (living.add if instance else living.discard)(slot)
    assert not living


READ = """
import json, sqlite3, sys
db = sqlite3.connect("file:" + sys.argv[1] + "?mode=ro", uri=True)
events = [(kind, json.loads(body)) for kind, body in db.execute("SELECT kind, body FROM events ORDER BY id")]
print(json.dumps([db.execute("SELECT epoch FROM fence").fetchone()[0], events]))
"""


def told_lives(events: list[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, str]]:
    """(slot, instance) of each launch, (slot, "") of each end, in order; each request here is of one slot."""
    slots: dict[str, str] = {}
    for kind, body in events:
        if kind == "LaunchAsked":
            (slots[body["ask"]["request"]],) = body["ask"]["slots"]
        elif kind == "LaunchDone":
            yield from ((slots[body["request"]], instance) for instance in body["instances"])
        elif kind == "LifeOver":
            yield body["slot"], ""


def test_down_leaves_nothing(heads):
    gpucluster("down", NAME, "--delete-data", "--confirm", NAME)
    assert {i["state"] for i in heads.everything()} == {"terminated"}
    ours = [{"Name": "tag:gpucluster:cluster", "Values": [NAME]}]
    ec2 = heads.ec2()
    for found in (
        ec2.describe_vpcs,
        ec2.describe_subnets,
        ec2.describe_security_groups,
        ec2.describe_volumes,
    ):
        answer = found(Filters=ours)
        assert [v for k, v in answer.items() if k != "ResponseMetadata" and v] == []
    assert heads.client("efs").describe_file_systems()["FileSystems"] == []
    assert heads.client("s3").list_buckets()["Buckets"] == []
