"""The copy of orders, budget and spend: what is newer counts, money that was spent stays spent."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.elastic import intent
from gpucluster.elastic.events import (
    BudgetCrossed,
    CopiedOrder,
    DaemonStarted,
    Entry,
    Event,
    InstanceAdopted,
    IntentRestored,
    JournalCreated,
    OrderCompleted,
    OrderGiven,
    Stamp,
    Verb,
)
from gpucluster.elastic.intent import Intent, decode, encode, intent_of, merge, restored
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.memory.limits import UNDONE
from gpucluster.plan.model import Market

NOW = 1_794_924_000.0  # 2026-11-17 14:00:00 UTC
MONTH = "2026-11"
PAUSE = OrderGiven(verb=Verb.POOL_PAUSE, target="h200", by="ada", words="a new driver")
RESUME = OrderGiven(verb=Verb.POOL_RESUME, target="h200", by="bob")
KEEP = OrderGiven(verb=Verb.NODE_KEEP, target="h200-2a-1", by="ada", until=NOW + 3600.0)
STOP = BudgetCrossed(line="stop", month=MONTH, spent=7)

STAMPS = st.builds(Stamp, epoch=st.integers(0, 3), sequence=st.integers(0, 3))
TARGETS = st.sampled_from(("a", "b", "c"))
ORDERS = st.builds(
    CopiedOrder,
    target=TARGETS,
    stamp=STAMPS,
    verb=st.none() | st.sampled_from((Verb.POOL_PAUSE, Verb.NODE_KEEP)),
    by=st.sampled_from(("ada", "bob")),
)
INTENTS = st.builds(
    Intent,
    orders=st.lists(ORDERS, unique_by=lambda o: o.target).map(
        lambda found: tuple(sorted(found, key=lambda o: o.target))
    ),
    budget=st.sampled_from(("", "2026-11/warn", "2026-11/stop")),
    budget_stamp=STAMPS,
    spent=st.dictionaries(st.sampled_from(("2026-10", MONTH)), st.integers(0, 9)),
)


def after(*events: Event, memory: Memory | None = None, at: float = NOW) -> Memory:
    return fold(memory or Memory(), (Entry(at=at, event=event) for event in events))


@given(INTENTS, INTENTS, INTENTS)
def test_merge_does_not_depend_on_order_or_repetition(one: Intent, two: Intent, three: Intent) -> None:
    assert merge(one, two) == merge(two, one)
    assert merge(one, one) == one
    assert merge(merge(one, two), two) == merge(one, two)
    assert merge(merge(one, two), three) == merge(one, merge(two, three))


@given(INTENTS, INTENTS)
def test_higher_stamp_wins_and_the_spend_is_the_maximum(one: Intent, two: Intent) -> None:
    merged = merge(one, two)
    for order in (*one.orders, *two.orders):
        (kept,) = (o for o in merged.orders if o.target == order.target)
        assert kept.stamp >= order.stamp
    assert merged.budget_stamp == max(one.budget_stamp, two.budget_stamp)
    for month in one.spent.keys() | two.spent.keys():
        assert merged.spent[month] == max(one.spent.get(month, 0), two.spent.get(month, 0))


@given(INTENTS)
def test_copy_survives_its_json(one: Intent) -> None:
    assert decode(encode(one)) == one


@given(INTENTS)
def test_restored_memory_has_the_copy(copy: Intent) -> None:
    memory = after(JournalCreated(epoch="e", first=False))
    event = restored(memory, copy, NOW)
    assert event is not None
    memory = after(event, memory=memory)
    assert memory.unrestored_since is None
    assert restored(memory, copy, NOW) is None
    found = intent_of(memory, NOW)
    assert [(o.target, o.stamp, o.verb) for o in found.orders] == [
        (o.target, o.stamp, o.verb) for o in copy.orders
    ]
    assert (found.budget, found.budget_stamp) == (copy.budget, copy.budget_stamp)
    assert {m: s for m, s in memory.spent.items() if s} == {m: s for m, s in copy.spent.items() if s}


def test_journal_of_yesterday_gets_the_pause_of_today() -> None:
    """A journal that was restored from a backup resumed the pool that was paused since."""
    yesterday = after(DaemonStarted(epoch=3), KEEP)
    today = after(PAUSE, OrderCompleted(verb=Verb.NODE_KEEP, target=KEEP.target), memory=yesterday)
    copy = intent_of(today, NOW)
    began = after(DaemonStarted(epoch=4), memory=yesterday)
    event = restored(began, copy, NOW)
    assert event is not None
    memory = after(event, memory=began)
    assert (memory.orders, memory.undone) == (today.orders, today.undone)
    assert after(RESUME, memory=memory).undone["h200"] > copy.orders[0].stamp


@pytest.mark.parametrize("epoch", [1, 7])
def test_orders_since_the_epochs_began_anew_are_newer_than_the_copy(epoch: int) -> None:
    """Control object and journal were lost. A pause that was given before the copy could be read vanished with its read."""
    copy = Intent(
        orders=(
            CopiedOrder(target="h100", stamp=Stamp(epoch=epoch, sequence=4), verb=Verb.POOL_DRAIN),
            CopiedOrder(target="h200", stamp=Stamp(epoch=epoch, sequence=9)),
            CopiedOrder(target=KEEP.target, stamp=Stamp(epoch=epoch, sequence=8), verb=Verb.NODE_KEEP),
        )
    )
    release = OrderGiven(verb=Verb.NODE_RELEASE, target=KEEP.target, by="bob")
    waits = after(JournalCreated(epoch="e", first=False), DaemonStarted(epoch=1), PAUSE, KEEP, release)
    event = restored(waits, copy, NOW)
    assert event is not None
    memory = after(event, memory=waits)
    assert {target: order.verb for target, order in memory.orders.items()} == {
        "h100": Verb.POOL_DRAIN,
        "h200": Verb.POOL_PAUSE,
    }
    assert restored(memory, copy, NOW) is None
    resumed = after(DaemonStarted(epoch=2), RESUME, memory=memory)
    assert restored(resumed, intent_of(memory, NOW), NOW) is None
    assert resumed.lease == 2


def test_copy_that_is_older_than_the_journal_changes_nothing() -> None:
    """A pause whose resume was not copied yet must not come back."""
    paused = after(DaemonStarted(epoch=3), PAUSE)
    copy = intent_of(paused, NOW)
    resumed = after(RESUME, STOP, memory=paused)
    assert restored(resumed, copy, NOW) is None
    assert after(IntentRestored(orders=copy.orders), memory=resumed) == resumed


def test_spend_of_living_instances_is_in_the_copy_and_counts_once() -> None:
    """A lost journal loses the launch times: what the instances have cost by then is in the copy alone."""
    adopted = InstanceAdopted(
        slot="a-1", instance="i-1", machine="m", market=Market.SPOT, price=3_600_000, zone="z"
    )
    memory = after(adopted, at=NOW - 7200.0)
    copy = intent_of(memory, NOW)
    assert copy.spent == {MONTH: 7_200_000}
    assert restored(memory, copy, NOW) is None
    again = replace(adopted, launched_at=NOW - 7200.0)
    lost = after(again, memory=after(JournalCreated(epoch="e", first=False)))
    event = restored(lost, copy, NOW)
    assert event is not None
    assert intent_of(after(event, memory=lost), NOW).spent == copy.spent


def test_copy_names_the_instance_of_each_ordered_slot_until_it_is_adopted() -> None:
    """Without an address in Slurm nothing else says which instance an order keeps."""
    keeps = OrderGiven(verb=Verb.NODE_KEEP, target="a-1", by="ada")
    adopted = InstanceAdopted(slot="a-1", instance="i-1", machine="m", market=Market.SPOT)
    copy = intent_of(after(adopted, keeps), NOW)
    assert [order.instance for order in copy.orders] == ["i-1"]
    lost = after(IntentRestored(orders=copy.orders))
    assert lost.orders["a-1"].instance == "i-1"
    assert intent_of(lost, NOW).orders == copy.orders


def test_copy_of_a_version_without_instances_is_read() -> None:
    body = json.loads(encode(intent_of(after(PAUSE), NOW)))
    assert [order.pop("instance") for order in body["orders"]] == [""]
    assert decode(json.dumps(body).encode()).orders == intent_of(after(PAUSE), NOW).orders


def test_long_copy_loses_reasons_then_ends_and_never_an_order() -> None:
    orders = tuple(
        CopiedOrder(
            target=f"h200-2a-{n:04}",
            stamp=Stamp(sequence=n + 1),
            verb=Verb.NODE_KEEP,
            by="ada",
            words="w" * 160,
        )
        for n in range(300)
    )
    ends = tuple(CopiedOrder(target=f"i-{n:04}", stamp=Stamp(sequence=n + 1)) for n in range(UNDONE))
    body = encode(Intent(orders=(*orders, *ends)))
    assert len(body) <= intent.MAX_BYTES
    kept = decode(body).orders
    assert [replace(o, words="") for o in kept if o.verb] == [replace(o, words="") for o in orders]
    many = tuple(replace(orders[0], target=f"{n}") for n in range(2000))
    with pytest.raises(ValueError, match=f"at most {intent.MAX_BYTES}"):
        encode(Intent(orders=many))


def test_ends_of_orders_are_bounded() -> None:
    events = [OrderGiven(verb=Verb.NODE_RELEASE, target=f"n-{n}", by="ada") for n in range(UNDONE + 50)]
    memory = after(*events)
    assert set(memory.undone) == {f"n-{n}" for n in range(50, UNDONE + 50)}


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"schema": 1}',
        encode(Intent(orders=(CopiedOrder(target="a", stamp=Stamp()),))).replace(b'"verb":null,', b""),
    ],
)
def test_copy_without_a_key_is_refused(body: bytes) -> None:
    """An empty object counted as a copy without orders: a job ran on the paused pool. An order without a verb has ended."""
    with pytest.raises(ValueError, match="without"):
        decode(body)


def test_order_whose_end_is_dropped_stays_over() -> None:
    """A stale copy brought back a pause that was resumed 257 orders ago."""
    paused = after(DaemonStarted(epoch=3), PAUSE)
    stale = intent_of(paused, NOW)
    ends = [OrderGiven(verb=Verb.NODE_RELEASE, target=f"n-{n}", by="ada") for n in range(UNDONE)]
    memory = after(RESUME, *ends, memory=paused)
    assert PAUSE.target not in memory.undone
    assert restored(memory, stale, NOW) is None
    assert not after(IntentRestored(orders=stale.orders), memory=memory).orders


def test_old_order_is_restored_beside_many_newer_ends() -> None:
    """Restoring the ends drops others: what those ends tell must not hide an order of the same copy."""
    orders = (
        CopiedOrder(target="h200", stamp=Stamp(sequence=1), verb=Verb.POOL_PAUSE),
        *(CopiedOrder(target=f"a-{n}", stamp=Stamp(sequence=n + 2)) for n in range(UNDONE)),
    )
    ends = [OrderGiven(verb=Verb.NODE_RELEASE, target=f"n-{n}", by="ada") for n in range(UNDONE)]
    memory = after(JournalCreated(epoch="e", first=False), DaemonStarted(epoch=1), *ends)
    assert after(IntentRestored(orders=orders), memory=memory).orders.keys() == {"h200"}


def test_copy_of_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="schema 9"):
        decode(encode(replace(Intent(), schema=9)))
