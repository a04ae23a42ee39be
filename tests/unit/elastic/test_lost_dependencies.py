"""What the daemon does while it cannot read EC2 or the control object, and what it leaves: decision 0003's table.

While DescribeInstances failed, a spot notice was ignored: no signal, no requeue, the checkpoint was lost.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from signal import SIGUSR1

import pytest
from support.builders import a_plan
from support.cluster_states import NOW, burst, instance, living, node, sight
from support.fleet import Fleet
from support.slurm_model import Job
from support.two_daemons import TTL_S, Pair
from support.worlds import WORLDS

from gpucluster.cloud.port import CloudError, Control, Fault
from gpucluster.elastic import order
from gpucluster.elastic.abilities import LOSSES, Ability, Dependency, Loss, denied
from gpucluster.elastic.act import Actor
from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.node_table import ROWS
from gpucluster.elastic.decide.terminations import left_alone
from gpucluster.elastic.events import Entry, Interrupted, JobsRequeued, OfferRefused, OrderGiven, Verb
from gpucluster.elastic.inspect import losses
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot, would_do
from gpucluster.elastic.inspect.why import Cause, Part, why
from gpucluster.elastic.lease import AlwaysHeld
from gpucluster.elastic.model import (
    Comment,
    DeleteMessages,
    Drain,
    JobRun,
    LaunchGang,
    PowerDown,
    RecordEvents,
    Requeue,
    Signal,
)
from gpucluster.plan.model import Market, Termination
from gpucluster.plan.names import TAG_ROLE
from gpucluster.slurm.values import SlurmView

CHANNELS = {"both": (), "queue alone": ("metadata",), "agent alone": ("queue",)}
PROMISES = re.compile("launch|terminat|power|undrain|sets it|resumes|replace")
# In a sentence of a state, each of these is an act of the daemon.
ACTS = re.compile(
    r"the daemon (launch|terminat|power|undrain|set|resum|replac|remov)\w*|it removes the drain"
    r"|(is|are|will be) (launched|terminated|replaced|removed|undrained)"
    r"|(?<!to be )replaced|powered (up|down) (as|if|when|again)|(?<!Slurm )powers it|resumes it|for a short time|rate limit"
)


@pytest.fixture(params=("24.11", "26.05"))
def f(request: pytest.FixtureRequest, tmp_path: Path) -> Fleet:
    plan = a_plan()
    pools = tuple(replace(pool, termination=Termination(signal="USR1")) for pool in plan.pools)
    return Fleet(replace(plan, pools=pools), tmp_path, version=request.param)


def running(f: Fleet, count: int = 2, lasts: float = 3000.0) -> Job:
    job = f.slurm.submit(count, lasts=lasts)
    f.until(lambda: job.state == "RUNNING", 120)
    f.run(60)
    return job


class Outage:
    """EC2's list fails. Every other call of EC2 would succeed, so that each forbidden call is seen."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.calls = fleet, len(fleet.cloud.calls)
        fleet.cloud.unlisted = CloudError(Fault.LOST, "ConnectTimeout", "the connection to EC2 timed out")

    def end(self) -> None:
        self.fleet.cloud.unlisted = None

    @property
    def changes(self) -> list[str]:
        """The calls that change something since the outage began."""
        return [
            name
            for name, _ in self.fleet.cloud.calls[self.calls :]
            if name in ("launch", "fleet", "terminate")
        ]


@pytest.mark.parametrize("silent", CHANNELS.values(), ids=CHANNELS)
def test_notice_without_ec2_signals_and_requeues_the_job(f: Fleet, silent: tuple[str, ...]) -> None:
    job = running(f)
    outage = Outage(f)
    f.run(90)
    instance = f.living()[0]
    began = f.now
    f.model.interrupt(instance.id, f.now, 120.0, silent=silent)
    f.until(lambda: bool(f.slurm.signals), 60)
    assert [(number, signal) for _, number, signal in f.slurm.signals] == [(job.id, "USR1")]
    f.until(lambda: job.state == "PENDING", 120)
    assert f.now <= began + 120, "the job was requeued only after its instance had ended"
    assert job.restarts == 1
    drained = [n.name for n in f.slurm.nodes.values() if "DRAIN" in n.flags]
    assert drained == [f.agents[instance.id].slot]
    assert not outage.changes
    outage.end()
    f.until(lambda: job.state == "RUNNING", 900)
    assert job.restarts == 1
    assert len(f.slurm.signals) == 1


