"""Pod Security: whether a namespace's level admits its pods. The API server accepts a Deployment or a JobSet and refuses
its pods later, without an error at the workload."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet
from gpucluster.k8s.lint.pods import Pods, pods_of
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text

_ENFORCE = "pod-security.kubernetes.io/enforce"
_ADDED = frozenset(  # capabilities that `baseline` allows
    {
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
        "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
    }
)  # fmt: skip
_VOLUMES = frozenset(  # volume types that `restricted` allows
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"}
)  # fmt: skip
_Context = Mapping[str, Any]


def check(manifests: ManifestSet) -> Iterator[Finding]:
    """Check only namespaces of the manifests. The level of another namespace is unknown."""
    for thing in manifests.objects:
        namespace = manifests.get("Namespace", thing.namespace)
        level = text(namespace.labels.get(_ENFORCE)) if namespace else ""
        for pods in pods_of(thing) if level in _FORBIDDEN else ():
            for forbidden in _FORBIDDEN[level]:
                for path, words in forbidden(pods):
                    yield thing.found("pod-security", f"{words}: namespace {thing.namespace!r} enforces {level}", path)  # fmt: skip


def _host(pods: Pods) -> Iterator[tuple[Path, str]]:
    for field in ("hostIPC", "hostNetwork", "hostPID"):
        if pods.spec.get(field) is True:
            yield pods.where("spec", field), f"{field} is not allowed"
    for path, volume in entries(pods.spec, "volumes"):
        if "hostPath" in mapping(volume):
            yield pods.where("spec", *path), "a hostPath volume is not allowed"
    for path, container in pods.containers():
        for inner, port in entries(container, "ports"):
            if at(port, "hostPort"):
                yield (*path, *inner, "hostPort"), "a hostPort is not allowed"


def _powers(pods: Pods) -> Iterator[tuple[Path, str]]:
    for path, context in _contexts(pods):
        if context.get("privileged") is True:
            yield (*path, "privileged"), "a privileged container is not allowed"
        if context.get("procMount", "Default") != "Default":
            yield (*path, "procMount"), "only the default procMount is allowed"
        if at(context, "seccompProfile", "type") == "Unconfined":
            yield (*path, "seccompProfile"), "a seccomp profile of Unconfined is not allowed"
        for capability in items(at(context, "capabilities", "add")):
            if text(capability) not in _ADDED:
                yield (*path, "capabilities", "add"), f"the capability {text(capability)} is not allowed"


def _restricted(pods: Pods) -> Iterator[tuple[Path, str]]:
    pod = mapping(pods.spec.get("securityContext"))
    for path, volume in entries(pods.spec, "volumes"):
        if not {*mapping(volume)} - {"name"} <= _VOLUMES:
            yield pods.where("spec", *path), "this type of volume is not allowed"
    for path, container in pods.containers():
        context, where = mapping(container.get("securityContext")), (*path, "securityContext")
        if context.get("allowPrivilegeEscalation") is not False:
            yield where, "allowPrivilegeEscalation must be false"
        if context.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
            yield where, "runAsNonRoot must be true"
        if at(context.get("seccompProfile", pod.get("seccompProfile")), "type") not in ("RuntimeDefault", "Localhost"):  # fmt: skip
            yield where, "a seccomp profile is required"
        if "ALL" not in items(at(context, "capabilities", "drop")) or {*_texts(at(context, "capabilities", "add"))} - {"NET_BIND_SERVICE"}:  # fmt: skip
            yield where, "all capabilities must be dropped"


def _texts(value: Any) -> list[str]:
    return [text(entry) for entry in items(value)]


def _contexts(pods: Pods) -> Iterator[tuple[Path, _Context]]:
    """Yield the security context of the pod, then of each container."""
    yield pods.where("spec", "securityContext"), mapping(pods.spec.get("securityContext"))
    for path, container in pods.containers():
        yield (*path, "securityContext"), mapping(container.get("securityContext"))


_FORBIDDEN: dict[str, tuple[Callable[[Pods], Iterator[tuple[Path, str]]], ...]] = {
    "baseline": (_host, _powers),
    "restricted": (_host, _powers, _restricted),
}
