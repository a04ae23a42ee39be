"""The daemon over models of Slurm and of the cloud, on virtual time: what a user of the cluster would see."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import a_plan
from support.fleet import Fleet

from gpucluster.cloud.port import CloudError, Control, Fault, Scaling

SPOT, OTHER, A, B = "p5en.48xlarge", "p5e.48xlarge", "us-east-2a", "us-east-2b"


@pytest.fixture
def f(tmp_path: Path) -> Fleet:
    return Fleet(a_plan(), tmp_path)


def blocked(f: Fleet, zone: str) -> set[str]:
    return {
        n.name
        for n in f.slurm.nodes.values()
        if n.zone == zone and "DRAIN" in n.flags and n.reason.startswith("gpucluster:")
    }


def quiet(f: Fleet) -> bool:
    """Every slot is plain idle~ and the cloud is empty."""
    plain = all(
        n.base == "IDLE" and n.flags <= {"CLOUD", "POWERED_DOWN", "NOT_RESPONDING"}
        for n in f.slurm.nodes.values()
    )
    return plain and not f.living()


def resumes(f: Fleet) -> list[str]:
    return [name for _, kind, (name,) in f.slurm.hooks if kind == "resume"]


def test_job_starts_on_new_nodes_that_are_powered_down_when_idle(f: Fleet) -> None:
    job = f.slurm.submit(2)
    f.until(lambda: job.state == "RUNNING", 60)
    assert [x.count for x in f.cloud.launches] == [2]
    f.until(lambda: job.state == "COMPLETED", 100)
    took = f.until(lambda: not f.living(), 600)
    assert 290 < took < 330
    f.until(lambda: quiet(f), 300)
    assert len(resumes(f)) == 2


def test_after_a_refusal_the_next_machine_type_of_the_zone_is_launched(f: Fleet) -> None:
    f.model.set_capacity(SPOT, A, "spot", 0)
    job = f.slurm.submit(2)
    f.until(lambda: job.state == "RUNNING", 120)
    assert {i.machine for i in f.living()} == {OTHER}
    assert {i.zone for i in f.living()} == {A}
    assert job.restarts == 0


def test_refused_zone_moves_the_whole_gang_to_the_other(f: Fleet) -> None:
    f.model.set_capacity(zone=A, free=0)
    job = f.slurm.submit(4)
    f.until(lambda: job.state == "RUNNING", 400)
    assert {i.zone for i in f.living()} == {B}
    assert job.restarts == 1
    assert "no h200 in us-east-2a" in job.comment
    assert len(f.living()) == 4


def test_refused_zone_opens_again_when_no_job_waits(f: Fleet) -> None:
    f.model.set_capacity(zone=A, free=0)
    job = f.slurm.submit(4)
    f.until(lambda: job.state == "RUNNING", 400)
    assert len(blocked(f, A)) == 16
    f.until(lambda: not blocked(f, A), f.plan.times.refusal_max_s + 60)


def test_gang_with_two_of_four_nodes_up_starts_whole_in_the_other_zone(f: Fleet) -> None:
    first = f.slurm.submit(2, lasts=5)
    f.until(lambda: first.state == "COMPLETED", 120)
    f.model.set_capacity(zone=A, free=0)
    job = f.slurm.submit(4)
    f.until(lambda: job.state == "RUNNING", 600)
    assert {f.slurm.nodes[n].zone for n in job.nodes} == {B}
    assert len([i for i in f.living() if i.zone == A]) == 2  # up, for their idle time
    f.until(lambda: not [i for i in f.living() if i.zone == A], 400)


def test_without_capacity_the_job_waits_with_the_reason_and_no_hook_is_called(f: Fleet) -> None:
    f.model.set_capacity(free=0)
    job = f.slurm.submit(2)
    f.run(1500)
    assert job.state == "PENDING"
    assert not f.living()
    assert len(blocked(f, A)) + len(blocked(f, B)) >= 30
    assert job.comment.startswith(
        "gpucluster: no h200 in us-east-2a: spot p5en.48xlarge InsufficientInstanceCapacity"
    )
    tries = {x.token for x in f.cloud.launches}
    assert len(tries) == len(f.cloud.launches)  # each refusal is a new request
    assert (
        len(resumes(f)) <= 2 * 8
    )  # two zones, then one gang a probe: after 2, 4, 8 ... minutes in each zone
    f.model.set_capacity(free=None)
    f.until(lambda: job.state == "RUNNING", f.plan.times.refusal_max_s + 400)
    f.until(lambda: job.state == "COMPLETED", 100)
    f.until(lambda: quiet(f), 2000)


def test_test_of_a_refusal_undrains_only_the_slots_of_one_gang(f: Fleet) -> None:
    f.model.set_capacity(free=0)
    f.slurm.submit(2)
    f.slurm.submit(5)
    f.until(lambda: len(blocked(f, A)) + len(blocked(f, B)) == 32, 600)
    lifted = []
    for _ in range(600):
        f.run(1)
        free = [n for n in f.slurm.nodes.values() if n.free() and not n.up]
        lifted.append(len(free))
    assert set(lifted) == {0, 2, 5}, lifted


def test_job_without_requeue_gets_its_nodes_when_capacity_returns(f: Fleet) -> None:
    f.model.set_capacity(zone=A, free=0)
    job = f.slurm.submit(2, batch=False)
    f.run(300)
    assert job.state == "CONFIGURING"
    assert job.comment.startswith("gpucluster: no h200 in us-east-2a")
    f.model.set_capacity(zone=A, free=None)
    f.until(lambda: job.state == "RUNNING", 900)
    assert {i.zone for i in f.living()} == {A}


def test_job_without_requeue_fails_at_the_boot_timeout_with_the_reason(f: Fleet) -> None:
    f.model.set_capacity(zone=A, free=0)
    job = f.slurm.submit(2, batch=False)
    limit = f.plan.pools[0].boot_timeout_s
    took = f.until(lambda: job.state == "FAILED", limit + 120)
    assert took < limit + 30
    assert job.comment.startswith("gpucluster: no h200 in us-east-2a")
    f.model.set_capacity(zone=A, free=None)
    f.until(lambda: quiet(f), 2000)


def test_failed_boot_is_replaced_in_the_same_power_up(f: Fleet) -> None:
    bad: list[str] = []

    def broken(instance: object) -> str | None:
        name = instance.id  # type: ignore[attr-defined]
        if not bad:
            bad.append(name)
        return "AccessDenied" if name in bad else None

    f.broken = broken
    job = f.slurm.submit(2)
    f.until(lambda: job.state == "RUNNING", 300)
    assert job.restarts == 0
    assert [x.count for x in f.cloud.launches] == [2, 1]
    assert bad[0] not in {i.id for i in f.living()}
    assert len(resumes(f)) == 2


def test_three_failed_boots_fail_the_gang_with_the_last_step_of_the_node(f: Fleet) -> None:
    f.broken = lambda i: "AccessDenied: the role may not read the secret"
    job = f.slurm.submit(1, batch=False)
    f.until(lambda: job.state == "FAILED", 900)
    assert "step key: AccessDenied" in job.comment
    assert len(f.cloud.launches) == 3
    f.until(lambda: not f.living(), 100)
    f.until(lambda: quiet(f), 2000)


def test_instance_that_never_reports_is_replaced(f: Fleet) -> None:
    first: set[str] = set()

    def mute(instance: object) -> bool:
        name = instance.id  # type: ignore[attr-defined]
        if not first:
            first.add(name)
        return name in first

    f.mute = mute
    job = f.slurm.submit(1, batch=False)
    f.until(lambda: job.state == "RUNNING", f.plan.pools[0].boot_timeout_s)
    assert len(f.cloud.launches) == 2


def test_stray_instance_is_terminated_after_the_grace(f: Fleet) -> None:
    job = f.slurm.submit(1)
    f.until(lambda: job.state == "RUNNING", 60)
    stray = f.cloud.launch(replace(f.cloud.launches[0], token="stray"))[0]
    f.run(f.plan.times.orphan_grace_s - 20)
    assert stray in {i.id for i in f.living()}
    f.until(lambda: stray not in {i.id for i in f.living()}, 120)


def test_instance_without_our_tags_is_not_terminated(f: Fleet) -> None:
    job = f.slurm.submit(1)
    f.until(lambda: job.state == "RUNNING", 60)
    foreign = f.cloud.launch(replace(f.cloud.launches[0], token="x", tags={"team": "other"}))[0]
    f.run(2000)
    assert foreign in {i.id for i in f.living()}


def test_job_runs_after_a_kill_of_slurmctld_and_nothing_is_launched_twice(f: Fleet) -> None:
    job = f.slurm.submit(2)
    f.until(lambda: len(f.living()) == 2, 30)
    f.slurm.restart(forgetting=True)
    f.until(lambda: job.state == "RUNNING", 200)
    f.until(lambda: job.state == "COMPLETED", 200)
    assert sum(x.count for x in f.cloud.launches) == 2
    f.until(lambda: quiet(f), 1200)


def test_nothing_is_decided_while_slurmctld_does_not_answer(f: Fleet) -> None:
    job = f.slurm.submit(2, lasts=5000)
    f.until(lambda: job.state == "RUNNING", 60)
    f.slurm.away = True
    f.run(1000)
    f.slurm.away = False
    assert len(f.living()) == 2
    assert f.complaints


def test_empty_list_of_the_cloud_causes_no_action(f: Fleet) -> None:
    job = f.slurm.submit(2, lasts=5000)
    f.until(lambda: job.state == "RUNNING", 60)
    f.cloud.instances = lambda cluster, also=(): ()  # type: ignore[method-assign]
    f.run(1000)
    assert job.state == "RUNNING"
    assert len(f.cloud.launches) == 1


def test_lost_reply_does_not_launch_twice(f: Fleet) -> None:
    f.model.faults.lose_reply("RunInstances", 2)
    job = f.slurm.submit(2)
    f.until(lambda: job.state == "RUNNING", 120)
    assert len(f.living()) == 2
    assert len({x.token for x in f.cloud.launches}) == 1


def test_call_of_the_earlier_cluster_is_given_up_and_blocks_no_source(f: Fleet) -> None:
    """The head died over it; `down`, then `up`: the journal is the old one, and every name another (issue 6)."""
    f.model.faults.next_error("RunInstances", "InternalError")
    job = f.slurm.submit(2)
    f.until(lambda: bool(f.journal.memory.launches), 60)
    f.bindings = replace(
        f.bindings,
        templates={k: replace(t, id=f"lt-of-the-second-up-{t.id}") for k, t in f.bindings.templates.items()},
    )
    f.model.faults.next_error("RunInstances", "InvalidLaunchTemplateId.NotFound")
    f.restart()
    f.until(lambda: job.state == "RUNNING", 300)
    assert not f.journal.memory.refusals
    assert {i.market.value for i in f.living()} == {"spot"}, "the first source was not skipped"


def test_missing_launch_template_stops_its_source(f: Fleet) -> None:
    f.model.faults.next_error("RunInstances", "InvalidLaunchTemplateId.NotFound")
    job = f.slurm.submit(2)
    f.until(lambda: job.state == "RUNNING", 300)
    assert {i.market.value for i in f.living()} == {"on-demand"}


def test_throttled_launch_is_delayed_and_keeps_its_token(f: Fleet) -> None:
    f.model.faults.next_error("RunInstances", "RequestLimitExceeded", times=4)
    job = f.slurm.submit(2)
    f.until(lambda: job.state == "RUNNING", 200)
    assert len({x.token for x in f.cloud.launches}) == 1
    assert not f.journal.memory.refusals


def test_quota_stops_its_source_with_a_message(f: Fleet) -> None:
    f.model.faults.next_error(
        "RunInstances", "MaxSpotInstanceCountExceeded", message="Max spot instance count exceeded"
    )
    job = f.slurm.submit(2)
    f.until(lambda: job.state == "RUNNING", 200)
    assert {i.market.value for i in f.living()} == {"on-demand"}


def test_used_token_is_followed_by_a_new_token(f: Fleet) -> None:
    f.model.faults.next_error("RunInstances", "IdempotentParameterMismatch")
    job = f.slurm.submit(2)
    f.until(lambda: job.state == "RUNNING", 200)
    assert len({x.token for x in f.cloud.launches}) == 2


def test_source_never_exceeds_its_max(f: Fleet) -> None:
    f.model.set_capacity(market="spot", free=0)
    big = f.slurm.submit(6)
    small = f.slurm.submit(3)
    f.until(lambda: small.state == "RUNNING", 3000)
    assert big.state == "PENDING"
    assert "on-demand p5en.48xlarge max 4 leaves too few for 6" in big.comment
    assert len(f.living()) == 3


def test_control_object_stops_only_launches(f: Fleet) -> None:
    running = f.slurm.submit(1, lasts=30)
    f.until(lambda: running.state == "RUNNING", 60)
    f.control.control = Control(scaling=Scaling.STOP, by="down")
    job = f.slurm.submit(3)
    f.until(lambda: job.state == "PENDING" and len(blocked(f, A) | blocked(f, B)) == 31, 120)
    asked = len(resumes(f))
    f.run(3000)
    assert (job.state, job.restarts, len(f.cloud.launches)) == ("PENDING", 1, 1)
    assert job.comment.endswith("launches are stopped, by down")
    assert len(resumes(f)) == asked  # no hook in vain
    f.control.control = Control()
    f.until(lambda: job.state == "RUNNING", 200)


def test_unreadable_control_object_stops_launches_with_a_message(f: Fleet) -> None:
    read = f.control.read

    def unreadable() -> Control:
        raise CloudError(Fault.LOST, "EndpointConnectionError", "no answer")

    f.control.read = unreadable  # type: ignore[method-assign]
    job = f.slurm.submit(2)
    f.run(30)
    assert job.state == "CONFIGURING"  # it may be read the next time
    assert f.complaints[-1].startswith("the control object")
    f.until(lambda: job.state == "PENDING", 120)
    assert job.comment.endswith("the control object cannot be read: EndpointConnectionError: no answer")
    f.run(1500)
    assert not f.cloud.launches
    f.control.read = read  # type: ignore[method-assign]
    f.until(lambda: job.state == "RUNNING", 200)


def test_node_drained_by_slurm_is_replaced_and_its_slot_is_used_again(f: Fleet) -> None:
    first = f.slurm.submit(1)
    f.until(lambda: first.state == "RUNNING", 60)
    name = first.nodes[0]
    f.slurm.drains(name, "Prolog error")
    f.until(lambda: not f.living(), 700)
    f.until(lambda: quiet(f), 300)
    again = f.slurm.submit(16)
    f.until(lambda: again.state == "RUNNING", 200)
    assert name in again.nodes


def test_reclaimed_spot_instance_requeues_its_job_on_a_new_one(f: Fleet) -> None:
    job = f.slurm.submit(2, lasts=300)
    f.until(lambda: job.state == "RUNNING", 60)
    f.interrupt(f.living()[0].id)
    f.until(lambda: job.state != "RUNNING", 120)
    f.until(lambda: job.state == "RUNNING", 400)
    assert job.restarts == 1
    assert len(f.living()) == 2
    f.until(lambda: quiet(f), 2000)


def test_always_on_slots_are_up_without_a_job_and_stay_up(tmp_path: Path) -> None:
    f = Fleet(a_plan(("{min: 0, max: 16}", "{min: 2, max: 16}")), tmp_path)
    f.run(1500)
    assert len(f.living()) == 2
    assert all(f.slurm.nodes[s].up for s in f.plan.pools[0].always_on())
    f.interrupt(f.living()[0].id)
    f.run(400)
    assert len(f.living()) == 2
    assert all(f.slurm.nodes[s].up for s in f.plan.pools[0].always_on())


def test_drain_by_an_operator_stays(f: Fleet) -> None:
    f.slurm.update_nodes(["h200-2a-1"], "drain", "broken fan")
    job = f.slurm.submit(2)
    f.until(lambda: job.state == "COMPLETED", 200)
    f.run(1000)
    node = f.slurm.nodes["h200-2a-1"]
    assert "DRAIN" in node.flags
    assert node.reason == "broken fan"


def test_cancelled_job_leaves_no_launch(f: Fleet) -> None:
    f.model.set_capacity(zone=A, free=0)
    job = f.slurm.submit(2, batch=False)
    f.run(30)
    f.slurm.cancel(job)
    f.model.set_capacity(zone=A, free=None)
    f.until(lambda: quiet(f), 1500)
    assert not f.living()


@pytest.mark.parametrize("every", [1, 3, 7])
def test_daemon_may_be_killed_at_any_time(f: Fleet, every: int) -> None:
    f.model.set_capacity(SPOT, A, "spot", 0)
    job = f.slurm.submit(3)
    for _ in range(200 // every):
        f.run(every)
        f.restart()
        f.look()
    assert job.state in ("RUNNING", "COMPLETED")
    assert sum(1 for i in f.living()) == 3


def test_stopped_daemon_counts_no_failed_boot_for_missing_reports(f: Fleet) -> None:
    """It had missed them because its socket was closed, and ended two good machines (a fault run found it)."""
    job = f.slurm.submit(2)
    f.until(lambda: len(f.living()) == 2, 30)
    f.now += f.plan.pools[0].boot_timeout_s / 2
    f.until(lambda: job.state == "RUNNING", 100)
    assert sum(x.count for x in f.cloud.launches) == 2
