"""From what was read to the answer. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from gpucluster.k8s_apply.objects import is_true
from gpucluster.k8s_apply.why import machines, makers, pods, queued
from gpucluster.k8s_apply.why.cause import Answer, Cause, CauseKind
from gpucluster.k8s_apply.why.evidence import Evidence, name_of
from gpucluster.k8s_apply.workload_states import ENDS


def explain(evidence: Evidence) -> Answer:
    """Return the state of the subject and the causes, those of the queue first. Equal causes of several pods are one."""
    state = _state(evidence)
    causes: list[Cause] = []
    if state not in ("completed", "ready"):
        for part in (queued, makers, pods, machines):
            causes += part.causes(evidence)
    return Answer(
        subject=name_of(evidence.root),
        state=state,
        pods=dict(sorted(Counter(pods.phase(pod) for pod in evidence.pods).items())),
        causes=merged(causes),
        unread=evidence.unread,
    )


def merged(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Return each cause once, with how many objects have it."""
    found: dict[tuple[CauseKind, str, str, tuple[str, ...]], Cause] = {}
    for one in causes:
        key = (one.kind, one.by, one.words, one.details)
        there = found.get(key)
        found[key] = one if there is None else replace(there, count=there.count + 1)
    return tuple(found.values())


def _state(evidence: Evidence) -> str:
    for kind, word in ENDS:
        if is_true(evidence.root, kind):
            return word
    mine = evidence.pods
    waiting = [
        one for one in evidence.workloads if not is_true(one, "Finished") and not is_true(one, "Admitted")
    ]
    if waiting:
        return "reserved" if all(is_true(one, "QuotaReserved") for one in waiting) else "queued"
    if not mine:
        return "without pods"
    if evidence.root["kind"] == "CronJob" and not makers.active(evidence.root):
        return "between two runs"
    phases = {pods.phase(pod) for pod in mine}
    if phases <= {"Ready", "Succeeded"}:
        return "completed" if phases == {"Succeeded"} else "ready"
    return "failed" if phases == {"Failed"} else "not ready"
