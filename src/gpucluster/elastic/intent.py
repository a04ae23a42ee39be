"""Operators' orders, the budget's state and the month's spend, as the copy in the bucket has them. Pure.

The copy outlives the journal. Each order and the budget's state have a stamp: of two versions the newer one counts. Of two
spends the larger one counts, because money that was spent stays spent. So it does not matter which file is older.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpucluster.elastic import ledger
from gpucluster.elastic.events import CopiedOrder, IntentRestored, Stamp
from gpucluster.elastic.memory import Memory
from gpucluster.elastic.memory.limits import UNDONE, last_stamp
from gpucluster.plan import codec

MAX_BYTES = 64 * 1024
# Characters of an order's reason and number of ends of orders, if the copy would be too long with more.
LENGTHS = ((160, UNDONE), (40, UNDONE), (40, 32), (0, 32), (0, 0))
SCHEMA = 1
NEWER = frozenset({"instance"})  # copies of earlier versions do not name the instances of orders


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What the copy has. `orders` by target; `spent` by month, in micro-USD, with what living instances cost so far."""

    schema: int = SCHEMA
    orders: tuple[CopiedOrder, ...] = ()
    budget: str = ""
    budget_stamp: Stamp = field(default_factory=Stamp)
    spent: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def without_spend(self) -> "Intent":
        """What must be copied at once. The spend grows all the time."""
        return replace(self, spent={})


def merge(one: Intent, other: Intent) -> Intent:
    """Return the newer version of each order and of the budget's state, and the larger spend of each month."""
    budget, stamp = max((one.budget, one.budget_stamp), (other.budget, other.budget_stamp), key=_budget_age)
    months = sorted(one.spent.keys() | other.spent.keys())
    return Intent(
        orders=_newest((*one.orders, *other.orders)),
        budget=budget,
        budget_stamp=stamp,
        spent={month: max(one.spent.get(month, 0), other.spent.get(month, 0)) for month in months},
    )


def intent_of(memory: Memory, now: float) -> Intent:
    """Return what the copy should have."""
    given = (
        CopiedOrder(
            target=target,
            stamp=order.stamp,
            verb=order.verb,
            at=order.at,
            by=order.by,
            words=order.words,
            until=order.until,
            now=order.now,
            instance=_instance_of(memory, target) or order.instance,
        )
        for target, order in memory.orders.items()
    )
    over = (CopiedOrder(target=target, stamp=stamp) for target, stamp in memory.undone.items())
    return Intent(
        orders=_newest((*given, *over)),
        budget=memory.budget,
        budget_stamp=memory.budget_stamp,
        spent=_spent(memory, now),
    )


def _instance_of(memory: Memory, slot: str) -> str:
    incarnation = memory.incarnations.get(slot)
    return (incarnation.instance or "") if incarnation is not None else ""


def restored(memory: Memory, copy: Intent, now: float) -> IntentRestored | None:
    """Return what is newer in the copy than in memory; None: nothing, and memory does not wait for the copy."""
    mine = intent_of(memory, now)
    merged = merge(mine, copy)
    spent = {
        month: memory.spent.get(month, 0) + amount - mine.spent.get(month, 0)
        for month, amount in merged.spent.items()
        if amount > mine.spent.get(month, 0)
    }
    event = IntentRestored(
        orders=tuple(order for order in merged.orders if order.stamp > last_stamp(memory, order.target)),
        budget=merged.budget,
        budget_stamp=merged.budget_stamp,
        spent=spent,
    )
    budget = (merged.budget_stamp, merged.budget) > (memory.budget_stamp, memory.budget)
    same = not (event.orders or spent or budget)
    return None if same and memory.unrestored_since is None else event


def encode(intent: Intent) -> bytes:
    """Return the body of the object, with less of what matters least if it is too long.

    ValueError: the orders that are in force are too many.
    """
    in_force = [order for order in intent.orders if order.verb is not None]
    ends = sorted((o for o in intent.orders if o.verb is None), key=lambda o: o.stamp, reverse=True)
    body = b""
    for words, count in LENGTHS:
        short = (replace(order, words=order.words[:words]) for order in in_force)
        body = codec.message(replace(intent, orders=_newest((*short, *ends[:count])))).encode()
        if len(body) <= MAX_BYTES:
            return body
    raise ValueError(f"{len(body)} bytes of orders, at most {MAX_BYTES}: release nodes or resume pools")


def decode(body: bytes) -> Intent:
    """Parse the body of the object. ValueError: it does not fit, or a key is missing: `{}` is no copy without orders."""
    found = codec.loads_whole(Intent, body, newer=NEWER)
    if found.schema != SCHEMA:
        raise ValueError(f"schema {found.schema}, this version reads {SCHEMA}")
    return found


def _newest(orders: Iterable[CopiedOrder]) -> tuple[CopiedOrder, ...]:
    """Return the newest order of each target, by target. Equal stamps never differ; if they do, the text decides."""
    newest: dict[str, CopiedOrder] = {}
    for order in orders:
        known = newest.get(order.target)
        if known is None or _age(order) > _age(known):
            newest[order.target] = order
    return tuple(newest[target] for target in sorted(newest))


def _age(order: CopiedOrder) -> tuple[Stamp, str]:
    return order.stamp, codec.message(order)


def _budget_age(one: tuple[str, Stamp]) -> tuple[Stamp, str]:
    return one[1], one[0]


def _spent(memory: Memory, now: float) -> Mapping[str, int]:
    living = ((one.price, one.counts_from) for one in memory.incarnations.values() if one.instance)
    total = ledger.spent(memory.spent, living, now)
    return {**memory.spent, **({ledger.month_of(now): total} if total else {})}
