"""Rights and secrets: roles over everything, administrators, secrets as text, images that change, the metadata service."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.k8s.lint import kueue
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods, needs, pods_of
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text
from gpucluster.spec.secret_values import SECRET_VALUE
from gpucluster.text import quoted

_RBAC = "rbac.authorization.k8s.io"
_ROLES = frozenset({f"Role.{_RBAC}", f"ClusterRole.{_RBAC}"})
_BINDINGS = frozenset({f"RoleBinding.{_RBAC}", f"ClusterRoleBinding.{_RBAC}"})
_ADMIN = "cluster-admin"
_SECRET_NAME = re.compile(
    r"(.*_)?(TOKEN|PASSWORD|PASSWD|SECRET|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY)", re.ASCII | re.IGNORECASE
)
_HARMLESS = re.compile(
    r"|.{1,4}|/.*|.*\$\(.*|.*\$\{.*|<.*>|https?://.*|(?i:true|false|your.*|change.?me.*|replace.*|example.*|dummy.*)",
    re.DOTALL,
)
_NODE_CLASS = "EC2NodeClass.karpenter.k8s.aws"


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        if thing.key in _ROLES:
            yield from _role(thing)
        elif thing.key in _BINDINGS:
            yield from _binding(thing)
        elif thing.key == _NODE_CLASS:
            yield from _metadata(thing)
        elif thing.key == "ConfigMap":
            yield from _data(thing)
        for pods in pods_of(thing):
            for path, container in pods.containers():
                yield from _secrets(pods, path, container)
                yield from _image(pods, path, container)


def _role(role: Obj) -> Iterator[Finding]:
    for path, rule in entries(role.body, "rules"):
        if all("*" in items(at(rule, part)) for part in ("resources", "verbs")):
            yield role.warned(
                "wildcard-role",
                "allows every verb on every resource of its groups, also on secrets and roles",
                path,
            )


def _binding(binding: Obj) -> Iterator[Finding]:
    if at(binding.body, "roleRef", "name") == _ADMIN:
        whom = ", ".join(text(at(subject, "name")) for _, subject in entries(binding.body, "subjects"))
        yield binding.warned(
            "admin-binding", f"{whom or 'nobody'} gets {_ADMIN}, which may do everything", ("roleRef", "name")
        )


def _metadata(thing: Obj) -> Iterator[Finding]:
    """With one hop only the host reaches the metadata service; with two, each pod does, and gets the node's role."""
    hops = at(thing.body, "spec", "metadataOptions", "httpPutResponseHopLimit")
    if type(hops) is int and hops > 1:
        words = f"with {hops} hops pods reach the metadata service and the rights of the node"
        yield thing.warned("metadata-hops", words, ("spec", "metadataOptions", "httpPutResponseHopLimit"))
    if at(thing.body, "spec", "metadataOptions", "httpTokens") == "optional":
        words = "without tokens any request of a pod can read the node's credentials"
        yield thing.warned("metadata-hops", words, ("spec", "metadataOptions", "httpTokens"))


def _data(thing: Obj) -> Iterator[Finding]:
    for key, value in mapping(thing.body.get("data")).items():
        if SECRET_VALUE.search(text(value)):
            yield thing.warned("literal-secret", "holds a secret as text: use a Secret", ("data", key))


def _secrets(pods: Pods, path: Path, container: Mapping[str, Any]) -> Iterator[Finding]:
    for inner, variable in entries(container, "env"):
        name, value = text(at(variable, "name")), text(at(variable, "value"))
        named = _SECRET_NAME.fullmatch(name) and not _HARMLESS.fullmatch(value)
        if named or SECRET_VALUE.search(value):
            words = f"{quoted(name)} holds a secret as text: use valueFrom.secretKeyRef"
            yield pods.owner.warned("literal-secret", words, (*path, *inner, "value"))
    for part in ("command", "args"):
        for inner, word in entries(container, part):
            if SECRET_VALUE.search(text(word)):
                yield pods.owner.warned("literal-secret", "holds a secret as text: use a variable from a Secret", (*path, *inner))  # fmt: skip


def _image(pods: Pods, path: Path, container: Mapping[str, Any]) -> Iterator[Finding]:
    """The nodes of a gang can pull an image of one tag at different times, and then run different programs."""
    image = text(container.get("image"))
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    devices = any(kueue.is_device(resource) for resource in needs(pods))
    if not digest and (tag == "latest" or (image and not tag and devices)):
        words = "its image changes without a change of the manifest: name a version or a digest"
        yield pods.owner.warned("image-tag", words, (*path, "image"))
