"""What the launcher of a distributed program is told, and what the manifest has: nodes, processes, GPUs, names, ranks."""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint import launcher_options, ray_jobs
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.gangs import GPU, is_gang
from gpucluster.k8s.lint.kueue import TRAIN_JOB
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import JOBSET, Pods, amounts, asked, needs, pods_of
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text

_JOB, _MPI = "Job.batch", "MPIJob.kubeflow.org"
_LWS = "LeaderWorkerSet.leaderworkerset.x-k8s.io"
_COUNTED = frozenset({_JOB, JOBSET})
_ONE_HOST = frozenset(  # kinds of which each pod is a server of its own
    {"Deployment.apps", "ReplicaSet.apps", "StatefulSet.apps", "Pod", "InferenceService.serving.kserve.io"}
)
_RENDEZVOUS = ("MASTER_ADDR", "PET_MASTER_ADDR")
_TORCH = re.compile(r"\btorchrun\b|\btorch\.distributed\.(?:run|launch)\b")
_NODES = re.compile(r"--nnodes[= ](\d{1,6})(?![\d:])", re.ASCII)  # `1:4` is elastic
_PROCESSES = re.compile(r"--nproc[_-]per[_-]node[= ](\d{1,6})\b", re.ASCII)
_TENSOR = re.compile(r"(?:--tensor[-_]parallel(?:[-_]size)?|-tp(?:[-_]size)?)[= ](\d{1,4})(?!\S)", re.ASCII)
_PIPELINE = re.compile(
    r"(?:--pipeline[-_]parallel(?:[-_]size)?|-pp(?:[-_]size)?)[= ](\d{1,4})(?!\S)", re.ASCII
)
_ACCELERATE = re.compile(r"\baccelerate launch\b", re.ASCII)
_MACHINES = re.compile(r"--num[-_]machines[= ](\d{1,6})\b", re.ASCII)
_OF_ALL = re.compile(r"--num[-_]processes[= ](\d{1,6})\b", re.ASCII)
_GROUP_NODES = re.compile(r"--nnodes[= ](\d{1,6})(?!\S)", re.ASCII)
_RAY = re.compile(
    r"\bray start\b|--distributed-executor-backend[= ]ray\b", re.ASCII
)  # several pods are one server
_RAY_IMAGE = re.compile(r"(?:docker\.io/)?rayproject/ray(?:-ml|-llm)?:(\d+\.\d+\.\d+)(?:-.*?(py3\d+).*|-.*)?", re.ASCII)  # fmt: skip
_NODE_NAMES = frozenset({"NNODES", "NUM_NODES", "PET_NNODES"})  # variables with the number of nodes
_PROCESS_NAMES = frozenset({"GPUS_PER_NODE", "NPROC_PER_NODE", "PET_NPROC_PER_NODE"})
_DEVICES = re.compile(r"\d{1,3}(,\d{1,3})*", re.ASCII)
_RAY_SIZE = re.compile(
    r"--ray_cluster_size[= ](\d{1,4})(?!\S)", re.ASCII
)  # of vLLM's script for several nodes
_OF_A_SET = re.compile(r"(?P<job>[a-z0-9-]+)-\d+-\d+\.(?P<network>[a-z0-9-]+)(?:\..*)?", re.ASCII)
_INDEX = "JOB_COMPLETION_INDEX"


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        all_pods = list(pods_of(thing))
        for pods in all_pods:
            if is_gang(pods) or _is_alone(pods):
                yield from _variables(pods, all_pods)
                yield from _torch(pods, all_pods)
                yield from _accelerate(pods, all_pods)
                yield from _resolution(pods)
            yield from _visible(pods)
            yield from _width(pods)
            yield from _first(pods)
            yield from _index(pods)
            yield from _shards(pods)
        yield from _mpi(thing, all_pods) if thing.key == _MPI else ()
        yield from _train(thing) if thing.key == TRAIN_JOB else ()
        yield from _group(thing, all_pods) if thing.key == _LWS else ()
        if thing.group == ray_jobs.GROUP:
            yield from _ray(thing, all_pods)
            yield from _ray_images(thing, all_pods)


def _late(what: str, said: Decimal, has: Decimal) -> str:
    return f"{what} is {quantity.shown(said)}, the manifest has {quantity.shown(has)}: the processes wait for each other until the time-out"


