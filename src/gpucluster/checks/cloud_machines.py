"""Check the cluster's instances in EC2 against the plan: each exists, runs, and is what the plan launches."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpucluster.checks import json_fields
from gpucluster.checks.check import CheckResult, Location, Query, QueryOutput, listed
from gpucluster.checks.cloud import (
    ENDED,
    UP,
    CloudDifference,
    SearchScope,
    instances_of,
    is_named,
    judged,
    tags_of,
)
from gpucluster.cloud.tags import tag_step
from gpucluster.plan import names
from gpucluster.text import short

GUARDED = ("enabled", "required", 1)  # metadata service: endpoint, tokens, hop limit (T33)
_GUARD = (
    "aws ec2 modify-instance-metadata-options --instance-id {id} --http-endpoint enabled --http-tokens required "
    "--http-put-response-hop-limit 1"
)
_STAY = "aws ec2 modify-instance-attribute --instance-id {id} --instance-initiated-shutdown-behavior stop"
_START = "aws ec2 start-instances --instance-ids {id}"
_DETACH = (
    "aws ec2 detach-volume --volume-id {id}"  # a volume that Pulumi did not make, no `pulumi up` changes
)
_END = "aws ec2 terminate-instances --instance-ids {id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedMachine:
    """A machine that Pulumi creates: a head or a login machine. `group` is the role of its security group.

    `image`: id or name; the name of the cluster's image if the spec names no id. `public`: it has an Elastic IP address.
    """

    name: str
    role: str
    machine: str
    group: str
    image: str
    public: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTemplate:
    """A launch template of the plan: nodes are launched with it, of this pool and type, and at most of this version."""

    id: str
    version: int
    pool: str
    machine: str
    image: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The expected machines. `node_group` is the id of the nodes' security group."""

    place: SearchScope
    fixed: tuple[FixedMachine, ...]
    templates: tuple[NodeTemplate, ...]
    node_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """An instance of the cluster that has not ended."""

    id: str
    state: str
    machine: str
    tags: Mapping[str, str]
    groups: frozenset[tuple[str, str]]  # (id, name), of all interfaces
    metadata: tuple[str, str, int]
    profile: str  # name
    plain: tuple[str, ...]  # its volumes without encryption
    by_hand: tuple[str, ...]  # those of them without the cluster's tag, which the provider gives each volume
    image: str
    image_name: str  # empty if EC2 does not list the image any more
    on_shutdown: str  # what EC2 does when its system shuts down; empty: not read, as of nodes
    address: str  # its Elastic IP address


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMachines:
    """The instances."""

    machines: tuple[Machine, ...]


def query_machines(want: Machines) -> tuple[Query, ...]:
    asked = (
        *((what, *want.place.words()) for what in ("instances", "volumes", "images")),
        ("shutdowns", *want.place.words()),
        *((("addresses", *want.place.words()),) if any(one.public for one in want.fixed) else ()),
    )
    return tuple(Query(at=Location.CLOUD, argv=argv) for argv in asked)


def parse_machines(got: tuple[QueryOutput, ...]) -> FoundMachines:
    """Instances from DescribeInstances with the encryption of their volumes and the names of their images."""
    listing = got[0]
    volumes, images, shutdowns, *more = (json_fields.table(one.text()) for one in got[1:])
    plain: dict[str, list[str]] = {}
    by_hand: set[str] = set()
    for volume in json_fields.members(volumes, "Volumes"):
        if names.TAG_CLUSTER not in tags_of(volume):
            by_hand.add(json_fields.text(volume, "VolumeId"))
        if volume.get("Encrypted") is not True:
            for attachment in json_fields.members(volume, "Attachments"):
                plain.setdefault(json_fields.text(attachment, "InstanceId"), []).append(
                    json_fields.text(volume, "VolumeId")
                )
    named = {
        json_fields.text(one, "ImageId"): json_fields.text(one, "Name")
        for one in json_fields.members(images, "Images")
    }
    ends = {
        json_fields.text(one, "InstanceId"): json_fields.text(
            one, "InstanceInitiatedShutdownBehavior", "Value"
        )
        for one in json_fields.members(shutdowns, "Shutdowns")
    }
    addresses = {
        json_fields.text(one, "InstanceId"): json_fields.text(one, "PublicIp")
        for answer in more
        for one in json_fields.members(answer, "Addresses")
        if one.get("InstanceId")
    }
    every = (_machine(one, _Beside(plain, by_hand, named, ends, addresses)) for one in instances_of(listing))
    return FoundMachines(
        machines=tuple(sorted((m for m in every if m.state not in ENDED), key=lambda m: m.id))
    )


