"""What went wrong in the peers, each as a test of ours with its reference, or the reason for which it cannot be.

PC ParallelCluster, CT Cluster Toolkit, CC CycleCloud, NB Soperator of Nebius, SO Slinky's operator, by issue or pull
request; recorded on 2026-08.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.builders import a_plan
from support.fleet import Fleet

from gpucluster.cloud.fleet import fleet_error
from gpucluster.cloud.port import Fault, FleetError, InstanceState
from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.world import slots_of
from gpucluster.elastic.events import Entry, HookCalled, OrderGiven, Verb
from gpucluster.elastic.model import CloudView, Comment, Observation, RecordEvents
from gpucluster.slurm import client
from gpucluster.slurm.config.topology import topology_conf
from gpucluster.slurm.hostlist import expand_slurm

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Pitfall:
    """`test` is a name in this file, or FILE::NAME of another one below tests/unit."""

    about: str
    refs: str
    test: str = ""
    never: str = ""  # why it cannot exist here


PITFALLS = (
    Pitfall("throttling = false ICE", "PC node PR #734, #740, #578", "test_throttled_burst_disables_nothing"),
    Pitfall("eventual consistency", "PC #7265, #7463; node PR #694, #613, #692", "test_instance_without_an_address_is_not_terminated"),
    Pitfall("same, single node", "PC #6780, #6842, #4172", "test_list_without_a_running_node_ends_no_job"),
    Pitfall("stuck state", "PC #7577", "test_slots_marked_not_responding_are_used_again"),
    Pitfall("stuck powering up after fleet stop", "PC node #322, #325, #327", "test_stop_during_power_up_leaves_no_node_stuck"),
    Pitfall("POWERING_DOWN not reusable", "PC node #369, #402", "test_node_that_powers_down_is_used_again"),
    Pitfall("DOWN~ after ResumeTimeout", "CC #51; CT #4940, PR #4941; aws-eda #55", "test_node_after_its_resume_timeout_becomes_idle"),
    Pitfall("requeue loop on quota", "CT #3225; PC #1375, #3863", "test_quota_causes_no_loop"),
    Pitfall("ICE endless retry", "PC #2716, #4030, node PR #398", "test_hour_without_capacity_has_few_launches_and_requeues"),
    Pitfall("booting flag survives", "CT PR #5776", "test_node_that_powers_up_is_set_down_before_its_power_down"),
    Pitfall("requeue then BadConstraints", "PC #5731, #6641", never="slurmctld's own: nothing that the daemon writes frees such a job; `why` names the cause and what to type (elastic/inspect/why/causes.py)"),
    Pitfall("Slurm bug replaces running nodes", "PC #4874", never="fixed in 22.05.5, older versions are not offered; and the node table takes no node with a job whose instance exists"),
    Pitfall("slurmctld restart per scale event", "CT PR #6236", "test_scaling_does_not_restart_or_reconfigure_slurmctld"),
    Pitfall("blocking hook", "CC PR #301; CT resume_wrapper", "elastic/test_hook.py::test_each_program_name_is_a_kind_that_the_reader_returns"),
    Pitfall("silent hook", "CT #3337", "test_each_call_of_a_hook_is_in_the_journal"),
    Pitfall("failed hook not noticed", "NB PR #2859", "test_daemon_works_without_hooks"),
    Pitfall("keepalive loop", "CC #230, PR #231", "test_kept_node_that_slurm_powers_down_causes_no_loop"),
    Pitfall("orphan race", "slurm-gcp PR #54; PC node PR #594", "test_instance_of_a_powered_down_node_has_a_grace"),
    Pitfall("name collision", "bibigrid #461, #511", "test_slot_gets_no_second_instance_before_the_first_has_ended"),
    Pitfall("DNS", "PC #4968, #6529, #3394, #4657", never="no DNS is asked: the daemon gives every node the hosts lines of the living ones (test_registration.py)"),
    Pitfall("node lies", "PC cookbook PR #1001", "elastic/test_registration.py::test_other_senders_are_refused"),
    Pitfall("node lookup fail-open", "SO PR #79", "test_node_that_slurm_does_not_list_is_not_changed"),
    Pitfall("topology vs power-down", "PC cookbook PR #3122, #3123", "test_topology_has_every_slot"),
    Pitfall("topology gaps", "NB PR #1188; SO #261; AICR #1737", "test_every_switch_has_nodes"),
    Pitfall("topology file quirk", "CT conf.py", never="topology.yaml is not written: topology.conf holds no blocks"),
    Pitfall("API cost", "CT PR #3405, #4091", "test_number_of_lists_in_a_burst_does_not_depend_on_the_nodes"),
    Pitfall("size of scontrol show nodes", "PC node #266", never="a figure, not a test: bench/reconcile.py reads and reconciles 10,000 and 50,000 nodes"),
    Pitfall("drain owner", "SO PR #3, #133", "elastic/test_node_table.py::test_drain_is_removed_only_by_its_owner"),
    Pitfall("replacement kills job", "NB PR #2635", "test_replace_order_waits_for_the_job"),
    Pitfall("configless slurmd", "slurm-gcp PR #25, #26", "test_slurmd_starts_after_a_boot_without_controller"),
    Pitfall("shared-fs hang", "PC computemgtd", never="the daemon reads and writes the head's own disk only: journal, spool and bundle below /var/lib"),
)  # fmt: skip


@pytest.fixture
def f(tmp_path: Path) -> Fleet:
    return Fleet(a_plan(), tmp_path)


def test_every_pitfall_has_a_test_or_a_reason() -> None:
    assert len(PITFALLS) == 31
    for pitfall in PITFALLS:
        assert bool(pitfall.test) != bool(pitfall.never), pitfall.about
        if pitfall.test:
            file, _, name = pitfall.test.rpartition("::")
            text = (TESTS / file).read_text() if file else Path(__file__).read_text()
            assert f"\ndef {name}(" in text, pitfall.test


# --- the cloud ---------------------------------------------------------------------------------------------
def test_throttled_burst_disables_nothing(f: Fleet) -> None:
    """A 1500-node job: RequestLimitExceeded was read as no capacity, and 2000 of 3000 nodes were disabled for 600 s."""
    f.model.faults.next_error("RunInstances", "RequestLimitExceeded", times=6)
    jobs = [f.slurm.submit(4) for _ in range(3)]
    f.until(lambda: all(j.runs for j in jobs), 600)
    assert not f.journal.memory.refusals
    assert not [u for u in f.slurm.updates if u[0] in ("drain", "down")]
    mixed = (FleetError(machine="p5en.48xlarge", code="InsufficientInstanceCapacity", message=""),
             FleetError(machine="p5e.48xlarge", code="RequestLimitExceeded", message=""))  # fmt: skip
    assert fleet_error(mixed).fault is Fault.THROTTLED


def test_instance_without_an_address_is_not_terminated(f: Fleet) -> None:
    """DescribeInstances lacks PrivateIpAddress at scale: healthy nodes were replaced, the cluster protected itself."""
    job = f.slurm.submit(2, lasts=600)
    f.until(lambda: job.state == "RUNNING", 100)
    listed = f.cloud.instances
    f.cloud.instances = lambda name, also=(): [replace(i, address=None) for i in listed(name, also)]  # type: ignore[method-assign]
    f.until(lambda: job.state == "COMPLETED", 700)
    assert (job.restarts, len(f.cloud.launches)) == (0, 1)


def test_list_without_a_running_node_ends_no_job(f: Fleet) -> None:
    """ "No corresponding instance in EC2" killed a long-running node, once after exactly 6 h; here it is 12 times what a list may lag."""
    job = f.slurm.submit(2, lasts=3600)
    f.until(lambda: job.state == "RUNNING", 100)
    listed, gone = f.cloud.instances, sorted(i.id for i in f.living())[0]
    f.cloud.instances = lambda name, also=(): [i for i in listed(name, also) if i.id != gone]  # type: ignore[method-assign]
    f.until(lambda: job.state == "COMPLETED", 2 * 3600)
    assert (job.restarts, len(f.cloud.launches)) == (0, 1)


def test_quota_causes_no_loop(f: Fleet) -> None:
    """An impossible quota: create, delete, requeue, for ever."""
    for market in ("MaxSpotInstanceCountExceeded", "VcpuLimitExceeded"):
        f.model.faults.next_error("RunInstances", market, times=500)
    job = f.slurm.submit(2)
    f.run(3600)
    assert (job.state, len(f.cloud.launches) <= 6, job.restarts <= 6) == ("PENDING", True, True)
    assert "VcpuLimitExceeded" in job.comment or "MaxSpotInstanceCountExceeded" in job.comment
    assert not f.living()


def test_hour_without_capacity_has_few_launches_and_requeues(f: Fleet) -> None:
    f.model.set_capacity(free=0)
    job = f.slurm.submit(4)
    f.run(3600)
    assert job.state == "PENDING"
    assert len(f.cloud.launches) <= 30  # five offers, each refused anew after 2, 4, 8 ... minutes
    assert job.restarts <= 10
    f.model.set_capacity(free=None)
    f.until(lambda: job.state == "RUNNING", f.plan.times.refusal_max_s + 600)


def test_instance_of_a_powered_down_node_has_a_grace(f: Fleet) -> None:
    """RUNNING beside POWERED_DOWN may just be booting: 90 s in slurm-gcp, 300 s in ParallelCluster."""
    job = f.slurm.submit(2)
    f.until(lambda: len(f.living()) == 2, 30)
    f.slurm.cancel(job)
    for name in ("h200-2a-1", "h200-2a-2"):
        f.slurm.nodes[name].base, f.slurm.nodes[name].flags = "IDLE", {"CLOUD", "POWERED_DOWN"}
    f.mute = lambda _: True  # else they register and are up
    f.run(f.plan.times.orphan_grace_s - 30)
    assert len(f.living()) == 2
    f.until(lambda: not f.living(), 120)


def test_slot_gets_no_second_instance_before_the_first_has_ended(f: Fleet) -> None:
    """SuspendTimeout was shorter than the deletion: two machines of one name."""
    first = f.slurm.submit(1, lasts=10)
    f.until(lambda: first.state == "COMPLETED", 200)
    slot = first.runs[0][0]
    old = f.journal.memory.incarnations[slot].instance
    assert old
    f.slurm.update_nodes((slot,), "power_down")
    f.until(lambda: "POWERING_DOWN" in f.slurm.nodes[slot].flags, 60)
    f.slurm.update_nodes((slot,), "resume")  # of use at once, while its machine may still live
    again = f.slurm.submit(1)
    f.slurm.prefers[again.id] = (slot,)
    f.until(lambda: again.state == "RUNNING", 1200)
    states = {i.id: i.state for i in f.cloud.instances(f.plan.name)}
    new = f.journal.memory.incarnations[slot].instance
    assert new == old or states.get(old) in (None, InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED)


def test_number_of_lists_in_a_burst_does_not_depend_on_the_nodes(f: Fleet) -> None:
    job = f.slurm.submit(16)
    looks = f.reconciler.observe
    count = [0]

    def counted() -> None:
        count[0] += 1
        looks()

    f.reconciler.observe = counted  # type: ignore[method-assign]
    f.until(lambda: job.state == "RUNNING", 300)
    assert len([c for c in f.cloud.calls if c[0] == "instances"]) <= count[0]
    assert len(f.cloud.launches) == 1


# --- Slurm ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("what", ["restart", "reconfigure", "nothing"])
@pytest.mark.parametrize("version", ["22.05", "24.11", "26.05"])
def test_slots_marked_not_responding_are_used_again(tmp_path: Path, version: str, what: str) -> None:
    """A lifted idle~ slot keeps the mark NOT_RESPONDING; after a restart or reconfigure no job gets it, and no list
    of drained nodes has it (22.05.8 and 24.11.5, seen). ParallelCluster's own daemon never noticed.
    """
    f = Fleet(a_plan(), tmp_path, version=version)
    f.model.set_capacity(free=0)
    refused = f.slurm.submit(1)
    f.run(120)
    f.slurm.cancel(refused)
    f.model.set_capacity(free=None)
    f.until(lambda: not any("DRAIN" in n.flags for n in f.slurm.nodes.values()), 4 * 3600)
    if what == "restart":
        f.slurm.restart(forgetting=False)
    elif what == "reconfigure":
        f.slurm.reconfigure()
    job = f.slurm.submit(16)
    f.until(lambda: job.state == "RUNNING", 60 + f.plan.times.suspend_timeout_s + 120)
    idle = [n for n in f.slurm.nodes.values() if "POWERED_DOWN" in n.flags]
    f.until(lambda: not any("NOT_RESPONDING" in n.flags for n in idle), 600)


@pytest.mark.parametrize("launched", [True, False])
def test_stop_during_power_up_leaves_no_node_stuck(f: Fleet, launched: bool) -> None:
    """Slurm ignores a power-down of a node that powers up: it was unusable for the whole ResumeTimeout."""
    if not launched:
        f.model.faults.next_error("RunInstances", "RequestLimitExceeded", times=50)
    job = f.slurm.submit(4)
    f.until(lambda: all("POWERING_UP" in f.slurm.nodes[n].flags for n in job.nodes or ("h200-2a-1",)), 30)
    f.journal.append((Entry(at=f.now, event=OrderGiven(verb=Verb.POOL_DRAIN, target="h200", by="anna")),))
    f.slurm.cancel(job)
    limit = f.boot_s + 2 * f.plan.times.suspend_timeout_s + 120
    assert limit < f.plan.pools[0].boot_timeout_s
    f.until(lambda: not f.living() and all("POWERED_DOWN" in n.flags for n in f.slurm.nodes.values()), limit)


@pytest.mark.parametrize("flags", ["POWERING_DOWN", "POWERED_DOWN POWER_DOWN", "POWER_DOWN"])
def test_node_that_powers_down_is_used_again(f: Fleet, flags: str) -> None:
    node = f.slurm.nodes["h200-2a-1"]
    node.flags, node.since = {"CLOUD", *flags.split()}, f.now
    f.until(lambda: node.free() and "POWERED_DOWN" in node.flags, 2 * f.plan.times.suspend_timeout_s + 120)


@pytest.mark.parametrize("words", ["", "broken fan : ", "gpucluster: no h200 : "])
@pytest.mark.parametrize(
    "mark", ["", "NOT_RESPONDING"]
)  # 22.05 sets it, 25.11 does not: its breaker never tripped
def test_node_after_its_resume_timeout_becomes_idle(f: Fleet, words: str, mark: str) -> None:
    """Slurm appends to whatever reason was left over (24.11, seen), so it is not a person's for that."""
    node = f.slurm.nodes["h200-2a-1"]
    node.base, node.flags = "DOWN", {"CLOUD", "POWERED_DOWN", *mark.split()}
    node.reason, node.reason_by = words + "ResumeTimeout reached", "slurm"
    f.until(lambda: node.base == "IDLE" and node.flags == {"CLOUD", "POWERED_DOWN"}, 400)


