"""`why NODE`: how Slurm and the cloud see it, whose a drain is, what comes next and by when."""

from collections.abc import Iterable, Iterator, Mapping

from gpucluster.elastic.decide.idle import idle_ends
from gpucluster.elastic.decide.offers import Room, refusal_of, why_none
from gpucluster.elastic.decide.world import HAS, World
from gpucluster.elastic.events import EndAsked, Entry, InstanceGone
from gpucluster.elastic.memory import Life
from gpucluster.elastic.model import Phase
from gpucluster.elastic.owners import Owner, owner_of
from gpucluster.elastic.why import leaving
from gpucluster.elastic.why.causes import Cause, Offers
from gpucluster.elastic.why.screen import Line, Part, Screen, money, screen, span
from gpucluster.elastic.why.starting import boot_words
from gpucluster.plan.names import REASON_PREFIX

_PHASES: Mapping[Phase, str] = {
    Phase.OFF: "is powered down",
    Phase.WANTED: "is powering up",
    Phase.UP: "is up",
    Phase.SILENT: "is up, but slurmctld does not hear it",
    Phase.LEAVING: "is to be powered down as soon as its job lets it",
    Phase.ENDING: "is powering down",
    Phase.DOWN: "is down",
    Phase.DOWN_OFF: "is down and powered down: a resume of it failed",
    Phase.STRANDED: "is powered up and down at once; Slurm moves it no more by itself",
}
_OWNERS: Mapping[Owner, str] = {
    Owner.CAPACITY: "the daemon, for want of capacity: lifted when it can be had",
    Owner.TROUBLE: "the daemon, because its machine is to be left",
    Owner.ORDER: "the daemon, by an operator's order: gpucluster node release lifts it",
}


def of_node(world: World, room: Room, offers: Offers, name: str, entries: Iterable[Entry]) -> Screen:
    """The screen of a slot."""
    subject = f"node {name}"
    if name not in world.slots:
        return screen(subject, Cause.UNKNOWN, _unknown(world, name))
    if name not in world.slurm.nodes:
        return screen(
            subject, Cause.NODE, "is in the plan, but slurmctld does not know it: scontrol reconfigure"
        )
    lines = (
        *_slurm(world, name),
        *_drain(world, name),
        *_instance(world, name),
        *_last_end(world, name, entries),
        *_jobs(world, name),
        *_order(world, name),
        *_next(world, room, offers, name),
    )
    return screen(subject, Cause.NODE, headline(world, name), lines)


def headline(world: World, name: str) -> str:
    """Its phase, and that it is drained."""
    node = world.node(name)
    drained = " and drained" if node.drained else ""
    phase = world.phases[name]
    return f"{_PHASES.get(phase, phase.value)}{drained}"


def _unknown(world: World, name: str) -> str:
    spans = ", ".join(span.hostlist for pool in world.plan.pools for span in pool.slots)
    return f"is not known; this cluster has {spans}"


def _slurm(world: World, name: str) -> Iterator[Line]:
    node, place = world.node(name), world.slots[name]
    zone = f" in {place.zone}" if place.zone else ""
    always = ", always on" if place.always_on else ""
    yield Line(
        part=Part.STANDS,
        words=f"of pool {place.pool.name}{zone}{always}; Slurm says {'+'.join(sorted(node.states))}",
    )
    unknown = world.memory.unknown.get(name)
    if unknown and frozenset(unknown) == node.states:
        yield Line(
            part=Part.STANDS,
            words="that state is in no row of the daemon's table: it does nothing to this node",
        )
        yield Line(
            part=Part.DO,
            words="look at it, and bring it to a state that is known: scontrol update nodename=NODE state=...",
        )


def _drain(world: World, name: str) -> Iterator[Line]:
    node = world.node(name)
    if not node.reason or not (node.drained or "DOWN" in node.states):
        return  # a reason outlives what it was written for
    owner = owner_of(node.reason)
    if owner is not None:
        whose = _OWNERS[owner]
    elif node.ours:
        whose = "a version of the daemon that this one does not know"
    elif node.spoiled:
        whose = "Slurm itself: its machine is replaced when it has been idle for its time"
    else:
        whose = f"{node.reason_by or 'somebody'}, who alone lifts it: scontrol update nodename={name} state=resume"
    yield Line(
        part=Part.ANSWERED,
        at=node.reason_at or None,
        words=f"{node.reason.removeprefix(REASON_PREFIX).strip()} (by {whose})",
    )


