"""Check the cluster's bucket, queue, secret and file systems against what the program declares (`plan/store_policies.py`)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from gpucluster.checks.check import CheckResult, Location, Query, listed
from gpucluster.checks.cloud import UP, CloudDifference, is_named, judged
from gpucluster.checks.policy_documents import loaded
from gpucluster.checks.store_answers import BLOCKS, Bucket, EventRule, FileSystem, Key, Queue, Secret
from gpucluster.json_text import parse_json
from gpucluster.plan import store_policies
from gpucluster.text import short

AS_DECLARED = "as declared"


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketWant:
    """The bucket. `key`: the KMS key of the spec; empty if AWS manages the key."""

    cluster: str
    bucket: str
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWant:
    """The queue of events, by its URL."""

    cluster: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretWant:
    """The secret of the munge key, by its ARN."""

    cluster: str
    arn: str
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystemWant:
    """A file system. `subnets`: where it has mount targets; `size_gib`: of a Lustre. A site's own has only to be available."""

    id: str
    lustre: bool = False
    own: bool = True
    subnets: tuple[str, ...] = ()
    size_gib: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystemsWant:
    """The file systems of the cloud that machines mount."""

    cluster: str
    systems: tuple[FileSystemWant, ...]


def query_bucket(want: BucketWant) -> tuple[Query, ...]:
    bucket = Query(at=Location.CLOUD, argv=("bucket", f"name={want.bucket}"))
    return (bucket, *([Query(at=Location.CLOUD, argv=("key", f"id={want.key}"))] if want.key else []))


def query_queue(want: QueueWant) -> tuple[Query, ...]:
    return (Query(at=Location.CLOUD, argv=("queue", f"url={want.url}")),)


def query_secret(want: SecretWant) -> tuple[Query, ...]:
    return (Query(at=Location.CLOUD, argv=("secret", f"arn={want.arn}")),)


def query_systems(want: FileSystemsWant) -> tuple[Query, ...]:
    return tuple(
        Query(at=Location.CLOUD, argv=("lustre" if one.lustre else "efs", f"id={one.id}"))
        for one in want.systems
    )


def evaluate_bucket(found: Bucket | None, want: BucketWant) -> CheckResult:
    expected = f"{want.bucket}: private, versioned, encrypted, only by TLS, and it keeps its objects"
    return judged(_bucket(found, want), want.cluster, AS_DECLARED, expected)


def evaluate_queue(found: Queue | None, want: QueueWant) -> CheckResult:
    name = want.url.rpartition("/")[2]
    expected = f"{name}: encrypted, and only the cluster's rules of EventBridge send to it, each enabled"
    return judged(_queue(found, want), want.cluster, AS_DECLARED, expected)


def evaluate_secret(found: Secret | None, want: SecretWant) -> CheckResult:
    expected = f"{_name(want.arn)}: it exists, and has no policy of its own"
    return judged(_secret(found, want), want.cluster, AS_DECLARED, expected)


def evaluate_systems(found: tuple[FileSystem | None, ...], want: FileSystemsWant) -> CheckResult:
    faults = [
        fault
        for seen, one in zip(found, want.systems, strict=True)
        for fault in (_lustre(seen, one) if one.lustre else _efs(seen, one))
    ]
    expected = f"{listed([one.id for one in want.systems])}: available, and as declared"
    return judged(faults, want.cluster, AS_DECLARED, expected)


def _bucket(found: Bucket | None, want: BucketWant) -> Iterator[CloudDifference]:
    if found is None:
        yield CloudDifference(words=f"{want.bucket} does not exist", step=UP)
        return
    off = [name for name in BLOCKS if name not in found.blocks]
    if off:
        yield CloudDifference(words=f"public access is not blocked: {listed(off)}", step=UP)
    if found.versioning != "Enabled":
        yield CloudDifference(words=f"versioning is {short(found.versioning or 'off', 20)}", step=UP)
    yield from _bucket_key(found, want.key)
    if not _same_policy(found.policy, store_policies.only_tls(f"arn:aws:s3:::{want.bucket}")):
        yield CloudDifference(words=_of_policy("its policy", found.policy), step=UP)
    if found.ending:
        ids = listed([short(one, 40) or "without an id" for one in found.ending])
        step = f"aws s3api delete-bucket-lifecycle --bucket {want.bucket}"
        yield CloudDifference(words=f"lifecycle rules delete or move its objects: {ids}", step=step)
    if found.key is not None:
        yield from _key_state(found.key, want.key)