def test_nothing_is_launched_or_terminated_without_ec2(f: Fleet) -> None:
    """Neither an idle node, a new job nor a machine that does not report changes that."""
    first = running(f, 1, lasts=10.0)
    f.until(lambda: first.state == "COMPLETED", 200)
    outage = Outage(f)
    second = f.slurm.submit(3)
    f.run(1200)
    assert not outage.changes
    assert second.state in ("PENDING", "CONFIGURING")
    assert Dependency.EC2 in f.reconciler.status.lost
    outage.end()
    f.until(lambda: second.state == "COMPLETED", 2000)
    assert f.reconciler.status.lost == {}


def test_no_boot_fails_because_ec2_is_silent(f: Fleet) -> None:
    """Registration needs EC2's list, so an agent that does not register proves nothing."""
    job = f.slurm.submit(2)
    f.until(lambda: len(f.living()) == 2, 60)
    outage = Outage(f)
    f.mute = lambda _: True
    f.run(f.plan.pools[0].boot_timeout_s / 2)
    f.mute = lambda _: False
    assert not f.journal.memory.boots
    outage.end()
    f.until(lambda: job.state == "COMPLETED", 3000)


def test_loss_has_the_time_of_its_first_failure_and_the_error(f: Fleet) -> None:
    """An error that EC2 gave is not called silence."""
    running(f)
    began = f.now
    Outage(f)
    f.run(300)
    loss = f.reconciler.status.lost[Dependency.EC2]
    assert loss.since is not None
    assert began <= loss.since <= began + 60
    assert "the connection to EC2 timed out" in loss.words


def test_pass_with_a_stale_view_of_the_cloud_only_evacuates(f: Fleet) -> None:
    job = running(f)
    instance = f.living()[0]
    f.model.interrupt(instance.id, f.now, 120.0)
    f.reconciler.receive_events(f.queue.receive(0.0))
    observation = replace(f.reconciler.observation, slurm=f.slurm.read(f.now), cloud=None)
    actions = decide(f.plan, f.bindings, observation, f.journal.memory, f.now)
    assert {type(a) for a in actions} <= {RecordEvents, DeleteMessages, Drain, Signal, Requeue, Comment}
    assert any(isinstance(a, Signal) and a.jobs == (job.id,) for a in actions)


EVACUATION = {RecordEvents, DeleteMessages, Comment, Drain, Signal, Requeue}
ALLOWED: dict[Dependency, set[type]] = {
    Dependency.EC2: EVACUATION,
    Dependency.CONTROL: EVACUATION | {PowerDown},
    Dependency.LEASE: set(),
    Dependency.SLURMCTLD: {RecordEvents, DeleteMessages},
}


class CutOff(AlwaysHeld):
    """The lease of a daemon that was the last holder and cannot read the control object."""

    cut = False

    def held(self) -> bool:
        return not self.cut

    def cut_off(self) -> bool:
        return self.cut


def cut_off(f: Fleet) -> CutOff:
    lease = CutOff()
    f.reconciler._clients = f.reconciler._actor._clients = replace(f.reconciler._clients, lease=lease)
    lease.cut, f.control.readable = True, False
    return lease


def test_daemon_that_is_cut_off_evacuates_and_powers_idle_nodes_down(f: Fleet) -> None:
    """An idle node stayed paid without a bound. Its machine ends itself, because nobody may terminate it."""
    job, idle = running(f), f.slurm.submit(2, lasts=5.0)
    f.until(lambda: idle.state == "COMPLETED", 200)
    kept, other = sorted(
        {i.id for i in f.living()} - {i.id for i in f.living() if f.agents[i.id].slot in job.nodes}
    )
    f.journal.append(
        (
            Entry(
                at=f.now,
                event=OrderGiven(verb=Verb.NODE_KEEP, target=f.agents[kept].slot, by="a person", until=None),
            ),
        )
    )
    lease = cut_off(f)
    calls, updates = len(f.cloud.calls), list[str]()
    f.slurm.watch = lambda state, nodes: updates.append(state)
    f.model.interrupt(next(i.id for i in f.living() if f.agents[i.id].slot in job.nodes), f.now, 120.0)
    f.until(lambda: job.state == "PENDING", 118)
    assert job.restarts == 1
    f.run(1000)  # far above the idle time
    f.slurm.submit(4)
    f.run(1000)  # far above the orphan's grace
    assert set(updates) == {"drain", "power_down"}
    living = {i.id for i in f.living()}
    assert kept in living
    assert other not in living, "the idle machine did not end itself"
    assert not [name for name, _ in f.cloud.calls[calls:] if name in ("launch", "fleet", "terminate")]
    assert len(f.slurm.signals) == 1
    loss = f.reconciler.status.lost[Dependency.CONTROL]
    assert loss.since is not None
    lease.cut, f.control.readable = False, True
    f.until(lambda: job.state == "RUNNING" and not f.reconciler.status.lost, 2000)


