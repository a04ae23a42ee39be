"""Where Kueue reads the label of a queue: at the workload, not at its pods."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.kueue import CLUSTER_QUEUE, LOCAL_QUEUE, QUEUE_LABEL, queue_of
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import JOBSET, TRAIN_JOB, pods_of
from gpucluster.k8s.lint.tree import Path, at, mapping

_CRON = "CronJob.batch"
_OWNERS: dict[str, Path] = {  # where the labels are that Kueue reads
    "Job.batch": ("metadata", "labels"),
    JOBSET: ("metadata", "labels"),
    _CRON: ("spec", "jobTemplate", "metadata", "labels"),
}


# pkg/controller/constants and apis/kueue of Kueue 0.19: what people write at pods and workloads
_PREFIX = "kueue.x-k8s.io/"
_KNOWN = frozenset(
    f"{_PREFIX}{name}"
    for name in (
        "elastic-job", "job-completions-equal-parallelism", "job-min-parallelism", "managed", "max-exec-time-seconds", "pod-group-fast-admission",
        "pod-group-name", "pod-group-pod-index", "pod-group-pod-index-label", "pod-group-serving", "pod-group-total-count", "pod-suspending-parent",
        "podset-group-name", "podset-preferred-topology", "podset-required-topology", "podset-slice-required-topology",
        "podset-slice-required-topology-constraints", "podset-slice-size", "podset-unconstrained-topology", "prebuilt-workload-name", "priority-boost",
        "priority-class", "queue-name", "retriable-in-group", "safe-to-forcefully-delete", "workload-allowed-resource-flavors",
    )
)  # fmt: skip
_OF_KUEUE = frozenset({"cluster-queue-name", "local-queue-name", "podset", "podset-replica-sizes", "workload", "workload-slice-name"})  # it writes these  # fmt: skip
_NEAR = 0.85
_MISSPELT = frozenset(
    {"kueue.x-k8s.io/queue", "kueue.x-k8s.io/queuename", "kueue.x-k8s.io/queue_name", "kueue.x-k8s.io/localqueue", "kueue.x-k8s.io/local-queue", "kueue.sigs.k8s.io/queue-name", "x-k8s.io/queue-name"}
)  # fmt: skip
_STARTED = frozenset({"Job.batch", JOBSET, TRAIN_JOB})  # kinds that Kueue starts


def check(manifests: ManifestSet) -> Iterator[Finding]:
    """Without its label there the workload starts at once, outside of all quotas."""
    for queue in manifests.all(CLUSTER_QUEUE):
        yield from _namespaces(queue)
    for queue in manifests.all(CLUSTER_QUEUE, LOCAL_QUEUE):
        yield from _held(queue)
    for thing in manifests.objects:
        yield from _misplaced(thing)
        yield from _near(thing, mapping(thing.body.get("metadata")), ("metadata",))
        for pods in pods_of(thing):
            if pods.path:
                yield from _near(thing, mapping(pods.template.get("metadata")), pods.where("metadata"))
        yield from _suspended(manifests, thing)
        way = _OWNERS.get(thing.key)
        if way is None or QUEUE_LABEL in mapping(at(thing.body, *map(str, way))):
            continue
        words = f"Kueue reads this at {'.'.join(map(str, way))}, here it queues nothing"
        if thing.key == _CRON and QUEUE_LABEL in thing.labels:
            yield thing.warned("queue-label", words, ("metadata", "labels", QUEUE_LABEL))
        for pods in pods_of(thing):
            if QUEUE_LABEL in pods.labels:
                where = pods.where("metadata", "labels", QUEUE_LABEL)
                yield thing.warned("queue-label", words, where)


def _misplaced(thing: Obj) -> Iterator[Finding]:
    """The first releases of Kueue read an annotation."""
    metadata = mapping(thing.body.get("metadata"))
    if QUEUE_LABEL in mapping(metadata.get("annotations")) and QUEUE_LABEL not in thing.labels:
        words = "Kueue reads a label, and no annotation: it queues nothing"
        yield thing.warned("queue-label", words, ("metadata", "annotations", QUEUE_LABEL))
    for key in thing.labels:
        if key in _MISSPELT:
            words = f"Kueue does not read this label: {QUEUE_LABEL} is meant"
            yield thing.warned("queue-label", words, ("metadata", "labels", key))


def _near(thing: Obj, metadata: Mapping[str, Any], where: Path) -> Iterator[Finding]:
    """Kueue reads no word that is only similar: a gang then starts anywhere, or outside of its queue."""
    for part in ("annotations", "labels"):
        for key in mapping(metadata.get(part)):
            near = (
                get_close_matches(key, sorted(_KNOWN), n=1, cutoff=_NEAR) if key.startswith(_PREFIX) else []
            )
            if near and key not in _KNOWN | _MISSPELT and key.partition("/")[2] not in _OF_KUEUE:
                words = f"Kueue does not read {key}: {near[0]} is meant"
                yield thing.warned("queue-label", words, (*where, part, key))


def _suspended(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    """A queue starts a suspended job. Another controller names itself in `managedBy`."""
    spec = mapping(thing.body.get("spec"))
    waits = thing.key in _STARTED and spec.get("suspend") is True and not spec.get("managedBy")
    if waits and not thing.labels.get(QUEUE_LABEL) and queue_of(manifests, thing) is None:
        words = "is suspended and in no queue: nobody starts it"
        yield thing.warned("suspended", words, ("spec", "suspend"))


def _held(queue: Obj) -> Iterator[Finding]:
    policy = at(queue.body, "spec", "stopPolicy")
    if policy in ("Hold", "HoldAndDrain"):
        words = f"the queue admits nothing with stopPolicy {policy}: remove it when the work on it is done"
        yield queue.warned("suspended", words, ("spec", "stopPolicy"))


def _namespaces(queue: Obj) -> Iterator[Finding]:
    """Kueue takes an absent selector as one of no namespace, and an empty one as one of all."""
    if at(queue.body, "spec", "namespaceSelector") is None:
        words = "without namespaceSelector the queue admits nothing: `{}` takes all namespaces"
        yield queue.warned("queue-namespaces", words, ("spec",))
