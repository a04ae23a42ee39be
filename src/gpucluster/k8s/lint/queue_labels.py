"""Where Kueue reads the label of a queue: at the workload, not at its pods."""

from collections.abc import Iterator

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.kueue import CLUSTER_QUEUE, QUEUE_LABEL, queue_of
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import JOBSET, pods_of
from gpucluster.k8s.lint.tree import Path, at, mapping

_CRON = "CronJob.batch"
_OWNERS: dict[str, Path] = {  # where the labels are that Kueue reads
    "Job.batch": ("metadata", "labels"),
    JOBSET: ("metadata", "labels"),
    _CRON: ("spec", "jobTemplate", "metadata", "labels"),
}


_MISSPELT = frozenset(
    {"kueue.x-k8s.io/queue", "kueue.x-k8s.io/queuename", "kueue.x-k8s.io/queue_name", "kueue.x-k8s.io/localqueue", "kueue.x-k8s.io/local-queue", "kueue.sigs.k8s.io/queue-name", "x-k8s.io/queue-name"}
)  # fmt: skip
_STARTED = frozenset({"Job.batch", JOBSET})  # kinds that Kueue starts


def check(manifests: ManifestSet) -> Iterator[Finding]:
    """Without its label there the workload starts at once, outside of all quotas."""
    for queue in manifests.all(CLUSTER_QUEUE):
        yield from _namespaces(queue)
    for thing in manifests.objects:
        yield from _misplaced(thing)
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


def _suspended(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    """A queue starts a suspended job. Another controller names itself in `managedBy`."""
    spec = mapping(thing.body.get("spec"))
    waits = thing.key in _STARTED and spec.get("suspend") is True and not spec.get("managedBy")
    if waits and not thing.labels.get(QUEUE_LABEL) and queue_of(manifests, thing) is None:
        words = "is suspended and in no queue: nobody starts it"
        yield thing.warned("suspended", words, ("spec", "suspend"))


def _namespaces(queue: Obj) -> Iterator[Finding]:
    """Kueue takes an absent selector as one of no namespace, and an empty one as one of all."""
    if at(queue.body, "spec", "namespaceSelector") is None:
        words = "without namespaceSelector the queue admits nothing: `{}` takes all namespaces"
        yield queue.warned("queue-namespaces", words, ("spec",))
