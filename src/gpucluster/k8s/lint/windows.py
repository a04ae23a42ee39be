"""Pods that name their operating system, and processes of a Windows host: fields that the other system does not have."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet
from gpucluster.k8s.lint.pods import Pods, pods_of
from gpucluster.k8s.lint.tree import Path, at, mapping

_OF_LINUX_PODS = ("appArmorProfile", "fsGroup", "fsGroupChangePolicy", "runAsGroup", "runAsUser", "seLinuxChangePolicy", "seLinuxOptions", "seccompProfile", "supplementalGroups", "supplementalGroupsPolicy", "sysctls")  # fmt: skip
_OF_LINUX = ("allowPrivilegeEscalation", "appArmorProfile", "capabilities", "privileged", "procMount", "readOnlyRootFilesystem", "runAsGroup", "runAsUser", "seLinuxOptions", "seccompProfile")  # fmt: skip
_BOOLEANS = ("hostIPC", "hostPID")  # the server takes false
_FIELDS = ("hostUsers", "resources", "shareProcessNamespace")
_EMPTY: tuple[Any, ...] = (None, [])


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        for pods in pods_of(thing):
            if pods.complete:
                yield from _of_system(pods)
                yield from _of_host(pods)


def _contexts(pods: Pods) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the security contexts, that of the pod first."""
    yield pods.where("spec", "securityContext"), mapping(pods.spec.get("securityContext"))
    for path, container in pods.containers():
        yield (*path, "securityContext"), mapping(container.get("securityContext"))


def _of_system(pods: Pods) -> Iterator[Finding]:
    system = at(pods.spec, "os", "name")
    if system == "linux":
        for path, context in _contexts(pods):
            if context.get("windowsOptions") is not None:
                yield pods.owner.found("one-of", "a pod of Linux has none", (*path, "windowsOptions"))
    elif system == "windows":
        for field in (*_BOOLEANS, *_FIELDS):
            value = pods.spec.get(field)
            if value is True or (field in _FIELDS and value is not None):
                yield pods.owner.found("one-of", "a pod of Windows has none", pods.where("spec", field))
        for number, (path, context) in enumerate(_contexts(pods)):
            for field in _OF_LINUX if number else _OF_LINUX_PODS:
                if context.get(field) not in _EMPTY:
                    yield pods.owner.found("one-of", "a pod of Windows has none", (*path, field))


def _of_host(pods: Pods) -> Iterator[Finding]:
    """All containers are processes of the host or none is, and they have the network of the host."""
    (_, pod), *containers = _contexts(pods)
    inherited = at(pod, "windowsOptions", "hostProcess")
    own = [at(context, "windowsOptions", "hostProcess") for _, context in containers]
    on_host = [inherited is True if value is None else value is True for value in own]
    if any(on_host) and pods.spec.get("hostNetwork") is not True:
        yield pods.owner.found("one-of", "a process of the host needs hostNetwork: true", pods.where("spec"))
    if any(on_host) and not all(on_host):
        words = "all containers are processes of the host, or none"
        yield pods.owner.found("one-of", words, pods.where("spec", "containers"))
