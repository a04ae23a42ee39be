"""Check that the roles of machines and of jobs have the policies that the program declares, and no others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import json_fields
from gpucluster.checks.check import CheckResult, Location, Query, QueryOutput, listed
from gpucluster.checks.cloud import UP, CloudDifference, is_named, judged
from gpucluster.checks.policy_documents import differences
from gpucluster.text import short


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleWant:
    """A role with one inline policy of its name. The name is without Pulumi's random characters; see `policy_documents.UNKNOWN`."""

    name: str
    policy: Mapping[str, Any]
    trust: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolesWant:
    """The declared roles. A machine's is found by its instance profile, of nodes also by a launch template, and of jobs by its name.

    `node`: the name of the role of nodes, as in `roles`; `template`: `ID:VERSION` of a launch template of nodes.
    """

    cluster: str
    roles: tuple[RoleWant, ...]
    node: str
    template: str = ""
    jobs: str = ""  # the whole name of the role of jobs; empty: jobs have none


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role. An empty name: the profile has none, or there is no such role. `attached`: ARNs; `inline`: name -> document."""

    profile: str  # of the instance; of the role of jobs its name
    name: str
    attached: tuple[str, ...]
    inline: Mapping[str, object]
    trust: object


def query_roles(want: RolesWant) -> tuple[Query, ...]:
    words = {"cluster": want.cluster, "template": want.template, "role": want.jobs}
    argv = ("roles", *(f"{key}={value}" for key, value in words.items() if value))
    return (Query(at=Location.CLOUD, argv=argv),)


def parse_roles(got: tuple[QueryOutput, ...]) -> tuple[Role, ...]:
    """The roles of the profiles that the cluster's instances and launch templates have, and that of jobs."""
    return tuple(_role(one) for one in json_fields.members(json_fields.table(got[0].text()), "Roles"))


def _role(found: Mapping[str, Any]) -> Role:
    return Role(
        profile=json_fields.text(found, "Profile"),
        name=json_fields.text(found, "Name"),
        attached=json_fields.strings(found, "Attached"),
        inline={
            json_fields.text(one, "PolicyName"): one.get("PolicyDocument")
            for one in json_fields.members(found, "Inline")
        },
        trust=found.get("Trust"),
    )


def evaluate_roles(found: tuple[Role, ...], want: RolesWant) -> CheckResult:
    """The profiles of machines themselves are compared by `cloud.machines`."""
    pairs = [(one, role) for one in found for role in want.roles if is_named(one.profile, role.name)]
    faults = [fault for one, role in pairs for fault in _faults(one, role)]
    if want.template and all(role.name != want.node for _, role in pairs):
        template = want.template.partition(":")[0]
        words = (
            f"the launch template {template} names no profile {want.node}, so the role of nodes is not found"
        )
        faults.append(CloudDifference(words=words, step=UP))
    expected = "each role has its own inline policy and trust policy, as declared, and no other policy"
    return judged(faults, want.cluster, f"{len(pairs)} roles, as declared", expected)


def _faults(one: Role, want: RoleWant) -> Iterator[CloudDifference]:
    if not one.name:
        yield CloudDifference(words=f"there is no role of {one.profile}", step=UP)
        return
    own = [name for name in one.inline if is_named(name, want.name)]
    if not own:
        yield CloudDifference(words=f"{one.name} has lost its inline policy", step=UP)
    else:
        yield from _of_document(f"the inline policy of {one.name}", one.inline[own[0]], want.policy)
    yield from _of_document(f"the trust policy of {one.name}", one.trust, want.trust)
    for arn in one.attached:
        step = f"aws iam detach-role-policy --role-name {one.name} --policy-arn {arn}"
        yield CloudDifference(words=f"{one.name} also has the policy {short(arn, 120)}", step=step)
    for name in one.inline:
        if name not in own[:1]:
            step = f"aws iam delete-role-policy --role-name {one.name} --policy-name {name}"
            yield CloudDifference(words=f"{one.name} also has the inline policy {short(name, 80)}", step=step)


def _of_document(about: str, found: object, want: Mapping[str, Any]) -> Iterator[CloudDifference]:
    odd = differences(found, want)
    if odd:
        yield CloudDifference(words=f"{about} is not the declared one: it {listed(odd)}", step=UP)
