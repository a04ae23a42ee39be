"""How Kueue shares and preempts: the words of its preemption policies, and priorities."""

from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.plan.model.values import GANG, SERVICE
from gpucluster.spec.accounting import Priority
from gpucluster.spec.aws_fields import word_of
from gpucluster.spec.fields import MAX_NAME, UpdateClass, parse_name, refuse, spec_field
from gpucluster.spec.part import Part

# our words -> Kueue's enumerations (kueue.x-k8s.io/v1beta2, ClusterQueue)
RECLAIM = {"any": "Any", "lower-priority": "LowerPriority", "never": "Never"}
BORROW = {"never": "Never", "lower-priority": "LowerPriority"}
WITHIN = {
    "lower-priority": "LowerPriority",
    "lower-or-newer-equal-priority": "LowerOrNewerEqualPriority",
    "never": "Never",
}
NEVER = "never"
_OURS = (SERVICE, GANG)


def parse_priority_name(value: object) -> str:
    """Parse the name of a priority. Two names are of classes that every cluster has."""
    name = parse_name(value)
    if name in _OURS:
        raise refuse(
            "reserved-name", f"'{name}' is the priority of workloads that name none; take another name"
        )
    return name


def _words(words: tuple[str, ...]) -> tuple[BeforeValidator, WithJsonSchema]:
    parser = word_of(words, "bad-preemption", "what may be preempted")
    return BeforeValidator(parser), WithJsonSchema({"enum": list(words)})


Reclaim = Annotated[str, *_words(tuple(RECLAIM))]
Borrow = Annotated[str, *_words(tuple(BORROW))]
Within = Annotated[str, *_words(tuple(WITHIN))]
PriorityName = Annotated[
    str,
    BeforeValidator(parse_priority_name),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$",
            "maxLength": MAX_NAME,
            "not": {"enum": list(_OURS)},
        }
    ),
]


class QueuePreemption(Part):
    """Which running workloads a waiting one may preempt. Kueue evicts them whole and queues them again."""

    reclaim_within_cohort: Reclaim = spec_field(
        UpdateClass.LIVE,
        "Workloads of other teams that use more than their quota.",
        default="any",
    )
    borrow_within_cohort: Borrow = spec_field(
        UpdateClass.LIVE,
        "Workloads of other teams, for a workload that must borrow. Only without `fair_sharing`.",
        default=NEVER,
    )
    within_cluster_queue: Within = spec_field(
        UpdateClass.LIVE, "Workloads of the same team.", default="lower-priority"
    )


class PriorityClass(Part):
    """A priority that workloads may name."""

    name: PriorityName = spec_field(UpdateClass.LIVE, "Its name, for `priority` of workloads.")
    priority: Priority = spec_field(
        UpdateClass.LIVE,
        "Higher goes first. Services without one have 100000, gangs 1000.",
    )
