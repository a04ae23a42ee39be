"""What AWS answers about one bucket, queue, secret or file system (`validate/store_reader.py`), as typed values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from gpucluster.checks import json_fields
from gpucluster.checks.check import ParseError, QueryOutput
from gpucluster.plan import store_policies
from gpucluster.text import short

QUEUE_SETTINGS = (*store_policies.QUEUE, *store_policies.QUEUE_DEFAULTS)
BLOCKS = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A bucket in S3. `encryption`: algorithm and key of each rule; an empty text: there is none.

    `ending`: ids of the enabled lifecycle rules that delete or move its objects. `key`: None if the spec names none.
    """

    blocks: frozenset[str]  # the settings of the public access block that are on
    versioning: str
    encryption: tuple[tuple[str, str], ...]
    policy: str
    ending: tuple[str, ...] = ()
    key: "Key | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A KMS key. Both are empty if there is none of its name."""

    id: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue in SQS. `rules`: those of EventBridge that its policy names. `redrive`: where it moves messages; empty: nowhere."""

    arn: str
    settings: Mapping[str, str]
    policy: str
    redrive: str = ""
    rules: tuple["EventRule", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRule:
    """A rule of EventBridge. `state` is empty if it does not exist."""

    name: str
    state: str
    pattern: str
    targets: tuple["EventTarget", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTarget:
    """A target of a rule. `more`: its fields beside id and ARN, such as `Input`, which replaces the event."""

    id: str
    arn: str
    more: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret without its value. `ends`: it is marked for deletion."""

    ends: bool
    policy: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """An EFS or a Lustre. `targets`: subnet to state of its mount target; `size_gib`: of a Lustre."""

    arn: str
    state: str
    encrypted: bool = True
    policy: str = ""
    targets: Mapping[str, str] = field(default_factory=dict[str, str])
    size_gib: float = 0.0


def parse_bucket(got: tuple[QueryOutput, ...]) -> Bucket | None:
    """None: S3 has no such bucket."""
    found = json_fields.table(got[0].text())
    if not found:
        return None
    block = _table(found, "PublicAccessBlock")
    return Bucket(
        blocks=frozenset(name for name in BLOCKS if block.get(name) is True),
        versioning=json_fields.text(found, "Versioning"),
        encryption=tuple(_default(rule) for rule in json_fields.members(found, "Encryption")),
        policy=_text(found, "Policy"),
        ending=tuple(_text(rule, "ID") for rule in json_fields.members(found, "Lifecycle") if _ends(rule)),
        key=_key(json_fields.table(got[1].text())) if got[1:] else None,
    )


def _ends(rule: Mapping[str, Any]) -> bool:
    """Whether a lifecycle rule deletes or moves the newest version of objects. Older versions and parts of uploads are nobody's."""
    expiration = _table(rule, "Expiration")
    ends = "Days" in expiration or "Date" in expiration or bool(rule.get("Transitions"))
    return rule.get("Status") == "Enabled" and ends


def _key(found: Mapping[str, Any]) -> Key:
    return Key(id=_text(found, "KeyId"), state=json_fields.text(found, "KeyState") if found else "")


def _default(rule: Mapping[str, Any]) -> tuple[str, str]:
    default = _table(rule, "ApplyServerSideEncryptionByDefault")
    return _text(default, "SSEAlgorithm"), _text(default, "KMSMasterKeyID")


def parse_queue(got: tuple[QueryOutput, ...]) -> Queue | None:
    """None: SQS has no such queue."""
    found = json_fields.table(got[0].text())
    if not found:
        return None
    arn = json_fields.text(found, "QueueArn")
    if arn.count(":") != 5:
        raise ParseError(f"QueueArn is {short(arn, 80)}")
    settings = {name: _text(found, name) for name in QUEUE_SETTINGS}
    return Queue(
        arn=arn,
        settings=settings,
        policy=_text(found, "Policy"),
        redrive=_text(found, "RedrivePolicy"),
        rules=tuple(_event_rule(one) for one in json_fields.members(found, "Rules")),
    )


def _event_rule(found: Mapping[str, Any]) -> EventRule:
    return EventRule(
        name=json_fields.text(found, "Name"),
        state=_text(found, "State"),
        pattern=_text(found, "EventPattern"),
        targets=tuple(map(_target, json_fields.members_if_any(found, "Targets"))),
    )


def _target(found: Mapping[str, Any]) -> EventTarget:
    return EventTarget(
        id=json_fields.text(found, "Id"),
        arn=json_fields.text(found, "Arn"),
        more=tuple(sorted(found.keys() - {"Id", "Arn"})),
    )


def parse_secret(got: tuple[QueryOutput, ...]) -> Secret | None:
    """None: Secrets Manager has no such secret."""
    found = json_fields.table(got[0].text())
    if not found:
        return None
    json_fields.text(found, "ARN")
    return Secret(
        ends=_text(found, "DeletedDate") != "", policy=_text(found, "Policy"), key=_text(found, "KmsKeyId")
    )


def parse_systems(got: tuple[QueryOutput, ...]) -> tuple[FileSystem | None, ...]:
    """None: there is no such file system."""
    return tuple(_system(json_fields.table(one.text())) for one in got)


def _system(found: Mapping[str, Any]) -> FileSystem | None:
    if not found:
        return None
    if "FileSystemArn" not in found:  # FSx
        return FileSystem(
            arn=json_fields.text(found, "ResourceARN"),
            state=json_fields.text(found, "Lifecycle"),
            size_gib=json_fields.number(found, "StorageCapacity"),
        )
    return FileSystem(
        arn=json_fields.text(found, "FileSystemArn"),
        state=json_fields.text(found, "LifeCycleState"),
        encrypted=found.get("Encrypted") is True,
        policy=_text(found, "Policy"),
        targets={
            json_fields.text(one, "SubnetId"): json_fields.text(one, "LifeCycleState")
            for one in json_fields.members(found, "MountTargets")
        },
    )


def _text(found: Mapping[str, Any], key: str) -> str:
    """A text; empty if the service leaves it out."""
    return "" if found.get(key) is None else json_fields.text(found, key)


def _table(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """An object; empty if the service leaves it out."""
    value = found.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ParseError(f"{key} is {short(repr(value), 40)}, not an object")
    return cast("dict[str, Any]", value)
