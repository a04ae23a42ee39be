"""Rights: roles over everything, administrators, everybody, images that change, the metadata service."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.k8s.lint import kueue
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods, needs, parts_of
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text
from gpucluster.text import quoted

_RBAC = "rbac.authorization.k8s.io"
_ROLES = frozenset({f"Role.{_RBAC}", f"ClusterRole.{_RBAC}"})
_BINDINGS = frozenset({f"RoleBinding.{_RBAC}", f"ClusterRoleBinding.{_RBAC}"})
_ADMIN = "cluster-admin"
_ANYBODY = {  # kind and name of subjects that are more than the author thinks of
    ("Group", "system:authenticated"): "everybody who can sign in",
    ("Group", "system:unauthenticated"): "everybody, without signing in",
    ("Group", "system:serviceaccounts"): "each pod of the cluster",
    ("User", "system:anonymous"): "everybody, without signing in",
    ("ServiceAccount", "default"): "each pod of the namespace without a service account of its own",
}
_GRANTS = frozenset({"bind", "escalate", "impersonate"})
_POWERFUL = frozenset(  # resources of which all verbs lead to all rights
    {"secrets", "roles", "clusterroles", "rolebindings", "clusterrolebindings", "serviceaccounts/token"}
)
_READ = frozenset({"get", "list", "watch"})
_TAKES = (  # a resource, the verbs that are enough, and what they give
    ("nodes/proxy", frozenset({"*", "create", "get"}), "nodes/proxy: its holder can run commands in each pod, past the API server"),
    ("serviceaccounts/token", frozenset({"*", "create"}), "serviceaccounts/token: its holder can take the rights of each account"),
    ("secrets", _READ, "reads the secrets of all namespaces"),
)  # fmt: skip
_OF_ALL = frozenset({"secrets"})  # only a ClusterRole reads those of all namespaces
_HOMES = {  # built-in resources, and the groups that have them
    **dict.fromkeys(("configmaps", "endpoints", "namespaces", "persistentvolumeclaims", "persistentvolumes", "pods", "secrets", "serviceaccounts", "services"), frozenset({""})),
    **dict.fromkeys(("daemonsets", "deployments", "replicasets"), frozenset({"apps", "extensions"})),
    "statefulsets": frozenset({"apps"}),
    **dict.fromkeys(("cronjobs", "jobs"), frozenset({"batch"})),
    **dict.fromkeys(("ingresses", "networkpolicies"), frozenset({"extensions", "networking.k8s.io"})),
    "poddisruptionbudgets": frozenset({"policy"}),
    **dict.fromkeys(("clusterrolebindings", "clusterroles", "rolebindings", "roles"), frozenset({_RBAC})),
}  # fmt: skip
_GROUPS = frozenset({"", "apps", "autoscaling", "batch", "extensions", "networking.k8s.io", "policy", _RBAC})
_SUBRESOURCES = {  # of built-in resources whose parts people name; each resource has `finalizers` for owners
    "pods": frozenset({"attach", "binding", "ephemeralcontainers", "eviction", "exec", "log", "portforward", "proxy", "resize", "status"}),
    **dict.fromkeys(("deployments", "replicasets", "statefulsets"), frozenset({"scale", "status"})),
    **dict.fromkeys(("cronjobs", "daemonsets", "ingresses", "jobs", "persistentvolumeclaims", "persistentvolumes", "poddisruptionbudgets"), frozenset({"status"})),
    "services": frozenset({"proxy", "status"}),
}  # fmt: skip
_VERBS = frozenset({"*", "approve", "attest", "bind", "create", "delete", "deletecollection", "escalate", "get", "impersonate", "list", "patch", "proxy", "sign", "update", "use", "watch"})  # fmt: skip
_ROLE_ARN = "eks.amazonaws.com/role-arn"
_ARN = re.compile(r"arn:aws(?:-[a-z-]+)?:iam::\d{12}:role/\S+", re.ASCII)
_OPEN = re.compile(r"[<>{}$\[\]*]|[A-Z]{2,}|[xX]{3,}|\.\.\.", re.ASCII)
_VERSION = re.compile(r"(?:^|/)v\d+(?:(?:alpha|beta)\d+)?$", re.ASCII)
_NODE_CLASS = "EC2NodeClass.karpenter.k8s.aws"


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        if thing.key in _ROLES:
            yield from _role(thing)
        elif thing.key in _BINDINGS:
            yield from _binding(thing)
        elif thing.key == _NODE_CLASS:
            yield from _metadata(thing)
        elif thing.key == "ServiceAccount":
            yield from _role_of_pods(thing)
        for pods in parts_of(thing):
            for path, container in pods.containers():
                yield from _image(pods, path, container)


def _role_of_pods(account: Obj) -> Iterator[Finding]:
    """STS refuses anything but the ARN of a role. A word in capitals or brackets is for a person to fill."""
    said = text(at(account.body, "metadata", "annotations", _ROLE_ARN))
    if said and not _OPEN.search(said) and not _ARN.fullmatch(said):
        words = f"{quoted(said)} is not the ARN of a role, such as arn:aws:iam::123456789012:role/a: its pods get no rights"
        yield account.warned("annotation", words, ("metadata", "annotations", _ROLE_ARN))


def _role(role: Obj) -> Iterator[Finding]:
    for path, rule in entries(role.body, "rules"):
        resources, verbs, groups = (
            frozenset(map(text, items(at(rule, part)))) for part in ("resources", "verbs", "apiGroups")
        )
        named = bool(items(at(rule, "resourceNames")))
        if "*" in resources and "*" in verbs:
            words = "allows every verb on every resource of its groups, also on secrets and roles"
            yield role.warned("wildcard-role", words, path)
        elif "*" in resources and groups & {"", "*"} and not named:
            words = f"may {', '.join(sorted(verbs))} every resource of its groups, also secrets"
            yield role.warned("wildcard-role", words, path)
        elif "*" in verbs and role.kind == "ClusterRole" and resources & _POWERFUL and not named:
            words = f"allows every verb on {', '.join(sorted(resources & _POWERFUL))}, from which all rights follow"
            yield role.warned("wildcard-role", words, path)
        yield from _tokens(role, path, resources, verbs) if not named else ()
        yield from _nothing(role, path, resources, groups)
        yield from _versions(role, path, groups)
        yield from _words(role, path, resources, verbs, groups)
        yield from _unnamed(role, path, mapping(rule))
        if verbs & _GRANTS and not named:
            words = f"{', '.join(sorted(verbs & _GRANTS))}: its holder can take rights that nobody gave"
            yield role.warned("escalation-role", words, path)


def _tokens(role: Obj, path: Path, resources: frozenset[str], verbs: frozenset[str]) -> Iterator[Finding]:
    """Parts whose holder gets the rights of others."""
    for resource, needed, words in _TAKES:
        if (
            resource in resources
            and verbs & needed
            and (role.kind == "ClusterRole" or resource not in _OF_ALL)
        ):
            yield role.warned("escalation-role", words, path)


def _nothing(role: Obj, path: Path, resources: frozenset[str], groups: frozenset[str]) -> Iterator[Finding]:
    """A resource in a group that has none of that name: the API server takes the rule, and it allows nothing."""
    if not groups or not groups <= _GROUPS:
        return
    for resource in sorted(resources):
        homes = _HOMES.get(resource.partition("/")[0])
        if homes and not homes & groups:
            home = "the core group" if "" in homes else " or ".join(sorted(homes))
            words = f"allows nothing on {resource}, which is in {home}"
            yield role.warned("empty-rule", words, path)


def _versions(role: Obj, path: Path, groups: frozenset[str]) -> Iterator[Finding]:
    """A request has the name of a group, without a version."""
    for group in sorted(one for one in groups if _VERSION.search(one)):
        meant = quoted(group.rpartition("/")[0])
        words = f"no group has the name {quoted(group)}: apiGroups have no version, {meant} is meant"
        yield role.warned("empty-rule", words, (*path, "apiGroups"))


def _words(
    role: Obj, path: Path, resources: frozenset[str], verbs: frozenset[str], groups: frozenset[str]
) -> Iterator[Finding]:
    """The API server takes any word in a rule, and compares it with requests."""
    if not groups or not groups <= _GROUPS:
        return
    unknown = ", ".join(sorted(verbs - _VERBS)) if resources & _HOMES.keys() and "*" not in verbs else ""
    if unknown:
        words = (
            f"no request has the verb {unknown}: verbs are get, list, watch, create, update, patch and delete"
        )
        yield role.warned("empty-rule", words, (*path, "verbs"))
    for resource in sorted(resources):
        name, _, part = resource.partition("/")
        known = _SUBRESOURCES.get(name)
        if part and known and part not in {*known, "*", "finalizers"}:
            words = f"{name} have no {quoted(part)}: they have {', '.join(sorted(known))}"
            yield role.warned("empty-rule", words, (*path, "resources"))
        elif name not in _HOMES and (meant := _plural(name)):
            words = f"no resource has the name {quoted(name)}: {meant} is meant"
            yield role.warned("empty-rule", words, (*path, "resources"))


def _plural(name: str) -> str:
    """Return the resource that a word for one object, or a kind, means; "" if it means none."""
    low = name.lower()
    return next((one for one in (low, f"{low}s", f"{low}es", f"{low[:-1]}ies") if one in _HOMES), "")


def _unnamed(role: Obj, path: Path, rule: Mapping[str, Any]) -> Iterator[Finding]:
    """A request that creates an object has no name in its address, so that a rule with names never allows it."""
    names, verbs = items(rule.get("resourceNames")), items(rule.get("verbs"))
    if not names or "create" not in verbs or rule.get("nonResourceURLs"):
        return
    wide = [mapping(other) for _, other in entries(role.body, "rules") if not items(at(other, "resourceNames"))]  # fmt: skip
    for resource in map(text, items(rule.get("resources"))):
        others = (one for one in wide if {*map(text, items(one.get("resources")))} & {resource, "*"})
        if "/" not in resource and not any({"create", "*"} & {*map(text, items(one.get("verbs")))} for one in others):  # fmt: skip
            words = f"never allows to create {resource}: a request to create has no name, and the rule has resourceNames"
            yield role.warned("empty-rule", words, (*path, "verbs"))


def _binding(binding: Obj) -> Iterator[Finding]:
    role = text(at(binding.body, "roleRef", "name"))
    if role == _ADMIN:
        whom = ", ".join(text(at(subject, "name")) for _, subject in entries(binding.body, "subjects"))
        yield binding.warned(
            "admin-binding", f"{whom or 'nobody'} gets {_ADMIN}, which may do everything", ("roleRef", "name")
        )
    for path, subject in entries(binding.body, "subjects") if not role.startswith("system:") else ():
        if words := _ANYBODY.get((text(at(subject, "kind")), text(at(subject, "name")))):
            yield binding.warned("open-binding", f"{words} gets the role {quoted(role)}", path)


def _metadata(thing: Obj) -> Iterator[Finding]:
    """With one hop only the host reaches the metadata service; with two, each pod does, and gets the node's role."""
    hops = at(thing.body, "spec", "metadataOptions", "httpPutResponseHopLimit")
    if type(hops) is int and hops > 1:
        words = f"with {hops} hops pods reach the metadata service and the rights of the node"
        yield thing.warned("metadata-hops", words, ("spec", "metadataOptions", "httpPutResponseHopLimit"))
    if at(thing.body, "spec", "metadataOptions", "httpTokens") == "optional":
        words = "without tokens any request of a pod can read the node's credentials"
        yield thing.warned("metadata-hops", words, ("spec", "metadataOptions", "httpTokens"))


def _image(pods: Pods, path: Path, container: Mapping[str, Any]) -> Iterator[Finding]:
    """The nodes of a gang can pull an image of one tag at different times, and then run different programs."""
    image = text(container.get("image"))
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    devices = any(kueue.is_device(resource) for resource in needs(pods))
    if not digest and (tag == "latest" or (image and not tag and devices)):
        words = "its image changes without a change of the manifest: name a version or a digest"
        yield pods.owner.warned("image-tag", words, (*path, "image"))
