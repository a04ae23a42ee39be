"""The journal and its fold: what was appended is there after any end, and a snapshot changes nothing."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpucluster.elastic import journal as journals
from gpucluster.elastic.events import EVENTS, Entry
from gpucluster.elastic.journal import FencedError, Journal, fence_of, read_only, read_record
from gpucluster.elastic.memory import Memory, fold
from gpucluster.errors import StateError
from gpucluster.plan import codec

NUMBERS = st.integers(0, 2**40)
st.register_type_strategy(float, st.floats(0, 1e12))
st.register_type_strategy(int, NUMBERS)
ONE_EVENT = st.one_of([st.from_type(kind) for name, kind in EVENTS.items() if name != "JournalCreated"])
ENTRIES = st.lists(st.builds(lambda event: Entry(at=1.0, event=event), ONE_EVENT), max_size=30)


@pytest.mark.parametrize("kind", EVENTS.values(), ids=EVENTS.keys())
@given(data=st.data())
@settings(max_examples=10)
def test_every_event_survives_its_json(kind: type[Any], data: st.DataObject) -> None:
    event = data.draw(st.from_type(kind))
    assert codec.from_json(kind, codec.to_json(event)) == event


@given(entries=ENTRIES)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_memory_of_any_events_survives_its_json(entries: list[Entry]) -> None:
    memory = fold(Memory(), entries)
    assert codec.from_json(Memory, codec.to_json(memory)) == memory
    assert fold(fold(Memory(), entries[:5]), entries[5:]) == memory


@given(entries=ENTRIES, cut=st.integers(0, 30))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_start_reads_all_events_with_or_without_a_snapshot(
    tmp_path_factory: pytest.TempPathFactory, entries: list[Entry], cut: int
) -> None:
    path = tmp_path_factory.mktemp("j") / "journal.sqlite"
    one = Journal.open(path, 5.0)
    one.append(tuple(entries[:cut]))
    one.snapshot()
    one.append(tuple(entries[cut:]))
    before = one.memory
    one.close()
    two = Journal.open(path, 9.0)
    assert two.memory == before
    assert len(read_only(path)) == len(entries) + 1  # and Born
    two.close()


def test_new_journal_has_its_own_epoch(tmp_path: Path) -> None:
    a, b = Journal.open(tmp_path / "a", 1.0), Journal.open(tmp_path / "b", 2.0)
    assert a.memory.epoch != b.memory.epoch
    again = Journal.open(tmp_path / "a", 3.0)
    assert again.memory.epoch == a.memory.epoch


def test_journal_stores_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Journal.open(tmp_path / "j", 1.0)
    entry = Entry(at=1.0, event=EVENTS["NodeUp"](slot="a"))
    one.append((entry,) * journals.SNAPSHOT_EVERY)
    assert (
        sqlite3.connect(tmp_path / "j").execute("SELECT last FROM snapshot").fetchone() is None
    )  # a launch may wait
    one.tidy(1.0)
    db = sqlite3.connect(tmp_path / "j")
    assert db.execute("SELECT last FROM snapshot").fetchone()[0] >= journals.SNAPSHOT_EVERY
    db.close()


@pytest.mark.parametrize(("shared", "mode"), [(False, "wal"), (True, "truncate")])
def test_every_write_is_synced(tmp_path: Path, shared: bool, mode: str) -> None:
    one = Journal.open(tmp_path / "j", 1.0, shared=shared)
    assert one._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert one._db.execute("PRAGMA journal_mode").fetchone() == (mode,)


def test_shared_journal_uses_no_wal(tmp_path: Path) -> None:
    """A WAL's index is mapped memory: over NFS the second head would read the first's of before its end."""
    path = tmp_path / "j"
    first = Journal.open(path, 1.0, 1)  # of before there was a second head
    _order(first)
    first.close()
    second = Journal.open(path, 2.0, 2, shared=True)
    _order(second)
    assert {p.name for p in tmp_path.iterdir()} <= {"j", "j-journal"}
    assert len(read_only(path)) == 3  # Born and two orders, while it is open
    assert fence_of(path) == 2


def test_long_read_does_not_block_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of a rollback journal lets no write end: `why` over a long one would have ended the daemon."""
    one = Journal.open(tmp_path / "j", 1.0, shared=True)
    _order(one)
    decode, left = codec.from_json, [1, 2, 3]

    def meanwhile(kind: type[Any], value: Any) -> Any:
        if left:
            left.pop()
            _order(one)
        return decode(kind, value)

    monkeypatch.setattr(journals, "PAGE", 2)
    with monkeypatch.context() as patched:
        patched.setattr(journals.codec, "from_json", meanwhile)
        told = read_only(tmp_path / "j")
    assert len(told) == 5
    assert told == read_only(tmp_path / "j")


