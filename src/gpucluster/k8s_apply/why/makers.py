"""Why a controller does not make the pods of an object: the API server refuses them, or a limit of the object is reached. Pure.

Sources: Kubernetes v1.36.2, pkg/controller/controller_utils.go (FailedCreate), plugin/pkg/admission/resourcequota (`exceeded quota`),
staging/src/k8s.io/pod-security-admission (`violates PodSecurity`), pkg/controller/cronjob (events of a schedule); JobSet v0.12.0, pkg/constants.
"""

import re
from collections.abc import Iterator

from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply.objects import condition, rows, section
from gpucluster.k8s_apply.why.cause import Cause, CauseKind
from gpucluster.k8s_apply.why.evidence import (
    Evidence,
    message,
    name_of,
    newest,
    owners,
    reporter,
    seen_at,
    uid,
)
from gpucluster.k8s_apply.why.pods import missing_step

_OF_SCHEDULE = frozenset(
    {"InvalidSchedule", "MissSchedule", "TooManyMissedTimes", "UnknownTimeZone", "UnparseableSchedule"}
)  # of a CronJob
_REFUSED = _OF_SCHEDULE | {"FailedCreate", "FailedCreatePod", "CreatePodFailed", "JobCreationFailed"}
_SCALED = ("Deployment", "LeaderWorkerSet", "ReplicaSet", "StatefulSet")
_TOO_LATE = "ProgressDeadlineExceeded"  # of a Deployment
_FAILURES = (
    ("Failed", "True"),
    ("Progressing", "False"),
)  # conditions of an object that ended, or stands still
_ROWS: tuple[tuple[str, CauseKind, str], ...] = (
    (r"exceeded quota", CauseKind.LIMIT, "kubectl describe resourcequota --namespace {namespace}"),
    (r"(minimum|maximum) .* usage per|must specify limits", CauseKind.LIMIT, "kubectl describe limitrange --namespace {namespace}"),
    (r"violates PodSecurity|ValidatingAdmissionPolicy|admission webhook", CauseKind.POLICY, "change the pods as the words say"),
    (r"serviceaccount|priority ?class", CauseKind.REFERENCE, ""),
)  # fmt: skip


def causes(evidence: Evidence) -> Iterator[Cause]:
    """Yield why objects of the subject failed, or make no pods."""
    yield from _resting(evidence.root)
    for one in evidence.members:
        if one["kind"] == "Pod":
            continue
        yield from _ended(one)
        event = newest(evidence.events(one), _REFUSED)
        if event is not None and not _made_since(one, event, evidence):
            yield _refused(one, event)


def active(cron_job: Manifest) -> bool:
    """Return whether a run of a CronJob goes on."""
    return bool(rows(section(cron_job, "status"), "active"))


def _resting(root: Manifest) -> Iterator[Cause]:
    """Yield why the subject wants no pods now, by its own spec."""
    spec, kind = section(root, "spec"), root["kind"]
    name, namespace = root["metadata"]["name"], root["metadata"].get("namespace", "")
    words, step = "", ""
    if kind in _SCALED and spec.get("replicas") == 0:
        words = "spec.replicas is 0: it wants no pods"
        step = f"kubectl scale {kind.lower()} {name} --namespace {namespace} --replicas=1"
    elif kind == "Job" and spec.get("parallelism") == 0:
        words = "spec.parallelism is 0: it wants no pods"
    elif kind == "CronJob" and spec.get("suspend") is True:
        words = "spec.suspend is true: no run begins"
        step = f"""kubectl patch cronjob {name} --namespace {namespace} --patch '{{"spec":{{"suspend":false}}}}'"""
    elif kind == "CronJob" and not active(root):
        last = section(root, "status").get("lastScheduleTime", "never")
        words = f"no run goes on; its schedule is {spec.get('schedule', 'none')!r}, and the last run began: {last}"
    if words:
        yield Cause(kind=CauseKind.STOPPED, subject=name_of(root), by="its spec", words=words, next_step=step)


def _ended(one: Manifest) -> Iterator[Cause]:
    for name, status in _FAILURES:
        row = condition(one, name)
        if row.get("status") == status and (status == "True" or row.get("reason") == _TOO_LATE):
            words = f"{row.get('reason', name)}: {row.get('message', '')}"
            by = f"the controller of {one['kind']}"
            yield Cause(kind=CauseKind.STOPPED, subject=name_of(one), by=by, words=words)


def _made_since(one: Manifest, event: Manifest, evidence: Evidence) -> bool:
    """Return whether the object has all that it wants; where its spec has no count, whether it made something after the event."""
    made = [other for other in evidence.members if uid(one) in owners(other)]
    wanted = _wanted(one)
    if wanted is not None:
        return len(made) >= wanted
    return any(str(other["metadata"].get("creationTimestamp", "")) > seen_at(event) for other in made)


def _wanted(one: Manifest) -> int | None:
    spec = section(one, "spec")
    match one["kind"]:
        case "Job":
            return int(spec.get("parallelism", 1))
        case "ReplicaSet" | "StatefulSet":
            return int(spec.get("replicas", 1))
        case _:
            return None


def _refused(one: Manifest, event: Manifest) -> Cause:
    words, namespace = message(event), one["metadata"].get("namespace", "")
    kind, step = next(
        ((kind, step) for pattern, kind, step in _ROWS if re.search(pattern, words)), (CauseKind.OTHER, "")
    )
    return Cause(
        kind=kind,
        subject=name_of(one),
        by=reporter(event) or f"the controller of {one['kind']}",
        words=words,
        next_step=missing_step(words, namespace) or step.format(namespace=namespace),
    )
