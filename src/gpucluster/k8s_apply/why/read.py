"""Read the cluster for one subject. Nothing changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpucluster.errors import StateError
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply.faults import RefusedError
from gpucluster.k8s_apply.kubectl import Kind, Kubectl
from gpucluster.k8s_apply.ownership import TRAIN_JOB
from gpucluster.k8s_apply.why.evidence import Evidence, name_of, owners

_KUEUE = "kueue.x-k8s.io/v1beta2"
_SUBJECTS: tuple[Kind, ...] = (
    ("v1", "Pod"), ("batch/v1", "Job"), ("batch/v1", "CronJob"), ("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("apps/v1", "DaemonSet"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"), ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
    TRAIN_JOB, (_KUEUE, "Workload"),
)  # fmt: skip
_INSIDE: tuple[Kind, ...] = (
    *(kind for kind in _SUBJECTS if kind[1] != "Workload"), ("apps/v1", "ReplicaSet"), ("v1", "PersistentVolumeClaim"), ("v1", "Event"),
    (_KUEUE, "LocalQueue"), (_KUEUE, "Workload"),
)  # fmt: skip
_CLUSTER: tuple[Kind, ...] = (
    ("v1", "Node"), ("v1", "Namespace"), (_KUEUE, "ClusterQueue"), (_KUEUE, "Workload"),
    ("karpenter.sh/v1", "NodePool"), ("karpenter.sh/v1", "NodeClaim"), ("karpenter.k8s.aws/v1", "EC2NodeClass"),
)  # fmt: skip
_OF_CLUSTER = "default"  # the namespace of the events of objects without one


class NoSubjectError(StateError):
    """There is no such object."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Subject:
    """What the user asks for. Empty parts match all."""

    name: str
    namespace: str = ""
    kind: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.namespace, self.kind, self.name) if part)


def subject_of(words: str) -> Subject:
    """Read NAME, NAMESPACE/NAME or NAMESPACE/KIND/NAME."""
    match words.split("/"):
        case [name] if name:
            return Subject(name)
        case [namespace, name] if namespace and name:
            return Subject(name, namespace)
        case [namespace, kind, name] if namespace and kind and name:
            return Subject(name, namespace, kind)
        case _:
            step = "write NAME, NAMESPACE/NAME or NAMESPACE/KIND/NAME"
            raise StateError(f"{words!r} is no name", next_step=step)


def read(kubectl: Kubectl, subject: Subject) -> Evidence:
    """Return what the cluster has about the subject; StateError if there is none of that name, or several."""
    root = _root(kubectl, subject)
    namespace = root["metadata"]["namespace"]
    inside, closed = readable(kubectl, _INSIDE, namespace)
    outside, hidden = readable(kubectl, _CLUSTER)
    events, unseen = readable(kubectl, (("v1", "Event"),), _OF_CLUSTER)
    by_uid = {one["metadata"]["uid"]: one for one in (*inside, *outside, *events)}
    elsewhere = ("Event of the cluster" if unseen else "", *map(_elsewhere, hidden))
    unread = tuple(sorted({*closed, *filter(None, elsewhere)}))
    return Evidence(_queued(root, by_uid), tuple(by_uid.values()), unread)


def _elsewhere(kind: str) -> str:
    """Return the name of a kind that may not be read in all namespaces, though perhaps in that of the subject."""
    return f"{kind} of other namespaces" if kind in {name for _, name in _INSIDE} else kind


def _queued(root: Manifest, by_uid: Mapping[str, Manifest]) -> Manifest:
    """Return what Kueue made a Workload of; any other object as it is."""
    owner = next((by_uid[key] for key in owners(root) if key in by_uid), None)
    return owner if root["kind"] == "Workload" and owner is not None else root


def readable(
    kubectl: Kubectl, kinds: Sequence[Kind], namespace: str = "", name: str = ""
) -> tuple[list[Manifest], tuple[str, ...]]:
    """Return the objects of the kinds, and the kinds that the user may not read."""
    try:
        return kubectl.find(kinds, namespace=namespace, name=name), ()
    except RefusedError as error:
        if "(Forbidden)" not in error.text:
            raise
        if len(kinds) == 1:
            return [], (kinds[0][1],)
    middle = len(kinds) // 2
    first, second = (readable(kubectl, some, namespace, name) for some in (kinds[:middle], kinds[middle:]))
    return first[0] + second[0], first[1] + second[1]


def _root(kubectl: Kubectl, subject: Subject) -> Manifest:
    kinds = [kind for kind in _SUBJECTS if subject.kind in ("", kind[1])]
    if not kinds:
        known = ", ".join(sorted(kind for _, kind in _SUBJECTS))
        raise StateError(f"{subject.kind} is no kind that runs pods", next_step=f"one of {known}")
    found, closed = readable(kubectl, kinds, subject.namespace, subject.name)
    own = [one for one in found if not _owned_by(one, found)]
    if not own:
        raise _none(subject, closed)
    if len(own) > 1:
        raise StateError(
            f"{subject} names several: {', '.join(sorted(map(name_of, own)))}", next_step="write one of these"
        )
    return own[0]


def _owned_by(one: Manifest, others: Sequence[Manifest]) -> bool:
    """Return whether one of the others owns it: a JobSet and its Job may have one name."""
    return any(other["metadata"]["uid"] in owners(one) for other in others)


def _none(subject: Subject, closed: Sequence[str]) -> NoSubjectError:
    where = f"in the namespace {subject.namespace}" if subject.namespace else "in any namespace"
    hidden = f"; not readable for you: {', '.join(closed)}" if closed else ""
    step = (
        f"kubectl get pods --namespace {subject.namespace}"
        if subject.namespace
        else "kubectl get pods --all-namespaces"
    )
    if closed and not subject.namespace:
        step = "write NAMESPACE/NAME with the namespace of your team"
    words = f"there is no {subject.kind or 'pod or workload'} {subject.name} {where}{hidden}"
    return NoSubjectError(words, next_step=step)