def _key_state(key: Key, named: str) -> Iterator[CloudDifference]:
    """Without its key nobody reads the bucket, the secret or a volume. A key whose deletion is cancelled is disabled."""
    enable = f"aws kms enable-key --key-id {key.id}"
    steps = {
        "": "",
        "Disabled": enable,
        "PendingDeletion": f"aws kms cancel-key-deletion --key-id {key.id}; {enable}",
    }
    if key.state != "Enabled":
        state = f"is {short(key.state, 30)}" if key.state else "does not exist"
        look = f"aws kms describe-key --key-id {named}"
        yield CloudDifference(words=f"the key {named} {state}", step=steps.get(key.state, look))


def _bucket_key(found: Bucket, key: str) -> Iterator[CloudDifference]:
    kinds = [short(algorithm or "none", 20) for algorithm, _ in found.encryption]
    if kinds != ["aws:kms" if key else "AES256"]:
        yield CloudDifference(words=f"its default encryption is {listed(kinds) or 'none'}", step=UP)
    elif key:
        yield from _other_key("its default encryption", found.encryption[0][1], key)


def _queue(found: Queue | None, want: QueueWant) -> Iterator[CloudDifference]:
    if found is None:
        yield CloudDifference(words=f"{want.url} does not exist", step=UP)
        return
    change = f"aws sqs set-queue-attributes --queue-url {want.url} --attributes"
    for name, value in {**store_policies.QUEUE, **store_policies.QUEUE_DEFAULTS}.items():
        if found.settings[name] != value:
            shown = short(found.settings[name] or "not set", 40)
            step = UP if name in store_policies.QUEUE else f"{change} {name}={value}"
            yield CloudDifference(words=f"{name} is {shown}, not {value}", step=step)
    if found.redrive:
        step = f"{change} RedrivePolicy="
        yield CloudDifference(
            words=f"it moves messages to another queue: {short(found.redrive, 120)}", step=step
        )
    rules = _rules(found.policy, want.cluster)
    declared = store_policies.events_to(found.arn, _arns(rules, found.arn))
    if len(rules) != len(store_policies.PATTERNS) or not _same_policy(found.policy, declared):
        yield CloudDifference(words=_of_policy("its policy", found.policy), step=UP)
    for rule in found.rules:
        if rule.name in rules:
            yield from _event_rule(rule, found.arn, want.cluster)


def _event_rule(rule: EventRule, queue: str, cluster: str) -> Iterator[CloudDifference]:
    """The daemon learns of a spot notice only by an enabled rule with the declared pattern and the queue as target."""
    kind = next(one for one in store_policies.PATTERNS if is_named(rule.name, f"{cluster}-{one}"))
    if not rule.state:
        yield CloudDifference(words=f"its rule {rule.name} does not exist", step=UP)
        return
    if rule.state != "ENABLED":
        step = f"aws events enable-rule --name {rule.name}"
        yield CloudDifference(words=f"its rule {rule.name} is {short(rule.state, 20)}", step=step)
    if loaded(rule.pattern) != store_policies.PATTERNS[kind]:
        words = f"its rule {rule.name} has another pattern: {short(rule.pattern, 120)}"
        yield CloudDifference(words=words, step=UP)
    yield from _targets(rule, queue)


def _targets(rule: EventRule, queue: str) -> Iterator[CloudDifference]:
    """The program declares a target with an id and an ARN. A target with more, such as `Input`, sends something else than the event."""
    here = [one for one in rule.targets if one.arn == queue]
    whole = [one for one in here if not one.more]
    if not here:
        yield CloudDifference(words=f"its rule {rule.name} does not send to it", step=UP)
    for one in here:
        if one.more:
            plain = f"Id={one.id},Arn={queue}"
            step = (
                f"aws events remove-targets --rule {rule.name} --ids {one.id}"
                if whole
                else f"aws events put-targets --rule {rule.name} --targets {plain}"
            )
            words = f"its rule {rule.name} sends to it with {listed(one.more)}"
            yield CloudDifference(words=words, step=step)


def _rules(policy: str, cluster: str) -> tuple[str, ...]:
    """The names of the cluster's rules in the policy: Pulumi gives them, so the plan cannot know them."""
    found = {arn.rpartition("/")[2] for arn in _strings(loaded(policy)) if ":rule/" in arn}
    declared = [f"{cluster}-{name}" for name in store_policies.PATTERNS]
    return tuple(sorted(one for one in found if any(is_named(one, name) for name in declared)))


