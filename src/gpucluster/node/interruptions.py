"""The metadata service's three places for what the cloud means to do to this machine (aws-traps T34, T35)."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any, cast

from gpucluster.plan.messages import Notice, NoticeKind

SPOT = "meta-data/spot/instance-action"
REBALANCE = "meta-data/events/recommendations/rebalance"
MAINTENANCE = "meta-data/events/maintenance/scheduled"
DONE = "[Completed]"  # stands in front of the text of what is over, for up to a week
OVER = frozenset({"completed", "canceled"})
MOST, WORDS = 8, 80


def of_spot(text: str | None) -> Iterator[Notice]:
    """`{"action": "terminate", "time": "2017-09-18T08:22:00Z"}`; one that cannot be read is a notice all the same."""
    if text is not None:
        said = _object(text)
        yield Notice(kind=NoticeKind.SPOT, at=_time(said.get("time")), words=_words(said.get("action")))


def of_rebalance(text: str | None) -> Iterator[Notice]:
    """`{"noticeTime": "2020-10-26T08:22:00Z"}`."""
    if text is not None:
        yield Notice(kind=NoticeKind.REBALANCE, at=_time(_object(text).get("noticeTime")))


def of_maintenance(text: str | None) -> Iterator[Notice]:
    """A list of events; those that are over stay in it."""
    try:
        items = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return
    events = (
        cast("dict[str, Any]", i)
        for i in cast("list[object]", items if isinstance(items, list) else [])
        if isinstance(i, dict)
    )
    for event in islice((event for event in events if event.get("Code") and not _is_over(event)), MOST):
        at, words = _time(event.get("NotBefore")), _words(event.get("Code"))
        yield Notice(kind=NoticeKind.MAINTENANCE, at=at, words=words)


# a path below /latest/ -> how its answer is read; None: there is nothing (404)
PLACES: Mapping[str, Callable[[str | None], Iterator[Notice]]] = {
    SPOT: of_spot,
    REBALANCE: of_rebalance,
    MAINTENANCE: of_maintenance,
}


def _is_over(event: dict[str, Any]) -> bool:
    said = str(event.get("Description", ""))
    return str(event.get("State", "")).lower() in OVER or said.startswith(DONE)


def _object(text: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}


def _time(value: object) -> float | None:
    """ISO 8601, or `21 Jan 2019 09:00:43 GMT`; None for what is neither."""
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            at = parse(str(value))
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return None


def _words(value: object) -> str:
    return "".join(c for c in str(value or "") if c.isprintable() and c.isascii())[:WORDS]
