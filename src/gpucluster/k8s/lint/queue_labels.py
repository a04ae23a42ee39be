"""Where Kueue reads the label of a queue: at the workload, not at its pods."""

from collections.abc import Iterator

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.kueue import QUEUE_LABEL
from gpucluster.k8s.lint.manifest_set import ManifestSet
from gpucluster.k8s.lint.pods import JOBSET, pods_of
from gpucluster.k8s.lint.tree import Path, at, mapping

_CRON = "CronJob.batch"
_OWNERS: dict[str, Path] = {  # where the labels are that Kueue reads
    "Job.batch": ("metadata", "labels"),
    JOBSET: ("metadata", "labels"),
    _CRON: ("spec", "jobTemplate", "metadata", "labels"),
}


def check(manifests: ManifestSet) -> Iterator[Finding]:
    """Without its label there the workload starts at once, outside of all quotas."""
    for thing in manifests.objects:
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
