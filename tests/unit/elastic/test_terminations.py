"""Machines that go while jobs run, over the models of Slurm and the cloud: what a user of the cluster would see."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_plan
from support.fleet import Fleet

from gpucluster.elastic.decide.jobs import HELD_REASON, MAX_RESTARTS
from gpucluster.elastic.events import Interrupted, LaunchDone
from gpucluster.elastic.journal import read_only
from gpucluster.plan.messages import Beat, GpuFault
from gpucluster.plan.model import JobHeartbeat, SlurmOnAws
from gpucluster.sandbox.aws.ec2.state.values import MaintenanceEvent

PLAN = a_plan()
TERMINATION = PLAN.pools[0].termination
SPOT = "p5en.48xlarge"


@pytest.fixture
def f(tmp_path: Path) -> Fleet:
    return Fleet(PLAN, tmp_path)


def instance_of(f: Fleet, slot: str) -> str:
    return f.journal.memory.incarnations[slot].instance or ""


def xid(number: int) -> GpuFault:
    return GpuFault(xid=number, device="0000:3b:00", count=1, last_at=0.0, text="")


def running(f: Fleet, count: int, lasts: float = 600.0, **changes: object):
    job = f.slurm.submit(count, lasts=lasts, **changes)
    f.until(lambda: job.state == "RUNNING", 120)
    return job


def events(f: Fleet, kind: type) -> list:
    return [e.event for e in read_only(f.folder / "journal.sqlite") if isinstance(e.event, kind)]


def test_notice_signals_and_requeues_a_job_that_resumes_on_other_nodes(
    f: Fleet,
) -> None:
    job = running(f, 4)
    first, lost = job.nodes, job.nodes[1]
    machine, told_at = instance_of(f, lost), f.now
    f.model.interrupt(machine, f.now)
    f.until(lambda: job.state == "PENDING", 130)
    assert [(j, s) for _, j, s in f.slurm.signals] == [(job.id, TERMINATION.signal)]
    assert f.slurm.signals[0][0] - told_at <= 2
    assert 120 - TERMINATION.lead_s - 2 <= f.now - told_at <= 120 - TERMINATION.lead_s + 3
    assert job.comment.startswith("gpucluster: [evacuation] the cloud reclaims this spot instance at ")
    f.until(lambda: job.state == "RUNNING", 120)
    assert lost not in job.nodes
    assert len(set(first) & set(job.nodes)) == 3
    assert job.restarts == 1
    began = f.now
    f.until(lambda: job.state == "COMPLETED", 700)
    assert began - told_at < 120 + PLAN.times.cred_expire_s + 10, "the machine in its place was up before"
    assert len(events(f, Interrupted)) == 1


@pytest.mark.parametrize("version", ["22.05", "24.11", "26.05"])
def test_repeated_power_up_launches_no_instance_after_the_job(tmp_path: Path, version: str) -> None:
    """slurmd registers before Slurm's scan: the flag stays, and wakes the node as soon as it is powered down."""
    f = Fleet(PLAN, tmp_path, version=version)
    job = f.slurm.submit(2, lasts=60.0)
    f.until(lambda: job.state == "RUNNING", 120)
    f.slurm.nodes[job.nodes[0]].flags.add("POWER_UP")
    f.until(lambda: not f.living(), 9000)
    f.run(3600)
    assert (job.state, sum(len(e.instances) for e in events(f, LaunchDone))) == ("COMPLETED", 2)
    assert all(n.base == "IDLE" and "POWER_UP" not in n.flags for n in f.slurm.nodes.values())


def test_notice_from_one_source_alone_has_the_same_effect(f: Fleet) -> None:
    for silent in ("metadata", "queue"):
        job = running(f, 1)
        f.model.interrupt(instance_of(f, job.nodes[0]), f.now, silent=(silent,))
        f.until(lambda: job.restarts == 1, 130)  # noqa: B023
        f.slurm.cancel(job)
        f.run(300)
    assert len(f.slurm.signals) == 2


