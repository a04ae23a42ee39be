"""The decisions of a world over time, as text: all actions, the rows of the node table, and each second at which they change.

The observation does not change, and the daemon remembers its own events. So each line shows what the passing of time alone
changes, and each bound shows up as the second at which it applies.
"""

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

from gpucluster.elastic.decide import decide, next_look
from gpucluster.elastic.decide.node_table import OFF, NodeTable, row_for
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import Action, RecordEvents
from gpucluster.slurm.hostlist import fold as fold_names
from support.cluster_states import NOW

MINUTE, HOUR, DAY = 60, 3600, 86_400
# The decisions are compared at these seconds. A change is then located to the second.
SECONDS = (
    *range(0, 8 * MINUTE, 30),
    *range(8 * MINUTE, 20 * MINUTE, 60),
    *range(20 * MINUTE, HOUR, 400),
    *(2 * HOUR, 11 * HOUR, 15 * DAY),
)
MOST = 4  # changes that are located between two of these seconds
EVENTS = "there are events"
_HIDDEN = frozenset({"token", "subnet_id", "template_id", "template_version", "at"})
_FROM_NOW = frozenset({"until", "retry_at"})  # computed as now + a duration


def timeline(moment: ClusterSnapshot) -> str:
    """The first decisions, and those of each later second with other decisions."""
    lines: list[str] = []
    memory, before = moment.memory, list[str]()
    for start, second in pairwise((-1, *SECONDS)):
        low = start
        for _ in range(MOST):
            at = _first_change(moment, memory, before, low, second)
            after = _shown(moment, memory, at)
            if lines and after == before:
                break
            events, memory = _remember(moment, memory, at)
            lines += [f"+{at} s, then in {_pause(moment, memory, at):g} s", *_changes(before, after)]
            lines += [f"  event {text}" for text in events]
            before, low = _shown(moment, memory, at), at
            lines += _changes(after, before)
            if at == second:
                break
    return "\n".join(lines) + "\n"


def _first_change(moment: ClusterSnapshot, memory: Memory, before: list[str], low: int, high: int) -> int:
    """The first second with other decisions, by bisection; `high` if there is none."""
    if _shown(moment, memory, high) == before:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if _shown(moment, memory, middle) == before:
            low = middle
        else:
            high = middle
    return high


def _changes(before: list[str], after: list[str]) -> Iterator[str]:
    was, is_now = ([line for line in lines if line != EVENTS] for lines in (before, after))
    yield from (f"  - {line[:40]}" for line in was if line not in is_now)
    yield from (f"  + {line}" for line in is_now if line not in was)


def _decided(moment: ClusterSnapshot, memory: Memory, second: int) -> tuple[Action, ...]:
    return decide(moment.plan, moment.bindings, moment.observation, memory, NOW + second)


def _pause(moment: ClusterSnapshot, memory: Memory, second: int) -> float:
    return round(next_look(moment.plan, moment.bindings, moment.observation, memory, NOW + second), 2)


def _remember(moment: ClusterSnapshot, memory: Memory, second: int) -> tuple[list[str], Memory]:
    found = [a for a in _decided(moment, memory, second) if isinstance(a, RecordEvents)]
    entries = tuple(entry for action in found for entry in action.entries)
    return [_text(entry.event, NOW + second) for entry in entries], fold(memory, entries)


def _shown(moment: ClusterSnapshot, memory: Memory, second: int) -> list[str]:
    """The actions in their order, and the rows of all nodes that are not just powered down."""
    now = NOW + second
    actions = _decided(moment, memory, second)
    lines = [_text(one, now) for one in actions if not isinstance(one, RecordEvents)]
    if any(isinstance(one, RecordEvents) for one in actions):
        lines.append(EVENTS)
    world = World.of(moment.plan, moment.bindings, moment.observation, memory, now)
    assert world is not None
    return [*lines, *_rows(world)]


def _rows(world: World) -> list[str]:
    """The nodes of each row, with the decision, the bound and the sentence."""
    table, found = NodeTable(world), dict[str, list[str]]()
    for slot in world.phases:
        context = table.context(slot)
        row = row_for(context)
        bound = row.bound(context)
        limit = "" if bound is None else f", at most {bound:g} s"
        if row is not OFF:
            text = f"{row.decision} ({row.name}{limit}): {row.sentence(context)}"
            found.setdefault(text, []).append(slot)
    return [f"{fold_names(slots)} {text}" for text, slots in found.items()]


def _text(value: Any, now: float, name: str = "") -> str:
    if is_dataclass(value):
        shown = ((f, getattr(value, f.name)) for f in fields(value) if f.name not in _HIDDEN)
        return f"{type(value).__name__}({', '.join(f'{f.name}={_text(one, now, f.name)}' for f, one in shown if not _is_default(f, one))})"
    if name in ("slots", "nodes") and isinstance(value, tuple):
        return fold_names(value)
    if isinstance(value, tuple | list | set | frozenset):
        return f"[{' '.join(_text(one, now, name) for one in value)}]"
    if isinstance(value, Enum | bool | int):
        return str(value)
    if isinstance(value, float):
        return _time(value, now, name) if value > NOW / 2 else f"{value:g}"
    return repr(value) if isinstance(value, str) and " " in value else str(value)


def _time(at: float, now: float, name: str) -> str:
    if at == now or name in _FROM_NOW:
        return f"now{at - now:+g}" if at != now else "now"
    return f"{at - NOW:+g}"


def _is_default(field: "Field[Any]", value: object) -> bool:
    if field.default_factory is not MISSING:
        return bool(value == field.default_factory())
    return bool(value == field.default)