def _variables(pods: Pods, all_pods: list[Pods]) -> Iterator[Finding]:
    for path, container in pods.containers():
        for inner, variable in entries(container, "env"):
            name, value = text(at(variable, "name")), text(at(variable, "value"))
            if value.isdecimal():
                where = (*path, *inner, "value")
                if name in _NODE_NAMES:
                    yield from _nodes(pods, all_pods, name, Decimal(value), where)
                elif name in _PROCESS_NAMES:
                    yield from _processes(pods, container, name, Decimal(value), where)
                elif name == "WORLD_SIZE":
                    yield from _ranks(pods, all_pods, name, Decimal(value), where)


def _is_alone(pods: Pods) -> bool:
    """An Indexed job runs one pod at once without `parallelism`."""
    spec = mapping(pods.owner.body.get("spec"))
    return pods.owner.key == _JOB and spec.get("completionMode") == "Indexed" and GPU in needs(pods)


def _width(pods: Pods) -> Iterator[Finding]:
    """Pods of a job that look for each other must all run at once. Pods of a JobSet are in `values`."""
    spec = mapping(pods.owner.body.get("spec"))
    width, count = spec.get("parallelism", 1), spec.get("completions")
    if pods.owner.key != _JOB or spec.get("completionMode") != "Indexed" or type(count) is not int:
        return
    told = {text(at(one, "name")) for _, container in pods.containers() for _, one in entries(container, "env")}  # fmt: skip
    wide = any(number == str(width) != "1" for _, one in pods.containers() for number in _NODES.findall(launcher_options.command(one)))  # fmt: skip
    if type(width) is int and width != count and (wide or told & {*_RENDEZVOUS}):
        words = f"{width} parallel pods and {count} completions: both must be equal in a gang"
        yield pods.owner.warned("gang-width", words, ("spec", "completions"))


def _ranks(pods: Pods, all_pods: list[Pods], what: str, said: Decimal, where: Path) -> Iterator[Finding]:
    """A rank is a pod or a GPU, of this job or of the whole set."""
    with_gpus = [one for one in all_pods if GPU in needs(one)]
    ranks = {Decimal(pods.count), needs(pods).get(GPU, Decimal(0)) * pods.count}
    ranks |= {Decimal(sum(one.count for one in with_gpus)), sum((needs(one)[GPU] * one.count for one in with_gpus), start=Decimal(0))}  # fmt: skip
    if pods.owner.key in _COUNTED and said not in ranks:
        numbers = " or ".join(quantity.shown(one) for one in sorted(ranks - {Decimal(0)}))
        words = f"{what} is {quantity.shown(said)}, the manifest has {numbers} ranks: the processes wait for each other until the time-out"
        yield pods.owner.warned("rendezvous", words, where)


def _accelerate(pods: Pods, all_pods: list[Pods]) -> Iterator[Finding]:
    """Its number of processes is that of all machines."""
    for where, _, written in _starting(pods, _ACCELERATE):
        for number in _MACHINES.findall(written):
            yield from _nodes(pods, all_pods, "--num_machines", Decimal(number), where)
        for number in _OF_ALL.findall(written):
            yield from _ranks(pods, all_pods, "--num_processes", Decimal(number), where)


def _visible(pods: Pods) -> Iterator[Finding]:
    """A container sees its own GPUs only, and counts them from 0. CUDA leaves out all from the first that is not there."""
    for path, container in pods.containers():
        gpus = asked(container).get(GPU)
        for inner, one in entries(container, "env") if gpus else ():
            value = text(at(one, "value"))
            if at(one, "name") == "CUDA_VISIBLE_DEVICES" and _DEVICES.fullmatch(value):
                last = max(int(number) for number in value.split(","))
                if gpus is not None and last >= gpus:
                    words = f"names GPU {last}, the container has {quantity.shown(gpus)}, counted from 0: remove the variable"
                    yield pods.owner.warned("rendezvous", words, (*path, *inner, "value"))


def _torch(pods: Pods, all_pods: list[Pods]) -> Iterator[Finding]:
    for where, container, written in _starting(pods, _TORCH):
        for number in _NODES.findall(written):
            yield from _nodes(pods, all_pods, "--nnodes", Decimal(number), where)
        for number in _PROCESSES.findall(written):
            yield from _processes(pods, container, "--nproc-per-node", Decimal(number), where)


def _starting(pods: Pods, program: re.Pattern[str]) -> Iterator[tuple[Path, Mapping[str, Any], str]]:
    """Yield the containers that start the program: the place of its words, the container, and its options."""
    for path, container in pods.containers():
        written = launcher_options.command(container)
        if program.search(written):
            where = (*path, "args" if items(container.get("args")) else "command")
            yield where, container, launcher_options.of_program(written, program)