def test_other_schema_is_refused(tmp_path: Path) -> None:
    Journal.open(tmp_path / "j", 1.0).close()
    db = sqlite3.connect(tmp_path / "j")
    db.execute("UPDATE about SET schema = 99")
    db.commit()
    db.close()
    with pytest.raises(StateError, match="schema 99"):
        Journal.open(tmp_path / "j", 1.0)


@pytest.mark.parametrize("damage", ["no database at all " * 99, ""])
def test_damaged_journal_is_an_error_with_a_next_step(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "j"
    Journal.open(path, 1.0).close()
    if damage:
        path.write_text(damage)
    else:
        db = sqlite3.connect(path)
        db.execute("UPDATE events SET body = 'half'")
        db.commit()
        db.close()
    with pytest.raises(StateError, match="cannot be read") as told:
        Journal.open(path, 1.0)
    assert "move it away" in str(told.value.next_step)


def test_full_disk_is_an_error_and_changes_no_memory(tmp_path: Path) -> None:
    one = Journal.open(tmp_path / "j", 1.0)
    pages = one._db.execute("PRAGMA page_count").fetchone()[0]
    one._db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StateError, match="cannot be written"):
        _fill(one)
    before = one.memory
    one.close()
    assert Journal.open(tmp_path / "j", 2.0).memory == before


def _fill(one: Journal) -> None:
    for number in range(1000):
        one.append((Entry(at=1.0, event=EVENTS["NodeNeeded"](slot=f"a-{number}", incarnation=1, jobs=())),))


STEPS = {
    "a full disk": (sqlite3.SQLITE_FULL, journals.ROOM),
    "a lock": (sqlite3.SQLITE_BUSY, journals.AGAIN),
    "a disk that fails to write": (sqlite3.SQLITE_IOERR_WRITE, journals.AGAIN),
    "damage": (sqlite3.SQLITE_CORRUPT, journals.AWAY),
}


@pytest.mark.parametrize("row", STEPS)
def test_only_for_a_damaged_journal_the_next_step_is_to_move_it(row: str) -> None:
    """A full disk at a start said so, too: what is known of launches under way would have been lost."""
    error = sqlite3.OperationalError(row)
    error.sqlite_errorcode, step = STEPS[row]
    assert journals._step_after(error) == step


def test_for_an_impossible_folder_the_next_step_is_not_to_move_the_journal(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError) as told:
        Journal.open(tmp_path / "file" / "j", 1.0)
    assert told.value.next_step == journals.AGAIN


def test_events_of_a_newer_version_do_not_disturb_the_snapshot(tmp_path: Path) -> None:
    """The snapshot's place was counted from the last event that was known, so what came after was folded again."""
    path = tmp_path / "j"
    Journal.open(path, 1.0).close()
    _unknown(path, 3)
    old = Journal.open(path, 2.0)
    _order(old)
    old.snapshot()
    row = sqlite3.connect(path).execute("SELECT last, (SELECT max(id) FROM events) FROM snapshot").fetchone()
    assert row[0] == row[1]
    assert Journal.open(path, 3.0).memory == old.memory


