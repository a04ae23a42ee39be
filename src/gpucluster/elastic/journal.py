"""The journal: one SQLite file with append-only events, and a snapshot so that a start reads only the last events.

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
from pathlib import Path
from typing import cast

from gpucluster.elastic.events import EVENTS, Entry, Event, JournalCreated
from gpucluster.elastic.memory import Memory, fold
from gpucluster.errors import StateError
from gpucluster.plan import codec

SCHEMA = 1
SNAPSHOT_EVERY = 1000  # events; a fold of this many takes milliseconds
BUSY_S = 5.0  # how long a statement waits for the lock of another process, before it fails
PAGE = (
    2000  # events in one read: without WAL a reader blocks commits, and a commit fails after a wait of BUSY_S
)
AWAY = "move it away and restart gpucluster-elastic: nodes that run are adopted, other instances of ours end after the grace"
ROOM = "nothing is launched or ended until it can be; make room on the head's disk"
AGAIN = "it is tried again; see what else has it open, and whether the disk is whole"
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_TABLES = """
CREATE TABLE IF NOT EXISTS about (schema INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS fence (only INTEGER PRIMARY KEY CHECK (only = 1), epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS snapshot (only INTEGER PRIMARY KEY CHECK (only = 1), last INTEGER NOT NULL, memory TEXT NOT NULL);
"""
Watch = Callable[[Sequence[Entry], Memory, Memory], object]  # entries, memory before and after them


class FencedError(StateError):
    """A daemon with a newer lease has opened the journal. This daemon must stop."""


class Journal:
    """The journal. Open it with `Journal.open`; `memory` is always the fold of the file's events."""

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
        each_page: Callable[[], object] = lambda: None,
    ) -> "Journal":
        """Open or create it as the holder of `epoch` (None: no fence). Another schema raises a StateError.

        `shared`: other machines open it too. `each_page` is called while a long journal is read.
        """
        try:
            return cls._opened(path, now, epoch, "TRUNCATE" if shared else "WAL", each_page)
        except (sqlite3.OperationalError, OSError) as error:
            step = _step_after(error)
            raise StateError(f"the journal {path} cannot be opened: {error}", next_step=step) from error
        except (sqlite3.Error, ValueError) as error:
            raise StateError(f"the journal {path} cannot be read: {error}", next_step=AWAY) from error

    @classmethod
    def _opened(
        cls, path: Path, now: float, epoch: int | None, mode: str, each_page: Callable[[], object]
    ) -> "Journal":
        path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        db.execute(f"PRAGMA journal_mode={mode}")
        db.execute("PRAGMA synchronous=FULL")
        db.executescript(_TABLES)
        _check_schema(db, path)
        epoch = _raise_fence(db, epoch)  # before the read: no other process can add events after it
        memory, snapshot = _load_snapshot(db)
        tail = (entry for _, entry in read_entries(db, snapshot, each_page))
        journal = cls(db, fold(memory, tail), last=_last_id(db), snapshot=snapshot, epoch=epoch)
        if not journal.memory.epoch:
            # From the clock, once per journal: a rebuilt head must not repeat the tokens of the head before it.
            journal.append((Entry(at=now, event=JournalCreated(epoch=f"{int(now * 1000):x}")),))
        return journal

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Write all of `entries` or none, and fold them into `memory`. StateError (for example a full disk) stops the daemon."""
        if not entries:
            return
        rows = [(e.at, type(e.event).__name__, _dump(e.event)) for e in entries]
        memory = fold(self.memory, entries)
        self._write("INSERT INTO events (at, kind, body) VALUES (?, ?, ?)", rows)
        before, self.memory, self._last = self.memory, memory, self._last + len(rows)
        self.watch(entries, before, memory)

    def check(self) -> None:
        """Raise FencedError if a daemon with a newer lease opened the journal. For actions that write no event first."""
        try:
            self._check()
        except sqlite3.Error as error:
            raise StateError(f"the journal cannot be read: {error}", next_step=AGAIN) from error

    def tidy(self) -> None:
        """Store memory if enough events came since the last time. For a moment when no launch waits for it."""
        if self._last - self._snapshot >= SNAPSHOT_EVERY:
            self.snapshot()

    def snapshot(self) -> None:
        """Store memory, so that the next start reads only later events."""
        row = (self._last, json.dumps(codec.to_json(self.memory)))
        self._write("INSERT OR REPLACE INTO snapshot (only, last, memory) VALUES (1, ?, ?)", [row])
        self._snapshot = self._last

    def entries(self) -> Iterator[Entry]:
        """Return every event of the journal, oldest first."""
        return (entry for _, entry in read_entries(self._db, 0))

    def close(self) -> None:
        self._db.close()

    def _check(self) -> None:
        if _fence(self._db) != self._epoch:
            raise FencedError("another daemon has taken the journal over", next_step="it starts as a standby")

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._check()
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
    """Return the events of a journal that another process writes."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return tuple(entry for _, entry in read_entries(db, 0))
    finally:
        db.close()


def read_entries(
    db: sqlite3.Connection, after: int, each_page: Callable[[], object] = lambda: None
) -> Iterator[tuple[int, Entry]]:
    """Yield events with their ids. Kinds that this version does not know are skipped."""
    sql = "SELECT id, at, kind, body FROM events WHERE id > ? ORDER BY id LIMIT ?"
    while rows := db.execute(sql, (after, PAGE)).fetchall():
        each_page()
        for number, at, kind, body in rows:
            if kind in EVENTS:
                yield number, Entry(at=at, event=codec.from_json(EVENTS[kind], json.loads(body)))
        after = rows[-1][0]


def _dump(event: Event) -> str:
    return json.dumps(codec.to_json(event), separators=(",", ":"))


def _check_schema(db: sqlite3.Connection, path: Path) -> None:
    row = db.execute("SELECT schema FROM about").fetchone()
    if row is None:
        db.execute("INSERT INTO about (schema) VALUES (?)", (SCHEMA,))
    elif row[0] != SCHEMA:
        raise StateError(f"{path}: schema {row[0]}, this version reads {SCHEMA}")


def _fence(db: sqlite3.Connection) -> int:
    row = cast(tuple[int] | None, db.execute("SELECT epoch FROM fence").fetchone())
    return row[0] if row else 0


def _raise_fence(db: sqlite3.Connection, epoch: int | None) -> int:
    db.execute("BEGIN IMMEDIATE")
    old = _fence(db)
    new = old + 1 if epoch is None else epoch
    if new < old:
        db.execute("ROLLBACK")
        raise FencedError(f"the journal is of the daemon with epoch {old}, ours is {new}")
    db.execute("INSERT OR REPLACE INTO fence (only, epoch) VALUES (1, ?)", (new,))
    db.execute("COMMIT")
    return new


def _load_snapshot(db: sqlite3.Connection) -> tuple[Memory, int]:
    """Return the snapshot and the id of its last event. A snapshot of another version is ignored: the file has all events."""
    row = cast(tuple[int, str] | None, db.execute("SELECT last, memory FROM snapshot").fetchone())
    try:
        return (codec.loads(Memory, row[1]), row[0]) if row else (Memory(), 0)
    except ValueError:
        return Memory(), 0


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
