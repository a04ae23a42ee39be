"""Messages of the queue as notices: rows, and anything at all without harm."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.cloud import eventbridge
from gpucluster.cloud.eventbridge import Read
from gpucluster.plan.messages import NoticeKind
from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import InstanceLaunch, MaintenanceEvent, SubnetRef

ID = "i-0123456789abcdef0"
NOW = 1_780_000_000.0  # 2026-05-28T20:26:40Z


def an_event(kind: str = eventbridge.SPOT_WARNING, **change: Any) -> dict[str, Any]:
    detail = {"instance-id": ID, "instance-action": "terminate"}
    base = {"detail-type": kind, "source": "aws.ec2", "time": "2026-05-28T20:26:40Z", "detail": detail}
    return {**base, **change}


def health(**change: Any) -> dict[str, Any]:
    detail = {
        "service": "EC2",
        "eventTypeCategory": "scheduledChange",
        "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
        "startTime": "Thu, 28 May 2026 22:26:40 GMT",
        "eventDescription": [{"language": "en_US", "latestDescription": "degraded hardware"}],
        "affectedEntities": [{"entityValue": ID}],
    }
    return an_event(eventbridge.HEALTH, source="aws.health", detail={**detail, **change})


def read(event: object) -> Read:
    return eventbridge.read(json.dumps(event), "h")


def test_t34_a_spot_warning_ends_the_instance_two_minutes_after_it_was_said():
    (message,) = read(an_event()).notices
    assert (message.instance, message.handle, message.notice.kind) == (ID, "h", NoticeKind.SPOT)
    assert message.notice.at == NOW + 120


def test_t34_a_rebalance_hint_has_no_end():
    (message,) = read(an_event(eventbridge.REBALANCE)).notices
    assert (message.notice.kind, message.notice.at) == (NoticeKind.REBALANCE, NOW)


def test_t35_a_scheduled_change_names_its_start_and_its_instances():
    found = read(
        health(affectedEntities=[{"entityValue": ID}, {"entityValue": "vol-1"}, {}, ID, {"entityValue": ID}])
    )
    (message,) = found.notices
    assert (message.notice.kind, message.notice.at) == (NoticeKind.MAINTENANCE, NOW + 7200)
    assert message.notice.words == "degraded hardware"


@pytest.mark.parametrize(
    ("sentence", "event"),
    [
        ("another service's change", health(service="RDS")),
        ("a notification, not a change", health(eventTypeCategory="accountNotification")),
        ("what is over (T35)", health(eventDescription=[{"latestDescription": "[Completed] x"}])),
        ("an event that no rule of ours asks for", an_event("EC2 Instance State-change Notification")),
    ],
)
def test_other_events_are_ignored(sentence: str, event: dict[str, Any]):
    assert read(event) == Read(), sentence


@pytest.mark.parametrize(
    ("sentence", "body"),
    [
        ("no JSON", "{"),
        ("no object", "[]"),
        ("nothing", ""),
        ("no kind", "{}"),
        ("a kind that is no text", json.dumps(an_event(kind=[]))),  # type: ignore[arg-type]
        ("no detail", json.dumps(an_event(detail=None))),
        ("no instance", json.dumps(an_event(detail={}))),
        ("an id with a shell in it", json.dumps(an_event(detail={"instance-id": "i-0123; rm -rf /"}))),
        ("entities that are no list", json.dumps(health(affectedEntities={"entityValue": ID}))),
        ("JSON too deep to parse", "[" * 100_000),
        ("more than a message may hold", json.dumps({"x": "y" * 300_000})),
    ],
)
def test_unreadable_message_does_not_raise(sentence: str, body: str):
    assert eventbridge.read(body, "h") == Read(unreadable=True), sentence


@pytest.mark.parametrize(
    "time", [None, 5, "soon", "9" * 500, "2026-05-28T20:26:40", "0001-01-01T00:00:00+23:59"]
)
def test_notice_with_an_unreadable_time_has_no_end(time: object):
    (message,) = read(an_event(time=time)).notices
    assert message.notice.at is None or message.notice.at < 0


def test_text_from_outside_is_one_short_line():
    words = "\x1b[31mred\nnew line\u202e" + "x" * 1000
    (message,) = read(health(eventDescription=[{"latestDescription": words}])).notices
    assert len(message.notice.words) <= 200
    assert message.notice.words.isprintable()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=12,
)
FIELDS = [
    "detail-type",
    "source",
    "time",
    "detail",
    "instance-id",
    "affectedEntities",
    "service",
    "startTime",
]


@given(st.text(max_size=200) | JSON.map(json.dumps))
def test_any_text_can_be_read(body: str):
    assert isinstance(eventbridge.read(body, "h"), Read)


@given(st.sampled_from(FIELDS), JSON, st.booleans())
def test_any_field_value_can_be_read(name: str, value: Any, in_health: bool):
    event = health() if in_health else an_event()
    if name in event:
        event[name] = value
    else:
        event["detail"] = {**event["detail"], name: value}
    for message in read(event).notices:
        assert eventbridge._instance(message.instance)


def test_events_of_the_model_are_read():
    model = CloudModel(random.Random(1))  # noqa: S311
    place = SubnetRef(id="subnet-a", zone="us-east-1a", cidr="10.0.0.0/24")
    (one,) = model.run(
        InstanceLaunch(machine="p5.48xlarge", market=Market.SPOT, subnet=place, min_count=1, max_count=1, token=None, fingerprint=""),
        NOW,
    )  # fmt: skip
    model.interrupt(one.id, NOW)
    model.recommend(one.id, NOW)
    event = MaintenanceEvent(id="", code="instance-retirement", not_before=NOW + 7200, description="degraded")
    model.maintain(one.id, event, NOW)
    notices = [t for body in model.take_events(NOW) for t in eventbridge.read(body, "h").notices]
    assert [(t.instance, t.notice.kind, t.notice.at) for t in notices] == [
        (one.id, NoticeKind.SPOT, NOW + 120),
        (one.id, NoticeKind.REBALANCE, NOW),
        (one.id, NoticeKind.MAINTENANCE, NOW + 7200),
    ]
