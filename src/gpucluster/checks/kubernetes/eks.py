"""Check who enters an EKS cluster: access entries, the ranges of the API server's public address, and roles that pods get.

What the program declares must be so, and nobody else has much: EKS admits by entries alone, never by the ConfigMap `aws-auth`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from gpucluster.checks import json_fields
from gpucluster.checks.check import (
    CheckResult,
    Location,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
)
from gpucluster.checks.cloud import UP, CloudDifference, is_named
from gpucluster.text import short

MODE = "API"  # of authentication: EKS reads no aws-auth, and no cluster leaves this mode (EKS user guide, "Change authentication mode")
CREATION_S = 900.0  # EKS makes the entry of the creator with the cluster, before the program can make others
_STANDARD = "STANDARD"  # type of entries of people; those of nodes have others
_LINKED = ":role/aws-service-role/"  # roles of AWS's own services: EKS makes and keeps their entries itself
ADMIN = "AmazonEKSClusterAdminPolicy"
# EKS user guide, "Review access policy permissions": they change the cluster or a namespace, or read every Secret
_POWERFUL = (ADMIN, "AmazonEKSAdminPolicy", "AmazonEKSAdminViewPolicy", "AmazonEKSEditPolicy", "AmazonEKSSecretReaderPolicy")  # fmt: skip
_CLI = "aws eks {verb} --cluster-name {cluster}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryWant:
    """An access entry of the plan: groups of Kubernetes, and whether it may do everything."""

    principal: str
    groups: tuple[str, ...] = ()
    admin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRoleWant:
    """The role of a service account's pods, without Pulumi's random characters."""

    namespace: str
    account: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EksWant:
    """What the program declares. `teams`: namespaces, and `groups`: the groups of their members. `public_from`: empty is no public address."""

    cluster: str
    entries: tuple[EntryWant, ...]
    public_from: tuple[str, ...]
    teams: tuple[str, ...]
    groups: tuple[str, ...]
    pods: tuple[PodRoleWant, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEntry:
    """An access entry. `policies`: names of EKS's access policies, with namespaces where they hold for some only."""

    principal: str
    kind: str
    groups: tuple[str, ...]
    policies: Mapping[str, str]  # ARN -> words of its scope
    age_s: float  # after the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPodRole:
    """A pod identity association."""

    id: str
    namespace: str
    account: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEks:
    """The cluster in EKS. `public`: the ranges that reach its public address, none without one."""

    mode: str
    public: tuple[str, ...]
    entries: tuple[FoundEntry, ...]
    pods: tuple[FoundPodRole, ...]


def query_eks(want: EksWant) -> tuple[Query, ...]:
    return (Query(at=Location.CLOUD, argv=("eks", f"cluster={want.cluster}")),)


def parse_eks(outputs: tuple[QueryOutput, ...]) -> FoundEks:
    (output,) = outputs
    answer = json_fields.table(output.text())
    cluster = json_fields.part_if_any(answer, "Cluster")
    vpc = json_fields.part_if_any(cluster, "resourcesVpcConfig")
    made = _time(json_fields.text(cluster, "createdAt"))
    public = json_fields.flag(vpc, "endpointPublicAccess")
    return FoundEks(
        mode=json_fields.text(cluster, "accessConfig", "authenticationMode"),
        public=json_fields.strings(vpc, "publicAccessCidrs") if public else (),
        entries=tuple(_entry(one, made) for one in json_fields.members(answer, "AccessEntries")),
        pods=tuple(map(_pod_role, json_fields.members(answer, "PodIdentities"))),
    )


def evaluate_eks(found: FoundEks, want: EksWant) -> CheckResult:
    expected = "the access entries, public ranges and roles of pods of the spec"
    faults = [*_of_endpoint(found, want), *_of_entries(found, want), *_of_pods(found, want)]
    if faults:
        steps = dict.fromkeys(one.step.format(cluster=want.cluster) for one in faults)
        return failed(listed([one.words for one in faults]), expected, remedy="; ".join(steps))
    notes = list(_notes(found, want))
    others = f"; of others: {listed(notes)}" if notes else ""
    return passed(f"{len(found.entries)} access entries{others}", expected)


def _of_endpoint(found: FoundEks, want: EksWant) -> Iterator[CloudDifference]:
    if found.mode != MODE:
        words = f"the cluster admits by {short(found.mode, 40)}, not by access entries alone"
        yield CloudDifference(words=words, step=UP)
    known = [ip_network(one) for one in want.public_from]
    wide = [one for one in found.public if not any(_is_within(one, span) for span in known)]
    if wide:
        words = f"the API server's public address is open to {listed([short(one, 50) for one in wide])}"
        yield CloudDifference(words=words, step=UP)


def _is_within(span: str, known: IPv4Network | IPv6Network) -> bool:
    try:
        found = ip_network(span, strict=False)
    except ValueError:
        return False
    if isinstance(found, IPv4Network) and isinstance(known, IPv4Network):
        return found.subnet_of(known)
    return isinstance(found, IPv6Network) and isinstance(known, IPv6Network) and found.subnet_of(known)


def _of_entries(found: FoundEks, want: EksWant) -> Iterator[CloudDifference]:
    wanted = {one.principal: one for one in want.entries}
    there = {one.principal for one in found.entries}
    for principal in wanted.keys() - there:
        yield CloudDifference(words=f"the access entry of {principal} is missing", step=UP)
    creator = _creator(found, wanted)
    for one in found.entries:
        if one.principal in wanted:
            yield from _changed(one, wanted[one.principal], creator)
        elif one is not creator and _is_much(one, want):
            step = f"{_CLI.replace('{verb}', 'delete-access-entry')} --principal-arn {one.principal}"
            words = f"{short(one.principal, 120)} is not of the spec, and {_rights(one)}"
            yield CloudDifference(words=words, step=step)


