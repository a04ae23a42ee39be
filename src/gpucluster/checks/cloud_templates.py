"""Check the launch templates: the versions that the daemon launches exist, and have what the program declares (`aws.pools`)."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import json_fields
from gpucluster.checks.check import CheckResult, Location, Query, QueryOutput, listed
from gpucluster.checks.cloud import UP, CloudDifference, is_named, judged
from gpucluster.checks.cloud_machines import GUARDED
from gpucluster.checks.json_fields import part_if_any
from gpucluster.plan.model import Interface
from gpucluster.text import short

_ENDS = "terminate"  # when its system shuts down
_KNOWN = frozenset(
    {
        *(
            "ImageId",
            "InstanceType",
            "UserData",
            "SecurityGroupIds",
            "NetworkInterfaces",
            "IamInstanceProfile",
        ),
        *("InstanceInitiatedShutdownBehavior", "MetadataOptions", "BlockDeviceMappings", "TagSpecifications"),
        "CapacityReservationSpecification",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateWant:
    """One launch template of the plan. `id`: empty if the bindings have none.

    `interfaces`: empty: one ordinary interface.
    """

    id: str
    version: int
    pool: str
    machine: str
    market: str
    interfaces: tuple[Interface, ...]
    root_gib: int
    reservation: str  # its target; empty without one


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplatesWant:
    """All launch templates, and what they share. `profile`: the declared name. `user_data`: the SHA-256 of its base64 text."""

    cluster: str
    templates: tuple[TemplateWant, ...]
    group: str
    profile: str
    user_data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One version of a launch template. `added`: fields that no template of the program has."""

    machine: str
    groups: frozenset[str]  # of the instance, or of all interfaces
    interfaces: tuple[tuple[int, int, str], ...]  # network card, device and kind, in order
    profile: str  # name
    on_shutdown: str
    metadata: tuple[str, str, int]
    disks: tuple[tuple[str, int, bool], ...]  # device, GiB and encryption
    reservation: str
    user_data: str  # SHA-256
    added: tuple[str, ...]


FoundTemplates = Mapping[tuple[str, int], Template]  # by id and version


def query_templates(want: TemplatesWant) -> tuple[Query, ...]:
    words = (f"template={one.id}:{one.version}" for one in want.templates if one.id)
    return (Query(at=Location.CLOUD, argv=("templates", *words)),)


def parse_templates(got: tuple[QueryOutput, ...]) -> FoundTemplates:
    """The versions of DescribeLaunchTemplateVersions."""
    body = json_fields.table(got[0].text())
    return {
        (
            json_fields.text(one, "LaunchTemplateId"),
            int(json_fields.number(one, "VersionNumber")),
        ): _template(one)
        for one in json_fields.members(body, "LaunchTemplateVersions")
    }


def _template(version: Mapping[str, Any]) -> Template:
    data = part_if_any(version, "LaunchTemplateData")
    interfaces = json_fields.members_if_any(data, "NetworkInterfaces")
    inside = [group for one in interfaces for group in json_fields.strings(one, "Groups")]
    groups = [*(json_fields.strings(data, "SecurityGroupIds") if "SecurityGroupIds" in data else ()), *inside]
    profile = part_if_any(data, "IamInstanceProfile")
    metadata = part_if_any(data, "MetadataOptions")
    target = part_if_any(part_if_any(data, "CapacityReservationSpecification"), "CapacityReservationTarget")
    return Template(
        machine=_word(data, "InstanceType"),
        groups=frozenset(groups),
        interfaces=tuple(_interface(one) for one in interfaces),
        profile=_word(profile, "Name") or _word(profile, "Arn").rpartition("/")[2],
        on_shutdown=_word(data, "InstanceInitiatedShutdownBehavior"),
        metadata=(
            _word(metadata, "HttpEndpoint"),
            _word(metadata, "HttpTokens"),
            _count(metadata, "HttpPutResponseHopLimit"),
        ),
        disks=tuple(_disk(one) for one in json_fields.members_if_any(data, "BlockDeviceMappings")),
        reservation=_word(target, "CapacityReservationId"),
        user_data=digest(_word(data, "UserData")),
        added=tuple(sorted(key for key, value in data.items() if key not in _KNOWN and value)),
    )


