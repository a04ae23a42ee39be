"""`why NODE`: how Slurm and the cloud see it, whose a drain is, what comes next and by when."""

from collections.abc import Iterable, Iterator, Mapping

from gpucluster.elastic.decide.life import Do, Lives, Row, row_for
from gpucluster.elastic.decide.offers import Room, refusal_of, why_none
from gpucluster.elastic.decide.stand import Stand
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import EndAsked, Entry, InstanceGone
from gpucluster.elastic.memory import Life
from gpucluster.elastic.model import Phase
from gpucluster.elastic.owners import Owner, owner_of
from gpucluster.elastic.why import leaving
from gpucluster.elastic.why.causes import Cause, Offers
from gpucluster.elastic.why.screen import Line, Part, Screen, money, screen, span
from gpucluster.elastic.why.starting import boot_words
from gpucluster.plan.names import REASON_PREFIX

_NEXT: Mapping[Do, str] = {
    Do.WAIT: "it changes by itself",
    Do.LAUNCH: "the daemon asks the cloud for a machine",
    Do.POWER_UP: "the daemon powers it up",
    Do.END: "the daemon ends its machine",
    Do.OFF: "the daemon powers it down",
    Do.DOWN_AND_OFF: "the daemon takes it down and powers it down, so that it can be used anew",
    Do.SET_DOWN: "the daemon sets it down, and leaves its machine",
    Do.RESET: "the daemon brings it back into use",
    Do.HOLD: "the daemon drains it, as it was told to",
    Do.LIFT: "the daemon lifts its drain",
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
    stand = Lives(world).stand(name)
    row = row_for(stand)
    lines = (
        *_slurm(world, name, row),
        *_drain(world, name),
        *_instance(world, name),
        *_last_end(world, name, entries),
        *_jobs(world, name),
        *_order(world, name),
        *_next(world, room, offers, stand, row),
    )
    return screen(subject, Cause.NODE, row.sentence(stand), lines)


def _unknown(world: World, name: str) -> str:
    if name.replace("_", "").replace("+", "").isdecimal():
        return (
            f"is not known; of a job's array or parts, name the task's own number: squeue -h -j {name} -o %A"
        )
    spans = ", ".join(span.hostlist for pool in world.plan.pools for span in pool.slots)
    return f"is not known; this cluster has {spans}"


def _slurm(world: World, name: str, row: Row) -> Iterator[Line]:
    node, place = world.node(name), world.slots[name]
    zone = f" in {place.zone}" if place.zone else ""
    always = ", always on" if place.always_on else ""
    yield Line(
        part=Part.STANDS,
        words=f"of pool {place.pool.name}{zone}{always}; Slurm says {'+'.join(sorted(node.states))}",
    )
    if row.do is Do.TELL:
        yield Line(
            part=Part.DO,
            words=f"look at it, bring it to a state that is known (scontrol update nodename={name} state=...), and report the words",
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
    elif not node.drained and node.reason_by == "slurm":
        whose = "Slurm itself"  # it has set it down: the table of a node's life brings it back
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


def _next(world: World, room: Room, offers: Offers, stand: Stand, row: Row) -> Iterator[Line]:
    """What its row says is done, and by when; where the moment itself is known, that."""
    name, life = stand.slot, stand.life
    if row.do is Do.CAPACITY:
        yield _lifted(world, room, offers, name)
    elif row.name == "off":
        yield Line(part=Part.NEXT, words="it is powered up when a job is given it")
    elif row.name in ("idle", "awaited"):
        yield Line(part=Part.NEXT, at=stand.idle_until, words="it is let go, if no job comes before")
    elif row.name == "off-grace" and life is not None and life.unneeded_at is not None:
        at = life.unneeded_at + stand.times.orphan_grace_s
        yield Line(part=Part.NEXT, at=at, words="its machine is ended: no job wants it")
    elif row.name == "wanted-boots" and life is not None:
        at = max(life.launched_at, life.since) + stand.place.pool.boot_timeout_s
        words = "its boot is given up if it is not up by then, and another machine is asked for"
        yield Line(part=Part.NEXT, at=at, words=words)
    elif row.do in _NEXT:
        bound = row.by(stand)
        within = f", and this state is left within {span(bound)} whatever happens" if bound else ""
        yield Line(part=Part.NEXT, words=f"{_NEXT[row.do]}{within}")


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
