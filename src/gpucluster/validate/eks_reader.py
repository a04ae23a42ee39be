"""Read what EKS says of one cluster: itself, its access entries with their policies, and the roles of pods."""

from collections.abc import Mapping
from typing import Any


def read_eks(eks: Any, cluster: str) -> Mapping[str, Any]:
    """One call for each entry and each role of pods: the lists of EKS have only their names."""
    named = {"clusterName": cluster}
    principals = _listed(eks, "list_access_entries", "accessEntries", named)
    associations = _listed(eks, "list_pod_identity_associations", "associations", named)
    return {
        "Cluster": eks.describe_cluster(name=cluster)["cluster"],
        "AccessEntries": [_entry(eks, named, one) for one in principals],
        "PodIdentities": [
            eks.describe_pod_identity_association(**named, associationId=one["associationId"])["association"]
            for one in associations
        ],
    }


def _entry(eks: Any, named: Mapping[str, str], principal: str) -> Mapping[str, Any]:
    of = {**named, "principalArn": principal}
    found = eks.describe_access_entry(**of)["accessEntry"]
    policies = _listed(eks, "list_associated_access_policies", "associatedAccessPolicies", of)
    return {**found, "Policies": policies}


def _listed(eks: Any, operation: str, member: str, asked: Mapping[str, str]) -> list[Any]:
    pages = eks.get_paginator(operation).paginate(**asked)
    return [item for page in pages for item in page[member]]
