"""Two heads with one EFS: the first stops, the second takes over queue and daemon, and later returns them.

The order matters: each test continues where the one before it ended.
"""

import itertools
import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from cluster import Cluster, gpucluster
from validation import of_verdict, only_these_fail, paused, run_remedy, validated

from gpucluster.plan import names
from gpucluster.sandbox import paths

pytestmark = [pytest.mark.sandbox, pytest.mark.in_order, pytest.mark.timeout(3000)]
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
log = logging.getLogger(__name__)  # --log-cli-level=INFO shows the measured times
UNTIL_FILE = "until [ -e /run/go ]; do sleep 0.2; done"


class Heads(Cluster):
    """Both heads. `head` is the one that acts."""

    acts = "head"

    def exec(self, machine: str, *argv: str, **how: Any) -> str:
        near = ("env", f"SLURM_CONF={names.STANDBY_CONF}") if self.acts == "standby" else ()
        return super().exec(self.acts, *near, *argv, **how) if machine == "head" else self.on(machine, *argv)

    def on(self, machine: str, *argv: str) -> str:
        """Run the command on exactly this machine."""
        return super().exec(machine, *argv, check=False)

    def takeovers(self) -> int:
        """How often slurmctld of the standby began to act."""
        return self.on("standby", "cat", LOG).count("Running as primary")

    def daemon_log(self, machine: str) -> str:
        return self.on(machine, "journalctl", "-b", "-u", "gpucluster-elastic", "-o", "cat", "--no-pager")

    def lease(self) -> tuple[str, int, int]:
        """The lease in the control object: the holder's machine, epoch, beat."""
        return lease(self._bucket.get_object(**self._control)["Body"].read())

    def leases(self) -> list[tuple[str, int, int]]:
        """All versions of the lease in the bucket, oldest first."""
        pages = self._bucket.get_paginator("list_object_versions").paginate(
            Bucket=self._control["Bucket"], Prefix=self._control["Key"]
        )
        ids = [v["VersionId"] for page in pages for v in page["Versions"]]
        bodies = (self._bucket.get_object(**self._control, VersionId=i)["Body"].read() for i in ids)
        return [lease(body) for body in bodies][::-1]

    def find_control_object(self) -> None:
        self._bucket = self.client("s3")
        bindings = json.loads(self.exec("head", "cat", f"{names.BUNDLE_DIR}/bindings.json"))
        self._control = {"Bucket": bindings["bucket"], "Key": names.CONTROL_KEY}

    def submit(self, script: str, *options: str) -> int:
        return self.sbatch("-N1", "--gres=gpu:1", *options, script=script)

    def instance(self) -> str:
        """The instance of the first head."""
        return next(i["id"] for i in self.everything() if i["role"] == names.ROLE_HEAD)

    def launched(self) -> list[str]:
        return [i["id"] for i in self.everything() if i["role"] == names.ROLE_NODE]

    def both_are_up(self) -> bool:
        output = self.exec("head", "scontrol", "ping")
        return f"(primary) at {FIRST} is UP" in output and f"(backup) at {SECOND} is UP" in output


def lease(body: bytes) -> tuple[str, int, int]:
    control = json.loads(body)
    return control["holder"].partition("/")[0], control["epoch"], control["beat"]


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Heads]:
    spec = tmp_path_factory.mktemp("stack") / f"{NAME}.yaml"
    spec.write_text(SPEC)
    gpucluster("sandbox", "up", str(spec), timeout=1500)
    try:
        made = Heads(NAME)
        made.find_control_object()
        yield made
    finally:
        gpucluster("sandbox", "down", NAME)
        assert not (paths.STATE_ROOT / NAME).exists()


@pytest.fixture(scope="module")
def jobs(heads: Heads) -> dict[str, int]:
    """A job that runs until a file exists, and a held job. Both are submitted before the first head stops.

    The daemon makes slurmctld save the start of a job. The other head would start an unsaved job again.
    """
    heads.wait("both heads are up", heads.both_are_up)
    held, runs = heads.submit("true", "--hold"), heads.submit(UNTIL_FILE)
    heads.wait("the job runs", lambda: heads.state(runs) == "RUNNING")
    line = f"have slurmctld save the start of job {runs}"
    heads.wait("the daemon requests a save", lambda: line in heads.daemon_log("head"))
    where = heads.job(runs)["batch_host"]
    heads.wait("slurmctld has saved the job's nodes", lambda: heads.has_saved(where))
    return {"runs": runs, "held": held}


def test_daemon_of_the_first_head_acts_and_the_other_waits(heads, jobs):
    assert heads.lease()[:2] == (FIRST, 1)
    heads.wait("the second waits", lambda: f"standby: {FIRST}/" in heads.daemon_log("standby"))
    assert "ready: " not in heads.daemon_log("standby")
    assert heads.on("standby", "scontrol", "ping") == heads.on("head", "scontrol", "ping")
    files = heads.on("head", "ls", str(names.JOURNAL.rpartition("/")[0]))
    assert "-wal" not in files, "machines cannot share the index of a WAL over NFS"


def test_validate_finds_no_fault_on_two_healthy_heads(heads, jobs):
    results = validated(heads, "--tier", "0", code=0)
    assert of_verdict(results, "pass") == results.keys()
    of_second = {ident.partition("[")[0] for ident in results if ident.endswith(f"[{SECOND}]")}
    assert of_second >= {"svc.active", "auth.rt", "cfg.same", "files.modes", "fs.mount"}


FAULTS_OF_SECOND = (  # commands on the second head, the check that finds it, a part of what it says
    ("systemctl stop munge", "svc.active", "munge inactive"),
    ("chmod 0644 /etc/munge/munge.key", "files.modes", "/etc/munge/munge.key is 0644 of munge"),
    ("echo '# by hand' >>/etc/slurm/slurm.conf", "cfg.same", "/etc/slurm/slurm.conf is another"),
)