def test_snapshot_of_another_version_is_ignored(tmp_path: Path) -> None:
    """After a downgrade the daemon refused to start, and told to move the journal away."""
    path = tmp_path / "j"
    one = Journal.open(path, 1.0)
    _order(one)
    one.snapshot()
    before = one.memory
    one.close()
    db = sqlite3.connect(path)
    db.execute("UPDATE snapshot SET memory = json_set(memory, '$.newer', 1)")
    db.commit()
    db.close()
    assert Journal.open(path, 2.0).memory == before


def _unknown(path: Path, count: int) -> None:
    db = sqlite3.connect(path)
    db.executemany("INSERT INTO events (at, kind, body) VALUES (1, 'FromTheFuture', ?)", [("{}",)] * count)
    db.commit()
    db.close()


def _order(one: Journal) -> None:
    one.append((Entry(at=1.0, event=EVENTS["NodeNeeded"](slot="a-1", incarnation=1, jobs=())),))


def test_daemon_with_an_older_epoch_cannot_write(tmp_path: Path) -> None:
    entry = Entry(at=1.0, event=EVENTS["NodeUp"](slot="a"))
    old = Journal.open(tmp_path / "j", 1.0, 3)
    assert fence_of(tmp_path / "j") == 3
    new = Journal.open(tmp_path / "j", 2.0, 5)
    for write in (lambda: old.append((entry,)), old.snapshot, old.check):
        with pytest.raises(FencedError, match="taken the journal over"):
            write()
    new.append((entry,))
    new.check()
    with pytest.raises(FencedError, match="epoch 5, ours is 4"):
        Journal.open(tmp_path / "j", 3.0, 4)
    assert len(read_only(tmp_path / "j")) == 2  # Born, and the new one's


@pytest.mark.parametrize(
    ("opened_by", "last_epoch", "lacks"), [(3, 3, False), (3, 4, True), (5, 4, False), (0, 4, False)]
)
def test_journal_of_before_the_last_daemon_waits_for_the_copy_of_the_orders(
    tmp_path: Path, opened_by: int, last_epoch: int, lacks: bool
) -> None:
    """A restored backup lacks the orders since. `opened_by` 0: by a version without leases."""
    path = tmp_path / "j"
    Journal.open(path, 1.0, opened_by).close()
    Journal.open(path, 2.0, 6, last_epoch=last_epoch).close()  # killed before it read the copy
    again = Journal.open(path, 3.0, 7, last_epoch=6)
    assert again.memory.unrestored_since == (2.0 if lacks else None)


def test_missing_and_old_journals_have_no_fence(tmp_path: Path) -> None:
    assert fence_of(tmp_path / "none") == 0
    sqlite3.connect(tmp_path / "old").close()
    assert fence_of(tmp_path / "old") == 0
    assert not (tmp_path / "none").exists()


DAY_S = 86400.0


def _lived(path: Path, days: int, each: int = 400) -> Journal:
    """A journal of so many days, with this many events each day and the daemon's tidying."""
    one = Journal.open(path, 0.0)
    for day in range(days):
        at = day * DAY_S
        events = (EVENTS["NodeNeeded"](slot=f"a-{n % 7}", incarnation=day, jobs=(n,)) for n in range(each))
        one.append(tuple(Entry(at=at, event=event) for event in events))
        one.tidy(at)
    return one


def test_old_events_are_pruned_into_the_snapshot(tmp_path: Path) -> None:
    """Nothing pruned the journal: 3.2 MB for 850 jobs, and each start and each `why` read all of it."""
    path = tmp_path / "j"
    one = _lived(path, days=45)
    before = one.memory
    kept = read_record(path)
    assert kept.memory == before
    oldest = 44 * DAY_S - journals.KEPT_S
    assert kept.pruned_before == kept.entries[0].at
    assert oldest - 4 * DAY_S <= kept.entries[0].at <= oldest + DAY_S
    one.close()
    again = Journal.open(path, 46 * DAY_S)
    assert again.memory == before
    _order(again)
    assert read_record(path).memory == again.memory


