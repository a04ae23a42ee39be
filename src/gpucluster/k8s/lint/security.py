"""Pod Security: whether a namespace's level admits its pods. The API server accepts a Deployment or a JobSet and refuses
its pods later, without an error at the workload."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods, pods_of
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text
from gpucluster.text import quoted

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
_SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
_SYSCTLS = frozenset(  # those that `baseline` allows
    {
        "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem", "net.ipv4.tcp_syncookies", "net.ipv4.tcp_wmem",
    }
)  # fmt: skip
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_VERSION = re.compile(r"v1\.(\d+)", re.ASCII)
_CALLS_SINCE = 34  # the minor version from which baseline refuses hosts of probes
_Context = Mapping[str, Any]
_Rule = Callable[[Pods], Iterator[tuple[Path, str]]]


def check(manifests: ManifestSet) -> Iterator[Finding]:
    """Check only namespaces of the manifests. The level of another namespace is unknown."""
    for thing in manifests.objects:
        level = level_of(manifests, thing)
        rules = (*_FORBIDDEN[level], *_by_version(manifests, thing)) if level else ()
        for pods in pods_of(thing) if rules else ():
            for path, words in (found for forbidden in rules for found in forbidden(pods)):
                yield thing.found("pod-security", f"{words}: namespace {thing.namespace!r} enforces {level}", path)  # fmt: skip


def level_of(manifests: ManifestSet, thing: Obj) -> str:
    """Return the level that refuses pods of the object's namespace; "" if nothing is refused, or the namespace is not here."""
    namespace = manifests.get("Namespace", thing.namespace)
    level = text(namespace.labels.get(_ENFORCE)) if namespace else ""
    return level if level in _FORBIDDEN else ""


def _by_version(manifests: ManifestSet, thing: Obj) -> Iterator[_Rule]:
    """A namespace can fix the version of its level; else it is that of the server."""
    namespace = manifests.get("Namespace", thing.namespace)
    fixed = _VERSION.fullmatch(text(namespace.labels.get(f"{_ENFORCE}-version"))) if namespace else None
    minor = fixed[1] if fixed else manifests.facts.kubernetes.partition(".")[2]
    if int(minor) >= _CALLS_SINCE:
        yield _calls


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
    for inner, one in entries(pods.spec, "securityContext", "sysctls"):
        if (name := text(at(one, "name"))) not in _SYSCTLS:
            yield pods.where("spec", *inner, "name"), f"the sysctl {quoted(name)} is not allowed"


def _calls(pods: Pods) -> Iterator[tuple[Path, str]]:
    """Probes and hooks by the kubelet reach what pods cannot, such as the metadata service. Baseline refuses them since 1.34."""
    for path, container in pods.containers():
        for way in (*((probe,) for probe in _PROBES), ("lifecycle", "preStop"), ("lifecycle", "postStart")):
            for action in ("httpGet", "tcpSocket"):
                if at(container, *way, action, "host"):
                    yield (*path, *way, action, "host"), "a host of a probe or hook is not allowed"


def _powers(pods: Pods) -> Iterator[tuple[Path, str]]:
    for path, context in _contexts(pods):
        if context.get("privileged") is True:
            yield (*path, "privileged"), "a privileged container is not allowed"
        for capability in items(at(context, "capabilities", "add")):
            if text(capability) not in _ADDED:
                yield (*path, "capabilities", "add"), f"the capability {text(capability)} is not allowed"


def _profiles(pods: Pods) -> Iterator[tuple[Path, str]]:
    for path, context in _contexts(pods):
        if context.get("procMount", "Default") != "Default":
            yield (*path, "procMount"), "only the default procMount is allowed"
        if at(context, "seccompProfile", "type") == "Unconfined":
            yield (*path, "seccompProfile"), "a seccomp profile of Unconfined is not allowed"
        if text(at(context, "seLinuxOptions", "type")) not in _SELINUX_TYPES:
            yield (*path, "seLinuxOptions", "type"), "this SELinux type is not allowed"
        if any(at(context, "seLinuxOptions", part) for part in ("user", "role")):
            yield (*path, "seLinuxOptions"), "a SELinux user or role is not allowed"
        if at(context, "appArmorProfile", "type") == "Unconfined":
            yield (*path, "appArmorProfile"), "an AppArmor profile of Unconfined is not allowed"
        if at(context, "windowsOptions", "hostProcess") is True:
            yield (*path, "windowsOptions", "hostProcess"), "a process of the host is not allowed"


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


_FORBIDDEN: dict[str, tuple[_Rule, ...]] = {
    "baseline": (_host, _powers, _profiles),
    "restricted": (_host, _powers, _profiles, _restricted),
}