def test_short_and_missing_notices_are_survived(f: Fleet) -> None:
    job = running(f, 1)
    f.model.interrupt(instance_of(f, job.nodes[0]), f.now, after_s=20.0)
    f.until(lambda: job.restarts == 1, 20)
    f.until(lambda: job.state == "RUNNING", 200)
    f.interrupt(instance_of(f, job.nodes[0]))
    f.until(lambda: job.restarts == 2, 60)
    f.until(lambda: job.state == "COMPLETED", 900)


def test_rebalance_hint_takes_no_node_from_a_job(f: Fleet) -> None:
    job = running(f, 2, lasts=200.0)
    for slot in job.nodes:
        f.model.recommend(instance_of(f, slot), f.now)
    f.until(lambda: job.state == "COMPLETED", 300)
    assert job.restarts == 0
    took = f.until(lambda: not f.living(), 200)
    assert took < 60, "an idle one goes at once"


def test_storm_of_interruptions_uses_the_next_machine_type_without_a_loop(f: Fleet) -> None:
    job = running(f, 4)
    for slot in job.nodes:
        f.model.interrupt(instance_of(f, slot), f.now)
    f.until(lambda: job.restarts == 1, 130)
    f.until(lambda: job.state == "RUNNING", 400)
    assert {i.machine for i in f.living()} == {"p5e.48xlarge"}
    assert len(f.slurm.signals) == 1


def test_gpu_fault_during_a_job(f: Fleet) -> None:
    job = running(f, 2)
    lost, machine = job.nodes[0], instance_of(f, job.nodes[0])
    f.faults[machine] = (xid(79),)
    f.until(lambda: job.restarts == 1, TERMINATION.grace_s + 10)
    assert f.slurm.signals
    f.until(lambda: job.state == "RUNNING", 200)
    assert lost not in job.nodes
    assert machine not in {i.id for i in f.living()}


def test_error_of_a_user_program_replaces_no_node(f: Fleet) -> None:
    job = running(f, 1, lasts=100.0)
    f.faults[instance_of(f, job.nodes[0])] = (xid(31), xid(13))
    f.until(lambda: job.state == "COMPLETED", 200)
    assert (job.restarts, f.slurm.signals) == (0, [])


def test_maintenance_waits_for_a_job_that_ends_in_time(f: Fleet) -> None:
    job = running(f, 1, lasts=300.0)
    machine = instance_of(f, job.nodes[0])
    event = MaintenanceEvent(id="", code="instance-retirement", not_before=f.now + 3600, description="x")
    f.model.maintain(machine, event, f.now)
    f.until(lambda: job.state == "COMPLETED", 400)
    assert (job.restarts, f.slurm.signals) == (0, [])
    f.until(lambda: machine not in {i.id for i in f.living()}, 120)


def test_killed_daemon_continues_an_evacuation(f: Fleet) -> None:
    job = running(f, 2)
    f.model.interrupt(instance_of(f, job.nodes[0]), f.now)
    for _ in range(100):
        f.restart()
        f.run(1)
    f.until(lambda: job.restarts == 1, 40)
    assert len(f.slurm.signals) == 1


def test_node_gets_notices_that_only_the_queue_had(f: Fleet) -> None:
    job = running(f, 1)
    machine = instance_of(f, job.nodes[0])
    f.model.interrupt(machine, f.now, silent=("metadata",))
    f.until(lambda: f.agents[machine].interruption.startswith("spot "), 30)


def hung_plan(*, requeue: bool) -> SlurmOnAws:
    return replace(
        PLAN, pools=(replace(PLAN.pools[0], job_heartbeat=JobHeartbeat(after_s=120, requeue=requeue)),)
    )


