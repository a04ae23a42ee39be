"""The pods that a workload makes: their template, how many run at once, and what each asks for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpucluster.k8s.lint import quantity
from gpucluster.k8s.lint.tree import Path, at, entries, mapping, text
from gpucluster.k8s.lint.world import Obj

_TEMPLATES: dict[str, Path] = {
    "Pod": (),
    "ReplicationController": ("spec", "template"),
    "Deployment.apps": ("spec", "template"),
    "ReplicaSet.apps": ("spec", "template"),
    "StatefulSet.apps": ("spec", "template"),
    "DaemonSet.apps": ("spec", "template"),
    "Job.batch": ("spec", "template"),
    "CronJob.batch": ("spec", "jobTemplate", "spec", "template"),
}
JOBSET = "JobSet.jobset.x-k8s.io"
_JOBSET_TEMPLATE = ("template", "spec", "template")
_COUNTS: dict[str, Path] = {  # pods at once; where absent it is 1
    "Deployment.apps": ("spec", "replicas"),
    "ReplicaSet.apps": ("spec", "replicas"),
    "StatefulSet.apps": ("spec", "replicas"),
    "Job.batch": ("spec", "parallelism"),
    "CronJob.batch": ("spec", "jobTemplate", "spec", "parallelism"),
}


@dataclass(frozen=True, slots=True)
class Pods:
    """`path` leads to the template (metadata and spec) inside its owner."""

    owner: Obj
    path: Path
    template: Mapping[str, Any]
    count: int

    @property
    def spec(self) -> Mapping[str, Any]:
        return mapping(self.template.get("spec"))

    @property
    def labels(self) -> Mapping[str, Any]:
        return mapping(at(self.template, "metadata", "labels"))

    @property
    def annotations(self) -> Mapping[str, Any]:
        return mapping(at(self.template, "metadata", "annotations"))

    def where(self, *inner: str | int) -> Path:
        return (*self.path, *inner)

    def containers(self) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        """Init containers first, each with its path inside the owner."""
        for kind in ("initContainers", "containers"):
            for path, container in entries(self.spec, kind):
                yield self.where("spec", *path), mapping(container)


def pods_of(thing: Obj) -> Iterator[Pods]:
    """One for a plain workload, one a replicated job for a JobSet, none for anything else."""
    if (path := _TEMPLATES.get(thing.key)) is not None:
        template = mapping(at(thing.body, *(str(key) for key in path)))
        count = at(thing.body, *(str(key) for key in _COUNTS.get(thing.key, ("",))))
        yield Pods(thing, path, template, _whole(count, 1))
    elif thing.key == JOBSET:
        for where, job in entries(thing.body, "spec", "replicatedJobs"):
            width = _whole(at(job, "replicas"), 1) * _whole(at(job, "template", "spec", "parallelism"), 1)
            yield Pods(thing, (*where, *_JOBSET_TEMPLATE), mapping(at(job, *_JOBSET_TEMPLATE)), width)


def asked(container: Mapping[str, Any]) -> dict[str, Decimal]:
    """Requests as the API server completes them: a limit without a request is one."""
    resources = mapping(container.get("resources"))
    return {**amounts(resources.get("limits")), **amounts(resources.get("requests"))}


def amounts(value: Any) -> dict[str, Decimal]:
    """The quantities of a resource list; what is none is left to `names`."""
    return {
        key: amount
        for key, written in mapping(value).items()
        if (amount := quantity.parse(written)) is not None
    }


def needs(pods: Pods) -> dict[str, Decimal]:
    """What the scheduler reserves for one pod: the sum of its containers, or its largest init container."""
    running: dict[str, Decimal] = {}
    largest: dict[str, Decimal] = {}
    for path, container in pods.containers():
        sidecar = text(container.get("restartPolicy")) == "Always"
        for resource, amount in asked(container).items():
            if "initContainers" in path and not sidecar:
                largest[resource] = max(largest.get(resource, Decimal(0)), amount)
            else:
                running[resource] = running.get(resource, Decimal(0)) + amount
    both = sorted({*running, *largest})
    return {name: max(running.get(name, Decimal(0)), largest.get(name, Decimal(0))) for name in both}


def _whole(value: Any, otherwise: int) -> int:
    return value if type(value) is int and 0 <= value < 10**9 else otherwise