def _instance(world: World, name: str) -> Iterator[Line]:
    life = world.life(name)
    if life is None or life.instance is None:
        if life is not None and life.request:
            yield Line(
                part=Part.DONE, words=f"request {life.request} asks for a machine, and has no answer yet"
            )
        return
    listed = world.instance(name)
    state = listed.state.value if listed else "not listed by the cloud now"
    price = f", {money(life.price)} an hour" if life.price else ""
    machine = (
        f"{life.instance} ({life.market.value} {life.machine} in {life.zone or 'an unknown zone'}{price})"
    )
    if life.up_at is None and world.phases[name] is Phase.WANTED:
        yield Line(part=Part.STANDS, at=life.launched_at, words=boot_words(world, name, life))
        return
    yield Line(part=Part.DONE, at=life.launched_at, words=f"{machine} was launched; the cloud says {state}")
    if life.up_at:
        yield Line(part=Part.DONE, at=life.up_at, words=f"Slurm took it{_took(life)}")
    if life.trouble is not None:
        yield from leaving.of_node(world, name, life, life.trouble)


def _took(life: Life) -> str:
    return (
        f", {span(life.up_at - life.launched_at)} after its launch"
        if life.up_at and life.up_at > life.launched_at
        else ""
    )


def _last_end(world: World, name: str, entries: Iterable[Entry]) -> Iterator[Line]:
    """Why the machine before went; only where there is none now."""
    life = world.life(name)
    if life is None or life.instance is not None:
        return
    words: dict[str, str] = {}
    gone: tuple[float, str] | None = None
    for entry in entries:
        match entry.event:
            case EndAsked(instances=ids, words=why):
                words.update(dict.fromkeys(ids, why))
            case InstanceGone(slot=slot, instance=instance) if slot == name:
                gone = (entry.at, instance)
            case _:
                pass
    if gone is not None:
        yield Line(part=Part.DONE, at=gone[0], words=f"{gone[1]} ended: {words.get(gone[1], 'not by us')}")


def _jobs(world: World, name: str) -> Iterator[Line]:
    here = [j for j in world.slurm.jobs if name in j.nodes and (j.configuring or j.running)]
    for job in here[:4]:
        yield Line(
            part=Part.STANDS,
            at=job.started_at or None,
            words=f"job {job.id} {'starts' if job.configuring else 'runs'} on it",
        )


def _order(world: World, name: str) -> Iterator[Line]:
    order = world.memory.orders.get(name)
    if order is not None:
        because = f": {order.words}" if order.words else ""
        yield Line(
            part=Part.ANSWERED, at=order.at, words=f"{order.by} gave the order {order.verb.value}{because}"
        )
        if order.until is not None:
            yield Line(part=Part.NEXT, at=order.until, words="that order runs out")
        yield Line(part=Part.DO, words=f"gpucluster node release {name} undoes it")


def _next(world: World, room: Room, offers: Offers, name: str) -> Iterator[Line]:
    place, node, life, phase = world.slots[name], world.node(name), world.life(name), world.phases[name]
    times = world.plan.times
    match phase:
        case Phase.OFF if node.drained and owner_of(node.reason) is Owner.CAPACITY:
            yield _lifted(world, room, offers, name)
        case Phase.OFF if life is not None and life.instance is not None and life.unneeded_at is not None:
            yield Line(
                part=Part.NEXT,
                at=life.unneeded_at + times.orphan_grace_s,
                words="its machine is ended: no job wants it",
            )
        case Phase.OFF if not node.drained:
            yield Line(part=Part.NEXT, words="it is powered up when a job is given it")
        case Phase.WANTED if life is not None:
            began = max(life.launched_at, life.since)
            yield Line(
                part=Part.NEXT,
                at=began + place.pool.boot_timeout_s,
                words="its boot is given up if it is not up by then, and another machine is asked for",
            )
        case Phase.ENDING:
            yield Line(
                part=Part.NEXT,
                words=f"Slurm may use it again {times.suspend_timeout_s} s after its power-down",
            )
        case Phase.UP | Phase.LEAVING:
            yield from _idle(world, name)
        case Phase.DOWN | Phase.DOWN_OFF | Phase.STRANDED if node.ours or world.fate(name) in HAS:
            yield Line(part=Part.NEXT, words="the daemon powers it down and brings it back, within minutes")
        case _:
            pass


def _lifted(world: World, room: Room, offers: Offers, name: str) -> Line:
    """When it may be tried again, or what must change first."""
    place = world.slots[name]
    here = offers.get((place.pool.name, place.zone), ())
    ends = [r.until for o in here if (r := refusal_of(world.memory, o)) is not None and r.until > world.now]
    if ends and not room.stops[place.pool.name] and room.of_pool(place.pool.name):
        return Line(
            part=Part.NEXT,
            at=min(ends),
            words="the first refusal here runs out: one gang may try, and a success lifts the zone",
        )
    now = why_none(world, room, place.pool, place.zone, here)
    return Line(part=Part.NEXT, words=f"it is lifted when that is over: {now}")


def _idle(world: World, name: str) -> Iterator[Line]:
    due = dict(idle_ends(world, world.slots[name].pool.name)).get(name)
    if due is not None:
        yield Line(part=Part.NEXT, at=due, words="it is let go, if no job comes before")
