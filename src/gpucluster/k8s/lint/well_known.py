"""Labels of nodes that Kubernetes, Karpenter and NVIDIA define: names and values that no node has."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from gpucluster.k8s.lint import hosts, kueue
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods, pods_of
from gpucluster.k8s.lint.tree import Path, along, at, entries, items, mapping, text
from gpucluster.text import quoted

_NAMES: dict[str, frozenset[str]] = {
    "kubernetes.io": frozenset({"arch", "hostname", "os"}),
    "node.kubernetes.io": frozenset({"instance-type", "windows-build", "exclude-from-external-load-balancers"}),
    "topology.kubernetes.io": frozenset({"region", "zone"}),
    "karpenter.sh": frozenset(
        {"capacity-type", "do-not-disrupt", "do-not-sync-taints", "initialized", "nodepool", "registered"}
    ),
    "karpenter.k8s.aws": frozenset(
        {"capacity-reservation-id", "capacity-reservation-type", "ec2nodeclass", "instance-accelerator-count", "instance-accelerator-manufacturer", "instance-accelerator-name", "instance-capability-flex", "instance-category", "instance-cpu", "instance-cpu-manufacturer", "instance-cpu-sustained-clock-speed-mhz", "instance-ebs-bandwidth", "instance-encryption-in-transit-supported", "instance-family", "instance-generation", "instance-gpu-count", "instance-gpu-manufacturer", "instance-gpu-memory", "instance-gpu-name", "instance-hypervisor", "instance-local-nvme", "instance-memory", "instance-network-bandwidth", "instance-size", "instance-tenancy"}
    ),
    "nvidia.com": frozenset(
        {"cuda.driver-version.full", "cuda.runtime-version.full", "cuda.driver.major", "cuda.driver.minor", "cuda.driver.rev", "cuda.runtime.major", "cuda.runtime.minor", "gfd.timestamp", "gpu.clique", "gpu.compute.major", "gpu.compute.minor", "gpu.count", "gpu.family", "gpu.machine", "gpu.memory", "gpu.mode", "gpu.present", "gpu.product", "gpu.replicas", "gpu.sharing-strategy", "gpu.workload.config", "mig.capable", "mig.config", "mig.config.state", "mig.strategy", "mps.capable", "vgpu.present"}
    ),
}  # fmt: skip
_MOVED = {  # a label under a prefix that has no such name, and the one that is meant
    "kubernetes.io/instance-type": hosts.TYPE,
    "kubernetes.io/node-pool": "karpenter.sh/nodepool",
    "kubernetes.io/region": "topology.kubernetes.io/region",
    "kubernetes.io/zone": hosts.ZONE,
    "node.kubernetes.io/zone": hosts.ZONE,
    "topology.kubernetes.io/hostname": kueue.HOSTNAME,
}
_VALUES = {
    "kubernetes.io/arch": frozenset(
        {"386", "amd64", "arm", "arm64", "loong64", "ppc64le", "riscv64", "s390x"}
    ),
    "kubernetes.io/os": frozenset({"darwin", "linux", "windows"}),
    "karpenter.sh/capacity-type": frozenset({"on-demand", "reserved", "spot"}),
}
_NEAR = 0.8
_TERMS = (
    "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.*.matchExpressions.*",
    "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution.*.preference.matchExpressions.*",
)
_KEYS = (
    "topologySpreadConstraints.*.topologyKey",
    *(f"affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution.*.topologyKey" for kind in ("podAffinity", "podAntiAffinity")),
    *(f"affinity.{kind}.preferredDuringSchedulingIgnoredDuringExecution.*.podAffinityTerm.topologyKey" for kind in ("podAffinity", "podAntiAffinity")),
)  # fmt: skip


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        for pods in pods_of(thing):
            yield from _pods(pods)
        if thing.key == hosts.NODE_POOL:
            where = ("spec", "template", "spec", "requirements")
            for path, one in entries(thing.body, *where):
                yield from _term(thing, path, one)
        elif thing.key == kueue.FLAVOR:
            where = ("spec", "nodeLabels")
            for key, value in mapping(at(thing.body, *where)).items():
                yield from _label(thing, (*where, key), key, [value])


def _pods(pods: Pods) -> Iterator[Finding]:
    for key, value in mapping(pods.spec.get("nodeSelector")).items():
        yield from _label(pods.owner, pods.where("spec", "nodeSelector", key), key, [value])
    for way in _TERMS:
        for path, one in along(pods.spec, way.split(".")):
            yield from _term(pods.owner, pods.where("spec", *path), one)
    for way in _KEYS:
        for path, key in along(pods.spec, way.split(".")):
            yield from _label(pods.owner, pods.where("spec", *path), text(key), [])


def _term(owner: Obj, path: Path, term: Any) -> Iterator[Finding]:
    values = at(term, "values") if at(term, "operator") == "In" else None
    yield from _label(owner, (*path, "key"), text(at(term, "key")), items(values))


def _label(owner: Obj, path: Path, key: str, values: Any) -> Iterator[Finding]:
    if meant := _meant(key):
        yield owner.warned("node-label-name", f"no node has the label {quoted(key)}: {meant} is meant", path)
    for value in map(text, values):
        known = _VALUES.get(key)
        if known and value and value not in known and "$" not in value:
            words = f"no node has {key} {quoted(value)}: it is one of {', '.join(sorted(known))}"
            yield owner.warned("node-label-name", words, path)
        elif key == hosts.TYPE and hosts.is_no_machine(value):
            yield owner.warned("node-label-name", f"AWS has no machine {quoted(value)}", path)


def _meant(key: str) -> str:
    """Return the label that is meant; "" for a label that exists, or that somebody else defines."""
    prefix, _, name = key.rpartition("/")
    known = _NAMES.get(prefix, frozenset[str]())
    near = get_close_matches(name, sorted(known), n=1, cutoff=_NEAR) if name not in known else []
    return _MOVED.get(key, f"{prefix}/{near[0]}" if near else "")
