"""The spool's reader: nothing is lost, and nothing broken stands in the way."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpucluster.elastic import spool


def put(root: Path, name: str, content: bytes) -> None:
    (root / "new").mkdir(parents=True, exist_ok=True)
    (root / "new" / name).write_bytes(content)


def request(kind: str = "resume", **changes: object) -> bytes:
    body = {"kind": kind, "hostlist": "a-1", "resume_file": None, "pid": 1, "time": 5.0}
    return json.dumps({**body, **changes}).encode()


def test_requests_come_oldest_first_and_are_gone_when_done(tmp_path: Path) -> None:
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
def test_a_job_map_of_another_form_is_only_a_missing_hint(tmp_path: Path, text: str) -> None:
    put(tmp_path, "1", request(resume_file=text))
    assert [c.jobs for c in spool.read(tmp_path)] == [()]


@given(content=st.binary(max_size=200))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_broken_file_goes_aside_and_blocks_nothing(tmp_path: Path, content: bytes) -> None:
    put(tmp_path, "1.broken", content)
    put(tmp_path, "2.fine", request())
    assert [c.hostlist for c in spool.read(tmp_path)] == ["a-1"]
    assert not (tmp_path / "new" / "1.broken").exists()


@pytest.mark.parametrize(
    "content",
    [b"[" * 100_000, request(time=10**400), b'{"kind": "order", "until": NaN}'],
    ids=["too deep to parse", "a time that no float holds", "an order until no time"],
)
def test_what_no_parser_bears_goes_aside_too(tmp_path: Path, content: bytes) -> None:
    put(tmp_path, "1.broken", content)
    put(tmp_path, "2.fine", request())
    assert [c.path.name for c in spool.read(tmp_path)] == ["2.fine"]
    assert not (tmp_path / "new" / "1.broken").exists()


def test_drafts_of_killed_hooks_are_swept(tmp_path: Path) -> None:
    spool.prepare(tmp_path, 0.0)
    draft = tmp_path / "tmp" / "1"
    draft.write_text("half")
    written = draft.stat().st_mtime
    spool.prepare(tmp_path, written + 10)
    assert draft.exists()
    spool.prepare(tmp_path, written + spool.LEFT_OVER_S + 1)
    assert not draft.exists()


def test_what_cannot_be_put_aside_does_not_stop_the_reader(tmp_path: Path) -> None:
    for place in ("new/1.folder", "broken/1.folder/x"):
        (tmp_path / place).mkdir(parents=True)
    put(tmp_path, "2.fine", request())
    assert [c.hostlist for c in spool.read(tmp_path)] == ["a-1"]


def test_a_request_that_cannot_be_read_at_this_moment_waits_for_the_next_look(tmp_path: Path) -> None:
    """Without a descriptor to spare, or by a disk's hiccup, an operator's order was put aside as broken."""
    put(tmp_path, "2.fine", request())
    late = tmp_path / "new" / "1.late"
    late.symlink_to("/proc/self/mem")  # EIO
    assert [c.path.name for c in spool.read(tmp_path)] == ["2.fine"]
    late.unlink()  # it is still there
    put(tmp_path, "1.late", request())
    assert [c.path.name for c in spool.read(tmp_path)] == ["1.late", "2.fine"]
