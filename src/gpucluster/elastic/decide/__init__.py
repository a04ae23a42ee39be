"""Decide actions from plan, observation and memory. Pure: the same input gives the same actions.

- `world`: plan, observation and memory joined by slot. `facts`: new events that the observation shows.
- `node_table`: every state of a node and its action. `node_context`: the values of one node that the table reads.
- `offers`: machine types and zones that can be launched. `gangs`: slots that need instances. `launches`: requests, answers and repeats.
  `api_rate`: token buckets of the EC2 API. `placement`: the slots that a waiting job can use. `reserved`: those that reservations
  keep from it. `blocked`: drains of slots without capacity. `bundle_drains`: drains of slots that a held bundle removes.
  `refused_ends`: instances that cannot be terminated.
- `terminations`: instances to terminate, idle nodes, failed boots. `interruptions`: spot notices, faults and
  orders that end an instance. `evacuation`: the steps until the end. `block_reservations`: capacity blocks in Slurm.
- `jobs`: stalled and half-started jobs. `limits`: orders, budget and breakers. `replacements`: how many unhealthy nodes an hour.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from gpucluster.elastic.abilities import Ability, Dependency
from gpucluster.elastic.decide import (
    api_rate,
    block_reservations,
    blocked,
    bundle_drains,
    evacuation,
    facts,
    gangs,
    interruptions,
    jobs,
    launches,
    limits,
    node_table,
    ordered_drains,
    person_drains,
    placement,
    refused_ends,
    terminations,
)
from gpucluster.elastic.decide.evacuation import powered_up
from gpucluster.elastic.decide.launches import event_of_error, events_of_nothing, events_of_shortfall
from gpucluster.elastic.decide.offers import Headroom, all_offers
from gpucluster.elastic.decide.refused_ends import event_of as event_of_refused_end
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Entry, Event
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import Action, DeleteMessages, Observation, RecordEvents, ResetDown, Undrain
from gpucluster.plan.model import Bindings, SlurmPlan
from gpucluster.slurm.states import SlurmPhase

__all__ = [
    "decide",
    "event_of_error",
    "event_of_refused_end",
    "events_of_nothing",
    "events_of_shortfall",
    "next_look",
]
TOKENS_S = 0.5  # seconds: the shortest pause for tokens


def decide(
    plan: SlurmPlan, bindings: Bindings, observation: Observation, memory: Memory, now: float
) -> tuple[Action, ...]:
    """Return the actions of this pass, in order. Without a view of Slurm, and without the lease, return none."""
    world, entries = _note(plan, bindings, observation, memory, now)
    if world is None or Dependency.LEASE in world.lost:
        return ()
    event_actions = (RecordEvents(entries=entries),) if entries else ()
    if world.may(Ability.UPDATE):
        return (*event_actions, *_whole_pass(world, entries))
    return (
        *event_actions,
        *_delete_messages(world),
        *(
            (*evacuation.leave(world), *ordered_drains.drain_ordered(world))
            if world.may(Ability.EVACUATE)
            else ()
        ),
        *(terminations.end_idle(world) if world.may(Ability.END_IDLE) else ()),
    )


def _whole_pass(world: World, entries: tuple[Entry, ...]) -> tuple[Action, ...]:
    headroom, offers, tokens = Headroom(world), all_offers(world), api_rate.Pace(world.memory, world.now)
    gang_decision = gangs.serve(world, headroom, offers, tokens)
    table = node_table.NodeTable(world)
    resets = tuple(terminations.resets(table))
    undrains = tuple(ordered_drains.undrain_ordered(world, _own_reason))
    lifted = frozenset(s for a in (*resets, *undrains) if isinstance(a, ResetDown | Undrain) for s in a.slots)
    blocks = tuple(blocked.block(world, headroom, offers, gang_decision.sent_back, lifted))
    evacuation_actions = tuple(evacuation.evacuate(world, headroom))
    removed = (
        *bundle_drains.drain_removed(world, lifted),
        *refused_ends.drain_slots(world),
        *ordered_drains.drain_ordered(world),
    )
    handled = blocked.drained_by((*blocks, *removed)) | powered_up(evacuation_actions)
    return (
        *_delete_messages(world),
        *jobs.save_starts(
            world, entries
        ),  # before comments on jobs, which repeat the result of the last pass
        *evacuation_actions,  # early in the pass, because these have deadlines of seconds
        *resets,  # a resume lifts a drain, and Slurm may start a job on the slot: it is drained again at once
        *undrains,
        *removed,
        *blocks,  # before jobs are requeued, so that the jobs do not start on these nodes again
        *api_rate.ends(tokens, terminations.terminations(table)),
        *gang_decision.actions,
        *terminations.repair_nodes(table, handled),
        *terminations.power_ups(table, headroom, handled),
        *jobs.act_on_stalled(world),
        *jobs.act_on_half_started(world),
        *jobs.act_on_split(world),
        *block_reservations.reservations(world),
    )


def _own_reason(world: World, slot: str) -> str:
    """Return why the daemon keeps the slot drained; empty if it does not. One without capacity is drained in the pass that opens it."""
    return evacuation.drain_reason(world, slot) or bundle_drains.drain_reason(world, slot)


def next_look(
    plan: SlurmPlan, bindings: Bindings, observation: Observation, memory: Memory, now: float
) -> float:
    """Return the seconds until the next pass: few while work is in progress."""
    world = World.of(plan, bindings, observation, memory, now)
    if world is None or not world.may(Ability.UPDATE):
        return plan.times.poll_s
    moving = (
        SlurmPhase.POWERING_UP,
        SlurmPhase.POWERING_DOWN,
        SlurmPhase.POWER_DOWN_PENDING,
        SlurmPhase.NOT_RESPONDING,
        SlurmPhase.DOWN,
        SlurmPhase.DOWN_OFF,
        SlurmPhase.STUCK,
        SlurmPhase.FUTURE,
    )
    under_way = world.starting or memory.launches or memory.endings or placement.waiting(world)
    if under_way or any(True for _ in world.group(*moving)):
        tokens = launches.wait_s(api_rate.Pace(memory, now), gangs.gangs(world))
        return plan.times.poll_s if tokens is None else max(TOKENS_S, min(plan.times.poll_s, tokens))
    due = min((at - now for _, at in terminations.idle_ends(world)), default=plan.times.reconcile_s)
    expiry = min((r.until - now for r in memory.refusals.values()), default=plan.times.reconcile_s)
    ends = min((r.until - now for r in memory.refused_ends.values()), default=plan.times.reconcile_s)
    signals = min(evacuation.next_due(world), jobs.next_heartbeat_due(world)) - now
    return max(plan.times.poll_s, min(due, expiry, ends, signals, plan.times.reconcile_s))


def _note(
    plan: SlurmPlan, bindings: Bindings, observation: Observation, memory: Memory, now: float
) -> tuple[World | None, tuple[Entry, ...]]:
    """Return the world after all new facts, and the facts. Each step reads the memory that the earlier steps changed."""
    world = World.of(plan, bindings, observation, memory, now)
    if world is None:
        return None, ()
    entries: list[Entry] = []
    for step in _SLURMS_FACTS if world.blind else _FACTS:  # also of a daemon that may not act
        found = tuple(Entry(at=now, event=event) for rule in step for event in rule(world))
        if found:
            entries.extend(found)
            world = replace(world, memory=fold(world.memory, found))
    return world, tuple(entries)


def _delete_messages(world: World) -> Iterable[Action]:
    """Delete messages of the queue after their notices are in memory, or when it is known that their instances are no nodes."""
    known = {one.instance for one in world.memory.incarnations.values()}
    waits = world.blind or world.just_lost_journal
    kept = {one.handle for one in world.observation.queue_notices if waits and one.instance not in known}
    handles = dict.fromkeys(one.handle for one in world.observation.queue_notices)
    if due := tuple(handle for handle in handles if handle not in kept):
        yield DeleteMessages(handles=due)


def _forgotten(world: World) -> Iterable[Event]:
    remembered = world.memory.refusals or world.memory.breakers
    return blocked.forgotten(world, all_offers(world)) if remembered else ()


# The rules of facts in order: a step reads what the steps before it found.
_Rules = tuple[tuple[Callable[[World], Iterable[Event]], ...], ...]
_FACTS: _Rules = (
    (facts.launch_events, facts.job_events, facts.drain_events),
    (facts.refused_keys, facts.instance_events, facts.adoptions),
    (facts.incarnation_events, facts.power_up_events, terminations.stray_events),
    (terminations.boot_failures, facts.unfit_machines),
    (interruptions.interruption_events, limits.completed_orders, ordered_drains.completed),
    (interruptions.unusable_boots, interruptions.spot_storms, jobs.heartbeat_events, limits.limit_events),
    (terminations.replacements_begun,),
    (
        node_table.unexpected_states,
        person_drains.person_drains,
        _forgotten,
        jobs.forgotten_jobs,
        facts.forgotten_slots,
    ),
)
# Without EC2's view: only facts that Slurm, a notice or memory shows. An empty list shows no end and no failed boot.
_SLURMS_FACTS: _Rules = (
    (facts.job_events, facts.drain_events),
    (facts.incarnation_events, facts.power_up_events),
    (interruptions.interruption_events, ordered_drains.completed),
    (jobs.heartbeat_events, limits.limit_events),
    (person_drains.person_drains, jobs.forgotten_jobs),
)
