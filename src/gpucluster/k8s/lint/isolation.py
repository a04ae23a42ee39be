"""What pods may do with their host, outside of a guarded namespace, and users that the kubelet refuses."""

from collections.abc import Iterator

from gpucluster.k8s.lint import security
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet
from gpucluster.k8s.lint.pods import Pods, pods_of
from gpucluster.k8s.lint.tree import at, entries, mapping, text

_SYSTEM = "kube-system"
_PATHS = frozenset({"", "/etc", "/root", "/var/lib/kubelet"})  # "" is the root, without its slash
_SOCKETS = ("docker.sock", "containerd.sock", "crio.sock", "/run/containerd")


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        for pods in pods_of(thing):
            yield from _user(pods)
            if (
                thing.kind != "DaemonSet"
                and thing.namespace != _SYSTEM
                and not security.level_of(manifests, thing)
            ):
                yield from _host(pods)


def _host(pods: Pods) -> Iterator[Finding]:
    """Drivers and plugins are DaemonSets. Other pods need no host."""
    if pods.spec.get("hostPID") is True:
        yield pods.owner.warned(
            "host-access", "sees the processes of its host", pods.where("spec", "hostPID")
        )
    for path, volume in entries(pods.spec, "volumes"):
        written = at(volume, "hostPath", "path")
        place = text(written).rstrip("/")
        if isinstance(written, str) and (place in _PATHS or place.endswith(_SOCKETS)):
            words = f"{written} of the host gives the pod the rights of the host"
            yield pods.owner.warned("host-access", words, pods.where("spec", *path, "hostPath", "path"))
    for path, container in pods.containers():
        if at(container, "securityContext", "privileged") is True:
            words = "a privileged container has all devices and rights of its host: ask for the device, or for a capability"
            yield pods.owner.warned("host-access", words, (*path, "securityContext", "privileged"))


def _user(pods: Pods) -> Iterator[Finding]:
    """The kubelet does not start a container that must not be root and is."""
    whole = mapping(pods.spec.get("securityContext"))
    for path, container in pods.containers():
        own = {**whole, **mapping(container.get("securityContext"))}
        if own.get("runAsNonRoot") is True and own.get("runAsUser") == 0:
            yield pods.owner.found("run-as", "runAsNonRoot, and user 0: the container does not start", (*path, "securityContext"))  # fmt: skip
