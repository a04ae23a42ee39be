"""A lost journal: the machines of nodes are found again and go on, and nothing ends before it is known what may end."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.builders import a_plan
from support.cluster_states import BUSY, NOW, WAKING, ask, burst, instance, job, living, node, sight
from support.fleet import Fleet
from support.slurm_model import Job, Node

from gpucluster.cloud.port import CloudError, Fault, QueueNotice
from gpucluster.elastic.decide import decide
from gpucluster.elastic.events import (
    Entry,
    Event,
    InstanceAdopted,
    JournalCreated,
    JournalOutdated,
    LaunchRequested,
    NodeNeeded,
    OrderCompleted,
    OrderGiven,
    Verb,
)
from gpucluster.elastic.model import DeleteMessages, LaunchGang
from gpucluster.plan.messages import Notice, NoticeKind
from gpucluster.slurm.drains import DrainOwner, owner_of

SPOT = Notice(kind=NoticeKind.SPOT, at=NOW + 120)
TOLD = tuple(
    QueueNotice(instance=one, notice=SPOT, handle=handle)
    for one, handle in (("i-0", "h0"), ("i-0", "h1"), ("i-9", "h1"))
)
LOST = JournalCreated(epoch="e", first=False)


@pytest.fixture(params=("24.11", "26.05"))
def f(request: pytest.FixtureRequest, tmp_path: Path) -> Fleet:
    return Fleet(a_plan(), tmp_path, version=request.param)


def running(f: Fleet, lasts: float = 30_000.0) -> tuple[Job, str]:
    """A job that has run for a while, and its instance."""
    job = f.slurm.submit(1, lasts=lasts)
    f.until(lambda: job.state == "RUNNING", 200)
    f.run(f.plan.times.orphan_grace_s + 60)
    return job, f.living()[0].id


def lose_journal(f: Fleet) -> None:
    f.journal.close()
    for path in f.folder.glob("journal.sqlite*"):
        path.unlink()
    f.start()


def order(f: Fleet, verb: Verb, slot: str) -> None:
    f.journal.append((Entry(at=f.now, event=OrderGiven(verb=verb, target=slot, by="ada", words="bad NIC")),))
    f.run(5)


def lives(f: Fleet) -> list[str]:
    return [instance.id for instance in f.living()]


def power_down_asked(f: Fleet, node: Node) -> None:
    f.slurm.update_nodes((node.name,), "power_down", None)


def asap(f: Fleet, node: Node) -> None:
    f.slurm.update_nodes((node.name,), "power_down_asap", None)


def silent(f: Fleet, node: Node) -> None:
    node.flags.add("NOT_RESPONDING")


STATES: dict[str, Callable[[Fleet, Node], None]] = {
    "up": lambda f, node: None,
    "a power-down is pending": power_down_asked,
    "drained until it is powered down": asap,
    "it does not respond": silent,
}


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_job_goes_on_after_a_lost_journal(f: Fleet, state: Callable[[Fleet, Node], None]) -> None:
    """An instance of a node that was not up was terminated in the first pass: it was older than the grace."""
    job, instance = running(f)
    state(f, f.slurm.nodes[job.nodes[0]])
    lose_journal(f)
    f.run(2 * f.plan.times.orphan_grace_s)
    assert (job.state, job.restarts, lives(f)) == ("RUNNING", 0, [instance])


def test_job_goes_on_if_ec2_lists_its_instance_a_minute_after_the_loss(f: Fleet) -> None:
    """Its node was marked DOWN in the first pass: a node that is up without an instance in memory counted as lost."""
    job, instance = running(f)
    lists = f.cloud.instances
    f.cloud.instances = lambda cluster, ids=(): ()  # type: ignore[method-assign]
    lose_journal(f)
    f.run(60)
    f.cloud.instances = lists  # type: ignore[method-assign]
    f.run(2 * f.plan.times.orphan_grace_s)
    assert (job.state, job.restarts, lives(f)) == ("RUNNING", 0, [instance])


def test_slurmd_of_an_adopted_instance_is_not_started_again(f: Fleet) -> None:
    """The new journal counts incarnations from one: slurmd started with -b, and slurmctld ended its jobs."""
    first = f.slurm.submit(1, lasts=30.0)
    f.until(lambda: first.state == "COMPLETED", 300)
    f.until(lambda: "POWERED_DOWN" in f.slurm.nodes["h200-2a-1"].flags, 2000)
    job, instance = running(f)
    assert f.agents[instance].incarnation == 2
    lose_journal(f)
    f.run(300)
    assert (job.state, job.restarts) == ("RUNNING", 0)
    slot = job.nodes[0]
    assert f.journal.memory.incarnations[slot].number == f.agents[instance].incarnation == 2
    f.slurm.cancel(job)
    f.until(lambda: not f.living(), 2000)
    again = f.slurm.submit(1, lasts=30.0)
    f.until(lambda: again.state == "COMPLETED", 300)


def test_machine_of_a_journal_of_yesterday_is_no_stray(f: Fleet) -> None:
    """Its slot has the instance of yesterday in memory, which EC2 lists no more, so the new one looked like a stray."""
    job, old = running(f, lasts=400.0)
    f.journal.close()
    yesterday = {path: path.read_bytes() for path in f.folder.glob("journal.sqlite*")}
    f.start()
    f.until(lambda: job.state == "COMPLETED", 400)
    f.until(lambda: not f.living(), 2000)
    f.run(7200)  # EC2 forgets it
    job, new = running(f)
    assert new != old
    f.journal.close()
    for path, body in yesterday.items():
        path.write_bytes(body)
    f.start()
    f.run(3 * f.plan.times.orphan_grace_s)
    assert (job.state, job.restarts, lives(f)) == ("RUNNING", 0, [new])


@pytest.mark.parametrize("lag", [0.0, 60.0])  # of EC2's list
def test_job_goes_on_with_a_journal_of_yesterday_whose_slot_was_empty(f: Fleet, lag: float) -> None:
    """A short list of EC2 set the node DOWN: only a new journal waited for the instance."""
    job, _ = running(f, lasts=400.0)
    f.until(lambda: job.state == "COMPLETED", 800)
    f.until(lambda: not f.living(), 2000)
    f.run(900)
    f.journal.close()
    yesterday = {path: path.read_bytes() for path in f.folder.glob("journal.sqlite*")}
    f.start()
    f.run(7200)
    job, new = running(f)
    f.journal.close()
    for path, body in yesterday.items():
        path.write_bytes(body)
    listed = f.cloud.instances
    f.cloud.instances = lambda cluster, ids=(): () if lag else listed(cluster, ids)  # type: ignore[method-assign]
    f.start()
    f.run(lag)
    f.cloud.instances = listed  # type: ignore[method-assign]
    f.run(300)
    assert (job.state, job.restarts, lives(f)) == ("RUNNING", 0, [new])


def test_launch_of_a_journal_of_yesterday_is_not_repeated() -> None:
    """Its outcome was open then. With a token that EC2 has forgotten the call is a new launch, also on a paused pool."""
    asked = (90_000.0, LaunchRequested(request=ask(1, "h200-2a-1")))
    needed = (90_000.0, NodeNeeded(slot="h200-2a-1", incarnation=1, jobs=(41,)))
    states = [node("h200-2a-1", WAKING)]
    for outdated in (False, True):
        events = (needed, asked, *(((5.0, JournalOutdated(epoch=3, last=5)),) if outdated else ()))
        s = sight(burst(), *events, nodes=states, jobs=[job(99, "h200-2a-1", starts=True)], instances=[])
        found = decide(s.plan, s.bindings, s.observation, s.memory, s.now)
        assert any(isinstance(a, LaunchGang) for a in found) is not outdated


# --- notices ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("away", [30.0, 70.0])  # less than the queue hides a message for, and more
def test_notice_of_the_queue_waits_until_ec2_shows_its_instance(f: Fleet, away: float) -> None:
    """Its message was deleted while nothing knew the instance: no signal, and the checkpoint was lost."""
    job, instance = running(f)
    f.cloud.unlisted = CloudError(Fault.LOST, "ConnectTimeout", "no answer")
    lose_journal(f)
    f.run(20)
    f.model.interrupt(instance, f.now, 120.0, silent=("metadata",))
    f.run(away)
    assert not f.slurm.signals
    f.cloud.unlisted = None
    f.until(lambda: bool(f.slurm.signals), 20)
    f.until(lambda: job.state == "PENDING", 118 - away)
    assert job.restarts == 1
    f.run(60)
    assert not f.queue._model.events.receive(f.now + 3600), "the message is not deleted"
    assert not f.reconciler.status.events


@pytest.mark.parametrize(
    ("what", "known", "changes", "deleted"),
    [
        ("it is in memory", living("h200-2a-1"), {}, ("h0", "h1")),
        ("no slot has it", (), {}, ("h0", "h1")),
        ("nothing shows whether a slot has it", (), {"cloud": None}, ()),
        ("one of its two instances is in memory", living("h200-2a-1"), {"cloud": None}, ("h0",)),
        ("EC2 may list it late", ((9.0, LOST),), {}, ()),
        ("EC2 would list it by now", ((301.0, LOST),), {}, ("h0", "h1")),
    ],
)
def test_message_is_deleted_when_its_notice_is_recorded_or_of_no_node(
    what: str, known: Sequence[tuple[float, Event]], changes: dict[str, Any], deleted: tuple[str, ...]
) -> None:
    moment = sight(a_plan(), *known, nodes=[node("h200-2a-1", BUSY)], instances=[instance(0)])
    seen = replace(moment.observation, **{"queue_notices": TOLD, **changes})
    actions = decide(moment.plan, moment.bindings, seen, moment.memory, NOW)
    assert tuple(h for a in actions if isinstance(a, DeleteMessages) for h in a.handles) == deleted, what


# --- strays ----------------------------------------------------------------------------------------------
def boots(f: Fleet) -> str:
    """An instance whose node has not registered, so that Slurm does not know its address."""
    f.mute = lambda _: True
    f.slurm.submit(1)
    f.until(lambda: bool(f.living()), 100)
    f.run(f.plan.times.orphan_grace_s / 3)
    return f.living()[0].id


def test_grace_of_a_stray_begins_when_this_journal_first_sees_it(f: Fleet) -> None:
    instance = boots(f)
    order(f, Verb.NODE_KEEP, "h200-2b-1")  # so that there is a copy, and nothing is lost
    f.model.change(instance, f.now, lambda one: replace(one, launched_at=f.now - 9000))
    lose_journal(f)
    f.run(f.plan.times.orphan_grace_s - 10)
    assert instance in lives(f)
    f.restart()
    f.until(lambda: instance not in lives(f), 60)


def test_no_stray_ends_while_the_orders_are_lost(f: Fleet) -> None:
    """It may be the instance that an order keeps."""
    instance = boots(f)
    f.orders.body = None
    lose_journal(f)
    f.run(3 * f.plan.times.orphan_grace_s)
    assert instance in lives(f)
    order(f, Verb.ORDERS_CONFIRM, "all")
    f.until(lambda: instance not in lives(f), 60)


# --- orders ----------------------------------------------------------------------------------------------
def test_order_to_replace_a_node_holds_after_a_lost_journal(f: Fleet) -> None:
    """An adopted instance looked newer than the order: it was complete, its drain was removed, and the node took jobs."""
    job, old = running(f, lasts=3000.0)
    slot = job.nodes[0]
    order(f, Verb.NODE_REPLACE, slot)
    lose_journal(f)
    f.run(60)
    assert f.journal.memory.orders.keys() == {slot}
    assert "DRAIN" in f.slurm.nodes[slot].flags
    assert owner_of(f.slurm.nodes[slot].reason) is DrainOwner.EVACUATION
    f.until(lambda: job.state == "COMPLETED", 4000)
    f.until(lambda: old not in lives(f), 300)
    f.until(lambda: not f.journal.memory.orders, 600)
    assert [e.event for e in f.journal.entries() if isinstance(e.event, OrderCompleted)] == [
        OrderCompleted(verb=Verb.NODE_REPLACE, target=slot)
    ]


def failed_boot(f: Fleet) -> tuple[str, str]:
    """A slot whose boot failed, and its instance, which an order keeps."""
    f.broken = lambda _: "disk is broken"
    job = f.slurm.submit(1, lasts=3000.0)
    f.until(lambda: bool(f.living()), 60)
    slot, kept = next((s, one.instance) for s, one in f.journal.memory.incarnations.items() if one.instance)
    order(f, Verb.NODE_KEEP, slot)
    f.run(200)
    job.held = True
    f.run(1000)
    assert kept is not None
    assert kept in lives(f)
    return slot, kept


@pytest.mark.parametrize("losses", [1, 2])
def test_kept_instance_of_a_failed_boot_outlives_the_journal(f: Fleet, losses: int) -> None:
    """Slurm never had its address. It was terminated: no slot owned it."""
    slot, kept = failed_boot(f)
    for _ in range(losses):
        lose_journal(f)
        f.run(5)
    f.run(3 * f.plan.times.orphan_grace_s)
    assert kept in lives(f)
    adopted = [e.event for e in f.journal.entries() if isinstance(e.event, InstanceAdopted)]
    assert [(one.slot, one.instance) for one in adopted] == [(slot, kept)]
    order(f, Verb.NODE_RELEASE, slot)
    f.until(lambda: kept not in lives(f), 900)
