"""From plan, observation and memory to actions: pure, level-triggered, the same world twice gives the same actions.

`decide` is the whole of it. Rooms by noun: `world` (everything joined by slot), `facts` (edges for the journal),
`offers` (what may be launched where), `asks`, `gangs`, `batches`, `pace` (of the API), `boots`, `endings`, `idle`,
`life` (the table of every state that a node can be in), `stand`, `repair`, `blocked`, `troubles` (machines to be left), `hung`, `limits`, `orders`, `windows`.
"""

from collections.abc import Iterable
from dataclasses import replace

from gpucluster.elastic.decide import (
    batches,
    blocked,
    boots,
    endings,
    facts,
    gangs,
    hung,
    idle,
    life,
    limits,
    orders,
    pace,
    prologs,
    repair,
    restarts,
    saves,
    troubles,
    windows,
)
from gpucluster.elastic.decide.asks import nothing, outcome, shortfall
from gpucluster.elastic.decide.offers import Room, all_offers
from gpucluster.elastic.decide.substitutes import powered_up
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import Entry, Event
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import Action, Forget, Observation, Phase, Remember
from gpucluster.plan.model import Bindings, ClusterPlan

__all__ = ["decide", "next_look", "nothing", "outcome", "shortfall"]
TOKENS_S = 0.5  # the least pause for tokens


def decide(
    plan: ClusterPlan, bindings: Bindings, observation: Observation, memory: Memory, now: float
) -> tuple[Action, ...]:
    """What to do now, in order. Without a view of Slurm and of the cloud nothing is concluded."""
    world, entries = _note(plan, bindings, observation, memory, now)
    if world is None:
        return ()
    room, offers, tokens = Room(world), all_offers(world), pace.Pace(world.memory, world.now)
    verdict = gangs.serve(world, room, offers, tokens)
    blocks = tuple(blocked.block(world, room, offers, verdict.sent_back))
    leave = tuple(troubles.leave(world))
    lives, held = life.Lives(world), blocked.drained_by(blocks) | powered_up(leave)
    remember = (Remember(entries=entries),) if entries else ()
    return (
        *remember,
        *_heard(observation),
        *saves.save(world, entries),  # before a job is told anything: it repeats what the last look showed
        *leave,  # seconds count
        *blocks,  # before a job is sent back, so that it cannot land there again
        *pace.ends(tokens, endings.ending(lives)),
        *verdict.actions,
        *repair.repair(lives, held),
        *idle.keep_on(lives, room, held),
        *hung.act(world),
        *prologs.send_back(world),
        *windows.windows(world),
    )


def next_look(
    plan: ClusterPlan, bindings: Bindings, observation: Observation, memory: Memory, now: float
) -> float:
    """Seconds until the world should be read again: soon while something is under way."""
    world = _world(plan, bindings, observation, memory, now)
    if world is None:
        return plan.times.poll_s
    moving = (
        Phase.WANTED,
        Phase.ENDING,
        Phase.LEAVING,
        Phase.SILENT,
        Phase.DOWN,
        Phase.DOWN_OFF,
        Phase.STRANDED,
        Phase.FUTURE,
    )
    under_way = world.starting or memory.launches or memory.endings or blocked.waiting(world)
    if under_way or any(True for _ in world.group(*moving)):
        tokens = batches.wait_s(pace.Pace(memory, now), gangs.gangs(world))
        return plan.times.poll_s if tokens is None else max(TOKENS_S, min(plan.times.poll_s, tokens))
    due = min((at - now for _, at in idle.idle_ends(world)), default=plan.times.reconcile_s)
    ripe = min((r.until - now for r in memory.refusals.values()), default=plan.times.reconcile_s)
    farewell = min(troubles.next_due(world), hung.next_due(world)) - now
    return max(plan.times.poll_s, min(due, ripe, farewell, plan.times.reconcile_s))


def _world(
    plan: ClusterPlan, bindings: Bindings, seen: Observation, memory: Memory, now: float
) -> World | None:
    """None without a view of both."""
    if seen.slurm is None or seen.cloud is None:
        return None
    return World.of(
        plan,
        bindings,
        memory,
        now,
        slurm=seen.slurm,
        cloud=seen.cloud,
        reports=seen.reports,
        told=seen.told,
        halted=seen.halted,
        listening_since=seen.listening_since,
    )


def _note(
    plan: ClusterPlan, bindings: Bindings, observation: Observation, memory: Memory, now: float
) -> tuple[World | None, tuple[Entry, ...]]:
    """Conclude the facts in three steps, each over memory with the one before folded in."""
    world = _world(plan, bindings, observation, memory, now)
    if world is None:
        return None, ()
    entries: list[Entry] = []
    steps = (
        (facts.launches, facts.jobs),
        (facts.instances, repair.adoptions),
        (facts.lives, facts.power_ups),
        (boots.failures, repair.unfit),
        (troubles.noticed, orders.noticed),
        (troubles.useless, troubles.storms, hung.noticed, limits.noticed),
        (life.strange, _forgotten, restarts.forgotten),
    )
    for step in steps:
        found = tuple(Entry(at=now, event=event) for rule in step for event in rule(world))
        if found:
            entries.extend(found)
            world = replace(world, memory=fold(world.memory, found))
    return world, tuple(entries)


def _heard(observation: Observation) -> Iterable[Action]:
    """The queue's messages are deleted once their news is remembered."""
    if observation.told:
        yield Forget(handles=tuple(told.handle for told in observation.told))


def _forgotten(world: World) -> Iterable[Event]:
    return blocked.forgotten(world, all_offers(world)) if world.memory.refusals else ()