class Lapsed(AlwaysHeld):
    """The lease of a daemon that may not act at all: it is over, and the other head's daemon may hold it."""

    def held(self) -> bool:
        return False


def test_daemon_whose_lease_is_over_does_nothing_and_says_so(f: Fleet) -> None:
    """With two heads nothing named it: `node drain` said that the node takes no new jobs, and `why` what comes next."""
    job = running(f)
    f.slurm.submit(2)
    f.reconciler._clients = f.reconciler._actor._clients = replace(f.reconciler._clients, lease=Lapsed())
    calls, updates = len(f.cloud.calls), list[str]()
    f.slurm.watch = lambda state, nodes: updates.append(state)
    f.control.readable = False
    f.model.interrupt(f.living()[0].id, f.now, 120.0)
    f.run(100)
    assert job.state == "RUNNING"
    assert not updates
    assert not [name for name, _ in f.cloud.calls[calls:] if name in ("launch", "fleet", "terminate")]
    assert list(f.reconciler.status.lost) == [Dependency.LEASE]
    (said,) = losses.sentences(f.reconciler.status.lost, f.now)
    assert "the daemon does nothing" in said
    assert order.postponed(Verb.NODE_DRAIN, f.reconciler.status.lost)


def test_lease_that_s3_refuses_to_renew_is_told_with_that_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3, or KMS, answered each read and refused each write: the loss was "no answer in time" of a read."""
    pair = Pair(a_plan(), tmp_path)
    pair.run(5)
    holder = pair.sides[0]
    assert holder.reconciler is not None
    began = pair.now

    def refuse(control: Control, etag: str | None) -> str | None:
        raise CloudError(Fault.CONFIGURATION, "AccessDenied", "not authorized to perform s3:PutObject")

    with monkeypatch.context() as denied_writes:
        denied_writes.setattr(pair.control, "write", refuse)
        pair.asleep.add(1)
        pair.run(4 * TTL_S)
        loss = holder.reconciler.status.lost[Dependency.CONTROL]
        assert loss.since is not None
        assert began <= loss.since <= began + TTL_S
        (told,) = losses.sentences(holder.reconciler.status.lost, pair.now)
        assert told.startswith("the daemon cannot read or renew the control object, since ")
        assert "(AccessDenied: not authorized to perform s3:PutObject)" in told
    pair.run(2 * TTL_S)
    assert holder.reconciler.status.lost == {}
    assert holder.lease.held()
    pair.end()


def test_machines_that_end_themselves_while_cut_off_were_not_reclaimed(f: Fleet) -> None:
    """Their end was recorded when the object was back: EC2 had forgotten why they ended, and their spot offer was refused."""
    job = running(f, 4, lasts=30.0)
    assert {one.market for one in f.journal.memory.incarnations.values() if one.instance} == {Market.SPOT}
    lease = cut_off(f)
    f.until(lambda: not f.living(), 2000)
    f.run(60)
    assert not [one for one in f.journal.memory.incarnations.values() if one.instance], (
        "they still cost money"
    )
    f.run(3 * 3600)  # EC2 lists them no more
    lease.cut, f.control.readable = False, True
    f.run(900)
    assert job.state == "COMPLETED"
    ended = [e.event for e in f.journal.entries() if isinstance(e.event, Interrupted | OfferRefused)]
    assert not ended


def test_replacement_does_not_begin_while_cut_off(f: Fleet) -> None:
    """It would use up a replacement of the hour, although the daemon may not act."""
    job = running(f, 1, lasts=30.0)
    (instance,) = f.living()
    f.until(lambda: job.state == "COMPLETED", 100)
    f.slurm.update_nodes(job.runs[-1], "drain", "gpucluster: [health] gpu.ecc: GPU 3")
    lease = cut_off(f)
    f.run(1500)
    assert [one.id for one in f.living()] == [instance.id]
    assert not f.journal.memory.replaced
    lease.cut, f.control.readable = False, True
    f.until(lambda: bool(f.journal.memory.replaced), 100)


def test_requeue_while_cut_off_spares_a_job_that_has_begun_another_run(
    f: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    """The job's start time and nodes are read again just before, and only what was sent is recorded."""
    job, other = running(f), running(f)
    lease = CutOff()
    clients = replace(f.reconciler._clients, lease=lease)
    lease.cut = True
    run = JobRun(job=job.id, started_at=job.started, nodes=job.nodes)
    second = JobRun(job=other.id, started_at=other.started, nodes=other.nodes)
    earlier, elsewhere = replace(run, started_at=run.started_at - 1), replace(run, nodes=other.nodes)
    caplog.set_level("INFO")
    for runs in ((earlier,), (elsewhere,), (earlier, second), (run,)):
        Actor(clients).act((Requeue(runs=runs, instance="i-1", reason="spot"),), f.now)
    assert (job.restarts, other.restarts) == (1, 1)
    assert [e.event.jobs for e in f.journal.entries() if isinstance(e.event, JobsRequeued)] == [
        (other.id,),
        (job.id,),
    ]
    none = "requeue no job, because another run of each has begun: spot"
    said = [message for message in caplog.messages if message.startswith("requeue")]
    assert said == [none, none, f"requeue job {other.id}: spot", f"requeue job {job.id}: spot"]