@dataclass(frozen=True, slots=True)
class _Beside:
    """What other lists say of instances, by their ids; `images`: by those of images."""

    plain: Mapping[str, list[str]]
    by_hand: Collection[str]
    images: Mapping[str, str]
    ends: Mapping[str, str]
    addresses: Mapping[str, str]


def evaluate_machines(found: FoundMachines, want: Machines) -> CheckResult:
    """Culprits are the machines that do not run: no check there can have an answer."""
    cluster = want.place.cluster
    ours = [m for m in found.machines if m.tags.get(names.TAG_CLUSTER) == cluster]
    faults = [fault for one in want.fixed for fault in _fixed(one, ours, cluster)]
    nodes = [m for m in ours if _is_node(m, want)]
    faults += [fault for one in nodes for fault in _node(one, want)]
    expected = f"{len(want.fixed)} machines of the plan, and nodes of its launch templates"
    return judged(faults, cluster, f"{len(want.fixed)} machines and {len(nodes)} nodes", expected)


def _is_node(one: Machine, want: Machines) -> bool:
    """By role, or by the launch template, whose tag nobody can change (T54): a node that lost its role is still one."""
    if any(one.tags.get("Name") == fixed.name for fixed in want.fixed):
        return False
    of_plan = any(one.tags.get(names.TAG_TEMPLATE) == template.id for template in want.templates)
    return of_plan or one.tags.get(names.TAG_ROLE) == names.ROLE_NODE


def _fixed(want: FixedMachine, ours: list[Machine], cluster: str) -> Iterator[CloudDifference]:
    mine = [m for m in ours if m.tags.get("Name") == want.name]
    if not mine:
        yield CloudDifference(words=f"{want.name} is missing", step=UP, off=want.name)
        return
    for one in mine:
        about = f"{want.name} ({one.id})"
        if one.state not in ("pending", "running"):
            words, step = f"{about} is {short(one.state, 20)}", _START.format(id=one.id)
            yield CloudDifference(words=words, step=step, off=want.name)
        yield from _guard(about, one)
        if one.on_shutdown not in ("", "stop"):
            words = f"{about} ends when its system shuts down ({short(one.on_shutdown, 20)})"
            yield CloudDifference(words=words, step=_STAY.format(id=one.id))
        if want.public and not one.address:
            yield CloudDifference(words=f"{about} has lost its Elastic IP address", step=UP)
        planned = replace(one, plain=tuple(volume for volume in one.plain if volume not in one.by_hand))
        for words in _differences(planned, want.machine, f"{cluster}-{want.role}", want.image):
            yield CloudDifference(words=f"{about} {words}", step=UP)
        for volume in one.by_hand:
            words = f"{about} has a volume without encryption that is not of the plan: {volume}"
            yield CloudDifference(words=words, step=_DETACH.format(id=volume))
        if one.tags.get(names.TAG_ROLE) != want.role:
            step = tag_step(one.id, {names.TAG_ROLE: want.role})
            yield CloudDifference(
                words=f"{about} has the role {_shown(one.tags.get(names.TAG_ROLE))}", step=step
            )
        if len(one.groups) != 1 or not all(
            is_named(name, f"{cluster}-{want.group}") for _, name in one.groups
        ):
            yield CloudDifference(words=f"{about} has the groups {_groups(one)}", step=UP)


