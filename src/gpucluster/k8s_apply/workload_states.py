"""The gangs and services of a spec: their state, and why one waits, in the words of Kueue and of the controllers."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s.waves import SERVICES, TRAINING
from gpucluster.k8s_apply.conditions import waiting
from gpucluster.k8s_apply.kubectl import Kubectl
from gpucluster.k8s_apply.objects import Ref, condition, is_true, ref_of, rows
from gpucluster.k8s_apply.steps import SERVICE_KINDS, Steps
from gpucluster.plan.model.values import JOBSET, TRAINJOB

GANG_KINDS = (JOBSET, TRAINJOB)
ENDS = (  # conditions of what ended: of a JobSet, of a Job and a TrainJob, of all
    ("Completed", "completed"),
    ("Complete", "completed"),
    ("Failed", "failed"),
)
_WORKLOAD = ("kueue.x-k8s.io/v1beta2", "Workload")


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """A gang or a service."""

    name: str
    state: str
    why: str  # empty: it does not wait


def of(kubectl: Kubectl, steps: Steps, there: Mapping[Ref, Manifest]) -> tuple[WorkloadState, ...]:
    """Return the state of each gang and service of the spec."""
    wanted = [
        ref_of(one) for wave in steps.waves if wave.wave in (SERVICES, TRAINING) for one in wave.objects
    ]
    shown = [ref for ref in wanted if ref.kind in (*SERVICE_KINDS, *GANG_KINDS)]
    if not shown:
        return ()
    queued = {
        (one["metadata"]["namespace"], owner["kind"], owner["name"]): one
        for one in kubectl.find([_WORKLOAD])
        for owner in rows(one["metadata"], "ownerReferences")
    }
    return tuple(
        _state(ref, there.get(ref), queued.get((ref.namespace, ref.kind, ref.name))) for ref in shown
    )


def _state(ref: Ref, one: Manifest | None, queued: Manifest | None) -> WorkloadState:
    name = f"{ref.namespace}/{ref.name}"
    if one is None:
        return WorkloadState(name, "missing", "")
    if one["kind"] in SERVICE_KINDS:
        words = waiting(one).partition(": ")[2]
        return WorkloadState(name, "waiting" if words else "available", words or "")
    for kind, word in ENDS:
        if is_true(one, kind):
            message = str(condition(one, kind).get("message", ""))
            return WorkloadState(name, word, message if kind == "Failed" else "")
    return _queued(name, queued)


def _queued(name: str, queued: Manifest | None) -> WorkloadState:
    """Return the state by the conditions of Kueue's Workload: QuotaReserved, Admitted, PodsReady, Evicted."""
    if queued is None:
        return WorkloadState(name, "queued", "Kueue has no Workload for it yet")
    if is_true(queued, "Admitted"):
        if is_true(queued, "PodsReady"):
            return WorkloadState(name, "running", "")
        return WorkloadState(name, "starting", str(condition(queued, "PodsReady").get("message", "")))
    reasons = (condition(queued, kind) for kind in ("QuotaReserved", "Admitted", "Evicted"))
    words = next(
        (str(row["message"]) for row in reasons if row.get("message")), "Kueue has set no condition on it"
    )
    return WorkloadState(name, "queued", words)
