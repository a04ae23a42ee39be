"""Each row of the table of lost dependencies (decision 0003) made to happen on one living cluster.

A row takes a dependency away while a job runs on a spot instance and another job needs a launch, sends a spot notice, and
gives the dependency back. It checks what stopped, what went on, and what `status`, `why`, `pool list` and the dry run say.
The head's role is denied a call by IAM, as an organisation's policy does; nothing else of the cluster is changed.

The order matters: the last test deletes the queue.
"""

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from cluster import UNTIL_LET_GO, USER, Cluster, gpucluster
from fault_runs import AGENT, SHORT, TOLD, Stage

from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import Scaling
from gpucluster.elastic.abilities import (
    LOSSES,
    NO_QUEUE,
    ORDERS_LOST,
    SET_CLOCK,
    Ability,
    Dependency,
)
from gpucluster.plan import names

pytestmark = [pytest.mark.sandbox, pytest.mark.in_order, pytest.mark.timeout(3000)]
NOTICE_S = 20.0  # the jobs of a notice so short are requeued after half of it
LONGER_S = 1200.0  # longer than any stop of slurmctld here, also on a busy machine
CHANGES = ("RunInstances", "CreateFleet", "TerminateInstances")
DENIED = "a-test-denies"  # the policy of the head's role


@dataclass
class Head:
    """The cluster, with what the head's role may do and what its programs say."""

    cluster: Cluster

    @property
    def bindings(self) -> dict[str, Any]:
        return json.loads(self.cluster.exec("head", "cat", f"{names.BUNDLE_DIR}/{names.BINDINGS_FILE}"))

    @property
    def object(self) -> S3Control:
        """The control object, with the operator's key."""
        where = self.bindings
        return S3Control(where["region"], where["bucket"], lambda: self.cluster.client("s3"))

    @property
    def role(self) -> str:
        roles = [one["RoleName"] for one in self.cluster.client("iam").list_roles()["Roles"]]
        (role,) = (one for one in roles if one.startswith(f"{self.cluster.name}-head"))
        return role

    @contextmanager
    def without(self, action: str, resource: str = "*") -> Iterator[None]:
        """Deny the head's role the action."""
        iam, role = self.cluster.client("iam"), self.role
        deny = {"Effect": "Deny", "Action": action, "Resource": resource}
        text = json.dumps({"Version": "2012-10-17", "Statement": [deny]})
        iam.put_role_policy(RoleName=role, PolicyName=DENIED, PolicyDocument=text)
        try:
            yield
        finally:
            iam.delete_role_policy(RoleName=role, PolicyName=DENIED)

    def without_the_object(self) -> AbstractContextManager[None]:
        """Deny the head's role the control object."""
        return self.without("s3:*", f"arn:aws:s3:::{self.bindings['bucket']}/{names.CONTROL_KEY}")

    @contextmanager
    def with_its_clock_ahead(self, seconds: float) -> Iterator[None]:
        """Let the API take the head's clock for one that is ahead. The head's own programs keep the right time."""
        control = self.cluster.control()
        control.switch(clocks={self.role: seconds})
        try:
            yield
        finally:
            control.switch(clocks={})

    def changes(self) -> list[str]:
        """The launches and terminations of the head that EC2 was asked for, the oldest first."""
        trail = self.cluster.control().trail()
        return [one["action"] for one in trail if one["action"] in CHANGES and "head" in one["detail"]]

    def says(self, *argv: str) -> str:
        done = gpucluster(*argv, check=False)
        return done.stdout + done.stderr

    def status(self) -> str:
        return self.says("status", self.cluster.name)

    def why(self, subject: int | str) -> str:
        return self.says("why", str(subject), "-c", self.cluster.name)

    def pools(self) -> str:
        return self.says("pool", "list", "-c", self.cluster.name)

    def dry_run(self) -> str:
        return self.says("reconcile", "--dry-run", "-c", self.cluster.name)

    def knows(self) -> Mapping[str, Any]:
        """What the daemon publishes of itself."""
        url = f"http://127.0.0.1:{names.METRICS_PORT}/status"
        text = self.cluster.exec("head", "curl", "-s", url, check=False)
        return json.loads(
            text or '{"lost": {}, "reports": {}}'
        )  # a daemon that has just started has no endpoint yet