def test_stalled_job_is_commented_or_requeued_and_a_job_without_heartbeat_is_not(
    tmp_path: Path,
) -> None:
    for requeue in (False, True):
        f = Fleet(hung_plan(requeue=requeue), tmp_path / str(requeue))
        job, other = running(f, 1, lasts=2000.0), running(f, 1, lasts=2000.0)
        f.heartbeats[instance_of(f, job.nodes[0])] = (Beat(job=job.id, uid=-1, at=f.now),)
        f.run(110)
        assert (job.restarts, job.comment) == (0, "")
        f.run(30)
        assert job.restarts == int(requeue)
        assert "no progress for 120 s" in job.comment
        assert (other.restarts, other.comment) == (0, "")


def test_repeatedly_stalled_job_is_not_requeued_without_end(tmp_path: Path) -> None:
    f = Fleet(hung_plan(requeue=True), tmp_path)
    job = running(f, 1, lasts=200_000.0)
    for _ in range(MAX_RESTARTS + 2):
        f.until(lambda: job.state == "RUNNING")
        f.heartbeats[instance_of(f, job.nodes[0])] = (Beat(job=job.id, uid=-1, at=f.now),)
        f.run(150)
    assert (job.restarts, job.state) == (MAX_RESTARTS, "RUNNING")
    assert "no progress for 120 s" in job.comment


def test_job_with_a_gpu_fault_in_each_run_is_held(f: Fleet) -> None:
    job = running(f, 2, lasts=200_000.0)
    for number in range(MAX_RESTARTS + 1):
        f.until(lambda: job.state == "RUNNING", 400)
        assert (job.restarts, job.held) == (number, False)
        f.faults[instance_of(f, job.nodes[0])] = (xid(79),)
        f.until(lambda: job.state == "PENDING", TERMINATION.grace_s + 10)
    assert job.held
    assert job.comment.startswith("gpucluster: [evacuation] one of its GPUs failed: XID 79 on 0000:3b:00")
    assert job.comment.endswith(HELD_REASON)
    f.until(lambda: not f.living(), (MAX_RESTARTS + 1) * 3600)  # one replacement an hour
    f.run(600)
    assert (job.state, job.restarts, job.comment.endswith(HELD_REASON)) == ("PENDING", MAX_RESTARTS + 1, True)


def test_job_with_repeated_spot_interruptions_is_not_held(f: Fleet) -> None:
    job = running(f, 1, lasts=200_000.0)
    for _ in range(MAX_RESTARTS + 2):
        f.until(lambda: job.state == "RUNNING", 8000)
        f.model.interrupt(instance_of(f, job.nodes[0]), f.now)
        f.until(lambda: job.state == "PENDING", 130)
    f.until(lambda: job.state == "RUNNING", 8000)
    assert not job.held


@pytest.mark.parametrize(
    "why", ["another user's file", "a file of an earlier run", "an agent that is silent"]
)
def test_invalid_heartbeat_is_ignored(tmp_path: Path, why: str) -> None:
    f = Fleet(hung_plan(requeue=True), tmp_path)
    job = running(f, 1, lasts=2000.0)
    machine = instance_of(f, job.nodes[0])
    uid, at = (77, f.now) if why.startswith("another") else (-1, f.now)
    f.heartbeats[machine] = (Beat(job=job.id, uid=uid, at=at - (100 if "earlier" in why else 0)),)
    f.run(20)
    if "silent" in why:
        f.agents[machine].beat_at = 1e18  # slurmd itself is well
    f.run(400)
    assert (job.restarts, job.state) == (0, "RUNNING")


# --- any order of news -----------------------------------------------------------------------------
@dataclass(frozen=True)
class InstanceEvents:
    """What is said of the job's n-th machine, how often, and how long until the next."""

    kind: str
    node: int
    silent: str
    wait: int


