"""The spool's reader: nothing is lost, and nothing broken stands in the way."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpucluster.elastic import spool
from gpucluster.elastic.events import Verb


def put(root: Path, name: str, content: bytes) -> None:
    (root / "new").mkdir(parents=True, exist_ok=True)
    (root / "new" / name).write_bytes(content)


def request(kind: str = "resume", **changes: object) -> bytes:
    body = {"kind": kind, "hostlist": "a-1", "resume_file": None, "pid": 1, "time": 5.0}
    return json.dumps({**body, **changes}).encode()


def test_requests_are_read_oldest_first_and_removed_when_done(tmp_path: Path) -> None:
    put(tmp_path, "2.1.suspend", request("suspend"))
    put(tmp_path, "1.1.resume", request())
    calls = spool.read(tmp_path)
    assert [c.kind for c in calls] == ["resume", "suspend"]
    spool.done(calls)
    spool.done(calls)
    assert spool.read(tmp_path) == ()


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        '{"jobs": 1}',
        '{"jobs": [{"id": 1}]}',
        "[]",
        '{"jobs": [{"job_id": 1e999}]}',
        "[" * 100_000,
    ],
)
def test_invalid_job_map_has_no_jobs(tmp_path: Path, text: str) -> None:
    put(tmp_path, "1", request(resume_file=text))
    assert [c.jobs for c in spool.read(tmp_path)] == [()]


@given(content=st.binary(max_size=200))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_broken_file_is_moved_away_and_blocks_nothing(tmp_path: Path, content: bytes) -> None:
    put(tmp_path, "1.broken", content)
    put(tmp_path, "2.fine", request())
    assert [c.hostlist for c in spool.read(tmp_path)] == ["a-1"]
    assert not (tmp_path / "new" / "1.broken").exists()


@pytest.mark.parametrize(
    "content",
    [b"[" * 100_000, request(time=10**400), b'{"kind": "order", "until": NaN}'],
    ids=["too deep to parse", "a time that no float holds", "an order until no time"],
)
def test_too_deep_json_is_moved_away(tmp_path: Path, content: bytes) -> None:
    put(tmp_path, "1.broken", content)
    put(tmp_path, "2.fine", request())
    assert [c.path.name for c in spool.read(tmp_path)] == ["2.fine"]
    assert not (tmp_path / "new" / "1.broken").exists()


def test_drafts_of_killed_hooks_are_removed(tmp_path: Path) -> None:
    spool.prepare(tmp_path, 0.0)
    draft = tmp_path / "tmp" / "1"
    draft.write_text("half")
    written = draft.stat().st_mtime
    spool.prepare(tmp_path, written + 10)
    assert draft.exists()
    spool.prepare(tmp_path, written + spool.LEFT_OVER_S + 1)
    assert not draft.exists()


def test_file_that_cannot_be_moved_does_not_stop_the_reader(tmp_path: Path) -> None:
    for place in ("new/1.folder", "broken/1.folder/x"):
        (tmp_path / place).mkdir(parents=True)
    put(tmp_path, "2.fine", request())
    assert [c.hostlist for c in spool.read(tmp_path)] == ["a-1"]


def test_unreadable_request_is_read_in_the_next_pass(tmp_path: Path) -> None:
    """Without a descriptor to spare, or by a disk's hiccup, an operator's order was put aside as broken."""
    put(tmp_path, "2.fine", request())
    late = tmp_path / "new" / "1.late"
    late.symlink_to("/proc/self/mem")  # EIO
    assert [c.path.name for c in spool.read(tmp_path)] == ["2.fine"]
    late.unlink()  # it is still there
    put(tmp_path, "1.late", request())
    assert [c.path.name for c in spool.read(tmp_path)] == ["1.late", "2.fine"]


def test_order_is_on_disk_before_it_is_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First its content, then the folder that names it: a crash leaves the whole order or none."""
    spool.prepare(tmp_path, 0.0)
    synced: list[str] = []
    monkeypatch.setattr(
        spool.os, "fsync", lambda handle: synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
    )
    order = spool.SpooledOrder(
        kind=spool.ORDER,
        verb=Verb.NODE_KEEP,
        target="n1",
        by="anna",
        words="",
        until=None,
        now=False,
        time=1.0,
    )
    spool.put(tmp_path, order, "1.order")
    assert synced == [str(tmp_path / "tmp" / "1.order"), str(tmp_path / "new")]
