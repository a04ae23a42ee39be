"""Boots that will not become a node: noticed, ended, and counted; the gang then asks anew."""

from collections.abc import Iterator

from gpucluster.elastic.decide.world import Fate, World
from gpucluster.elastic.events import BootFailed, Event
from gpucluster.elastic.memory import Life
from gpucluster.elastic.model import Phase
from gpucluster.plan.messages import NodePhase, NodeReport

MUTE = 3  # a machine whose agent has said nothing for a third of the boot timeout leaves time for another


def failures(world: World) -> Iterator[Event]:
    """Instances of wanted slots whose agent gave up, or that are overdue."""
    for slot in world.group(Phase.WANTED):
        life = world.life(slot)
        if life is None or life.instance is None or life.failed is not None or life.up_at is not None:
            continue
        words = _verdict(world, slot, life, life.instance)
        if words:
            pool = world.slots[slot].pool.name
            yield BootFailed(slot=slot, instance=life.instance, words=f"{life.instance}: {words}", pool=pool)


def last_word(report: NodeReport) -> str:
    """The step that failed, else the last one that was done. Others' text: printable, short."""
    step = next((s for s in report.steps if not s.ok), report.steps[-1] if report.steps else None)
    if step is None:
        return "no step was reported"
    text = _printable(f"step {step.name}: {step.detail or ('done' if step.ok else 'failed')}", 200)
    last = next((line for line in reversed(report.tail.splitlines()) if line.strip()), "")
    if not last or last.strip() in text:
        return text
    return f"{text}; it said last: {_printable(last.strip(), 120)}"


def _verdict(world: World, slot: str, life: Life, instance: str) -> str | None:
    heard = world.reports.get(instance)
    if heard is not None and heard.report.phase is NodePhase.FAILED:
        return last_word(heard.report)
    if world.fate(slot) not in (Fate.LIVES, Fate.UNSEEN):
        return None
    limit = world.slots[slot].pool.boot_timeout_s
    if heard is None and life.registered_at is None:
        quiet = limit / MUTE
        since = max(_began(life), world.listening_since)
        return f"it did not call in {quiet:g} s" if since + quiet <= world.now else None
    if _began(life) + limit > world.now:
        return None
    said = last_word(heard.report) if heard is not None else "it fell silent"
    return f"not up after {limit} s; {said}"


def _printable(text: str, most: int) -> str:
    return "".join(c for c in text if c.isprintable())[:most]


def _began(life: Life) -> float:
    return max(life.launched_at, life.since)
