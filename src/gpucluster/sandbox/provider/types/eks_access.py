"""Access entries of EKS and their policies. An id has its parts, as upstream."""

from gpucluster.engine.values import Values
from gpucluster.sandbox.provider.cloud import Cloud
from gpucluster.sandbox.provider.schema import (
    TAG_PROPERTIES,
    Call,
    ResourceType,
    computed,
    replaces,
    updates,
)
from gpucluster.sandbox.provider.shapes import (
    TEXT,
    TEXTS,
    Field,
    Record,
)
from gpucluster.sandbox.provider.types.eks_tags import Seen, retag, tagged, tags_of


def _entry(identifier: str, _: Values) -> dict[str, str]:
    cluster, principal = (*identifier.split(":", 1), "")[:2]
    return {"clusterName": cluster, "principalArn": principal}


def _create_entry(call: Call) -> str:
    given = call.api("clusterName", "principalArn", "kubernetesGroups", "type")
    call.cloud.client("eks").create_access_entry(**given, **tags_of(call))
    return f"{call.inputs['clusterName']}:{call.inputs['principalArn']}"


def _read_entry(cloud: Cloud, identifier: str, inputs: Values) -> Seen:
    return tagged(cloud.client("eks").describe_access_entry(**_entry(identifier, inputs))["accessEntry"])


def _update_entry(call: Call, changed: frozenset[str]) -> None:
    names = _entry(call.id, call.inputs)
    if "kubernetesGroups" in changed:
        groups: list[str] = call.inputs.get("kubernetesGroups") or []
        call.cloud.client("eks").update_access_entry(**names, kubernetesGroups=groups)
    retag(call, (_read_entry(call.cloud, call.id, call.inputs) or {})["accessEntryArn"])


def _delete_entry(call: Call) -> None:
    call.cloud.client("eks").delete_access_entry(**_entry(call.id, call.inputs))


ACCESS_ENTRY = ResourceType(
    name="aws:eks/accessEntry:AccessEntry",
    properties={
        "clusterName": replaces("clusterName"),
        "principalArn": replaces("principalArn"),
        "kubernetesGroups": updates("kubernetesGroups", TEXTS, from_cloud=True),
        "type": replaces("type", default="STANDARD"),
        "accessEntryArn": computed("accessEntryArn"),
        **TAG_PROPERTIES,
    },
    create=_create_entry,
    read=_read_entry,
    update=_update_entry,
    delete=_delete_entry,
)


def _create_policy(call: Call) -> str:
    given = call.api("clusterName", "principalArn", "policyArn", "accessScope")
    call.cloud.client("eks").associate_access_policy(**given)
    return "#".join(call.inputs[name] for name in ("clusterName", "principalArn", "policyArn"))


def _policy(identifier: str) -> dict[str, str]:
    cluster, principal, policy = (*identifier.split("#"), "", "")[:3]
    return {"clusterName": cluster, "principalArn": principal, "policyArn": policy}


def _read_policy(cloud: Cloud, identifier: str, _: Values) -> Seen:
    names = _policy(identifier)
    policy = names.pop("policyArn")
    found = cloud.client("eks").list_associated_access_policies(**names)["associatedAccessPolicies"]
    seen = next((one for one in found if one["policyArn"] == policy), None)
    return None if seen is None else {**seen, **names}


def _delete_policy(call: Call) -> None:
    call.cloud.client("eks").disassociate_access_policy(**_policy(call.id))


ACCESS_POLICY = ResourceType(
    name="aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
    properties={
        "clusterName": replaces("clusterName"),
        "principalArn": replaces("principalArn"),
        "policyArn": replaces("policyArn"),
        "accessScope": replaces(
            "accessScope", Record({"type": Field("type", TEXT), "namespaces": Field("namespaces", TEXTS)})
        ),
    },
    create=_create_policy,
    read=_read_policy,
    delete=_delete_policy,
)

ROWS = (ACCESS_ENTRY, ACCESS_POLICY)