@pytest.fixture
def head(shared_cluster: Cluster) -> Iterator[Head]:
    """After a row that failed, no job of it disturbs the next one."""
    yield Head(shared_cluster)
    shared_cluster.exec("head", "scancel", "--user", USER)


@dataclass
class Evacuation:
    """A job with a handler on a spot instance, and a job that comes later and needs a launch."""

    head: Head
    stage: Stage
    runs: int
    slot: str
    instance: str
    waits: int = 0

    @classmethod
    def begin(cls, head: Head) -> "Evacuation":
        stage = Stage(head.cluster)
        runs = stage.submit(1, TOLD)
        stage.until_it_listens(runs)
        head.cluster.saved(runs)
        slot = str(head.cluster.job(runs)["batch_host"])
        instance = next(one["id"] for one in head.cluster.instances() if one["node"] == slot)
        return cls(head, stage, runs, slot, instance)

    def notice(self, after_s: float = NOTICE_S, *silent: str) -> None:
        self.stage.notice(self.instance, after_s, silent)

    def submit_another(self) -> None:
        """Submit a job for a node that is off: an idle one would need no launch."""
        off = [name for name, node in self.head.cluster.nodes().items() if "POWERED_DOWN" in node["state"]]
        self.waits = self.stage.submit(1, SHORT, "-w", off[-1])
        self.stage.wait("Slurm gives it a node", lambda: self.head.cluster.state(self.waits) != "PENDING")

    def until_requeued(self, slot: str) -> None:
        """Wait until the node is drained, the script had its signal and the job was requeued."""
        cluster = self.head.cluster
        self.stage.wait("the node is drained", lambda: "DRAIN" in cluster.nodes()[slot]["state"])
        self.stage.wait("the script is told", lambda: self.stage.was_told(self.runs))
        self.stage.wait("the job is requeued", lambda: cluster.job(self.runs)["restart_cnt"] > 0)

    def end(self) -> None:
        """Wait until the jobs have run. The daemon requeued the first one exactly once."""
        cluster = self.head.cluster
        jobs = [job for job in (self.runs, self.waits) if job]
        self.stage.wait("the jobs complete", lambda: all(cluster.state(job) == "COMPLETED" for job in jobs))
        assert cluster.timeline(self.runs).count("requeued") == 1
        assert self.stage.was_told(self.runs)


def tells(said: str, dependency: Dependency, error: str, denied: frozenset[Ability] | None = None) -> bool:
    """Whether a command names the loss with its error, and what stops and what goes on by its row."""
    row = LOSSES[dependency]
    still = row.still(row.denied if denied is None else denied)
    return all(words in said for words in (str(dependency), error, row.stops, still))


def launches(changes: list[str]) -> list[str]:
    return [one for one in changes if one != "TerminateInstances"]


def test_without_ec2_a_notice_drains_signals_and_requeues(head: Head) -> None:
    one = Evacuation.begin(head)
    slot, error = one.slot, "UnauthorizedOperation"
    with head.without("ec2:DescribeInstances"):
        head.cluster.wait("the daemon has lost EC2", lambda: Dependency.EC2 in head.knows()["lost"])
        before = head.changes()
        one.submit_another()
        one.notice()
        one.until_requeued(slot)
        status, why = head.status(), head.why(one.waits)
        assert tells(status, Dependency.EC2, error), status
        assert f"{slot}: gpucluster: [evacuation]" in status, status
        assert re.search(r"h200: [1-9] of 16 up", status), status
        assert tells(why, Dependency.EC2, error), why
        assert why.startswith(f"job {one.waits} "), why
        assert tells(head.why(slot), Dependency.EC2, error)
        dry_run = head.dry_run()
        assert tells(dry_run, Dependency.EC2, error), dry_run
        assert "launch" not in dry_run.replace(LOSSES[Dependency.EC2].stops, ""), dry_run
        pools = head.pools()
        assert tells(pools, Dependency.EC2, error), pools
        assert "h200: at most 16 nodes; " in pools, pools
        assert head.changes() == before
    one.end()