def _changed(one: FoundEntry, want: EntryWant, creator: FoundEntry | None) -> Iterator[CloudDifference]:
    more, less = sorted({*one.groups} - {*want.groups}), sorted({*want.groups} - {*one.groups})
    if more or less:
        said = [*(f"also {group}" for group in more), *(f"not {group}" for group in less)]
        yield CloudDifference(words=f"{one.principal} is in other groups: {listed(said)}", step=UP)
    names = {arn: arn.rpartition("/")[2] for arn in one.policies}
    if want.admin and ADMIN not in names.values():
        yield CloudDifference(words=f"{one.principal} has lost {ADMIN}", step=UP)
    for arn, name in sorted(names.items()):
        if name in _POWERFUL and not (name == ADMIN and (want.admin or one is creator)):
            verb = _CLI.replace("{verb}", "disassociate-access-policy")
            step = f"{verb} --principal-arn {one.principal} --policy-arn {arn}"
            words = f"{one.principal} also has {name}{one.policies[arn]}"
            yield CloudDifference(words=words, step=step)


def _creator(found: FoundEks, wanted: Mapping[str, EntryWant]) -> FoundEntry | None:
    """The entry that EKS made for who created the cluster: the first one, with the right of an admin. It may be of the spec, too."""
    early = [
        one
        for one in found.entries
        if one.kind == _STANDARD
        and one.age_s <= CREATION_S
        and _LINKED not in one.principal
        and _is_admin(one)
    ]
    return min(early, key=lambda one: (one.age_s, one.principal not in wanted), default=None)


def _is_admin(one: FoundEntry) -> bool:
    return any(arn.endswith(f"/{ADMIN}") for arn in one.policies)


def _is_much(one: FoundEntry, want: EksWant) -> bool:
    """Whether an entry that the spec lacks changes the cluster, reads its Secrets, or is a member of a team. Others are a note."""
    if one.kind != _STANDARD or _LINKED in one.principal:
        return False
    return bool(_powers(one) or {*one.groups} & {*want.groups})


def _powers(one: FoundEntry) -> list[str]:
    return [arn for arn in one.policies if arn.rpartition("/")[2] in _POWERFUL]


def _rights(one: FoundEntry) -> str:
    policies = [f"{arn.rpartition('/')[2]}{scope}" for arn, scope in sorted(one.policies.items())]
    parts = [f"has {listed(policies)}"] * bool(policies) + [f"is in {listed(list(one.groups))}"] * bool(one.groups)  # fmt: skip
    return " and ".join(parts) or "has no rights by EKS"


def _of_pods(found: FoundEks, want: EksWant) -> Iterator[CloudDifference]:
    wanted = {(one.namespace, one.account): one.role for one in want.pods}
    there = {(one.namespace, one.account) for one in found.pods}
    for namespace, account in sorted(wanted.keys() - there):
        yield CloudDifference(words=f"pods of {namespace}/{account} have lost their role", step=UP)
    for one in found.pods:
        role, declared = one.role.rpartition("/")[2], wanted.get((one.namespace, one.account))
        who = f"{one.namespace}/{one.account}"
        if declared is None and one.namespace in want.teams:
            step = f"{_CLI.replace('{verb}', 'delete-pod-identity-association')} --association-id {one.id}"
            words = f"pods of {short(who, 80)} also get the role {short(role, 80)}, which is not of the spec"
            yield CloudDifference(words=words, step=step)
        elif declared is not None and not is_named(role, declared):
            yield CloudDifference(
                words=f"pods of {who} get the role {short(role, 80)}, not {declared}", step=UP
            )


def _notes(found: FoundEks, want: EksWant) -> Iterator[str]:
    """Yield entries of others with few rights. Nodes' and AWS's own services' are ordinary."""
    wanted = {one.principal for one in want.entries}
    creator = _creator(found, {one.principal: one for one in want.entries})
    for one in found.entries:
        ordinary = one.kind != _STANDARD or _LINKED in one.principal
        if not ordinary and one.principal not in wanted and one is not creator:
            yield f"{short(one.principal, 100)} {_rights(one)}"


def _entry(item: Mapping[str, Any], made: float) -> FoundEntry:
    return FoundEntry(
        principal=json_fields.text(item, "principalArn"),
        kind=json_fields.text(item, "type"),
        groups=json_fields.strings(item, "kubernetesGroups") if "kubernetesGroups" in item else (),
        policies={json_fields.text(one, "policyArn"): _scope(one) for one in json_fields.members(item, "Policies")},
        age_s=_time(json_fields.text(item, "createdAt")) - made,
    )  # fmt: skip


def _scope(item: Mapping[str, Any]) -> str:
    if json_fields.text(item, "accessScope", "type") == "cluster":
        return ""
    return f" in {listed(list(json_fields.strings(item, 'accessScope', 'namespaces')))}"


def _pod_role(item: Mapping[str, Any]) -> FoundPodRole:
    return FoundPodRole(
        id=json_fields.text(item, "associationId"),
        namespace=json_fields.text(item, "namespace"),
        account=json_fields.text(item, "serviceAccount"),
        role=json_fields.text(item, "roleArn"),
    )


def _time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ParseError(f"{short(text, 40)!r} is no time") from error
