"""The journal and its fold: what was appended is there after any end, and a snapshot changes nothing."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpucluster.elastic import journal as journals
from gpucluster.elastic.events import EVENTS, Entry
from gpucluster.elastic.journal import FencedError, Journal, fence_of, read_only
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
    one.tidy()
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


def test_missing_and_old_journals_have_no_fence(tmp_path: Path) -> None:
    assert fence_of(tmp_path / "none") == 0
    sqlite3.connect(tmp_path / "old").close()
    assert fence_of(tmp_path / "old") == 0
    assert not (tmp_path / "none").exists()