def _nodes(pods: Pods, all_pods: list[Pods], what: str, said: Decimal, where: Path) -> Iterator[Finding]:
    """A set can have its first node in a job of its own."""
    together = sum(one.count for one in all_pods if GPU in needs(one))
    if pods.owner.key in _COUNTED and said not in (pods.count, together):
        yield pods.owner.warned("rendezvous", _late(what, said, Decimal(pods.count)), where)


def _processes(
    pods: Pods, container: Mapping[str, Any], what: str, said: Decimal, where: Path
) -> Iterator[Finding]:
    gpus = asked(container).get(GPU)
    if gpus is not None and gpus == int(gpus) and said != gpus:
        yield pods.owner.warned("rendezvous", _late(what, said, gpus), where)


def _shards(pods: Pods) -> Iterator[Finding]:
    """A server of one host takes a GPU for each shard. KServe's `workerSpec` makes it one of several hosts."""
    if pods.owner.key not in _ONE_HOST or at(pods.owner.body, "spec", "predictor", "workerSpec") is not None:
        return
    for path, container in pods.containers():
        written = launcher_options.command(container)
        gpus = asked(container).get(GPU, Decimal(0)) * _product(_GROUP_NODES.findall(written))
        shards = _product(_TENSOR.findall(written)) * _product(_PIPELINE.findall(written))
        if shards > gpus >= 1 and not _RAY.search(written):
            words = f"{shards} shards of the model and {quantity.shown(gpus)} GPUs: the server does not start"
            yield pods.owner.warned("rendezvous", words, (*path, "args"))


def _product(numbers: list[str]) -> int:
    return int(numbers[-1]) if numbers else 1


def _mpi(thing: Obj, all_pods: list[Pods]) -> Iterator[Finding]:
    """With one process a worker, each process starts those of its GPUs."""
    slots = at(thing.body, "spec", "slotsPerWorker")
    started = {number for pods in all_pods for _, one in pods.containers() for number in launcher_options.processes(launcher_options.command(one))}  # fmt: skip
    for pods in all_pods if type(slots) is int else ():
        gpus = needs(pods).get(GPU, Decimal(0))
        if "Worker" in pods.path and gpus > 0 and gpus != slots and pods.count not in started:
            words = f"slotsPerWorker is {slots}, a worker has {quantity.shown(gpus)} GPUs: mpirun starts one process a slot"
            yield thing.warned("rendezvous", words, ("spec", "slotsPerWorker"))


def _train(thing: Obj) -> Iterator[Finding]:
    trainer = mapping(at(thing.body, "spec", "trainer"))
    said = trainer.get("numProcPerNode")
    resources = mapping(trainer.get("resourcesPerNode"))
    gpus = {**amounts(resources.get("requests")), **amounts(resources.get("limits"))}.get(GPU)
    if type(said) is int and gpus is not None and gpus != said:
        words = f"numProcPerNode is {said}, a node has {quantity.shown(gpus)} GPUs"
        yield thing.warned("rendezvous", words, ("spec", "trainer", "numProcPerNode"))
    nodes = trainer.get("numNodes")
    for number in _NODES.findall(launcher_options.command(trainer)):
        if isinstance(nodes, int) and int(number) != nodes:
            words = _late("--nnodes", Decimal(number), Decimal(nodes))
            yield thing.warned("rendezvous", words, ("spec", "trainer", "command"))


def _group(thing: Obj, all_pods: list[Pods]) -> Iterator[Finding]:
    """The pods of one group are one server: the leader and `size` - 1 workers. Without a leader's template all are alike."""
    size = at(thing.body, "spec", "leaderWorkerTemplate", "size")
    size = size if type(size) is int else 1
    by_part = {pods.path[-1]: needs(pods).get(GPU, Decimal(0)) for pods in all_pods}
    worker = by_part.get("workerTemplate", Decimal(0))
    gpus = by_part.get("leaderTemplate", worker) + worker * (size - 1)
    for pods in all_pods:
        for path, container in pods.containers():
            written = launcher_options.command(container)
            shards = _product(_TENSOR.findall(written)) * _product(_PIPELINE.findall(written))
            if shards > gpus >= 1:
                words = f"{shards} shards of the model, and the group has {quantity.shown(gpus)} GPUs: the server does not start"
                yield thing.warned("rendezvous", words, (*path, "args"))
            for number in _GROUP_NODES.findall(written):
                if int(number) != size:
                    words = _late("--nnodes", Decimal(number), Decimal(size))
                    yield thing.warned("rendezvous", words, (*path, "args"))
            for number in _RAY_SIZE.findall(written):
                if int(number) != size:
                    words = _late("--ray_cluster_size", Decimal(number), Decimal(size))
                    yield thing.warned("rendezvous", words, (*path, "args"))


