"""Devices that nobody counts: names that no plugin offers, quotas without `requests.`, and programs with GPUs without a limit."""

import re
from collections.abc import Iterator, Mapping

from gpucluster.k8s.lint import kueue
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods, needs, parts_of
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text

# a name that no device plugin offers, and the one that is meant
_MEANT = {
    "alpha.kubernetes.io/nvidia-gpu": "nvidia.com/gpu",
    "amazonaws.com/efa": "vpc.amazonaws.com/efa",
    "amd.com/gpus": "amd.com/gpu",
    "aws.amazon.com/efa": "vpc.amazonaws.com/efa",
    "aws.amazon.com/neurons": "aws.amazon.com/neuron",
    "google.com/tpus": "google.com/tpu",
    "k8s.amazonaws.com/efa": "vpc.amazonaws.com/efa",
    "nvidia.com/GPU": "nvidia.com/gpu",
    "nvidia.com/gpus": "nvidia.com/gpu",
    "nvidia.com/nvidia-gpu": "nvidia.com/gpu",
    "nvidia/gpu": "nvidia.com/gpu",
    "vpc.amazonaws.com/EFA": "vpc.amazonaws.com/efa",
    "vpc.amazonaws.com/efas": "vpc.amazonaws.com/efa",
}
_SEVERAL = re.compile(
    r"\btorchrun\b(?:(?!\btorchrun\b).)*?--nproc[_-]per[_-]node[= ](?:[2-9]|\d{2,6}|gpu)\b",
    re.ASCII | re.DOTALL,
)
_SLICE = re.compile(
    r"nvidia\.com/mig-\d{1,2}(?:c\.\d{1,2})?g\.\d{1,4}gb(?:\.me(?:\.all)?|\.gfx|-me)?(?:\.shared)?", re.ASCII
)
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        if thing.key == "ResourceQuota":
            yield from _quota(thing)
        for pods in parts_of(thing):
            yield from _names(pods)
            for path, one in entries(pods.spec, "tolerations"):
                if (key := text(at(one, "key"))) in _MEANT and key.startswith(
                    "nvidia"
                ):  # AWS has a taint aws.amazon.com/efa
                    words = f"no node has the taint {key}: {_MEANT[key]} is meant"
                    yield thing.warned("device-name", words, pods.where("spec", *path, "key"))
            yield from _without_limit(pods)


def _names(pods: Pods) -> Iterator[Finding]:
    for path, container in pods.containers():
        for part in ("limits", "requests"):
            for name in mapping(at(container, "resources", part)):
                where = (*path, "resources", part, name)
                if name in _MEANT:
                    words = f"no device plugin offers it: {_MEANT[name]} is meant"
                    yield pods.owner.warned("device-name", words, where)
                elif name.startswith("nvidia.com/mig") and not _SLICE.fullmatch(name):
                    words = "no device plugin offers it: a slice has a name such as nvidia.com/mig-1g.10gb"
                    yield pods.owner.warned("device-name", words, where)


def _quota(quota: Obj) -> Iterator[Finding]:
    """A quota counts an extended resource only as `requests.NAME`."""
    for name in mapping(at(quota.body, "spec", "hard")):
        device = name.removeprefix("requests.").removeprefix("limits.")
        where = ("spec", "hard", name)
        if device in _MEANT:
            words = f"no device plugin offers it: {_MEANT[device]} is meant"
            yield quota.warned("device-name", words, where)
        elif (
            kueue.is_device(device)
            and not name.startswith(("requests.", "count/"))
            and "storageclass" not in name
        ):
            yield quota.warned("device-name", f"limits nothing: write requests.{device}", where)


def _without_limit(pods: Pods) -> Iterator[Finding]:
    """A DaemonSet of the drivers may see all GPUs. The scheduler gives the GPUs of another pod to somebody else, too."""
    if not pods.complete or pods.owner.kind == "DaemonSet" or items(pods.spec.get("resourceClaims")):
        return
    if any(kueue.is_device(resource) for resource in needs(pods)):
        return
    for path, container in pods.containers():
        yield from _sees_all(pods, path, container)
        command = " ".join(text(word) for part in ("command", "args") for word in items(container.get(part)))
        if _SEVERAL.search(command):
            words = "torchrun starts several processes, and the pod asks for no GPU: add a limit of nvidia.com/gpu"
            yield pods.owner.warned("gpu-without-limit", words, (*path, "resources"))


def _sees_all(pods: Pods, path: Path, container: Mapping[str, object]) -> Iterator[Finding]:
    for inner, variable in entries(container, "env"):
        if (at(variable, "name"), at(variable, "value")) == (_VISIBLE, "all"):
            words = "sees all GPUs of its host, and the scheduler gives them to other pods: ask for nvidia.com/gpu"
            yield pods.owner.warned("gpu-without-limit", words, (*path, *inner, "value"))
