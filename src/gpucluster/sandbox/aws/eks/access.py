"""The calls of EKS for access entries and their policies."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from gpucluster.sandbox.aws.ec2 import views
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.eks.state import (
    LINUX,
    STANDARD,
    Cluster,
    Eks,
    Entry,
    Granted,
    in_use,
    invalid,
    wrong,
)
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto
from gpucluster.sandbox.aws.shapes import Calls, ServiceCall

Result = dict[str, Any]
_PREFIX = "arn:aws:eks::aws:cluster-access-policy/"
ADMIN = f"{_PREFIX}AmazonEKSClusterAdminPolicy"
# EKS user guide, "Review access policy permissions"; EKS attaches the others itself
_POLICIES = frozenset(
    f"{_PREFIX}{name}"
    for name in ("AmazonEKSAdminPolicy", "AmazonEKSClusterAdminPolicy", "AmazonEKSAdminViewPolicy", "AmazonEKSEditPolicy",
                 "AmazonEKSViewPolicy")
)  # fmt: skip
_GROUPS_OF: Mapping[str, tuple[str, ...]] = {LINUX: ("system:nodes",)}
_RESERVED = ("system:", "eks:", "aws:", "amazon:", "iam:")  # EKS user guide, "Create access entries"


def calls(model: CloudModel, moto: Moto) -> Calls:
    """Calls of this module by operation name."""
    here = _Access(model, moto)
    return {
        "CreateAccessEntry": here.create,
        "DescribeAccessEntry": here.describe,
        "ListAccessEntries": here.all,
        "UpdateAccessEntry": here.update,
        "DeleteAccessEntry": here.delete,
        "AssociateAccessPolicy": here.associate,
        "ListAssociatedAccessPolicies": here.associated,
        "DisassociateAccessPolicy": here.disassociate,
    }


def admit_creator(eks: Eks, cluster: Cluster, now: float) -> None:
    """The entry of the caller of CreateCluster, who may do everything."""
    _put(eks, _entry(eks, cluster.name, cluster.creator, STANDARD, now), policies={ADMIN: Granted(at=now)})


def admit_nodes(eks: Eks, cluster: str, role: str, now: float) -> None:
    """The entry of a node role: EKS makes one for the role of a node group, and keeps one that is there."""
    if (cluster, role) not in eks.entries:
        _put(eks, _entry(eks, cluster, role, LINUX, now))


def _put(eks: Eks, entry: Entry, **changes: Any) -> Entry:
    made = replace(entry, **changes)
    eks.entries[entry.cluster, entry.principal] = made
    return made


def _entry(eks: Eks, cluster: str, principal: str, kind: str, now: float) -> Entry:
    resource = principal.rpartition(":")[2]  # role/PATH/NAME
    region = eks.clusters[cluster].arn.split(":")[3]
    arn = f"arn:aws:eks:{region}:{ACCOUNT}:access-entry/{cluster}/{resource.partition('/')[0]}/{ACCOUNT}"
    node = "system:node:{{EC2PrivateDNSName}}"
    assumed = principal.replace(":iam:", ":sts:").replace(":role/", ":assumed-role/") + "/{{SessionName}}"
    person = assumed if ":role/" in principal else principal
    return Entry(
        cluster=cluster,
        principal=principal,
        arn=f"{arn}/{resource.rpartition('/')[2]}/{eks.vpcs.fresh_id('entry')}",
        created_at=now,
        kind=kind,
        username=node if kind == LINUX else person,
        groups=_GROUPS_OF.get(kind, ()),
    )


class _Access:
    def __init__(self, model: CloudModel, moto: Moto) -> None:
        self._eks: Eks = model.eks
        self._moto = moto

    def create(self, call: ServiceCall) -> Result:
        asked = call.asked
        cluster, principal = str(asked["clusterName"]), str(asked["principalArn"])
        found = self._eks.cluster(cluster, call.now)
        if found.options["accessConfig"]["authenticationMode"] == "CONFIG_MAP":
            raise wrong("The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation.")  # fmt: skip
        kind, groups = str(asked.get("type") or STANDARD), tuple(asked.get("kubernetesGroups") or ())
        self._check_principal(principal)
        if kind not in (STANDARD, LINUX):
            raise Refusal("UnsupportedOperation", f"the sandbox has no access entries of type {kind}")
        if kind != STANDARD and (groups or asked.get("username")):
            raise invalid(f"The username and kubernetesGroups cannot be specified for type {kind}.")
        if (cluster, principal) in self._eks.entries:
            raise in_use("The specified access entry resource is already in use on this cluster.")
        _check_groups(groups)
        made = _entry(self._eks, cluster, principal, kind, call.now)
        changes: dict[str, Any] = {"tags": dict(asked.get("tags") or {})}
        if kind == STANDARD:
            changes |= {"groups": groups, "username": asked.get("username") or made.username}
        return {"accessEntry": _shape(_put(self._eks, made, **changes))}

    def describe(self, call: ServiceCall) -> Result:
        return {"accessEntry": _shape(self._one(call))}

    def all(self, call: ServiceCall) -> Result:
        cluster = str(call.asked["clusterName"])
        self._eks.cluster(cluster, call.now)
        policy = call.asked.get("associatedPolicyArn")
        rows = [e for (name, _), e in sorted(self._eks.entries.items()) if name == cluster]
        return {"accessEntries": [e.principal for e in rows if policy is None or policy in e.policies]}

    def update(self, call: ServiceCall) -> Result:
        found = self._standard(call)
        groups = tuple(call.asked.get("kubernetesGroups") or ())
        _check_groups(groups)
        name = call.asked.get("username") or found.username
        return {"accessEntry": _shape(_put(self._eks, found, groups=groups, username=name))}

    def delete(self, call: ServiceCall) -> Result:
        found = self._one(call)
        del self._eks.entries[found.cluster, found.principal]
        return {}

    def associate(self, call: ServiceCall) -> Result:
        found, policy = self._standard(call), str(call.asked["policyArn"])
        if policy not in _POLICIES:
            raise invalid("The policyArn parameter format is not valid")
        scope: Mapping[str, Any] = call.asked["accessScope"]
        spaces = list(cast(Sequence[str], scope.get("namespaces") or ()))
        if (scope.get("type") == "namespace") != bool(spaces):
            raise invalid("The namespaces of an access scope go with the type namespace")
        row = Granted(at=call.now, kind=str(scope.get("type")), namespaces=tuple(spaces))
        _put(self._eks, found, policies={**found.policies, policy: row})
        return {
            "clusterName": found.cluster,
            "principalArn": found.principal,
            "associatedAccessPolicy": _policy(policy, row),
        }

    def associated(self, call: ServiceCall) -> Result:
        found = self._one(call)
        return {
            "clusterName": found.cluster,
            "principalArn": found.principal,
            "associatedAccessPolicies": [_policy(arn, found.policies[arn]) for arn in sorted(found.policies)],
        }

    def disassociate(self, call: ServiceCall) -> Result:
        found, policy = self._standard(call), str(call.asked["policyArn"])
        if policy not in found.policies:
            raise Refusal(
                "ResourceNotFoundException", "The specified policyArn could not be found.", status=404
            )
        _put(self._eks, found, policies={k: v for k, v in found.policies.items() if k != policy})
        return {}

    def _one(self, call: ServiceCall) -> Entry:
        return self._eks.entry(str(call.asked["clusterName"]), str(call.asked["principalArn"]), call.now)

    def _standard(self, call: ServiceCall) -> Entry:
        found = self._one(call)
        if found.kind != STANDARD:
            raise invalid('This operation can only be performed on Access Entries with a type of "STANDARD".')
        return found

    def _check_principal(self, principal: str) -> None:
        if ":role/aws-service-role/" in principal:
            raise invalid(
                "The caller is not allowed to modify access entries with a principalArn value of a Service Linked Role"
            )
        kind, account = principal.rpartition(":")[2].partition("/")[0], principal.split(":")[4:5]
        here = account == [ACCOUNT]  # of another account nobody here knows the roles
        known = kind == "user" or (kind == "role" and (not here or self._moto.role(principal) is not None))
        if not principal.startswith("arn:aws:iam::") or not known:
            raise invalid("The specified principalArn is invalid: invalid principal.")


def _check_groups(groups: Iterable[str]) -> None:
    for one in groups:
        if one.startswith(_RESERVED):
            raise invalid(f"The kubernetes group name {one} is invalid, it cannot start with {_RESERVED[0]}")


def _policy(arn: str, row: Granted) -> Result:
    at, scope = views.when(row.at), {"type": row.kind, "namespaces": list(row.namespaces)}
    return {"policyArn": arn, "accessScope": scope, "associatedAt": at, "modifiedAt": at}


def _shape(one: Entry) -> Result:
    return {
        "clusterName": one.cluster,
        "principalArn": one.principal,
        "kubernetesGroups": list(one.groups),
        "accessEntryArn": one.arn,
        "createdAt": views.when(one.created_at),
        "modifiedAt": views.when(one.created_at),
        "tags": dict(one.tags),
        "username": one.username,
        "type": one.kind,
    }
