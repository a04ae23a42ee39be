"""Two daemons on one head: one acts, the other waits. After each failure of the first, the second continues its burst."""

import contextlib
import itertools
import json
import re

import pytest
from cluster import Cluster

from gpucluster.elastic.notifier import WATCHDOG_S
from gpucluster.plan import names

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(3000)]
UNIT, AGENT = "gpucluster-elastic.service", names.AGENT_UNIT
PYTHON = ("/opt/gpucluster/venv/bin/python", "-m")
NUMBERS = itertools.count(1)  # a new name for each unit, because the log of an old unit remains
DAEMON = ("/opt/gpucluster/venv/bin/python", "-I", "-m", "gpucluster.elastic.daemon")
# A daemon in another PID namespace is like one on another machine: the standby can neither find nor kill its process.
ELSEWHERE = (
    "unshare",
    "--pid",
    "--fork",
    "--mount-proc",
    "setpriv",
    "--reuid=slurm",
    "--regid=slurm",
    "--init-groups",
)


class Pair:
    """The head's own unit stopped, and two daemons of the test in its place."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        bindings = json.loads(cluster.exec("head", "cat", "/var/lib/gpucluster/bundle/bindings.json"))
        self.bucket, self.s3 = bindings["bucket"], cluster.client("s3")
        self.units: list[str] = []

    def start(self, name: str, *, elsewhere: bool = False, failpoint: str = "") -> str:
        """Start a daemon and return its unit."""
        unit = f"daemon-{name}-{next(NUMBERS)}"
        self.units.append(unit)
        user = [] if elsewhere else ["--uid=slurm", "--gid=slurm"]
        self.cluster.exec(
            "head", "systemd-run", f"--unit={unit}", "--collect", "--quiet", *user,
            "--property=EnvironmentFile=/etc/gpucluster/agent.env", f"--setenv=GPUCLUSTER_FAILPOINT={failpoint}",
            *(ELSEWHERE if elsewhere else ()), *DAEMON,
        )  # fmt: skip
        return unit

    def signal(self, unit: str, word: str) -> None:
        self.cluster.exec("head", "systemctl", "kill", "-s", word, unit)

    def holder(self) -> str:
        body = self.s3.get_object(Bucket=self.bucket, Key="control.json")["Body"].read()
        return json.loads(body)["holder"]

    def active(self, unit: str) -> bool:
        return self.cluster.exec("head", "systemctl", "is-active", unit, check=False).strip() == "active"

    def log(self, unit: str) -> str:
        return self.cluster.exec("head", "journalctl", "-u", unit, "-o", "cat", "--no-pager", check=False)

    def waits(self, unit: str) -> bool:
        return "standby: " in self.log(unit)

    def led_by(self, unit: str) -> str:
        """Wait until it acts; return the holder in the control object."""
        self.cluster.wait(f"{unit} is ready", lambda: "ready: " in self.log(unit))
        return self.holder()


@pytest.fixture
def pair(burst):
    burst.exec("head", "systemctl", "stop", AGENT)  # the agent starts a stopped daemon
    burst.exec("head", "systemctl", "stop", UNIT)
    pair = Pair(burst)
    try:
        yield pair
    finally:
        for unit in pair.units:
            burst.exec("head", "systemctl", "kill", "-s", "CONT", unit, check=False)
            burst.exec("head", "systemctl", "stop", unit, check=False)
        burst.exec("head", "rm", "-f", "/var/lib/gpucluster/elastic/tripped")
        burst.exec("head", "systemctl", "start", UNIT, AGENT)


def main_pid(burst):
    return burst.exec("head", "systemctl", "show", UNIT, "--property=MainPID", "--value").strip()


def told(burst, program, *words):
    """What a program of the head prints, with its notes."""
    command = " ".join((*PYTHON, f"gpucluster.elastic.inspect.{program}", *words, "2>&1"))
    return burst.exec("head", "sh", "-c", command, check=False)


def launched(burst):
    return {i["id"] for i in burst.everything() if i["role"] == "node"}


@contextlib.contextmanager
def burst_continues(burst):
    """A job is placed before the block and completes after it. Each slot has had one instance."""
    before = launched(burst)
    job = burst.sbatch("-N2", "--gres=gpu:8", script="sleep 3")
    burst.wait("the journal has the job", lambda: "placed" in burst.timeline(job), poll=0.05)
    yield
    burst.wait("the job is done", lambda: burst.state(job) == "COMPLETED")
    assert len(launched(burst) - before) == 2


def next_holder(pair, burst, previous):
    """Wait until another daemon than the previous one holds the lease, and return it."""
    burst.wait("the second holds it", lambda: pair.holder() not in (previous, ""), poll=0.1)
    return pair.holder()


def test_standby_takes_over_when_the_holder_is_killed(pair, burst):
    """It does not wait for the end of the lease: tests/unit/elastic/test_lease.py."""
    first = pair.start("first")
    previous = pair.led_by(first)
    second = pair.start("second")
    burst.wait("the second waits", lambda: pair.waits(second))
    with burst_continues(burst):
        pair.signal(first, "KILL")
        assert next_holder(pair, burst, previous) not in (previous, "")


def test_standby_kills_a_frozen_holder_on_the_same_head(pair, burst):
    first = pair.start("first")
    previous = pair.led_by(first)
    second = pair.start("second")
    burst.wait("the second waits", lambda: pair.waits(second))
    with burst_continues(burst):
        pair.signal(first, "STOP")
        assert next_holder(pair, burst, previous) not in (previous, "")
        burst.wait("the first has ended", lambda: not pair.active(first))


def test_frozen_holder_on_another_machine_does_nothing_after_it_continues(pair, burst):
    first = pair.start("first", elsewhere=True)
    previous = pair.led_by(first)
    second = pair.start("second")
    burst.wait("the second waits", lambda: pair.waits(second))
    with burst_continues(burst):
        pair.signal(first, "STOP")
        assert next_holder(pair, burst, previous) not in (previous, "")
        before = pair.log(first)
        pair.signal(first, "CONT")
        burst.wait("the first ends", lambda: not pair.active(first))
        lines = pair.log(first).removeprefix(before)
        assert "the lease is held by" in lines or "taken the journal over" in lines, lines
        assert "launch" not in lines.replace("launches", ""), lines


def test_stopped_holder_releases_the_lease_before_it_ends(pair, burst):
    first = pair.start("first")
    previous = pair.led_by(first)
    second = pair.start("second")
    burst.wait("the second waits", lambda: pair.waits(second))
    burst.exec("head", "systemctl", "stop", first)  # returns after the process has ended
    assert pair.holder() != previous
    assert next_holder(pair, burst, previous) not in (previous, "")


@pytest.mark.parametrize("failpoint", ["after-lease", "before-renewal:2", "after-renewal:2"])
def test_burst_continues_after_a_kill_at_a_failpoint_of_the_lease(pair, burst, failpoint):
    first = pair.start("first", failpoint=failpoint)
    burst.wait("the first has killed itself", lambda: not pair.active(first))
    second = pair.start("second", failpoint=failpoint)
    pair.led_by(second)
    with burst_continues(burst):
        assert pair.active(second), "each failpoint kills once"


def test_frozen_daemon_is_killed_and_started_again(burst):
    """A daemon that hung stayed so until a person came, and `why` promised that the agent starts it again."""
    running = burst.sbatch("-N1", "--gres=gpu:8", script="sleep 900")
    burst.wait("the job runs", lambda: burst.state(running) == "RUNNING")
    burst.exec("head", "systemctl", "stop", AGENT)  # it starts a daemon that does not run
    before = main_pid(burst)
    burst.exec("head", "systemctl", "kill", "--kill-who=main", "--signal=STOP", UNIT)
    waiting = burst.sbatch("-N1", "--gres=gpu:8", script="true")
    silent = "has given no sign of life for .* s"
    then = f"systemd kills it and starts it again after {WATCHDOG_S} s without one"
    burst.wait("`why` says so", lambda: re.search(silent, told(burst, "why", str(waiting))), poll=5)
    assert then in told(burst, "why", str(waiting))
    assert re.search(f"{silent}: it launches nothing; {then}", told(burst, "status"))
    assert re.search(f"{silent}, so it does none of this now", told(burst, "reconcile", "--dry-run"))
    burst.wait("another process runs", lambda: main_pid(burst) not in (before, "0"), poll=5)
    log = burst.exec("head", "journalctl", "-u", UNIT, "-o", "cat", "--no-pager")
    assert "Fatal Python error: Aborted" in log, "the log says where each thread was"
    assert burst.exec("head", "systemctl", "show", UNIT, "--property=NRestarts", "--value").strip() == "1"
    burst.exec("head", "systemctl", "start", AGENT)
    burst.wait("the waiting job runs", lambda: burst.state(waiting) == "COMPLETED")
    assert (burst.state(running), burst.job(running)["restart_cnt"]) == ("RUNNING", 0)


def test_unit_that_waits_for_the_lease_is_called_a_standby(pair, burst):
    """`why` and `status` told of a standby that it does not answer, and that the agent starts it again."""
    first = pair.start("first", elsewhere=True)
    pair.led_by(first)
    burst.exec("head", "systemctl", "start", UNIT)  # returns at READY=1, without the lease
    holder = burst.exec("head", "hostname").strip()
    words = f"gpucluster-elastic of this machine is a standby: it waits for the lease, which the daemon of {holder} holds"
    burst.wait("systemd knows", lambda: "holds the lease" in burst.exec("head", "systemctl", "status", UNIT))
    running = burst.sbatch("-N1", "--gres=gpu:8", script="sleep 900")
    assert words in told(burst, "status")
    assert words in told(burst, "why", str(running))
    assert words in told(burst, "reconcile", "--dry-run")
    burst.exec("head", "systemctl", "kill", "-s", "KILL", first)
    burst.wait("the unit acts", lambda: "acts, as " in burst.exec("head", "systemctl", "status", UNIT))
    burst.wait("the job runs", lambda: burst.state(running) == "RUNNING")
    assert "is a standby" not in told(burst, "status")
