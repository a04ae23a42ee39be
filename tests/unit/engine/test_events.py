"""Tests of events: they become changes by resource, in any order of the steps."""

from typing import Any

import pytest
from pulumi.automation import EngineEvent
from pulumi.automation.events import DiagnosticEvent, ResourcePreEvent, ResOutputsEvent, StepEventMetadata

from gpucluster.engine.deployment import one, parse
from gpucluster.engine.events import EventCollector, Progress, plain

URN = "urn:pulumi:burst::gpucluster::gpucluster:aws:Network$aws:ec2/vpc:Vpc::burst"
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"


def event(
    op: str, *, done: bool = True, diffs: tuple[str, ...] = (), urn: str = URN, **new: Any
) -> EngineEvent:
    kind = urn.split("::")[2].rpartition("$")[2]
    state = {"type": kind, "urn": urn, "id": "", "parent": "", "provider": "", "inputs": new, "outputs": {}}
    step = StepEventMetadata.from_json(
        {"op": op, "urn": urn, "type": kind, "provider": "", "diffs": list(diffs), "new": state}
    )
    if done:
        return EngineEvent(0, 0, res_outputs_event=ResOutputsEvent(step))
    return EngineEvent(0, 0, resource_pre_event=ResourcePreEvent(step))


ROWS: list[tuple[str, list[EngineEvent], list[tuple[str, tuple[str, ...]]]]] = [
    ("one that stays the same", [event("same")], []),
    ("one that is only read", [event("refresh", done=False), event("refresh")], []),
    ("one that is made", [event("create", done=False), event("create")], [("create", ())]),
    ("one that changes in place", [event("update", diffs=("tags",))], [("update", ("tags",))]),
    ("one that is made anew, old one last", [event("create-replacement", diffs=("cidrBlock",)), event("replace", diffs=("cidrBlock",)), event("delete-replaced")], [("replace", ("cidrBlock",))]),
    ("one that is made anew, old one first", [event("delete-replaced"), event("replace", diffs=("name",)), event("create-replacement", diffs=("name",))], [("replace", ("name",))]),
    ("the stack and providers are not resources", [event("create", urn="urn:pulumi:b::g::pulumi:pulumi:Stack::x"), event("create", urn="urn:pulumi:b::g::pulumi:providers:aws::aws")], []),
]  # fmt: skip


@pytest.mark.parametrize(("events", "expected"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_events_become_changes(
    events: list[EngineEvent], expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    collector = EventCollector(lambda _: None)
    for one_event in events:
        collector.take(one_event)
    assert [(c.op, c.properties) for c in collector.outcome({}, 0).changes] == expected


def said(severity: str, urn: str) -> EngineEvent:
    return EngineEvent(
        0, 0, diagnostic_event=DiagnosticEvent("waiting for 10.0.0.10", "never", severity, urn=urn)
    )


def test_only_resource_messages_are_progress() -> None:
    received: list[str] = []
    collector = EventCollector(lambda step: received.append(str(step)))
    collector.take(said("info", URN))
    collector.take(said("info", "urn:pulumi:b::g::pulumi:pulumi:Stack::x"))
    collector.take(said("info", ""))
    assert received == ["Vpc burst: waiting for 10.0.0.10"]
    assert collector.errors == []


def test_change_with_only_unknown_values_follows() -> None:
    collector = EventCollector(lambda _: None)
    collector.take(event("update", diffs=("content",), content=UNKNOWN))
    (change,) = collector.outcome({}, 0).changes
    assert (change.follows, change.type, change.name) == (True, "aws:ec2/vpc:Vpc", "burst")


def test_change_with_one_known_value_does_not_follow() -> None:
    collector = EventCollector(lambda _: None)
    collector.take(event("update", diffs=("content", "key"), content=UNKNOWN, key="k"))
    assert not collector.outcome({}, 0).changes[0].follows


def test_progress_is_readable() -> None:
    said: list[str] = []
    collector = EventCollector(lambda step: said.append(str(step)))
    collector.take(event("create", done=False))
    collector.take(event("create"))
    assert said == ["Vpc burst: create ...", "Vpc burst: created"]
    assert str(Progress(message="stopping")) == "stopping"


def test_state_lists_deployed_resources() -> None:
    provider = {"custom": True, "type": "pulumi:providers:aws", "urn": "u::p", "id": "1"}
    component = {"custom": False, "type": "gpucluster:aws:Network", "urn": "u::n"}
    bucket = {"custom": True, "type": "aws:s3/bucket:Bucket", "urn": "u::b", "id": "burst-1", "protect": True}
    found = parse({"resources": [provider, component, bucket]})
    assert [(s.name, s.id, s.protected) for s in found] == [("b", "burst-1", True)]
    assert one(found, "aws:s3/bucket:Bucket") == found[0]
    assert one(found, "aws:ec2/vpc:Vpc") is None
    assert parse({}) == ()


PLAIN = [
    (
        "a data source that was refused",
        "python inline source runtime error: invoke of a:b/c:d failed: invocation of a:b/c:d returned an error: no such image\nTraceback (most recent call last):\n  File x",
        "no such image",
    ),
    ("the same from the server", "Exception calling application: no such image", "no such image"),
    ("one of a list", "1 error occurred:\n\t* AccessDenied: not you\n\n", "AccessDenied: not you"),
]


@pytest.mark.parametrize(("message", "expected"), [r[1:] for r in PLAIN], ids=[r[0] for r in PLAIN])
def test_errors_have_no_traceback(message: str, expected: str) -> None:
    assert plain(message) == expected