def test_node_that_powers_up_is_set_down_before_its_power_down(f: Fleet) -> None:
    f.model.set_capacity(free=0)
    f.slurm.submit(2)
    f.run(60)
    of_both = [u[0] for u in f.slurm.updates if u[0] in ("down", "power_down") and "h200-2a-1" in u[1]]
    assert of_both[:2] == ["down", "power_down"]
    assert not {u[0] for u in f.slurm.updates} & {"power_down_force", "power_down_asap"}


def test_scaling_does_not_restart_or_reconfigure_slurmctld(f: Fleet) -> None:
    """A changed topology restarted slurmctld 25 times a day: who registered within 300 s of that lost its jobs."""
    job = f.slurm.submit(4, lasts=10)
    f.until(lambda: job.state == "COMPLETED" and not f.living(), 1200)
    assert {u[0] for u in f.slurm.updates} <= {"drain", "undrain", "down", "power_down", "power_up", "resume"}
    assert "reconfigure" not in Path(client.__file__).read_text()


def test_node_that_slurm_does_not_list_is_not_changed(f: Fleet) -> None:
    """An unknown node counted as drained, and its running jobs were killed."""
    job = f.slurm.submit(1, lasts=3000)
    f.until(lambda: job.state == "RUNNING", 100)
    view = f.slurm.read(f.now)
    nodes = {n: node for n, node in view.nodes.items() if n != job.nodes[0]}
    listed = {i.id: i for i in f.cloud.instances(f.plan.name)}
    seen = Observation(slurm=replace(view, nodes=nodes), cloud=CloudView(at=f.now, instances=listed))
    actions = decide(f.plan, f.bindings, seen, f.journal.memory, f.now)
    assert {type(a) for a in actions} <= {
        RecordEvents,
        Comment,
    }  # the comment lets slurmctld save the job's start


