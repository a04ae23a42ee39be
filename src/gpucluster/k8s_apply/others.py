"""What is in the namespaces of the teams and not of the spec. It would end with the namespace."""

from collections.abc import Iterator

from gpucluster.errors import StateError
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply.clock import some
from gpucluster.k8s_apply.kubectl import Kind
from gpucluster.k8s_apply.objects import Ref, ref_of, rows, top_level
from gpucluster.k8s_apply.ownership import TRAIN_JOB
from gpucluster.k8s_apply.steps import Steps
from gpucluster.plan.codec import JSON

KINDS: tuple[
    Kind, ...
] = (  # what the Role of a team may create, and DaemonSets; suspended and between two runs, too
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("batch/v1", "CronJob"),
    ("batch/v1", "Job"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
    ("policy/v1", "PodDisruptionBudget"),
    TRAIN_JOB,
    (TRAIN_JOB[0], "TrainingRuntime"),
    ("v1", "ConfigMap"),
    ("v1", "Pod"),
    ("v1", "Secret"),
    ("v1", "Service"),
)
# What only an admin of the cluster can make there. Kinds of definitions that nobody here knows are not looked for.
OF_ADMINS: tuple[Kind, ...] = (
    ("networking.k8s.io/v1", "Ingress"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("v1", "LimitRange"),
    ("v1", "ReplicationController"),
    ("v1", "ResourceQuota"),
    ("v1", "ServiceAccount"),
)
_OF_KUBERNETES = (("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default"))  # in each namespace
_NAMING = ("secret", "secretKeyRef", "secretRef")  # fields that have the name of a Secret


def others(found: list[Manifest], mine: set[Ref], steps: Steps) -> list[Manifest]:
    """Return the objects of others among those of a team's namespace. Secrets that the workloads name belong to the spec."""
    named = {secret for one in (*steps.objects, *steps.tests) for secret in secrets(one)}

    def is_ours(one: Manifest) -> bool:
        ref = ref_of(one)
        return (
            ref in mine
            or (ref.kind, ref.name) in _OF_KUBERNETES
            or (ref.kind == "Secret" and ref.name in named)
        )

    return [one for one in top_level(found) if not is_ours(one)]


def secrets(value: JSON) -> Iterator[str]:
    """Yield the names of the Secrets that a manifest mounts, reads or pulls images with."""
    inner: list[JSON] = []
    if isinstance(value, list):
        inner = value
    elif isinstance(value, dict):
        yield from _named(value)
        inner = list(value.values())
    for item in inner:
        yield from secrets(item)


def _named(one: Manifest) -> Iterator[str]:
    if isinstance(one.get("secretName"), str):
        yield one["secretName"]
    fields = (one[key] for key in _NAMING if isinstance(one.get(key), dict))
    yield from (field["name"] for field in fields if "name" in field)
    yield from (row["name"] for row in rows(one, "imagePullSecrets"))


def refused(found: list[Manifest]) -> StateError:
    """Return the error that names the objects of others."""
    named = some([str(ref_of(one)) for one in found], 10)
    return StateError(
        f"the namespaces of the teams have what is not in the spec: {named}; nothing was deleted",
        next_step="wait for it, delete it, or repeat with --delete-others",
    )
