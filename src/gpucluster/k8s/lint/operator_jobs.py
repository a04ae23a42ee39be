"""Jobs of other operators: what the webhooks of the Training operator (1.9), the MPI operator (0.8) and Volcano refuse, and
numbers of their launchers.

Source: pkg/webhooks of kubeflow/training-operator, pkg/apis/kubeflow/validation of kubeflow/mpi-operator and
pkg/webhooks/admission/jobs/validate of volcano-sh/volcano."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint import launcher_options
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.gangs import GPU
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import asked
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text

_V1 = "kubeflow.org/v1"
_KINDS: dict[str, tuple[str, str, tuple[str, ...]]] = {  # kind -> its replicas, its container, its roles; () is any
    "JAXJob": ("jaxReplicaSpecs", "jax", ("Worker",)),
    "PaddleJob": ("paddleReplicaSpecs", "paddle", ("Master", "Worker")),
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch", ("Master", "Worker")),
    "TFJob": ("tfReplicaSpecs", "tensorflow", ()),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost", ("Master", "Worker")),
}  # fmt: skip
_ONE_MASTER = frozenset({"PaddleJob", "PyTorchJob", "XGBoostJob"})
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_MPI, _MPI_VERSION = "MPIJob.kubeflow.org", "kubeflow.org/v2beta1"
_RESTARTS = ("Never", "OnFailure")
_MPI_WORDS = {
    ("mpiImplementation",): ("OpenMPI", "Intel", "MPICH"),
    ("runPolicy", "cleanPodPolicy"): ("None", "Running", "All"),
}
_VOLCANO = "Job.batch.volcano.sh"


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        if thing.api_version == _V1 and thing.kind in _KINDS:
            yield from _training(thing, *_KINDS[thing.kind])
        elif thing.key == _MPI and thing.api_version == _MPI_VERSION:
            yield from _mpi(thing)
        elif thing.key == _VOLCANO:
            yield from _volcano(thing)


def _training(thing: Obj, field: str, container: str, roles: tuple[str, ...]) -> Iterator[Finding]:
    if thing.name and not _NAME.fullmatch(thing.name):
        words = f"{thing.name!r} is no name of a Service, which begins with a letter and has no dot"
        yield thing.found("name", words, ("metadata", "name"))
    for role, spec in mapping(at(thing.body, "spec", field)).items():
        where: Path = ("spec", field, role)
        if roles and role not in roles:
            yield thing.found("word", f"{role!r} is none of {', '.join(roles)}", where)
            continue
        containers = [one for _, one in entries(spec, "template", "spec", "containers")]
        if container not in {text(at(one, "name")) for one in containers}:
            words = f"the operator needs a container with the name {container}"
            yield thing.found("container", words, (*where, "template", "spec", "containers"))
        count = at(spec, "replicas")
        if role == "Master" and thing.kind in _ONE_MASTER and type(count) is int and count != 1:
            yield thing.found("range", f"{count}: a job has one master", (*where, "replicas"))
        elif role == "Worker" and thing.kind == "PyTorchJob" and type(count) is int and count < 1:
            yield thing.found("range", f"{count} is below 1", (*where, "replicas"))
        yield from _processes(thing, [one for one in containers if at(one, "name") == container])
    if thing.kind == "PyTorchJob":
        yield from _elastic(thing)
        if type(number := at(thing.body, "spec", "nprocPerNode")) is int:
            yield thing.found("schema", f"expected text: write '{number}' in quotes", ("spec", "nprocPerNode"))  # fmt: skip


def _processes(thing: Obj, containers: list[Any]) -> Iterator[Finding]:
    said = text(at(thing.body, "spec", "nprocPerNode"))
    for one in containers if said.isdecimal() else ():
        gpus = asked(mapping(one)).get(GPU)
        if gpus and gpus != Decimal(said):
            words = f"nprocPerNode is {said}, a pod has {quantity.shown(gpus)} GPUs"
            yield thing.warned("rendezvous", words, ("spec", "nprocPerNode"))


def _elastic(thing: Obj) -> Iterator[Finding]:
    policy = at(thing.body, "spec", "elasticPolicy")
    if policy is None:
        return
    where: Path = ("spec", "elasticPolicy")
    if at(thing.body, "spec", "pytorchReplicaSpecs", "Worker") is None:
        yield thing.found("one-of", "an elasticPolicy needs the replicas `Worker`", where)
    if at(policy, "nProcPerNode") is not None and at(thing.body, "spec", "nprocPerNode") is not None:
        words = "nprocPerNode and elasticPolicy.nProcPerNode exclude each other"
        yield thing.found("one-of", words, (*where, "nProcPerNode"))


def _mpi(thing: Obj) -> Iterator[Finding]:
    specs = mapping(at(thing.body, "spec", "mpiReplicaSpecs"))
    launchers, workers = at(specs, "Launcher", "replicas"), at(specs, "Worker", "replicas")
    if specs and "Launcher" not in specs:
        yield thing.found("one-of", "the replicas `Launcher` are required", ("spec", "mpiReplicaSpecs"))
    if type(launchers) is int and launchers != 1:
        words = f"{launchers}: a job has one launcher"
        yield thing.found("range", words, ("spec", "mpiReplicaSpecs", "Launcher", "replicas"))
    if type(workers) is int and workers < 1:
        words = f"{workers} is below 1"
        yield thing.found("range", words, ("spec", "mpiReplicaSpecs", "Worker", "replicas"))
    for way, known in _MPI_WORDS.items():
        said = at(thing.body, "spec", *way)
        if isinstance(said, str) and said not in known:
            yield thing.found("word", f"{said!r} is none of {', '.join(known)}", ("spec", *way))
    for role, spec in specs.items():
        policy = at(spec, "restartPolicy")
        if isinstance(policy, str) and policy not in ("", *_RESTARTS):
            words = f"{policy!r} is none of {', '.join(_RESTARTS)}"
            yield thing.found("word", words, ("spec", "mpiReplicaSpecs", role, "restartPolicy"))
    yield from _slots(thing, specs)


def _slots(thing: Obj, specs: Any) -> Iterator[Finding]:
    """mpirun of Open MPI ends at once if it is told to start more processes than there are slots."""
    slots, workers = at(thing.body, "spec", "slotsPerWorker"), at(specs, "Worker", "replicas")
    other = at(thing.body, "spec", "mpiImplementation") not in (None, "OpenMPI")
    if type(workers) is not int or other:
        return
    each = slots if type(slots) is int else 1
    hosts = workers + (at(thing.body, "spec", "runLauncherAsWorker") is True)
    for path, container in entries(specs, "Launcher", "template", "spec", "containers"):
        command = launcher_options.command(mapping(container))
        for number in launcher_options.processes(command) if "oversubscribe" not in command else ():
            if number > each * hosts:
                words = f"mpirun starts {number} processes, and {hosts} workers have {each * hosts} slots: it ends at once"
                part = "args" if items(at(container, "args")) else "command"
                yield thing.warned("rendezvous", words, ("spec", "mpiReplicaSpecs", "Launcher", "template", "spec", *path[3:], part))  # fmt: skip


def _volcano(thing: Obj) -> Iterator[Finding]:
    total, seen = 0, set[str]()
    for path, task in entries(thing.body, "spec", "tasks"):
        count, least, name = at(task, "replicas"), at(task, "minAvailable"), text(at(task, "name"))
        count = count if type(count) is int else 1
        total += count
        if type(least) is int and least > count:
            yield thing.found("replicas", f"minAvailable {least} is above replicas {count}", (*path, "minAvailable"))  # fmt: skip
        if name and name in seen:
            yield thing.found("container", f"the task {name!r} is given twice", (*path, "name"))
        seen.add(name)
    least = at(thing.body, "spec", "minAvailable")
    if not at(thing.body, "spec", "tasks"):
        yield thing.found("one-of", "a job needs a task", ("spec", "tasks"))
    elif type(least) is int and least > total:
        words = f"minAvailable {least} is above the {total} pods of its tasks"
        yield thing.found("replicas", words, ("spec", "minAvailable"))