def test_long_events_are_pruned_earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst of a hundred thousand jobs in a day must not fill the disk, whatever its age."""
    monkeypatch.setattr(journals, "KEPT_BYTES", 2**19)
    one = _lived(tmp_path / "j", days=2, each=20)
    for _ in range(20):
        one.append(tuple(Entry(at=DAY_S, event=EVENTS["NodeUp"](slot="a" * 90)) for _ in range(1000)))
        one.tidy(DAY_S)
    assert journals._bytes_in_use(one._db) <= 2**20
    assert (tmp_path / "j").stat().st_size <= 2**20
    assert read_record(tmp_path / "j").memory == one.memory


def test_file_of_a_long_journal_becomes_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite keeps free pages: the file of a journal that was never pruned would stay as long as it was."""
    path = tmp_path / "j"
    one = _lived(path, days=1, each=16_000)
    monkeypatch.setattr(journals, "KEPT_BYTES", 2**19)
    for _ in range(5):
        one.append(tuple(Entry(at=99 * DAY_S, event=EVENTS["NodeUp"](slot="a")) for _ in range(1000)))
        one.tidy(99 * DAY_S)
    one.close()
    long = path.stat().st_size
    again = Journal.open(path, 99 * DAY_S)
    assert again.memory == one.memory
    again.close()
    assert path.stat().st_size < long / 2


def test_newest_event_is_never_pruned(tmp_path: Path) -> None:
    """Without it SQLite gives its id again, and a start would skip that event: the snapshot has this id."""
    one = Journal.open(tmp_path / "j", 0.0)
    one.append((Entry(at=0.0, event=EVENTS["NodeUp"](slot="a")),) * journals.SNAPSHOT_EVERY)
    one.tidy(99 * DAY_S)
    assert len(read_only(tmp_path / "j")) == 1
    _order(one)
    one.close()
    assert Journal.open(tmp_path / "j", 1.0).memory == one.memory


def _changed_snapshot(path: Path, change: str) -> None:
    db = sqlite3.connect(path)
    db.execute(f"UPDATE snapshot SET memory = {change}")  # noqa: S608 -- of this file
    db.commit()
    db.close()


def test_pruned_snapshot_of_a_newer_version_is_read_without_what_it_adds(tmp_path: Path) -> None:
    """It was ignored: a pruned journal has no other place for the pauses, the spend and the instances."""
    path = tmp_path / "j"
    one = _lived(path, days=45)
    one.close()
    newer = "json_set(memory, '$.newer', 1, '$.incarnations.a-1.newer', json('[1]'))"
    _changed_snapshot(path, newer)
    assert Journal.open(path, 1.0).memory == one.memory
    assert read_record(path).memory == one.memory


@pytest.mark.parametrize("change", ["'half'", "json_remove(memory, '$.incarnations.a-1.number')"])
def test_pruned_snapshot_that_cannot_be_read_is_no_empty_memory(tmp_path: Path, change: str) -> None:
    """It was ignored, and the daemon began with an empty memory: a paused pool would launch."""
    path = tmp_path / "j"
    _lived(path, days=45).close()
    _changed_snapshot(path, change)
    for read in (lambda: Journal.open(path, 1.0), lambda: read_record(path)):
        with pytest.raises(StateError, match="older events are pruned") as told:
            read()
        assert told.value.next_step == journals.OTHER_VERSION


def test_version_that_needs_all_events_refuses_a_pruned_journal(tmp_path: Path) -> None:
    """An earlier version ignores a snapshot that it cannot read: it would begin with what is left."""
    one = _lived(tmp_path / "j", days=1)
    assert one._db.execute("SELECT schema FROM about").fetchone() == (1,)
    _lived(tmp_path / "k", days=45).close()
    assert sqlite3.connect(tmp_path / "k").execute("SELECT schema FROM about").fetchone() == (2,)