def _arns(rules: tuple[str, ...], queue: str) -> list[str]:
    """The ARNs of rules in the Region and the account of the queue: the policy is what is judged, so its own are not used."""
    region, account = queue.split(":")[3:5]
    return [f"arn:aws:events:{region}:{account}:rule/{name}" for name in rules]


def _secret(found: Secret | None, want: SecretWant) -> Iterator[CloudDifference]:
    if found is None:
        yield CloudDifference(words=f"{_name(want.arn)} does not exist", step=UP)
        return
    if found.ends:
        yield CloudDifference(
            words=f"{_name(want.arn)} is marked for deletion",
            step=f"aws secretsmanager restore-secret --secret-id {want.arn}",
        )
    if found.policy:
        yield CloudDifference(
            words=_of_policy(f"{_name(want.arn)} has a policy, which", found.policy),
            step=f"aws secretsmanager delete-resource-policy --secret-id {want.arn}",
        )
    if want.key:
        yield from _other_key(_name(want.arn), found.key, want.key)


def _efs(found: FileSystem | None, want: FileSystemWant) -> Iterator[CloudDifference]:
    """The policy of our own admits only machines: a foreign one may admit every program in the VPC."""
    if found is None:
        yield CloudDifference(words=f"{want.id} does not exist", step=UP)
        return
    look = f"aws efs describe-file-systems --file-system-id {want.id}"
    yield from _state(want.id, found.state, look)
    if not want.own:
        return
    if not found.encrypted:
        yield CloudDifference(words=f"{want.id} is not encrypted", step="")
    if not _same_policy(found.policy, store_policies.only_machines(found.arn)):
        yield CloudDifference(words=_of_policy(f"{want.id}: its policy", found.policy), step=UP)
    for subnet in want.subnets:
        if subnet not in found.targets:
            yield CloudDifference(words=f"{want.id} has no mount target in {subnet}", step=UP)
        else:
            look = f"aws efs describe-mount-targets --file-system-id {want.id}"
            yield from _state(f"{want.id}: its mount target in {subnet}", found.targets[subnet], look)


def _lustre(found: FileSystem | None, want: FileSystemWant) -> Iterator[CloudDifference]:
    if found is None:
        yield CloudDifference(words=f"{want.id} does not exist", step=UP)
        return
    look = f"aws fsx describe-file-systems --file-system-ids {want.id}"
    yield from _state(want.id, found.state, look, also="UPDATING")
    if want.own and found.size_gib != want.size_gib:
        words = f"{want.id} has {found.size_gib:.0f} GiB, not {want.size_gib}"
        yield CloudDifference(words=words, step=UP)


def _state(about: str, state: str, look: str, *, also: str = "updating") -> Iterator[CloudDifference]:
    """A file system that AWS changes stays mounted."""
    if state.lower() not in ("available", also.lower()):
        yield CloudDifference(words=f"{about} is {short(state, 40)}", step=look)


def _other_key(about: str, found: str, want: str) -> Iterator[CloudDifference]:
    """An alias is not compared: the answer names the key itself."""
    if not found or (":key/" in want and found != want):
        yield CloudDifference(
            words=f"{about} uses the key {short(found or 'of AWS', 80)}, not {want}", step=UP
        )


def _of_policy(about: str, policy: str) -> str:
    return f"{about} is not the declared one: {short(policy, 120)}" if policy else f"{about} is missing"


def _name(arn: str) -> str:
    return arn.rpartition(":")[2]


def _same_policy(found: str, want: str) -> bool:
    return _plain(loaded(found)) == _plain(parse_json(want))


def _plain(value: object) -> object:
    """A policy without the freedoms of its grammar: a list of one is its member, order is free, every account is `*`."""
    if isinstance(value, dict):
        named = cast("dict[str, object]", value)
        return "*" if named == {"AWS": "*"} else {key: _plain(one) for key, one in named.items()}
    if isinstance(value, list):
        items = [_plain(one) for one in cast("list[object]", value)]
        return items[0] if len(items) == 1 else sorted(items, key=lambda one: json.dumps(one, sort_keys=True))
    return value


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in cast("dict[str, object]", value).values():
            yield from _strings(one)
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            yield from _strings(one)
