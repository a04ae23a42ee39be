"""The journal: one SQLite file with append-only events, and a snapshot so that a start reads only the last events.

Old events are pruned once the snapshot has them (`KEPT_S`, `KEPT_BYTES`): memory is the snapshot and the events after it.

WAL with synchronous=FULL: when `append` returns, the events survive a power cut. Only the daemon's main thread writes.
The index of a WAL is shared memory, so a file that two heads share by NFS has a rollback journal instead.
Only the holder of the lease opens the journal. The epoch of the lease is a fence: after a newer epoch opened the file,
an older one cannot write. So a suspended daemon that lost its lease cannot write an intent, and launches nothing.
"""

import contextlib
import errno
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from gpucluster.elastic.events import EVENTS, Entry, JournalCreated, JournalOutdated
from gpucluster.elastic.memory import Memory, fold
from gpucluster.errors import StateError
from gpucluster.json_text import parse_json
from gpucluster.plan import codec

SCHEMA = 1
PRUNED_SCHEMA = 2  # of a file without its first events: a version that needs them must not open it
SNAPSHOT_EVERY = 1000  # events; a fold of this many takes milliseconds
BUSY_S = 5.0  # how long a statement waits for the lock of another process, before it fails
KEPT_S = 30 * 86400.0  # events are kept so long, for `timeline` and `why`, as far as there is room
KEPT_BYTES = (
    12 * 2**20
)  # of events and snapshot: a hundred thousand jobs a month have the events of some days
PRUNED_EVENTS = 4 * SNAPSHOT_EVERY  # the most in one write; a launch may come meanwhile
STEPS = 1_000_000  # of SQLite's machine between two signs of life; some milliseconds
PAGE = (
    2000  # events in one read: without WAL a reader blocks commits, and a commit fails after a wait of BUSY_S
)
AWAY = (
    "move it away and restart gpucluster-elastic: it reads orders, budget and spend from their copy in the bucket, and without"
    " one it launches nothing until an operator confirms; instances of nodes are adopted, others of ours end after the grace, and none"
    " of those before the orders are known"
)
ROOM = "nothing is launched or ended until it can be; make room on the head's disk"
AGAIN = "it is tried again; see what else has it open, and whether the disk is whole"
OTHER_VERSION = f"start the version of gpucluster that wrote it; if there is none, {AWAY}"
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_TABLES = """
CREATE TABLE IF NOT EXISTS about (schema INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS fence (only INTEGER PRIMARY KEY CHECK (only = 1), epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS snapshot (only INTEGER PRIMARY KEY CHECK (only = 1), last INTEGER NOT NULL, memory TEXT NOT NULL);
"""
_INSERT = "INSERT INTO events (at, kind, body) VALUES (?, ?, ?)"
Watch = Callable[[Sequence[Entry], Memory, Memory], object]  # entries, memory before and after them