@pytest.mark.parametrize("cut", [False, True], ids=["as the holder", "cut off"])
def test_job_without_a_handler_of_our_signal_is_requeued(f: Fleet, cut: bool) -> None:
    """Cut off, the daemon requeued nothing and recorded that it had: the job was lost."""
    job = running(f, 1)
    if cut:
        cut_off(f)
    dies_of_signals(f)
    f.model.interrupt(f.living()[0].id, f.now, 120.0)
    f.until(lambda: job.state == "PENDING", 118)
    assert job.restarts == 1
    assert [e.event.jobs for e in f.journal.entries() if isinstance(e.event, JobsRequeued)] == [(job.id,)]


def dies_of_signals(f: Fleet) -> None:
    """Let each batch script die of its signal: the job is FAILED, and stays on its nodes until it is requeued."""
    read = f.slurm.read

    def seen(at: float) -> SlurmView:
        view = read(at)
        dead = {number for _, number, _ in f.slurm.signals}
        died = frozenset({"FAILED"})
        jobs = (
            replace(j, states=died, exit_signal=SIGUSR1) if j.id in dead and not j.restarts else j
            for j in view.jobs
        )
        return replace(view, jobs=tuple(jobs))

    f.slurm.read = seen  # type: ignore[method-assign]


@pytest.mark.parametrize("verb", [None, Verb.POOL_DRAIN])
def test_idle_nodes_power_down_while_cut_off_also_in_a_drained_pool(f: Fleet, verb: Verb | None) -> None:
    """The order kept idle nodes up, because only the row of the idle time was looked at."""
    job = running(f, 2, lasts=100.0)
    if verb is not None:
        order = OrderGiven(verb=verb, target="h200", by="a person", until=None)
        f.journal.append((Entry(at=f.now, event=order),))
    cut_off(f)
    f.until(lambda: job.state == "COMPLETED", 200)
    f.run(1000)
    assert not f.living()


def test_machine_of_a_node_that_slurm_set_down_and_powered_down_is_told_to_end() -> None:
    lost = {Dependency.CONTROL: Loss(since=NOW - 9000, words="no")}
    down = node("h200-2a-1", "DOWN CLOUD POWERED_DOWN", reason="ResumeTimeout reached", reason_by="slurm")
    s = sight(burst(), *living("h200-2a-1"), nodes=[down], instances=[instance(0)])
    s = replace(s, observation=replace(s.observation, lost=lost))
    assert s.world is not None
    assert left_alone(s.world) == {"i-0"}


