"""Whether Kueue may end a running workload after an edit that it did not end before. Pure.

Kueue v0.19.2: `fairPreemptions` in pkg/scheduler/preemption/preemption.go ends what a team borrows for another team that
borrows, by their weighted shares; pkg/controller/core/workloadpriorityclass_controller.go writes the new value of a priority
into the workloads that name it, also into those that run.
"""

from collections.abc import Mapping
from fractions import Fraction
from itertools import permutations

from gpucluster.plan.model.kubernetes import Kubernetes, QueuePreemption
from gpucluster.spec.queueing import NEVER, RECLAIM, WITHIN

_NEVER = RECLAIM[NEVER]
_NEWER_EQUAL = WITHIN["lower-or-newer-equal-priority"]
_UNNAMED = {"": 0}  # the priority of a workload that names none


def preempts(old: Kubernetes, new: Kubernetes) -> bool:
    """Return whether a waiting workload may end one that it could not end by the old plan."""
    return (
        _by_policy(old.preemption, new.preemption)
        or _by_share(old, new)
        or _by_priority(_values(old), _values(new), new.preemption)
    )


def _by_policy(was: QueuePreemption, now: QueuePreemption) -> bool:
    pairs = (
        (was.reclaim_within_cohort, now.reclaim_within_cohort),
        (was.borrow_within_cohort, now.borrow_within_cohort),
        (was.within_cluster_queue, now.within_cluster_queue),
    )
    fewer = {("Any", "LowerPriority"), (_NEWER_EQUAL, "LowerPriority")}
    return any(after not in {before, _NEVER} and (before, after) not in fewer for before, after in pairs)


def _by_share(old: Kubernetes, new: Kubernetes) -> bool:
    """Return whether teams divide what they borrow in another way. One team alone divides nothing."""
    if not new.fair_sharing or new.preemption.reclaim_within_cohort == _NEVER:
        return False
    there = {team.name for team in old.teams}
    was, now = _parts(old), {name: share for name, share in _parts(new).items() if name in there}
    if len(now) < 2:
        return False
    return not old.fair_sharing or not now.keys() <= was.keys() or len({now[n] / was[n] for n in now}) > 1


def _parts(part: Kubernetes) -> dict[str, Fraction]:
    """Return the share of each team that may borrow."""
    return {team.name: Fraction(team.share) for team in part.teams if team.may_borrow}


def _by_priority(was: Mapping[str, int], now: Mapping[str, int], policy: QueuePreemption) -> bool:
    """Return whether a priority passes another one, where the policies compare them."""
    within = policy.within_cluster_queue
    compared = {policy.reclaim_within_cohort, policy.borrow_within_cohort, within}
    if compared <= {_NEVER, "Any"}:
        return False
    pairs = permutations(was.keys() & now.keys(), 2)
    return any(
        (was[one] <= was[other] and now[one] > now[other])
        or (within == _NEWER_EQUAL and was[one] < was[other] and now[one] == now[other])
        for one, other in pairs
    )


def _values(part: Kubernetes) -> dict[str, int]:
    return {**_UNNAMED, **{one.name: one.value for one in part.priorities}}