def _ray(thing: Obj, all_pods: list[Pods]) -> Iterator[Finding]:
    """Ray plans by this number, and by the pod's GPUs without it."""
    for pods in all_pods:
        where, given = ray_jobs.parameters(pods)
        said = text(at(given, "num-gpus"))
        gpus = needs(pods).get(GPU, Decimal(0))
        if said.isdecimal() and int(said) > gpus > 0:
            words = f"num-gpus is {said}, the pod has {quantity.shown(gpus)} GPUs: Ray starts more than fits"
            yield thing.warned("rendezvous", words, (*where, "num-gpus"))


def _ray_images(thing: Obj, all_pods: list[Pods]) -> Iterator[Finding]:
    """Workers of another version of Ray or Python than the head's are refused by it."""
    heads = [pods for pods in all_pods if "headGroupSpec" in pods.path]
    first = next((found for pods in heads if (found := _ray_image(pods))), None)
    for pods in all_pods if first else ():
        other = _ray_image(pods)
        differs = other and first and any(one and two and one != two for one, two in zip(first, other, strict=True))  # fmt: skip
        if differs and first and other and pods not in heads:
            head, worker = (" ".join(filter(None, one)) for one in (first, other))
            words = f"the head has Ray {head}, this group {worker}: its workers cannot join"
            yield thing.warned("rendezvous", words, pods.where("spec", "containers", 0, "image"))


def _ray_image(pods: Pods) -> tuple[str, str] | None:
    """Return the versions of Ray and Python ("" if the tag has none) of an image of the project; None for another image."""
    containers = [one for path, one in pods.containers() if "initContainers" not in path]
    found = _RAY_IMAGE.fullmatch(text(containers[0].get("image"))) if containers else None
    return (found[1], found[2] or "") if found else None


def _first(pods: Pods) -> Iterator[Finding]:
    """JobSet names its pods SET-JOB-INDEX-INDEX, and the network by its subdomain or by the set."""
    body = pods.owner.body
    if pods.owner.key != JOBSET or not pods.owner.name:
        return
    jobs = {
        f"{pods.owner.name}-{text(at(job, 'name'))}" for _, job in entries(body, "spec", "replicatedJobs")
    }
    network = text(at(body, "spec", "network", "subdomain")) or pods.owner.name
    for path, container in pods.containers():
        for inner, variable in entries(container, "env"):
            name = _OF_A_SET.fullmatch(text(at(variable, "value")))
            if (
                text(at(variable, "name")) in _RENDEZVOUS
                and name
                and (name["job"] not in jobs or name["network"] != network)
            ):
                words = (
                    f"no pod of the set has this name; its pods are {sorted(jobs)[0]}-0-0.{network} and so on"
                )
                yield pods.owner.warned("rendezvous", words, (*path, *inner, "value"))


def _index(pods: Pods) -> Iterator[Finding]:
    mode = at(pods.owner.body, "spec", "completionMode")
    if pods.owner.key != _JOB or mode == "Indexed":
        return
    for path, container in pods.containers():
        given = {text(at(one, "name")) for _, one in entries(container, "env")}
        read = [text(at(one, "value")) for _, one in entries(container, "env")]
        if _INDEX not in given and any(
            _INDEX in words for words in (*read, launcher_options.command(container))
        ):
            words = f"reads {_INDEX}, which only the pods of an Indexed job have"
            yield pods.owner.warned("rendezvous", words, path)


def _resolution(pods: Pods) -> Iterator[Finding]:
    """Pods of a set find each other by names of the cluster's DNS."""
    named = any(
        text(at(one, "name")) in _RENDEZVOUS and text(at(one, "value"))
        for _, container in pods.containers()
        for _, one in entries(container, "env")
    )
    if pods.owner.key != JOBSET or not named:
        return
    policy, where = pods.spec.get("dnsPolicy"), pods.where("spec", "dnsPolicy")
    if policy == "Default" or (policy == "None" and not pods.spec.get("dnsConfig")):
        words = f"with dnsPolicy {policy} its pods cannot resolve each other's names"
        yield pods.owner.warned("pod-names", words, where)
    elif pods.spec.get("hostNetwork") is True and policy != "ClusterFirstWithHostNet":
        words = (
            "with hostNetwork its pods need dnsPolicy ClusterFirstWithHostNet to resolve each other's names"
        )
        yield pods.owner.warned("pod-names", words, where)
    if at(pods.owner.body, "spec", "network", "enableDNSHostnames") is False:
        where = ("spec", "network", "enableDNSHostnames")
        yield pods.owner.warned("pod-names", "without enableDNSHostnames its pods have no names", where)
