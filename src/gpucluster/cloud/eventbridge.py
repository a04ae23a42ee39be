"""EventBridge's events of instances, as a queue brings them: anybody who may write to the queue writes these.

At least once, late, in any order (T34, T41): a notice is a hint, and the same one twice is one.
"""

import datetime
import email.utils
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from gpucluster.cloud.port import Told
from gpucluster.plan.messages import Notice, NoticeKind

SPOT_WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
HEALTH = "AWS Health Event"

NOTICE_S = 120.0  # from a spot warning to the end
_INSTANCE = re.compile(r"i-([0-9a-f]{8}|[0-9a-f]{17})")
_BODY_LIMIT = 256 * 1024  # SQS's own
_WORDS_LIMIT = 200  # characters of other people's text that we keep
_ENTITIES = 1000  # of one health event

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Read:
    """What a message says: notices, or nothing that concerns us, or nothing that can be read."""

    told: tuple[Told, ...] = ()
    unreadable: bool = False


def read(body: str, handle: str) -> Read:
    """Return the notices of one message; whatever is in it, never raise."""
    try:
        event = _object(json.loads(body)) if len(body) <= _BODY_LIMIT else None
    except (ValueError, RecursionError):
        event = None
    if event is None:
        return Read(unreadable=True)
    kind = event.get("detail-type")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    detail = _object(event.get("detail"))
    if reader is None:  # another rule's event: not ours, and no fault
        return Read(unreadable=not isinstance(kind, str))
    found = None if detail is None else reader(event, detail, handle)
    return Read(unreadable=True) if found is None else Read(told=found)


def _spot(event: Event, detail: Event, handle: str) -> tuple[Told, ...] | None:
    at = _time(event.get("time"))
    action = _text(detail.get("instance-action")) or "terminate"
    end = None if at is None else at + NOTICE_S
    return _one(detail, Notice(kind=NoticeKind.SPOT, at=end, words=f"spot interruption: {action}"), handle)


def _rebalance(event: Event, detail: Event, handle: str) -> tuple[Told, ...] | None:
    at = _time(event.get("time"))
    words = "rebalance recommendation"
    return _one(detail, Notice(kind=NoticeKind.REBALANCE, at=at, words=words), handle)


def _health(_: Event, detail: Event, handle: str) -> tuple[Told, ...] | None:
    """A scheduled change of instances; another service's or category's event is not ours."""
    if detail.get("service") != "EC2" or detail.get("eventTypeCategory") != "scheduledChange":
        return ()
    entities: Any = detail.get("affectedEntities")
    if not isinstance(entities, list):
        return None
    words = _description(detail)
    if words.startswith("[Completed]"):  # it stays listed for a week (T35)
        return ()
    notice = Notice(kind=NoticeKind.MAINTENANCE, at=_time(detail.get("startTime")), words=words)
    named = (_object(e) or {} for e in cast(list[object], entities)[:_ENTITIES])
    ids = dict.fromkeys(filter(None, (_instance(e.get("entityValue")) for e in named)))
    return tuple(Told(instance=one, notice=notice, handle=handle) for one in ids)


_READERS: Mapping[str, Callable[[Event, Event, str], tuple[Told, ...] | None]] = {
    SPOT_WARNING: _spot,
    REBALANCE: _rebalance,
    HEALTH: _health,
}


def _one(detail: Event, notice: Notice, handle: str) -> tuple[Told, ...] | None:
    instance = _instance(detail.get("instance-id"))
    return None if instance is None else (Told(instance=instance, notice=notice, handle=handle),)


def _description(detail: Event) -> str:
    texts: Any = detail.get("eventDescription")
    first = _object(cast(list[object], texts)[0]) if isinstance(texts, list) and texts else None
    said = _text((first or {}).get("latestDescription"))
    return said or _text(detail.get("eventTypeCode")) or "scheduled change"


def _instance(value: object) -> str | None:
    return value if isinstance(value, str) and _INSTANCE.fullmatch(value) else None


def _text(value: object) -> str:
    """Other people's words: one line, printable, short."""
    if not isinstance(value, str):
        return ""
    return "".join(c if c.isprintable() else " " for c in value[:_WORDS_LIMIT]).strip()


def _time(value: object) -> float | None:
    """ISO 8601 or RFC 5322 as seconds; None for what is neither."""
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