class FencedError(StateError):
    """A daemon with a newer lease has opened the journal. This daemon must stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRecord:
    """What a reader sees. `pruned_before` is the time of the first event that is kept; None: the file has all events."""

    entries: tuple[Entry, ...] = ()
    memory: Memory = field(default_factory=Memory)
    pruned_before: float | None = None


class Journal:
    """The journal. Open it with `Journal.open`; `memory` is always the fold of all events that were written."""

    def __init__(
        self, db: sqlite3.Connection, memory: Memory, *, last: int, snapshot: int, epoch: int
    ) -> None:
        self._db, self._last, self._snapshot, self._epoch = db, last, snapshot, epoch
        self.memory = memory
        self.watch: Watch = lambda entries, before, after: None  # called with each batch that is on disk

    @classmethod
    def open(
        cls,
        path: Path,
        now: float,
        epoch: int | None = None,
        *,
        shared: bool = False,
        first: bool = True,
        last_epoch: int = 0,
        each_page: Callable[[], object] = lambda: None,
    ) -> "Journal":
        """Open or create it as the holder of `epoch` (None: no fence). Another schema raises a StateError.

        `shared`: other machines open it too. `first`: if there is no file, there was none before. `last_epoch`: of the last
        daemon, by the control object. `each_page` is called while a long journal is read.
        """
        try:
            mode = "TRUNCATE" if shared else "WAL"
            return cls._opened(path, now, epoch, mode, each_page, first=first, last_epoch=last_epoch)
        except (sqlite3.OperationalError, OSError) as error:
            step = _step_after(error)
            raise StateError(f"the journal {path} cannot be opened: {error}", next_step=step) from error
        except (sqlite3.Error, ValueError) as error:
            raise StateError(f"the journal {path} cannot be read: {error}", next_step=AWAY) from error

    @classmethod
    def _opened(
        cls,
        path: Path,
        now: float,
        epoch: int | None,
        mode: str,
        each_page: Callable[[], object],
        *,
        first: bool,
        last_epoch: int,
    ) -> "Journal":
        path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        db.execute(f"PRAGMA journal_mode={mode}")
        db.execute("PRAGMA synchronous=FULL")
        db.executescript(_TABLES)
        _check_schema(db, path)
        epoch = _raise_fence(
            db, epoch, last_epoch, now
        )  # before the read: no other process can add events after it
        _give_back_room(db, each_page)
        memory, snapshot = _load_snapshot(db)
        tail = (entry for _, entry in read_entries(db, snapshot, each_page))
        journal = cls(db, fold(memory, tail), last=_last_id(db), snapshot=snapshot, epoch=epoch)
        if not journal.memory.epoch:
            # From the clock, once per journal: a rebuilt head must not repeat the tokens of the head before it.
            created = JournalCreated(epoch=f"{int(now * 1000):x}", first=first)
            journal.append((Entry(at=now, event=created),))
        return journal

    @property
    def epoch(self) -> int:
        """The epoch of the fence."""
        return self._epoch

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Write all of `entries` or none, and fold them into `memory`. StateError (for example a full disk) stops the daemon."""
        if not entries:
            return
        rows = [_row(entry) for entry in entries]
        memory = fold(self.memory, entries)
        self._write((_INSERT, rows))
        before, self.memory, self._last = self.memory, memory, self._last + len(rows)
        self.watch(entries, before, memory)

    def check(self) -> None:
        """Raise FencedError if a daemon with a newer lease opened the journal. For actions that write no event first."""
        try:
            self._check()
        except sqlite3.Error as error:
            raise StateError(f"the journal cannot be read: {error}", next_step=AGAIN) from error

    def tidy(self, now: float) -> None:
        """Store memory and prune, if enough events came since the last time. For a moment when no launch waits for it."""
        if self._last - self._snapshot >= SNAPSHOT_EVERY:
            self.snapshot()
            self._prune(now)

    def snapshot(self) -> None:
        """Store memory, so that the next start reads only later events."""
        row = (self._last, json.dumps(codec.to_json(self.memory)))
        self._write(("INSERT OR REPLACE INTO snapshot (only, last, memory) VALUES (1, ?, ?)", [row]))
        self._snapshot = self._last

    def _prune(self, now: float) -> None:
        """Delete the oldest events of the snapshot. The last event stays: SQLite counts its ids from the last one on."""
        oldest = _oldest(self._db)
        first = oldest[0] if oldest is not None else self._last
        until = _first_since(self._db, now - KEPT_S)
        if _bytes_in_use(self._db) > KEPT_BYTES:
            until = max(until, first + 2 * SNAPSHOT_EVERY)
        until = min(until, first + PRUNED_EVENTS, self._snapshot)
        if until > first:
            marked = ("UPDATE about SET schema = ?", [(PRUNED_SCHEMA,)])
            self._write(("DELETE FROM events WHERE id < ?", [(until,)]), marked)

    def entries(self) -> Iterator[Entry]:
        """Return every event that is kept, oldest first."""
        return (entry for _, entry in read_entries(self._db, 0))

    def close(self) -> None:
        self._db.close()

    def _check(self) -> None:
        if _fence(self._db) != self._epoch:
            raise FencedError("another daemon has taken the journal over", next_step="it starts as a standby")

    def _write(self, *steps: tuple[str, Sequence[tuple[object, ...]]]) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._check()
            for statement, rows in steps:
                self._db.executemany(statement, rows)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise StateError(f"the journal cannot be written: {error}", next_step=ROOM) from error
        finally:
            if self._db.in_transaction:  # a full disk has already rolled back
                self._db.execute("ROLLBACK")


def fence_of(path: Path) -> int:
    """Return the epoch that opened the journal last; 0: none, or a version without leases."""
    if not path.exists():
        return 0
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            return _fence(db)
    except sqlite3.Error:
        return 0


def read_only(path: Path) -> tuple[Entry, ...]:
    """Return the kept events of a journal that another process writes."""
    return read_record(path).entries


def read_record(path: Path) -> JournalRecord:
    """Return events and memory of a journal that another process writes.

    The snapshot is read after the events: then it has each event that was pruned in the meantime.
    """
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        oldest = _oldest(db)
        numbered = tuple(read_entries(db, 0))
        memory, last = _load_snapshot(db)
    return JournalRecord(
        entries=tuple(entry for _, entry in numbered),
        memory=fold(memory, (entry for number, entry in numbered if number > last)),
        pruned_before=oldest[1] if oldest is not None and oldest[0] > 1 else None,
    )


def read_entries(
    db: sqlite3.Connection, after: int, each_page: Callable[[], object] = lambda: None
) -> Iterator[tuple[int, Entry]]:
    """Yield events with their ids. Kinds that this version does not know are skipped."""
    sql = "SELECT id, at, kind, body FROM events WHERE id > ? ORDER BY id LIMIT ?"
    while rows := db.execute(sql, (after, PAGE)).fetchall():
        each_page()
        for number, at, kind, body in rows:
            if kind in EVENTS:
                yield number, Entry(at=at, event=codec.from_json(EVENTS[kind], parse_json(body)))
        after = rows[-1][0]