def test_faults_of_the_second_head_are_found_and_their_remedies_heal(heads, jobs):
    """The agent is paused, because it would repair some of it."""
    with paused(heads, "gpucluster-agent", "standby"):
        for do, check, found in FAULTS_OF_SECOND:
            heads.on("standby", "sh", "-ec", do)
            results = validated(heads, "--tier", "0", code=1)
            only_these_fail(results, {f"{check}[{SECOND}]"})
            assert found in results[f"{check}[{SECOND}]"]["found"]
            run_remedy(heads, results[f"{check}[{SECOND}]"]["remedy"])
    heads.wait(
        "all checks pass again",
        lambda: not of_verdict(validated(heads, "--tier", "0"), "fail", "unknown"),
        poll=1,
    )


def test_second_head_takes_queue_job_and_lease_of_a_stopped_head(heads, jobs):
    began, before = heads.job(jobs["runs"])["start_time"]["number"], heads.takeovers()
    heads.ec2().stop_instances(InstanceIds=[heads.instance()])
    stopped, heads.acts = time.monotonic(), "standby"
    heads.wait("the second holds the lease", lambda: heads.lease()[0] != FIRST, poll=0.1)
    log.info("daemon_takes_s: %.1f", time.monotonic() - stopped)
    assert heads.lease()[:2] == (SECOND, 2)
    heads.wait("its slurmctld acts", lambda: heads.takeovers() > before)
    log.info("slurmctld_takes_s: %.1f", time.monotonic() - stopped)
    assert (heads.state(jobs["runs"]), heads.state(jobs["held"])) == ("RUNNING", "PENDING")
    now = heads.job(jobs["runs"])
    assert (now["start_time"]["number"], now["restart_cnt"]) == (began, 0)
    ping = heads.on("standby", "scontrol", "ping")
    assert f"(primary) at {FIRST} is DOWN" in ping
    assert f"(backup) at {SECOND} is UP" in ping


def test_second_head_launches_a_burst(heads, jobs):
    before, began = heads.launched(), time.monotonic()
    job = heads.submit("sleep 1")
    heads.wait("the job is done", lambda: heads.state(job) == "COMPLETED")
    log.info("burst_without_the_first_s: %.1f", time.monotonic() - began)
    assert len(heads.launched()) == len(before) + 1
    assert "launch r" in heads.daemon_log("standby")
    assert heads.state(jobs["runs"]) == "RUNNING"


def test_first_head_waits_after_its_start_and_takes_everything_back(heads, jobs):
    new = heads.submit("true", "--hold")  # just before the hand-over, which must not lose it
    heads.ec2().start_instances(InstanceIds=[heads.instance()])
    began = time.monotonic()
    heads.wait("the first holds the lease", lambda: heads.lease()[0] == FIRST)
    log.info("daemon_is_back_s: %.1f", time.monotonic() - began)
    heads.acts = "head"
    heads.wait("both heads are up", heads.both_are_up)
    leases = heads.leases()
    taken = [lease[:2] for lease in leases].index((FIRST, 3))
    assert leases[taken - 1][0] == "", "the second had released the lease before the first took it"
    assert "Old state possible" not in heads.on("standby", "cat", LOG)
    assert heads.state(jobs["runs"]) == "RUNNING"
    assert heads.state(new) == "PENDING"
    host = heads.job(jobs["runs"])["batch_host"]
    heads.on(host, "touch", "/run/go")
    heads.exec("head", "scontrol", "release", f"{jobs['held']},{new}")
    for job in (jobs["runs"], jobs["held"], new):
        heads.wait(f"{job} is done", lambda job=job: heads.state(job) == "COMPLETED")
    heads.power_down()
    heads.wait("every node is gone", heads.all_gone)


def test_heads_never_acted_together_and_no_slot_had_two_instances(heads, jobs):
    leases = heads.leases()
    assert len(leases) > 20
    turns = [key for key, _ in itertools.groupby(lease[:2] for lease in leases)]
    assert [turn for turn in turns if turn[0]] == [(FIRST, 1), (SECOND, 2), (FIRST, 3)]
    epochs = [epoch for _, epoch, _ in leases]
    assert epochs == sorted(epochs)
    fence, events = json.loads(heads.exec("head", "python3", "-c", READ, names.JOURNAL))
    assert fence == 3
    incarnations = list(recorded_incarnations(events))
    assert sorted(i for _, i in incarnations if i) == sorted(heads.launched())
    living: set[str] = set()
    for slot, instance in incarnations:
        assert not (instance and slot in living), f"{slot} has two: {incarnations}"
        (living.add if instance else living.discard)(slot)
    assert not living


READ = """
import json, sqlite3, sys
db = sqlite3.connect("file:" + sys.argv[1] + "?mode=ro", uri=True)
events = [(kind, json.loads(body)) for kind, body in db.execute("SELECT kind, body FROM events ORDER BY id")]
print(json.dumps([db.execute("SELECT epoch FROM fence").fetchone()[0], events]))
"""


def recorded_incarnations(events: list[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, str]]:
    """(slot, instance) of each launch and (slot, "") of each end, in order. Each request of this test has one slot."""
    slots: dict[str, str] = {}
    for kind, body in events:
        if kind == "LaunchRequested":
            (slots[body["request"]["id"]],) = body["request"]["slots"]
        elif kind == "LaunchDone":
            yield from ((slots[body["request"]], instance) for instance in body["instances"])
        elif kind == "IncarnationOver":
            yield body["slot"], ""


def test_down_deletes_everything(heads):
    gpucluster("down", NAME, "--sandbox", "--delete-data", "--confirm", NAME)
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