def test_topology_has_every_slot() -> None:
    """25.11 drops powered-down nodes from blocks; switches that follow the living churn the scheduler."""
    plan = a_plan()
    named = [name for leaf in topology_conf(plan).leaves for name in expand_slurm(leaf.nodes)]
    assert sorted(named) == sorted(slots_of(plan))


def test_every_switch_has_nodes() -> None:
    """A switch without children is refused, and an empty file with the plugin keeps slurmctld from starting."""
    for line in topology_conf(a_plan()).leaves:
        assert line.nodes
    assert all(line.switches for line in topology_conf(a_plan()).spines)


# --- hooks, orders, nodes ------------------------------------------------------------------------------------------
def test_each_call_of_a_hook_is_in_the_journal(f: Fleet) -> None:
    """ "waking node" in slurmctld's log, nothing in resume.log, then the timeout."""
    job = f.slurm.submit(2, lasts=10)
    f.until(lambda: job.state == "COMPLETED" and not f.living(), 1200)
    f.run(200)
    noted = [e.event for e in f.journal.entries() if isinstance(e.event, HookCalled)]
    assert len(noted) == len(f.slurm.hooks)
    assert {e.kind for e in noted} == {"resume", "suspend"}


def test_daemon_works_without_hooks(tmp_path: Path) -> None:
    """Without a ResumeFailProgram the machine was provisioned on behind a powered-down node."""
    f = Fleet(a_plan(), tmp_path)
    f.slurm._hook = lambda kind, hostlist: None  # every call is lost
    job = f.slurm.submit(2, batch=False)
    f.mute = lambda _: True
    f.until(lambda: job.state == "FAILED", 4000)
    f.until(lambda: not f.living(), 600)