def _row(entry: Entry) -> tuple[float, str, str]:
    """Return the values of _INSERT."""
    body = json.dumps(codec.to_json(entry.event), separators=(",", ":"))
    return entry.at, type(entry.event).__name__, body


def _check_schema(db: sqlite3.Connection, path: Path) -> None:
    row = db.execute("SELECT schema FROM about").fetchone()
    if row is None:
        db.execute("INSERT INTO about (schema) VALUES (?)", (SCHEMA,))
    elif row[0] not in (SCHEMA, PRUNED_SCHEMA):
        raise StateError(f"{path}: schema {row[0]}, this version reads {SCHEMA} and {PRUNED_SCHEMA}")


def _fence(db: sqlite3.Connection) -> int:
    row = cast(tuple[int] | None, db.execute("SELECT epoch FROM fence").fetchone())
    return row[0] if row else 0


def _raise_fence(db: sqlite3.Connection, epoch: int | None, last_epoch: int, now: float) -> int:
    """Return our epoch. With the fence, note a journal of before the last daemon; without a fence its age is not known."""
    db.execute("BEGIN IMMEDIATE")
    old = _fence(db)
    new = old + 1 if epoch is None else epoch
    if new < old:
        db.execute("ROLLBACK")
        raise FencedError(f"the journal is of the daemon with epoch {old}, ours is {new}")
    if 0 < old < last_epoch:
        db.execute(_INSERT, _row(Entry(at=now, event=JournalOutdated(epoch=old, last=last_epoch))))
    db.execute("INSERT OR REPLACE INTO fence (only, epoch) VALUES (1, ?)", (new,))
    db.execute("COMMIT")
    return new


def _load_snapshot(db: sqlite3.Connection) -> tuple[Memory, int]:
    """Return the snapshot and the id of its last event.

    A snapshot of another version is ignored while the file has all events. In a pruned file it is read without the
    fields that this version does not know, as events of unknown kinds are skipped. If it still does not fit, nothing
    else has the pruned events, so no memory is made up.
    """
    row = cast(tuple[int, str] | None, db.execute("SELECT last, memory FROM snapshot").fetchone())
    oldest = _oldest(db)
    pruned = oldest is not None and oldest[0] > 1
    try:
        if row is not None:
            known = parse_json(row[1])
            return codec.from_json(Memory, codec.known_part(Memory, known) if pruned else known), row[0]
        problem = "there is none"
    except ValueError as error:
        problem = str(error)
    if pruned:
        words = f"its older events are pruned, and this version cannot read their snapshot: {problem}"
        raise StateError(f"the journal cannot be read: {words}", next_step=OTHER_VERSION)
    return Memory(), 0


def _oldest(db: sqlite3.Connection) -> tuple[int, float] | None:
    """Return the id and the time of the first event that is kept. Ids begin at 1."""
    found = db.execute("SELECT id, at FROM events ORDER BY id LIMIT 1").fetchone()
    return cast(tuple[int, float] | None, found)


def _first_since(db: sqlite3.Connection, at: float) -> int:
    """Return the id of the first event that is not older than `at`; the last id if all are older."""
    found = db.execute("SELECT id FROM events WHERE at >= ? ORDER BY id LIMIT 1", (at,)).fetchone()
    return cast(tuple[int], found)[0] if found is not None else _last_id(db)


def _bytes_in_use(db: sqlite3.Connection) -> int:
    pages, free, size = (_pragma(db, name) for name in ("page_count", "freelist_count", "page_size"))
    return (pages - free) * size


def _give_back_room(db: sqlite3.Connection, while_busy: Callable[[], object]) -> None:
    """Make the file smaller if most of it is free, as after the first prune of a long one.

    Later the free pages are used again. A full disk or a reader prevents it: then the next start tries again.
    """
    pages, free, size = (_pragma(db, name) for name in ("page_count", "freelist_count", "page_size"))
    if 2 * free > pages and pages * size > KEPT_BYTES:
        db.set_progress_handler(
            lambda: _goes_on(while_busy), STEPS
        )  # systemd's watchdog waits for a sign of life
        with contextlib.suppress(sqlite3.OperationalError):
            db.execute("VACUUM")
        db.set_progress_handler(None, 0)


def _goes_on(while_busy: Callable[[], object]) -> None:
    while_busy()


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return cast(tuple[int], db.execute(f"PRAGMA {name}").fetchone())[0]


def _last_id(db: sqlite3.Connection) -> int:
    """Return the last id of all events, also of kinds that this version does not know."""
    return cast(tuple[int], db.execute("SELECT coalesce(max(id), 0) FROM events").fetchone())[0]


def _step_after(error: sqlite3.OperationalError | OSError) -> str:
    """Return the next step for people. After a full disk or a lock the journal is intact and must not be moved away."""
    if isinstance(error, OSError):
        return ROOM if error.errno == errno.ENOSPC else AGAIN
    code = error.sqlite_errorcode & 0xFF  # the other bits are the extended code
    if code in _DAMAGED:
        return AWAY
    return ROOM if code == sqlite3.SQLITE_FULL else AGAIN