def test_without_the_control_object_a_notice_drains_signals_and_requeues(head: Head) -> None:
    one = Evacuation.begin(head)
    slot, error = one.slot, "AccessDenied"
    with head.without_the_object():
        head.cluster.wait("its lease is over", lambda: Dependency.CONTROL in head.knows()["lost"])
        before = head.changes()
        one.submit_another()
        one.notice()
        one.until_requeued(slot)
        status, why = head.status(), head.why(one.waits)
        assert tells(status, Dependency.CONTROL, error), status
        assert tells(why, Dependency.CONTROL, error), why
        assert "drains and terminates nothing" not in why, why
        dry_run = head.dry_run()
        assert "does none of this" not in dry_run, dry_run
        assert tells(dry_run, Dependency.CONTROL, error), dry_run
        pools = head.pools()
        assert tells(pools, Dependency.CONTROL, error), pools
        assert head.changes() == before
    one.end()
    assert Dependency.CONTROL not in head.knows()["lost"]


def test_with_a_wrong_clock_a_notice_drains_signals_and_requeues(head: Head) -> None:
    """AWS refuses each call. EC2 does not say why; S3 does, so `status` has the command that helps."""
    one = Evacuation.begin(head)
    slot, errors = one.slot, {Dependency.EC2: "AuthFailure", Dependency.CONTROL: "RequestTimeTooSkewed"}
    denied = frozenset(ability for lost in errors for ability in LOSSES[lost].denied)
    with head.with_its_clock_ahead(600):
        head.cluster.wait("its lease is over", lambda: errors.keys() <= head.knows()["lost"].keys())
        before = head.changes()
        one.submit_another()
        one.notice()
        one.until_requeued(slot)
        for said in (head.status(), head.why(one.waits), head.why(slot), head.dry_run(), head.pools()):
            for lost, error in errors.items():
                assert tells(said, lost, error, denied), said
            assert SET_CLOCK in said, said
        assert head.changes() == before
    one.end()


def test_without_the_control_object_a_powered_down_node_ends_itself(head: Head) -> None:
    """It stayed paid without a bound. Nobody may terminate it, so it powers itself off.

    The test powers it down, as the daemon does after the pool's idle time: tests/unit/elastic/test_lost_dependencies.py.
    """
    stage, cluster = Stage(head.cluster), head.cluster
    job = stage.submit(1)
    stage.wait("the job is done", lambda: cluster.state(job) == "COMPLETED")
    slot = str(cluster.job(job)["batch_host"])
    instance = next(one["id"] for one in cluster.instances() if one["node"] == slot)
    with head.without_the_object():
        cluster.wait("its lease is over", lambda: Dependency.CONTROL in head.knows()["lost"])
        before = head.changes()  # until now the daemon may have ended other machines
        cluster.power_down()
        cluster.wait(
            "its machine has ended", lambda: instance not in {one["id"] for one in cluster.instances()}
        )
        assert head.changes() == before
    cluster.wait("the daemon acts again", lambda: Dependency.CONTROL not in head.knows()["lost"])


def test_damaged_control_object_is_replaced_and_a_stop_stays(head: Head) -> None:
    one = Evacuation.begin(head)
    slot, where = one.slot, head.bindings
    head.object.scale(Scaling.STOP, "a test")
    try:
        before = head.object.read()
        s3, garbage = head.cluster.client("s3"), b"\x00 damaged"
        s3.put_object(Bucket=where["bucket"], Key=names.CONTROL_KEY, Body=garbage)
        calls = head.changes()
        one.submit_another()
        one.notice()
        one.until_requeued(slot)
        head.cluster.wait("the object is written anew", lambda: not head.object.stamped().malformed)
        after = head.object.read()
        assert (after.holder, after.epoch, after.scaling, after.by) == (
            before.holder,
            before.epoch,
            Scaling.STOP,
            "a test",
        )
        said = "launches are stopped, by a test"
        head.cluster.wait("`status` shows the stop", lambda: said in head.status(), poll=1)
        for shown in (head.why(one.waits), head.pools()):
            assert said in shown, shown
        assert launches(head.changes()) == launches(calls)
    finally:
        head.object.scale(Scaling.RUN, "a test")
    one.end()


