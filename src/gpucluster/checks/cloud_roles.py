"""Check that the roles of machines have the policies that the program declares, and no others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import json_fields
from gpucluster.checks.check import CheckResult, Location, Query, QueryOutput
from gpucluster.checks.cloud import UP, Fault, is_named, judged
from gpucluster.text import short


@dataclass(frozen=True, slots=True, kw_only=True)
class RolesWant:
    """Each of `profiles` that a machine has, has a role of its name, with one inline policy of its name. Names are without Pulumi's random characters."""

    cluster: str
    profiles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """The role of an instance profile. An empty name: the profile has none. `attached`: ARNs; `inline`: names."""

    profile: str
    name: str
    attached: tuple[str, ...]
    inline: tuple[str, ...]


def query_roles(want: RolesWant) -> tuple[Query, ...]:
    return (Query(at=Location.CLOUD, argv=("roles", f"cluster={want.cluster}")),)


def parse_roles(got: tuple[QueryOutput, ...]) -> tuple[Role, ...]:
    """The roles of the profiles that the cluster's instances have."""
    return tuple(_role(one) for one in json_fields.members(json_fields.table(got[0].text()), "Roles"))


def _role(found: Mapping[str, Any]) -> Role:
    return Role(
        profile=json_fields.text(found, "Profile"),
        name=json_fields.text(found, "Name"),
        attached=json_fields.strings(found, "Attached"),
        inline=json_fields.strings(found, "Inline"),
    )


def evaluate_roles(found: tuple[Role, ...], want: RolesWant) -> CheckResult:
    """The profiles themselves are compared by `cloud.machines`."""
    ours = [one for one in found if any(is_named(one.profile, name) for name in want.profiles)]
    faults = [fault for one in ours for fault in _faults(one, want)]
    expected = "each role has its own inline policy, and no other policy"
    return judged(faults, want.cluster, f"{len(ours)} roles, as declared", expected)


def _faults(one: Role, want: RolesWant) -> Iterator[Fault]:
    if not one.name:
        yield Fault(words=f"the instance profile {one.profile} has no role", step=UP)
        return
    declared = next(name for name in want.profiles if is_named(one.profile, name))
    own = [name for name in one.inline if is_named(name, declared)]
    if not own:
        yield Fault(words=f"{one.name} has lost its inline policy", step=UP)
    for arn in one.attached:
        step = f"aws iam detach-role-policy --role-name {one.name} --policy-arn {arn}"
        yield Fault(words=f"{one.name} also has the policy {short(arn, 120)}", step=step)
    for name in one.inline:
        if name not in own[:1]:
            step = f"aws iam delete-role-policy --role-name {one.name} --policy-name {name}"
            yield Fault(words=f"{one.name} also has the inline policy {short(name, 80)}", step=step)
