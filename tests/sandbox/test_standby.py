"""Two daemons on one head: one acts, the other waits; whatever happens to the first, the second goes on with its burst."""

import contextlib
import itertools
import json
import time

import pytest
from cluster import Cluster

from gpucluster.plan import names

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(300)]
UNIT, AGENT = "gpucluster-elastic.service", names.AGENT_UNIT
NUMBERS = itertools.count(1)  # a unit's log outlives it
LEASE_S = 8.0  # differences.toml
TAKES_S = LEASE_S * 1.1 + 4.0  # and a look of the standby, on a busy machine
DAEMON = ("/opt/gpucluster/venv/bin/python", "-I", "-m", "gpucluster.elastic.daemon")
# Another PID namespace is another machine to whoever looks for a holder's process: it can neither see nor end it.
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

    def start(self, name: str, *, elsewhere: bool = False, trip: str = "") -> str:
        """Run one; return its unit."""
        unit = f"daemon-{name}-{next(NUMBERS)}"
        self.units.append(unit)
        user = [] if elsewhere else ["--uid=slurm", "--gid=slurm"]
        self.cluster.exec(
            "head", "systemd-run", f"--unit={unit}", "--collect", "--quiet", *user,
            "--property=EnvironmentFile=/etc/gpucluster/agent.env", f"--setenv=GPUCLUSTER_TRIP={trip}",
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
        """Wait until it acts; its word in the object."""
        self.cluster.wait(f"{unit} is ready", lambda: "ready: " in self.log(unit))
        return self.holder()


@pytest.fixture
def pair(burst):
    burst.exec("head", "systemctl", "stop", AGENT)  # it would start the daemon again
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


def launched(burst):
    return {i["id"] for i in burst.everything() if i["role"] == "node"}


@contextlib.contextmanager
def a_burst_that_goes_on(burst):
    """A job is placed before, and runs after what happens inside; each slot got one instance."""
    before = launched(burst)
    job = burst.sbatch("-N2", "--gres=gpu:8", script="sleep 3")
    burst.wait("the journal knows the job", lambda: "placed" in burst.told(job), poll=0.05)
    yield
    burst.wait("the job is done", lambda: burst.state(job) == "COMPLETED", within=120)
    assert len(launched(burst) - before) == 2


def test_the_second_waits_and_takes_over_when_the_first_is_killed(pair, burst):
    first = pair.start("first")
    was = pair.led_by(first)
    second = pair.start("second")
    burst.wait("the second waits", lambda: pair.waits(second))
    with a_burst_that_goes_on(burst):
        pair.signal(first, "KILL")
        began = time.monotonic()
        burst.wait("the second holds it", lambda: pair.holder() not in (was, ""), poll=0.1)
        assert time.monotonic() - began < LEASE_S, (
            "the first is gone for certain, so nobody waits for its time"
        )


def test_a_frozen_one_on_the_same_head_is_ended_by_the_second(pair, burst):
    first = pair.start("first")
    was = pair.led_by(first)
    second = pair.start("second")
    burst.wait("the second waits", lambda: pair.waits(second))
    with a_burst_that_goes_on(burst):
        pair.signal(first, "STOP")
        burst.wait(
            "the second holds it", lambda: pair.holder() not in (was, ""), within=TAKES_S + 10, poll=0.1
        )
        burst.wait("the first is gone", lambda: not pair.active(first))


def test_one_that_sleeps_out_of_reach_does_nothing_when_it_wakes(pair, burst):
    first = pair.start("first", elsewhere=True)
    was = pair.led_by(first)
    second = pair.start("second")
    burst.wait("the second waits", lambda: pair.waits(second))
    with a_burst_that_goes_on(burst):
        pair.signal(first, "STOP")
        burst.wait(
            "the second holds it", lambda: pair.holder() not in (was, ""), within=TAKES_S + 10, poll=0.1
        )
        asleep = pair.log(first)
        pair.signal(first, "CONT")
        burst.wait("the first ends by itself", lambda: not pair.active(first))
        said = pair.log(first).removeprefix(asleep)
        assert "the lease is held by" in said or "taken the journal over" in said, said
        assert "launch" not in said.replace("launches", ""), said


def test_one_that_is_told_to_end_gives_it_back_at_once(pair, burst):
    first = pair.start("first")
    was = pair.led_by(first)
    second = pair.start("second")
    burst.wait("the second waits", lambda: pair.waits(second))
    burst.exec("head", "systemctl", "stop", first)
    began = time.monotonic()
    burst.wait("the second holds it", lambda: pair.holder() not in (was, ""), poll=0.1)
    assert time.monotonic() - began < LEASE_S


@pytest.mark.parametrize("trip", ["after-lease", "before-renewal:2", "after-renewal:2"])
def test_a_kill_at_the_leases_own_borders_does_no_harm(pair, burst, trip):
    first = pair.start("first", trip=trip)
    burst.wait("it killed itself", lambda: not pair.active(first))
    second = pair.start("second", trip=trip)
    pair.led_by(second)
    with a_burst_that_goes_on(burst):
        assert pair.active(second), "each wish kills once"