NEWS = st.lists(
    st.builds(
        InstanceEvents,
        st.sampled_from(
            ["spot", "short", "rebalance", "maintain", "xid", "restart", "twice", "late", "lose"]
        ),
        st.integers(0, 3),
        st.sampled_from(["", "metadata", "queue"]),
        st.integers(1, 60),
    ),
    min_size=1,
    max_size=7,
)


@given(news=NEWS, requeue=st.booleans())
@settings(max_examples=20)
def test_any_order_of_notices_signals_and_requeues_a_job_once_per_run(
    tmp_path_factory: pytest.TempPathFactory, news: list[InstanceEvents], requeue: bool
) -> None:
    f = Watched(PLAN, tmp_path_factory.mktemp("n"))
    job = running(f, 4, lasts=400.0, requeue=requeue)
    for one in news:
        f.hear_of(job.nodes, one)
        f.run(one.wait)
    f.until(lambda: job.state in ("COMPLETED", "FAILED"), 6000)
    f.faults.clear()
    f.until(lambda: not f.living(), 9000)
    per_run = Counter((j, restart) for j, restart in f.signalled)
    assert all(count == 1 for count in per_run.values()), per_run
    assert all(count == 1 for count in Counter(f.sent).values()), f.sent
    if not requeue:
        assert not f.sent


class Watched(Fleet):
    """Counts what is done to jobs by the run that they are in, and holds each power-down of a busy node to its cause."""

    def __init__(self, plan: SlurmOnAws, folder: Path) -> None:
        self.signalled: list[tuple[int, int]] = []
        self.sent: list[tuple[int, int]] = []
        super().__init__(plan, folder)
        signal, requeue, update = self.slurm.signal, self.slurm.requeue, self.slurm.update_nodes

        def signals(jobs, name):
            self.signalled += [(j, self.slurm.jobs[j].restarts) for j in jobs]
            signal(jobs, name)

        def requeues(jobs, reason, *, held=False):
            self.sent += [(j, self.slurm.jobs[j].restarts) for j in jobs]
            requeue(jobs, reason, held=held)

        def updates(nodes, state, reason=None):
            if state == "down":
                self.hold(nodes)
            update(nodes, state, reason)

        stand_in: Any = self.slurm
        stand_in.signal, stand_in.requeue, stand_in.update_nodes = signals, requeues, updates

    def hold(self, nodes: tuple[str, ...]) -> None:
        for job in self.slurm.jobs.values():
            for slot in set(job.nodes) & set(nodes):
                incarnation = self.journal.memory.incarnations[slot]
                ended = incarnation.instance not in {i.id for i in self.living()}
                over = (
                    incarnation.interruption is not None
                    and (incarnation.interruption.ends_at or 1e12) <= self.now
                )
                assert job.state != "RUNNING" or ended or over, f"{slot} was taken from job {job.id}"

    def hear_of(self, slots: tuple[str, ...], one: InstanceEvents) -> None:
        if one.kind == "restart":
            self.restart()
        elif one.kind in ("twice", "late", "lose"):
            switches = self.model.events.switches
            switches.twice_every, switches.late_s, switches.lose = {
                "twice": (1, 0.0, 0), "late": (2, 40.0, 0), "lose": (0, 0.0, 1)
            }[one.kind]  # fmt: skip
        elif one.node < len(slots) and (machine := instance_of(self, slots[one.node])):
            self._of_machine(machine, one)

    def _of_machine(self, machine: str, one: InstanceEvents) -> None:
        silent = (one.silent,) if one.silent else ()
        if one.kind == "xid":
            self.faults[machine] = (xid(79),)
        elif one.kind == "rebalance":
            self.model.recommend(machine, self.now, silent=silent)
        elif one.kind == "maintain":
            event = MaintenanceEvent(id="", code="system-reboot", not_before=self.now + 300, description="x")
            self.model.maintain(machine, event, self.now, silent=silent)
        else:
            self.model.interrupt(machine, self.now, 15.0 if one.kind == "short" else 120.0, silent=silent)
