"""Interruption notices of the metadata service: spot interruption, rebalance recommendation, maintenance (T34, T35)."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any, cast

from gpucluster.json_text import parse_json
from gpucluster.plan.messages import Notice, NoticeKind
from gpucluster.text import ascii_line

SPOT = "meta-data/spot/instance-action"
REBALANCE = "meta-data/events/recommendations/rebalance"
MAINTENANCE = "meta-data/events/maintenance/scheduled"
DONE = "[Completed]"  # the description of a finished event begins with this, for up to a week
OVER = frozenset({"completed", "canceled"})
MAX_EVENTS, MAX_TEXT = 8, 80


def parse_spot(text: str | None) -> Iterator[Notice]:
    """`{"action": "terminate", "time": "2017-09-18T08:22:00Z"}`; an unreadable text also counts as a notice."""
    if text is not None:
        fields = _object(text)
        yield Notice(kind=NoticeKind.SPOT, at=_time(fields.get("time")), words=_text(fields.get("action")))


def parse_rebalance(text: str | None) -> Iterator[Notice]:
    """`{"noticeTime": "2020-10-26T08:22:00Z"}`."""
    if text is not None:
        yield Notice(kind=NoticeKind.REBALANCE, at=_time(_object(text).get("noticeTime")))


def parse_maintenance(text: str | None) -> Iterator[Notice]:
    """A list of events. Finished events stay in the list."""
    try:
        items = parse_json(text or "[]")
    except ValueError:
        return
    events = (
        cast("dict[str, Any]", i)
        for i in cast("list[object]", items if isinstance(items, list) else [])
        if isinstance(i, dict)
    )
    for event in islice((event for event in events if event.get("Code") and not _is_over(event)), MAX_EVENTS):
        at, words = _time(event.get("NotBefore")), _text(event.get("Code"))
        yield Notice(kind=NoticeKind.MAINTENANCE, at=at, words=words)


# path below /latest/ -> parser of its text; None means 404, no notice
PARSERS: Mapping[str, Callable[[str | None], Iterator[Notice]]] = {
    SPOT: parse_spot,
    REBALANCE: parse_rebalance,
    MAINTENANCE: parse_maintenance,
}


def _is_over(event: dict[str, Any]) -> bool:
    fields = str(event.get("Description", ""))
    return str(event.get("State", "")).lower() in OVER or fields.startswith(DONE)


def _object(text: str) -> dict[str, Any]:
    try:
        fields = parse_json(text)
    except ValueError:
        return {}
    return cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}


def _time(value: object) -> float | None:
    """ISO 8601, or `21 Jan 2019 09:00:43 GMT`; None for other text."""
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            at = parse(str(value))
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return None


def _text(value: object) -> str:
    return ascii_line(str(value or ""), MAX_TEXT)
