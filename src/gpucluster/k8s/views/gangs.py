"""Gangs: pods that start together, as a JobSet or as a TrainJob of Kubeflow Trainer."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpucluster.k8s.manifest import scalar
from gpucluster.k8s.site import Site
from gpucluster.k8s.views import jobset_specs, pods
from gpucluster.k8s.views.jobset_specs import JobSetSpec
from gpucluster.plan import names
from gpucluster.plan.model.values import JOBSET, TRAINJOB
from gpucluster.plan.model.workloads import Gang as GangPlan

Written = Callable[[JobSetSpec], str]  # to one line of JSON
_LABEL = 63  # characters of a label's value


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """templates/k8s/gang.yaml.j2"""

    name: str
    namespace: str
    queued: str  # labels of an object that Kueue queues
    spec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """templates/k8s/trainjob.yaml.j2"""

    name: str
    namespace: str
    queued: str
    runtime: str
    nodes: str
    gpus: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """templates/k8s/training-runtime.yaml.j2"""

    name: str
    namespace: str
    labels: str
    nodes: str
    spec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRuntime:
    """templates/k8s/cluster-training-runtime.yaml.j2"""

    name: str
    labels: str
    nodes: str
    spec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeReaders:
    """templates/k8s/runtime-readers.yaml.j2"""

    name: str
    labels: str
    groups: str


def gangs(site: Site, written: Written) -> Iterator[tuple[str, Gang]]:
    for one in _of_kind(site, JOBSET):
        yield _file(one), _gang(site, one, written)


def nccl_tests(site: Site, written: Written) -> Iterator[tuple[str, Gang]]:
    for one in site.workloads.nccl_tests:
        yield one.name, _gang(site, one, written)


def train_jobs(site: Site, written: Written) -> Iterator[tuple[str, TrainJob]]:
    for one, runtime, _ in _trained(site, written):
        yield (
            _file(one),
            TrainJob(
                name=scalar(one.name),
                namespace=_namespace(site, one),
                queued=pods.queued(site, one),
                runtime=scalar(runtime),
                nodes=scalar(one.nodes),
                gpus=scalar(one.gpus_per_node),
            ),
        )


def runtimes(site: Site, written: Written) -> Iterator[tuple[str, Runtime]]:
    """Return a runtime for each gang that is a TrainJob: a TrainJob alone cannot say all that the spec says."""
    for one, name, spec in _trained(site, written):
        yield (
            f"runtime-{names.of_team(one.team, one.name)}",
            Runtime(
                name=scalar(name),
                namespace=_namespace(site, one),
                labels=pods.labels(site, one),
                nodes=scalar(one.nodes),
                spec=spec,
            ),
        )


def cluster_runtimes(site: Site, written: Written) -> Iterator[tuple[str, ClusterRuntime]]:
    trainer = site.kubernetes.trainer
    if trainer is None:
        return
    for one in trainer.runtimes:
        name, spec = (
            f"torch-{one.pool.replace('.', '-')}",
            written(jobset_specs.of_runtime(site, trainer, one)),
        )
        yield (
            name,
            ClusterRuntime(
                name=scalar(_versioned(site.name(name), spec)),
                labels=scalar({**site.labels, names.LABEL_POOL: one.pool}),
                nodes=scalar(jobset_specs.NODES),
                spec=spec,
            ),
        )


def runtime_readers(site: Site) -> Iterator[tuple[str, RuntimeReaders]]:
    if site.kubernetes.trainer is not None:
        kind = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group"}
        groups = [{**kind, "name": team.group} for team in site.kubernetes.teams]
        name = scalar(site.name("runtime-reader"))
        yield "readers", RuntimeReaders(name=name, labels=scalar(site.labels), groups=scalar(groups))


def _versioned(name: str, spec: str) -> str:
    """Return a name that changes with the content.

    A runtime never changes in place: Kueue ends the running gang of a TrainJob whose runtime is no longer what it admitted (seen with
    v0.19.2). The old runtime stays beside the new one, and Trainer's finalizer keeps it while a TrainJob names it.
    A long name is cut, so that it also fits into a label (63 characters).
    """
    room = _LABEL - len("-12345678")
    content = spec if len(name) <= room else f"{name}\n{spec}"
    digest = hashlib.sha256(content.encode()).hexdigest()[:8]
    return f"{name[:room].rstrip('-.')}-{digest}"


def _trained(site: Site, written: Written) -> Iterator[tuple[GangPlan, str, str]]:
    """Yield each gang that is a TrainJob, with the name of its runtime and the spec there."""
    for one in _of_kind(site, TRAINJOB):
        spec = written(jobset_specs.of_gang(site, one, trained=True))
        yield one, _versioned(one.name, spec), spec


def _of_kind(site: Site, kind: str) -> Iterator[GangPlan]:
    return (one for one in site.workloads.gangs if one.kind == kind)


def _file(one: GangPlan) -> str:
    return f"gang-{names.of_team(one.team, one.name)}"


def _namespace(site: Site, one: GangPlan) -> str:
    return scalar(site.kubernetes.team(one.team).namespace)


def _gang(site: Site, one: GangPlan, written: Written) -> Gang:
    return Gang(
        name=scalar(one.name),
        namespace=_namespace(site, one),
        queued=pods.queued(site, one),
        spec=written(jobset_specs.of_gang(site, one)),
    )