def test_machine_whose_termination_ec2_refuses_is_not_told_to_end(f: Fleet) -> None:
    """A power-off in the guest would end an instance that a person has protected."""
    job = running(f, 1, lasts=100.0)
    (instance,) = f.living()
    f.model.change(instance.id, f.now, lambda i: replace(i, tags={**i.tags, TAG_ROLE: "a person's"}))
    f.until(lambda: bool(f.journal.memory.refused_ends), 900)
    cut_off(f)
    f.run(1000)
    assert job.state == "COMPLETED"
    assert [i.id for i in f.living()] == [instance.id]


@pytest.mark.parametrize("both", tuple(combinations(Dependency, 2)), ids=" and ".join)
def test_sentences_of_two_losses_promise_nothing_that_either_denies(both: tuple[Dependency, ...]) -> None:
    """With EC2 and the control object lost, `status` said that idle machines end themselves."""
    lost = {dependency: Loss(since=1.0, words="no") for dependency in both}
    said = tuple(losses.sentences(lost, 2.0))
    refused = denied(lost)
    for dependency in both:
        for needs, words in LOSSES[dependency].goes_on:
            assert any(words in one for one in said) is (needs not in refused)


@pytest.mark.parametrize("dependency", Dependency)
@pytest.mark.parametrize(
    "world_of",
    [w for topic in WORLDS.values() for w in topic.values()],
    ids=[n for t in WORLDS.values() for n in t],
)
def test_why_and_the_dry_run_promise_nothing_that_a_loss_denies(
    dependency: Dependency,
    world_of: Callable[[], ClusterSnapshot],
) -> None:
    """`why`, `status` and the dry run promised launches, terminations and power-downs that this daemon could not do."""
    snapshot = without(world_of(), dependency)
    world = snapshot.world
    assert world is not None
    actions, denies = would_do(snapshot), LOSSES[dependency].denied
    if Ability.LAUNCH in denies:
        assert not [a for a in actions if isinstance(a, LaunchGang) and not a.repeat]
    if Ability.UPDATE in denies:
        assert {type(a) for a in actions} <= ALLOWED[dependency]
    (told,) = losses.sentences(world.lost, snapshot.now, snapshot.plan.name)
    for subject in (*world.phases, *(str(job.id) for job in world.slurm.jobs)):
        shown = why(snapshot, subject)
        if not shown.known or shown.cause is Cause.FINISHED:
            continue
        assert told in {line.words for line in shown.lines}
        next_steps = [line for line in shown.lines if line.part is Part.NEXT]
        assert not {line.needs for line in next_steps} & denies
        promised = [x.words for x in next_steps if not x.needs and Ability.UPDATE in denies]
        assert not [words for words in promised if PROMISES.search(words)], promised
        if Ability.UPDATE in denies:
            states = (x.words for x in shown.lines if x.part in (Part.STATE, Part.REASON) and x.words != told)
            assert not [words for words in (shown.headline, *states) if ACTS.search(words)]


def test_text_of_each_row_is_a_state() -> None:
    """The headline of `why` promised what the loss denied, and only the next steps were left out."""
    assert not [row.text for row in ROWS if ACTS.search(row.text)]


def test_why_tells_at_once_what_to_do_about_the_control_object() -> None:
    """The remedy came only a minute after the loss, with the halt."""
    seen = next(iter(next(iter(WORLDS.values())).values()))()
    world = seen.world
    assert world is not None
    remedy = "check the cluster's bucket, the rights of the head's role on it"
    for subject in (*world.phases, *(str(job.id) for job in world.slurm.jobs)):
        for dependency in Dependency:
            lines = why(without(seen, dependency), subject).lines
            told = [x.words for x in lines if x.part is Part.REMEDY and x.words.startswith(remedy)]
            assert len(told) == (dependency in (Dependency.CONTROL, Dependency.LEASE))


def without(seen: ClusterSnapshot, dependency: Dependency) -> ClusterSnapshot:
    """The same cluster after the loss of a dependency."""
    if dependency is Dependency.JOURNAL:
        return replace(seen, memory=replace(seen.memory, unrestored_since=NOW - 60))
    lost = {dependency: Loss(since=NOW - 60, words="UnauthorizedOperation: no")}
    cloud = None if dependency is Dependency.EC2 else seen.observation.cloud
    return replace(seen, observation=replace(seen.observation, cloud=cloud, lost=lost))