def test_without_journal_and_copy_nothing_is_launched_until_a_person_confirms(head: Head) -> None:
    stage, cluster = Stage(head.cluster), head.cluster
    runs = stage.submit(1, UNTIL_LET_GO)
    stage.until_script(runs)
    before = head.changes()
    with stage.without_daemon():
        stage.head("sh", "-c", f"rm {names.JOURNAL}*")
        cluster.client("s3").delete_object(Bucket=head.bindings["bucket"], Key=names.ORDERS_KEY)
    waits = stage.submit(1)
    cluster.wait("`status` shows the loss", lambda: ORDERS_LOST in head.status(), poll=1)
    stage.wait("Slurm gives the job a node", lambda: cluster.state(waits) != "PENDING")
    remedy = LOSSES[Dependency.JOURNAL].remedy("", cluster.name)
    for said in (head.status(), head.why(waits), head.dry_run()):
        assert tells(said, Dependency.JOURNAL, "there is no copy"), said
        assert remedy in said, said
    assert ORDERS_LOST in head.pools()
    assert launches(head.changes()) == launches(before)
    gpucluster(*remedy.split()[1:])
    stage.wait("the job runs", lambda: cluster.state(waits) == "COMPLETED")
    assert (cluster.state(runs), cluster.job(runs)["restart_cnt"]) == ("RUNNING", 0)
    assert ORDERS_LOST not in head.status()
    cluster.let_go(runs)
    stage.wait("the first job ends", lambda: cluster.state(runs) == "COMPLETED")


def test_without_slurmctld_nothing_is_done_and_the_notice_is_handled_after_its_return(head: Head) -> None:
    one = Evacuation.begin(head)
    slot, before, silent = one.slot, head.changes(), "slurmctld does not answer"
    instance = one.instance
    one.stage.head("systemctl", "stop", AGENT)  # it would start slurmctld again
    one.stage.head("systemctl", "stop", "slurmctld")
    try:
        one.notice(LONGER_S, "queue")  # its message has no end, and counts as one of two minutes
        head.cluster.wait(
            "the daemon knows of the notice", lambda: bool(notices(head.knows(), instance)), poll=0.3
        )
        looks = (head.status, partial(head.why, one.runs), partial(head.why, slot), head.pools, head.dry_run)
        with ThreadPoolExecutor(len(looks)) as beside:  # each waits until its scontrol gives up
            for said in beside.map(lambda look: look(), looks):
                assert silent in said, said
        head.cluster.wait(
            "the daemon has lost slurmctld", lambda: Dependency.SLURMCTLD in head.knows()["lost"]
        )
        status = head.status()
        assert tells(status, Dependency.SLURMCTLD, ""), status
        assert head.changes() == before
    finally:
        one.stage.head("systemctl", "start", "slurmctld", AGENT)
    one.stage.wait("the script is told", lambda: one.stage.was_told(one.runs))
    one.notice(NOTICE_S, "queue")  # the end is moved, so that the test need not wait for it
    one.until_requeued(slot)
    one.end()


def notices(known: Mapping[str, Any], instance: str) -> list[Any]:
    """The notices that the daemon has of the instance, of its agent."""
    report = known["reports"].get(instance)
    return report["report"]["notices"] if report else []


def test_without_the_queue_launches_and_notices_of_agents_work(head: Head) -> None:
    """The last test of this file: nothing makes the queue again here."""
    sqs = head.cluster.client("sqs")
    sqs.delete_queue(QueueUrl=head.bindings["queue"])
    head.cluster.wait("the daemon has lost the queue", lambda: Dependency.QUEUE in head.knows()["lost"])
    status = head.status()
    code = next((code for code in NO_QUEUE if code in status), "no code of a deleted queue")
    assert tells(status, Dependency.QUEUE, code), status
    assert LOSSES[Dependency.QUEUE].remedy(code, head.cluster.name) in status, status
    before = launches(head.changes())
    one = Evacuation.begin(head)
    slot = one.slot
    one.submit_another()
    one.notice()
    one.until_requeued(slot)
    one.end()
    assert len(launches(head.changes())) > len(before)
