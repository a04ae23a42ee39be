"""Check who may do everything in the cluster, and who is admin in our namespaces: bindings that nobody of the plan made.

Kubernetes' and EKS' own are known by name, those of charts and add-ons of others by their owner.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
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
from gpucluster.checks.kubernetes import objects
from gpucluster.checks.kubernetes.owners import owner_of, release_of
from gpucluster.text import short

_GROUP = "rbac.authorization.k8s.io"
_KINDS = ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")
_OF_NAMESPACES = (
    "admin",
    "cluster-admin",
    "edit",
)  # ClusterRoles that a RoleBinding makes rights in its namespace
_DEFAULTS = ("kubernetes.io/bootstrapping", "rbac-defaults")  # label of what the API server makes itself
_EKS_ADDON = ("app.kubernetes.io/managed-by", "EKS")
# EKS refuses these beginnings in names that people give (user guide, "Create access entries"): its own identities have them
_OF_EKS = "eks:"
_SYSTEM = "kube-system"
_CONTROLLER = "system:controller:"  # + NAME: bound to the service account NAME of kube-system
_OF_CONTROL_PLANE = "system:kube-"  # users by certificate: controller manager, scheduler, proxy
_ACCOUNT, _ACCOUNTS = "system:serviceaccount:", "system:serviceaccounts"
# (binding or none, kind, name): kubernetes, plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata; kubeadm, cmd/kubeadm/app/constants
_OWN = (
    ("", "Group", "system:masters"),
    ("kubeadm:cluster-admins", "Group", "kubeadm:cluster-admins"),
    ("system:node", "Group", "system:nodes"),
)
_EVERYBODY = ("system:anonymous", "system:authenticated", "system:unauthenticated", _ACCOUNTS)


class Power(StrEnum):
    """What a role gives, in words for a sentence. The first that holds counts."""

    EVERYTHING = "do everything"
    MORE_RIGHTS = "take every right"
    SECRETS = "read every secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsWant:
    """Whose rights are known. `whole`: the cluster is ours; in one that exists only teams and everybody are judged.

    `teams` are namespaces, and `groups` the groups of their members. `namespaces`: ours, in which nobody else is admin.
    `tree`: `KIND/NAME` or `KIND/NAMESPACE/NAME` of the spec. `releases`: `NAMESPACE/NAME` of its charts.
    """

    whole: bool
    teams: tuple[str, ...]
    groups: tuple[str, ...]
    namespaces: tuple[str, ...]
    tree: tuple[str, ...]
    releases: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Who is bound. `namespace` is of a service account."""

    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {short('/'.join(filter(None, (self.namespace, self.name))), 100)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A binding whose role gives much. `power` is empty for a role of namespaces such as `admin` that has no rules here.

    `namespace` is empty for a binding of the cluster. `default`: the API server made it.
    """

    name: str
    namespace: str
    role: str
    power: str
    subjects: tuple[Subject, ...]
    owner: str
    release: str
    default: bool
    of_eks: bool

    @property
    def ref(self) -> str:
        kind = "RoleBinding" if self.namespace else "ClusterRoleBinding"
        return "/".join(filter(None, (kind, self.namespace, self.name)))


def query_rights(_: RightsWant) -> tuple[Query, ...]:
    types = ",".join(f"{kind}.v1.{_GROUP}" for kind in _KINDS)
    return (Query(at=Location.API, argv=("get", types, "--all-namespaces", "--output=json")),)


def parse_rights(outputs: tuple[QueryOutput, ...]) -> tuple[Grant, ...]:
    """The bindings whose roles give much. Each cluster has some, so a list without bindings is an error."""
    (output,) = outputs
    every = objects.items(output)
    roles = {_role_key(one): _power(one) for one in every if _kind(one) in _KINDS[:2]}
    bindings = [one for one in every if _kind(one) in _KINDS[2:]]
    if all(_kind(one) != _KINDS[2] for one in bindings):
        raise ParseError("no ClusterRoleBinding is listed, and each cluster has some")
    grants = (_grant(one, roles) for one in bindings)
    return tuple(one for one in grants if one.power or (one.namespace and one.role in _OF_NAMESPACES))


def evaluate_rights(found: tuple[Grant, ...], want: RightsWant) -> CheckResult:
    expected = "only Kubernetes, charts and the spec give all rights, and rights over our namespaces"
    faults, notes = list[str](), list[str]()
    steps = dict[str, None]()
    for grant in _judged(found, want):
        bad = [one for one in grant.subjects if _is_fault(one, grant, want)]
        faults += [f"{one} {_words(grant)} by {short(grant.ref, 120)}" for one in bad]
        steps |= dict.fromkeys([_remedy(grant, bad)] if bad else [])
        if grant.release not in want.releases:
            named = grant.owner or "no owner is named"
            others = (one for one in grant.subjects if one not in bad)
            notes += [f"{one} {_words(grant)} ({named})" for one in others]
    if faults:
        return failed(listed(faults), expected, remedy="; ".join(steps))
    return passed("nobody has them by hand" + (f"; of others: {listed(notes)}" if notes else ""), expected)


def _judged(found: tuple[Grant, ...], want: RightsWant) -> Iterator[Grant]:
    """Yield the grants that concern us, without the subjects that are Kubernetes' or EKS' own, or the business of the site."""
    for grant in found:
        if grant.ref in want.tree or grant.of_eks:
            continue
        if grant.namespace and (grant.namespace not in want.namespaces or not _is_admin(grant)):
            continue
        rest = [one for one in grant.subjects if not _is_own(one, grant)]
        if not grant.namespace and not want.whole:
            rest = [one for one in rest if _is_everybody(one) or _is_of_team(one, want)]
        if rest:
            yield replace(grant, subjects=tuple(rest))


def _is_admin(grant: Grant) -> bool:
    """Whether a RoleBinding gives rights over the namespace itself. To read secrets is a right of each member of a team."""
    return grant.role in _OF_NAMESPACES or grant.power in (Power.EVERYTHING, Power.MORE_RIGHTS)


def _is_fault(one: Subject, grant: Grant, want: RightsWant) -> bool:
    """Whether nobody of the plan, of Kubernetes or of a known add-on gave the right."""
    if _is_everybody(one):
        return True
    if one.kind != "ServiceAccount" or _is_of_team(one, want):
        return True
    return not grant.owner and (grant.power != Power.SECRETS or bool(grant.namespace))


def _is_own(one: Subject, grant: Grant) -> bool:
    """Whether the right of this subject is Kubernetes' or EKS' own."""
    if one.kind == "ServiceAccount":
        by_eks = grant.name.startswith(_OF_EKS)
        return one.namespace == _SYSTEM and (by_eks or grant.name == f"{_CONTROLLER}{one.name}")
    if one.name.startswith(_OF_EKS) or (one.kind == "User" and one.name.startswith(_OF_CONTROL_PLANE)):
        return True
    return any(one.kind == kind and one.name == name and binding in ("", grant.name) for binding, kind, name in _OWN)  # fmt: skip


def _is_everybody(one: Subject) -> bool:
    return one.kind in ("Group", "User") and (one.name in _EVERYBODY or one.name.startswith(f"{_ACCOUNTS}:"))


def _is_of_team(one: Subject, want: RightsWant) -> bool:
    if one.kind == "ServiceAccount":
        return one.namespace in want.teams
    return one.kind == "Group" and one.name in want.groups


def _words(grant: Grant) -> str:
    where = f" in {grant.namespace}" if grant.namespace else ""
    named = grant.namespace and grant.role in _OF_NAMESPACES
    return f"is {grant.role}{where}" if named else f"may {grant.power}{where}"


def _remedy(grant: Grant, bad: list[Subject]) -> str:
    """Take a binding by hand away; of Kubernetes' own, take the subject out, or the rules of a role whose subjects are right."""
    if grant.default and grant.role != "cluster-admin" and any(map(_is_everybody, bad)):
        return f"kubectl edit clusterrole {grant.role}"
    if grant.default:
        return f"kubectl edit clusterrolebinding {grant.name}"
    place = f"rolebinding --namespace {grant.namespace}" if grant.namespace else "clusterrolebinding"
    return f"kubectl delete {place} {grant.name}"


def _grant(item: objects.Object, roles: Mapping[tuple[str, str, str], str]) -> Grant:
    metadata, of = objects.section(item, "metadata"), objects.section(item, "roleRef")
    namespace = json_fields.text(metadata, "namespace") if "namespace" in metadata else ""
    kind, role = json_fields.text(of, "kind"), json_fields.text(of, "name")
    labels = objects.words(metadata, "labels")
    key, value = _DEFAULTS
    eks, by = _EKS_ADDON
    return Grant(
        name=json_fields.text(metadata, "name"),
        namespace=namespace,
        role=role if kind == "ClusterRole" else "",
        power=roles.get((kind, namespace if kind == "Role" else "", role), ""),
        subjects=tuple(map(_subject, _members(item, "subjects"))),
        owner=owner_of(item),
        release=release_of(item),
        default=labels.get(key) == value,
        of_eks=labels.get(eks) == by,
    )


def _subject(item: Mapping[str, Any]) -> Subject:
    """A service account may be named as a user: `system:serviceaccount:NAMESPACE:NAME`."""
    kind, name = json_fields.text(item, "kind"), json_fields.text(item, "name")
    namespace = json_fields.text(item, "namespace") if "namespace" in item else ""
    if kind == "User" and name.startswith(_ACCOUNT):
        namespace, _, name = name.removeprefix(_ACCOUNT).partition(":")
        kind = "ServiceAccount"
    return Subject(kind=kind, name=name, namespace=namespace if kind == "ServiceAccount" else "")


def _members(item: objects.Object, key: str) -> tuple[Mapping[str, Any], ...]:
    """The list at `key`, which is null in some answers if it is empty."""
    return json_fields.members(item, key) if item.get(key) is not None else ()


def _kind(item: objects.Object) -> str:
    return json_fields.text(item, "kind")


def _role_key(item: objects.Object) -> tuple[str, str, str]:
    metadata = objects.section(item, "metadata")
    namespace = json_fields.text(metadata, "namespace") if "namespace" in metadata else ""
    return _kind(item), namespace, json_fields.text(metadata, "name")


def _power(role: objects.Object) -> str:
    found = {power for rule in _members(role, "rules") for power in _powers(rule)}
    return next((power for power in Power if power in found), "")


def _powers(rule: Mapping[str, Any]) -> Iterator[Power]:
    """Yield what a rule gives. One for named objects gives no power over the others."""
    if rule.get("resourceNames"):
        return
    verbs, kinds, groups = (frozenset(_strings(rule, key)) for key in ("verbs", "resources", "apiGroups"))
    if "*" in verbs and "*" in kinds and groups & {"*", ""}:
        yield Power.EVERYTHING
    roles = bool(kinds & {"*", "clusterroles", "roles"}) and bool(groups & {"*", _GROUP})
    names = bool(kinds & {"*", "groups", "serviceaccounts", "users"}) and bool(groups & {"*", ""})
    if (roles and verbs & {"*", "bind", "escalate"}) or (names and "impersonate" in verbs):
        yield Power.MORE_RIGHTS
    if verbs & {"*", "get", "list", "watch"} and kinds & {"*", "secrets"} and groups & {"*", ""}:
        yield Power.SECRETS


def _strings(rule: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return json_fields.strings(rule, key) if key in rule else ()