def digest(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _interface(one: Mapping[str, Any]) -> tuple[int, int, str]:
    return (
        _count(one, "NetworkCardIndex"),
        _count(one, "DeviceIndex"),
        _word(one, "InterfaceType") or "interface",
    )


def _disk(one: Mapping[str, Any]) -> tuple[str, int, bool]:
    disk = part_if_any(one, "Ebs")
    return _word(one, "DeviceName"), _count(disk, "VolumeSize"), disk.get("Encrypted") is True


def _word(body: Mapping[str, Any], key: str) -> str:
    return json_fields.text(body, key) if key in body else ""


def _count(body: Mapping[str, Any], key: str) -> int:
    return int(json_fields.number(body, key)) if key in body else 0


def evaluate_templates(found: FoundTemplates, want: TemplatesWant) -> CheckResult:
    """The image is the matter of `cloud.images`."""
    faults = [
        CloudDifference(words=words, step=UP)
        for one in want.templates
        for words in _faults(one, found.get((one.id, one.version)), want)
    ]
    good = f"{len(want.templates)} launch templates"
    return judged(faults, want.cluster, good, "the plan's launch templates, in the versions of the bindings")


def _faults(one: TemplateWant, found: Template | None, want: TemplatesWant) -> Iterator[str]:
    if not one.id:
        yield f"the bindings name no launch template of {one.pool} with {one.machine} ({one.market}): the daemon cannot launch it"
        return
    about = f"version {one.version} of the launch template {one.id} ({one.pool}, {one.machine})"
    if found is None:
        yield f"{about} is gone"
        return
    yield from (f"{about} {words}" for words in _differences(one, found, want))


def _differences(one: TemplateWant, found: Template, want: TemplatesWant) -> Iterator[str]:
    if found.machine != one.machine:
        yield f"launches {short(found.machine, 30) or 'no machine type'}"
    if found.groups != frozenset({want.group}):
        yield f"has the groups {listed(sorted(short(group, 40) for group in found.groups)) or 'none'}"
    yield from _interfaces(one, found)
    if not is_named(found.profile, want.profile):
        yield f"has the instance profile {short(found.profile, 60) or 'none'}"
    if found.on_shutdown != _ENDS:
        yield f"has the shutdown behaviour {short(found.on_shutdown, 20) or 'none'}, not {_ENDS}"
    if found.metadata != GUARDED:
        endpoint, tokens, hops = found.metadata
        yield f"has the metadata service {short(endpoint, 20)}, tokens {short(tokens, 20)}, hop limit {hops}"
    yield from _disks(one, found)
    if found.reservation != one.reservation:
        yield f"launches into the reservation {short(found.reservation, 40) or 'none'}, not {one.reservation or 'none'}"
    if found.user_data != want.user_data:
        yield "has other user data"
    if found.added:
        yield f"has {listed([short(name, 40) for name in found.added])}, which the plan has not"


def _interfaces(one: TemplateWant, found: Template) -> Iterator[str]:
    if len(found.interfaces) != len(one.interfaces):
        yield f"has {len(found.interfaces)} network interfaces, not the plan's {len(one.interfaces)}"
    elif found.interfaces != tuple((i.card, i.device, i.kind.value) for i in one.interfaces):
        yield "has network interfaces of another kind or card than the plan's"


def _disks(one: TemplateWant, found: Template) -> Iterator[str]:
    plain = [short(device, 20) for device, _, encrypted in found.disks if not encrypted]
    if plain:
        yield f"has volumes without encryption: {listed(plain)}"
    if len(found.disks) != 1:
        yield f"has {len(found.disks)} volumes, not one"
    elif found.disks[0][1] != one.root_gib:
        yield f"has a root volume of {found.disks[0][1]} GiB, not {one.root_gib}"