def _node(one: Machine, want: Machines) -> Iterator[CloudDifference]:
    """A node that differs is replaced: the daemon launches another for its jobs."""
    cluster, end = want.place.cluster, _END.format(id=one.id)
    if one.state in ("stopping", "stopped"):
        yield CloudDifference(words=f"{one.id} is {one.state}", step=end)
    yield from _guard(one.id, one)
    template = next((t for t in want.templates if t.id == one.tags.get(names.TAG_TEMPLATE)), None)
    if template is None:
        yield CloudDifference(words=f"{one.id} is of no launch template of the plan", step=end)
        return
    version = one.tags.get(names.TAG_TEMPLATE_VERSION, "")
    image = template.image if version == str(template.version) else ""  # an older one may have another
    if not version.isdecimal() or int(version) > template.version:
        words = f"{one.id} is of version {_shown(version)} of its launch template, not {template.version}"
        yield CloudDifference(words=words, step=end)
    for words in _differences(one, template.machine, f"{cluster}-{names.ROLE_NODE}", image):
        yield CloudDifference(words=f"{one.id} {words}", step=end)
    if one.tags.get(names.TAG_POOL) != template.pool:
        step = tag_step(one.id, {names.TAG_POOL: template.pool})
        yield CloudDifference(
            words=f"{one.id} has the pool {_shown(one.tags.get(names.TAG_POOL))}", step=step
        )
    if {group for group, _ in one.groups} != {want.node_group}:
        yield CloudDifference(words=f"{one.id} has the groups {_groups(one)}", step=end)


def _guard(about: str, one: Machine) -> Iterator[CloudDifference]:
    if one.metadata != GUARDED:
        endpoint, tokens, hops = one.metadata
        words = (
            f"{about}: metadata service {short(endpoint, 20)}, tokens {short(tokens, 20)}, hop limit {hops}"
        )
        yield CloudDifference(words=words, step=_GUARD.format(id=one.id))


def _differences(one: Machine, machine: str, profile: str, image: str) -> Iterator[str]:
    if one.machine != machine:
        yield f"is {short(one.machine, 30)}, not {machine}"
    if not is_named(one.profile, profile):
        yield f"has the instance profile {_shown(one.profile)}"
    found = one.image if image.startswith("ami-") else one.image_name
    if image and found not in ("", image):
        yield f"is of the image {_shown(found)}, not {image}"
    if one.plain:
        yield f"has volumes without encryption: {listed(one.plain)}"


def _groups(one: Machine) -> str:
    return listed(sorted(short(name, 60) or group for group, name in one.groups)) or "none"


def _shown(text: str | None) -> str:
    return short(text or "", 60) or "none"


def _machine(item: Mapping[str, Any], beside: _Beside) -> Machine:
    interfaces = json_fields.members_if_any(item, "NetworkInterfaces")
    groups = [group for one in interfaces for group in json_fields.members_if_any(one, "Groups")]
    name = json_fields.text(item, "InstanceId")
    profile = json_fields.text(item, "IamInstanceProfile", "Arn") if "IamInstanceProfile" in item else ""
    plain = tuple(sorted(beside.plain.get(name, ())))
    return Machine(
        id=name,
        state=json_fields.text(item, "State", "Name"),
        machine=json_fields.text(item, "InstanceType"),
        tags=tags_of(item),
        groups=frozenset((json_fields.text(g, "GroupId"), json_fields.text(g, "GroupName")) for g in groups),
        metadata=(
            json_fields.text(item, "MetadataOptions", "HttpEndpoint"),
            json_fields.text(item, "MetadataOptions", "HttpTokens"),
            int(json_fields.number(item, "MetadataOptions", "HttpPutResponseHopLimit")),
        ),
        profile=profile.rpartition("/")[2],
        plain=plain,
        by_hand=tuple(volume for volume in plain if volume in beside.by_hand),
        image=json_fields.text(item, "ImageId"),
        image_name=beside.images.get(json_fields.text(item, "ImageId"), ""),
        on_shutdown=beside.ends.get(name, ""),
        address=beside.addresses.get(name, ""),
    )