def test_kept_node_that_slurm_powers_down_causes_no_loop(f: Fleet) -> None:
    """A pinned machine and Slurm's own power-down: resume, resume_fail, resume, for ever."""
    job = f.slurm.submit(1, lasts=10)
    f.until(lambda: job.state == "COMPLETED", 200)
    slot = job.runs[0][0]
    kept = f.journal.memory.incarnations[slot].instance
    until = f.now + 2 * 3600
    order = OrderGiven(verb=Verb.NODE_KEEP, target=slot, by="anna", words="look at it", until=until)
    f.journal.append((Entry(at=f.now, event=order),))
    calls = len(f.slurm.hooks)
    f.slurm.update_nodes((slot,), "power_down")
    f.run(2400)
    assert [i.id for i in f.living()] == [kept]
    assert f.slurm.nodes[slot].up
    f.broken = lambda _: "its disk is full"
    f.mute = lambda _: True
    f.slurm.update_nodes((slot,), "power_down")
    f.run(2400)
    assert [i.id for i in f.living()] == [kept]
    assert len(f.slurm.hooks) - calls <= 6
    f.until(lambda: not f.living() and f.slurm.nodes[slot].free(), 3600)
    assert slot not in f.journal.memory.orders


def test_replace_order_waits_for_the_job(f: Fleet) -> None:
    """Wait for IDLE+DRAIN, not DRAIN+ALLOC."""
    job = f.slurm.submit(1, lasts=900)
    f.until(lambda: job.state == "RUNNING", 100)
    slot, old = job.nodes[0], f.living()[0].id
    f.journal.append((Entry(at=f.now, event=OrderGiven(verb=Verb.NODE_REPLACE, target=slot, by="anna")),))
    f.until(lambda: job.state == "COMPLETED", 1000)
    assert job.restarts == 0
    f.until(lambda: old not in {i.id for i in f.living()}, 200)
    f.until(lambda: slot not in f.journal.memory.orders, 200)
    f.until(f.slurm.nodes[slot].free, 600)


def test_slurmd_starts_after_a_boot_without_controller() -> None:
    units = TESTS.parents[1] / "src/gpucluster/agent/units/etc/systemd/system"
    assert "Restart=on-failure" in (units / "slurmd.service.d/gpucluster.conf").read_text()
