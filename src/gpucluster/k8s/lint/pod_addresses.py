"""Names by which pods of one Job or StatefulSet find each other: `POD.SERVICE`, with a headless Service of that name."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods, pods_of, selects
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text
from gpucluster.text import quoted

_JOB, _SET = "Job.batch", "StatefulSet.apps"
_FIRST = frozenset({"MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT", "COORDINATOR_ADDRESS", "JAX_COORDINATOR_ADDRESS"})  # fmt: skip
_OPTION = re.compile(r"--(?:rdzv[-_]endpoint|master[-_]addr|dist-init-addr)[= ](\S+)", re.ASCII)
_POD = re.compile(r"(?P<owner>[a-z0-9][a-z0-9-]*)-\d{1,5}(?:\.(?P<service>[a-z0-9-]+)(?:\.[a-z0-9.-]+)?)?(?::\d+)?", re.ASCII)  # fmt: skip
_OWN = ("controller-uid", "job-name", "batch.kubernetes.io/", "statefulset.kubernetes.io/", "apps.kubernetes.io/")  # fmt: skip


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.all(_JOB, _SET):
        for pods in pods_of(thing):
            for path, container in pods.containers():
                for where, address in _addresses(path, container):
                    yield from _address(manifests, pods, where, address)


def _addresses(path: Path, container: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield the addresses of a first pod: of a variable, or of an option of a launcher."""
    for inner, one in entries(container, "env"):
        if text(at(one, "name")) in _FIRST and text(at(one, "value")):
            yield (*path, *inner, "value"), text(at(one, "value"))
    for part in ("command", "args"):
        written = " ".join(text(word) for word in items(container.get(part)))
        for address in _OPTION.findall(written):
            yield (*path, part), address


def _address(manifests: ManifestSet, pods: Pods, where: Path, address: str) -> Iterator[Finding]:
    named = _POD.fullmatch(address.strip("\"'"))
    owner = pods.owner
    if named is None or pods.spec.get("hostNetwork") is True or not _is_ours(manifests, owner, named["owner"]):  # fmt: skip
        return
    network = _network(pods)
    if owner.name and named["owner"] != owner.name:
        words = f"no pod has this name: those of the {owner.kind} are {owner.name}-0 and so on"
        yield owner.warned("rendezvous", words, where)
    elif not network:
        field = "subdomain" if owner.key == _JOB else "serviceName"
        words = f"without `{field}` its pods have no names: set it to the name of a headless Service"
        yield owner.warned("pod-names", words, where)
    elif named["service"] != network:
        words = f"no pod has this name: its pods are {owner.name}-0.{network} and so on"
        yield owner.warned("rendezvous", words, where)
    else:
        yield from _service(manifests, pods, where, network)


def _is_ours(manifests: ManifestSet, owner: Obj, name: str) -> bool:
    """Return whether the address is meant for the pods of the owner, and not for those of another object or a name alone."""
    others = {one.name for one in manifests.objects if one is not owner}
    indexed = owner.key == _SET or at(owner.body, "spec", "completionMode") == "Indexed"
    return indexed and (name not in others or name == owner.name) and bool(owner.name)


def _network(pods: Pods) -> str:
    if pods.owner.key == _SET:
        return text(at(pods.owner.body, "spec", "serviceName"))
    return text(pods.spec.get("subdomain"))


def _service(manifests: ManifestSet, pods: Pods, where: Path, name: str) -> Iterator[Finding]:
    service = manifests.get("Service", name, pods.owner.namespace)
    if service is None:
        if manifests.facts.whole and pods.owner.key == _JOB:  # of a StatefulSet `reference` says it
            words = f"there is no Service {quoted(name)}: without a headless Service of that name its pods have no names"
            yield pods.owner.warned("pod-names", words, where)
        return
    wanted = mapping(at(service.body, "spec", "selector"))
    by_others = any(key.startswith(_OWN) for key in wanted)
    if at(service.body, "spec", "clusterIP") != "None":
        words = f"the Service {quoted(name)} has no `clusterIP: None`, so that its pods have no names"
        yield pods.owner.warned("pod-names", words, where)
    elif wanted and not by_others and not selects({"matchLabels": wanted}, pods.labels):
        words = f"the Service {quoted(name)} does not select the pods, so that they have no names"
        yield pods.owner.warned("pod-names", words, where)
