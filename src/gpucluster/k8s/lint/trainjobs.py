"""What the webhooks of Kubeflow Trainer refuse in runtimes and TrainJobs, and parts of a TrainJob that its controller leaves out.

Source: pkg/webhooks and pkg/runtime/framework/plugins of Kubeflow Trainer 2.3.0."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.k8s.lint import kueue
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.names import is_subdomain
from gpucluster.k8s.lint.tree import Path, along, at, entries, items, mapping, text
from gpucluster.text import quoted

_GROUP = "trainer.kubeflow.org"
_RUNTIMES = frozenset(f"{kind}.{_GROUP}" for kind in kueue.RUNTIMES)
_JOBS = ("spec", "template", "spec", "replicatedJobs")
_TRAINER = "trainer"
_OF_STEPS = {  # the container that each step needs
    _TRAINER: "node",
    "dataset-initializer": "dataset-initializer",
    "model-initializer": "model-initializer",
}
_INITIALIZERS = {"dataset": "dataset-initializer", "model": "model-initializer"}
_VOLUME = "initializer"
_SET = {  # policy -> the variables that it sets
    "torch": ("PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE"),
    "mpi": ("OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames", "OMPI_MCA_orte_set_default_slots", "OMPI_MCA_plm_rsh_args"),
    "xgboost": ("DMLC_NUM_WORKER", "DMLC_TASK_ID", "DMLC_TRACKER_PORT", "DMLC_TRACKER_URI"),
}  # fmt: skip
_TOLD = ("torch", "jax", "xgboost")  # policies that tell the nodes of each other by variables
_OF_PROJECT = re.compile(r"(torch|xgboost)-distributed(?:-with-cache)?|(torch)tune-.*", re.ASCII)
_TUNE = ["tune", "run"]
_OWN_OF_TUNE = ("checkpointer.checkpoint_dir", "output_dir", "tokenizer.merges_file", "tokenizer.path")
_OVER_NODES = "-70b"  # the end of the only runtime of torchtune for several nodes
_MANAGER = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", re.ASCII)


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        if thing.key in _RUNTIMES:
            yield from _steps(thing)
        elif thing.key == kueue.TRAIN_JOB:
            yield from _job(manifests, thing)


def _steps(runtime: Obj) -> Iterator[Finding]:
    for path, job in entries(runtime.body, *_JOBS):
        step = text(at(job, "template", "metadata", "labels", kueue.STEP))
        if step not in _OF_STEPS:
            continue
        replicas = at(job, "replicas")
        if type(replicas) is int and replicas != 1:
            words = f"{replicas}: the job of a step has one replica, and `numNodes` its nodes"
            yield runtime.found("range", words, (*path, "replicas"))
        if _OF_STEPS[step] not in _containers(job, "containers"):
            words = f"the step {step} needs a container with the name {_OF_STEPS[step]}"
            where = (*path, "template", "spec", "template", "spec", "containers")
            yield runtime.found("container", words, where)


def _containers(job: Any, *kinds: str) -> set[str]:
    spec = at(job, "template", "spec", "template", "spec")
    return {text(at(one, "name")) for kind in kinds for _, one in entries(spec, kind)}


def _job(manifests: ManifestSet, job: Obj) -> Iterator[Finding]:
    ref = mapping(at(job.body, "spec", "runtimeRef"))
    kind, name = text(ref.get("kind")) or kueue.RUNTIMES[0], text(ref.get("name"))
    runtime = kueue.runtime_of(manifests, job)
    if ref and (kind not in kueue.RUNTIMES or text(ref.get("apiGroup")) not in ("", _GROUP)):
        words = f"expected {' or '.join(kueue.RUNTIMES)} of {_GROUP}, found {kind} of {text(ref.get('apiGroup')) or _GROUP}"
        yield job.found("word", words, ("spec", "runtimeRef"))
    yield from _managers(job)
    if runtime is not None:
        policy = mapping(at(runtime.body, "spec", "mlPolicy"))
        jobs = {text(at(one, "name")): one for _, one in entries(runtime.body, *_JOBS)}
        yield from _variables(job, policy, Severity.ERROR)
        yield from _nodes(job, policy, jobs)
        yield from _targets(job, policy, jobs)
        yield from _initializers(job, jobs)
        yield from _patches(job, jobs)
        yield from _left_out(job, policy, jobs)
    elif kind == kueue.RUNTIMES[0] and (known := _OF_PROJECT.fullmatch(name)):
        yield from _variables(job, {known[1] or known[2]: {}}, Severity.WARNING)
    if items(at(job.body, "spec", "trainer", "command")) == _TUNE:
        yield from _tuned(job, name, Severity.ERROR if runtime else Severity.WARNING)


def _variables(job: Obj, policy: Mapping[str, Any], level: Severity) -> Iterator[Finding]:
    reserved = {name for kind, names in _SET.items() if kind in policy for name in names}
    for path, one in entries(job.body, "spec", "trainer", "env"):
        if (name := text(at(one, "name"))) in reserved:
            words = f"the runtime sets {name} from numNodes and numProcPerNode: remove it"
            yield job.found("variable", words, (*path, "name"), level)


def _nodes(job: Obj, policy: Mapping[str, Any], jobs: Mapping[str, Any]) -> Iterator[Finding]:
    trainer = mapping(at(job.body, "spec", "trainer"))
    number, processes = trainer.get("numNodes"), trainer.get("numProcPerNode")
    alone = at(policy, "mpi", "runLauncherAsNode") is True and not {"launcher", "node"} <= {*jobs}
    if alone and type(number) is int and number > 1:
        words = f"{number}: the runtime has no jobs `launcher` and `node`, and runs its launcher as a node, so 1 is the most"
        yield job.found("range", words, ("spec", "trainer", "numNodes"))
    if "flux" in policy and type(processes) is int and processes < 1:
        yield job.found("range", f"{processes} is below 1", ("spec", "trainer", "numProcPerNode"))


def _targets(job: Obj, policy: Mapping[str, Any], jobs: Mapping[str, Any]) -> Iterator[Finding]:
    for _, target in along(policy, ["torch", "envInjection", "targets", "*"]):
        where = text(at(target, "jobName"))
        for name in map(text, items(at(target, "containerNames"))):
            if name not in _containers(jobs.get(where), "containers", "initContainers"):
                words = f"the runtime gives variables to container {quoted(name)} of job {quoted(where)}, which it does not have"
                yield job.found("container", words, ("spec", "runtimeRef"))


def _initializers(job: Obj, jobs: Mapping[str, Any]) -> Iterator[Finding]:
    for field, name in _INITIALIZERS.items():
        if at(job.body, "spec", "initializer", field) is None:
            continue
        where: Path = ("spec", "initializer", field)
        if name not in jobs:
            yield job.found("depends-on", f"the runtime has no job {quoted(name)}", where)
        elif name not in _containers(jobs[name], "containers"):
            words = f"job {quoted(name)} of the runtime has no container of that name"
            yield job.found("container", words, where)
        elif not _is_mounted(jobs[name], name):
            words = f"container {quoted(name)} of the runtime does not mount the volume {_VOLUME}"
            yield job.found("volume", words, where)


def _is_mounted(job: Any, name: str) -> bool:
    found = along(job, ["template", "spec", "template", "spec", "containers", "*"])
    return any(
        at(mount, "name") == _VOLUME
        for _, container in found
        if at(container, "name") == name
        for _, mount in entries(container, "volumeMounts")
    )


def _managers(job: Obj) -> Iterator[Finding]:
    for path, patch in entries(job.body, "spec", "runtimePatches"):
        written = text(at(patch, "manager"))
        domain, slash, rest = written.partition("/")
        if written and not (slash and is_subdomain(domain) and _MANAGER.fullmatch(rest)):
            words = f"{quoted(written)} is no manager such as example.org/admission"
            yield job.found("name", words, (*path, "manager"))


def _patches(job: Obj, jobs: Mapping[str, Any]) -> Iterator[Finding]:
    way = ["spec", "runtimePatches", "*", "trainingRuntimeSpec", "template", "spec", "replicatedJobs", "*"]
    for path, patch in along(job.body, way):
        name, inside = text(at(patch, "name")), ("template", "spec", "template", "spec")
        if name not in jobs:
            yield job.found("depends-on", f"the runtime has no job {quoted(name)}", (*path, "name"))
            continue
        there = _containers(jobs[name], "containers", "initContainers")
        for kind in ("containers", "initContainers"):
            for inner, one in entries(at(patch, *inside), kind):
                where = (*path, *inside, *inner)
                if (container := text(at(one, "name"))) not in there:
                    words = f"job {quoted(name)} of the runtime has no container {quoted(container)}"
                    yield job.found("container", words, (*where, "name"))
                elif kind == "containers" and at(one, "env") and container in _OF_STEPS.values():
                    words = (
                        f"a patch gives no variables to {container}: write them at `trainer` or `initializer`"
                    )
                    yield job.found("variable", words, (*where, "env"))


def _left_out(job: Obj, policy: Mapping[str, Any], jobs: Mapping[str, Any]) -> Iterator[Finding]:
    """The controller takes parts of a TrainJob for the job of one step, and tells the nodes of each other only with `trainer`."""
    trainer, nodes = at(job.body, "spec", "trainer"), policy.get("numNodes")
    steps = {at(one, "template", "metadata", "labels", kueue.STEP) for one in jobs.values()}
    if trainer and _TRAINER not in steps:
        words = f"no job of the runtime has the label {kueue.STEP}: {_TRAINER}, so all of it is ignored"
        yield job.warned("depends-on", words, ("spec", "trainer"))
    told = [kind for kind in _TOLD if kind in policy]
    if trainer is None and told and type(nodes) is int and nodes > 1:
        words = f"without `trainer` its {nodes} nodes get no variables of {told[0]}, and each runs alone: write `trainer: {{}}` with an image or a command"
        yield job.warned("rendezvous", words, ("spec",))


def _tuned(job: Obj, runtime: str, level: Severity) -> Iterator[Finding]:
    number = at(job.body, "spec", "trainer", "numNodes")
    if type(number) is int and number > 1 and not runtime.lower().endswith(_OVER_NODES):
        words = f"{number}: torchtune trains this model on one node"
        yield job.found("range", words, ("spec", "trainer", "numNodes"), level)
    for path, word in entries(job.body, "spec", "trainer", "args"):
        if (key := text(word).partition("=")[0]) in _OWN_OF_TUNE:
            yield job.found("one-of", f"the runtime sets {key}: remove it", path, level)
