"""Parse EventBridge's events about instances from a queue. Every sender that may write to the queue can forge them.

Events arrive at least once, late, in any order (T34, T41). A repeated notice counts once.
"""

import datetime
import email.utils
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from gpucluster.cloud.port import QueueNotice
from gpucluster.json_text import parse_json
from gpucluster.plan.messages import Notice, NoticeKind
from gpucluster.text import short

SPOT_WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
HEALTH = "AWS Health Event"

NOTICE_S = 120.0  # from a spot warning to the interruption
_INSTANCE = re.compile(r"i-([0-9a-f]{8}|[0-9a-f]{17})")
_BODY_LIMIT = 256 * 1024  # the limit of SQS
_WORDS_LIMIT = 200  # characters of text from outside
_ENTITIES = 1000  # instances in one health event

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Read:
    """The content of a message: notices, an event about something else, or unreadable text."""

    notices: tuple[QueueNotice, ...] = ()
    unreadable: bool = False


def read(body: str, handle: str) -> Read:
    """Return the notices of one message. It never raises, whatever the message contains."""
    try:
        event = _object(parse_json(body)) if len(body) <= _BODY_LIMIT else None
    except ValueError:
        event = None
    if event is None:
        return Read(unreadable=True)
    kind = event.get("detail-type")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    detail = _object(event.get("detail"))
    if reader is None:  # an event of another rule is no error
        return Read(unreadable=not isinstance(kind, str))
    found = None if detail is None else reader(event, detail, handle)
    return Read(unreadable=True) if found is None else Read(notices=found)


def _spot(event: Event, detail: Event, handle: str) -> tuple[QueueNotice, ...] | None:
    at = _time(event.get("time"))
    action = _text(detail.get("instance-action")) or "terminate"
    end = None if at is None else at + NOTICE_S
    return _one(detail, Notice(kind=NoticeKind.SPOT, at=end, words=f"spot interruption: {action}"), handle)


def _rebalance(event: Event, detail: Event, handle: str) -> tuple[QueueNotice, ...] | None:
    at = _time(event.get("time"))
    words = "rebalance recommendation"
    return _one(detail, Notice(kind=NoticeKind.REBALANCE, at=at, words=words), handle)


def _health(_: Event, detail: Event, handle: str) -> tuple[QueueNotice, ...] | None:
    """A scheduled change of instances; other services and categories are ignored."""
    if detail.get("service") != "EC2" or detail.get("eventTypeCategory") != "scheduledChange":
        return ()
    entities: Any = detail.get("affectedEntities")
    if not isinstance(entities, list):
        return None
    words = _description(detail)
    if words.startswith("[Completed]"):  # EC2 lists it for a week (T35)
        return ()
    notice = Notice(kind=NoticeKind.MAINTENANCE, at=_time(detail.get("startTime")), words=words)
    named = (_object(e) or {} for e in cast(list[object], entities)[:_ENTITIES])
    ids = dict.fromkeys(filter(None, (_instance(e.get("entityValue")) for e in named)))
    return tuple(QueueNotice(instance=one, notice=notice, handle=handle) for one in ids)


_READERS: Mapping[str, Callable[[Event, Event, str], tuple[QueueNotice, ...] | None]] = {
    SPOT_WARNING: _spot,
    REBALANCE: _rebalance,
    HEALTH: _health,
}


def _one(detail: Event, notice: Notice, handle: str) -> tuple[QueueNotice, ...] | None:
    instance = _instance(detail.get("instance-id"))
    return None if instance is None else (QueueNotice(instance=instance, notice=notice, handle=handle),)


def _description(detail: Event) -> str:
    texts: Any = detail.get("eventDescription")
    first = _object(cast(list[object], texts)[0]) if isinstance(texts, list) and texts else None
    text = _text((first or {}).get("latestDescription"))
    return text or _text(detail.get("eventTypeCode")) or "scheduled change"


def _instance(value: object) -> str | None:
    return value if isinstance(value, str) and _INSTANCE.fullmatch(value) else None


def _text(value: object) -> str:
    """Return text from outside as one short printable line."""
    return short(value, _WORDS_LIMIT) if isinstance(value, str) else ""


def _time(value: object) -> float | None:
    """Parse ISO 8601 or RFC 5322 into seconds; None for other text."""
    if not isinstance(value, str) or len(value) > 64:
        return None
    for parse in (datetime.datetime.fromisoformat, email.utils.parsedate_to_datetime):
        try:
            found = parse(value)
        except (ValueError, OverflowError):
            continue
        if found.tzinfo is not None:
            return found.timestamp()
    return None


def _object(value: object) -> Event | None:
    return cast(Event, value) if isinstance(value, dict) else None
