"""A diff for programs: the stable JSON of `gpucluster diff --output json`."""

from typing import Any

from gpucluster.cost import Amount, Estimate
from gpucluster.cost.amount import cents
from gpucluster.gitops.classes import JOBS
from gpucluster.gitops.model import Diff, PoolFacts
from gpucluster.plan.codec import to_json

Object = dict[str, Any]  # JSON; the checker does not follow nested literals into JSON's own type


def values(diff: Diff) -> Object:
    """Money is text with two figures after the point, so that no reader rounds it."""
    return {
        "name": diff.name,
        "old": diff.old,
        "new": diff.new,
        "differs": diff.differs,
        "worst": to_json(diff.worst),
        "jobs": JOBS[diff.worst] if diff.worst else None,
        "engine_says": diff.engine_says,
        "changes": to_json(diff.spec),
        "consequences": to_json(diff.consequences),
        "files": to_json(diff.files),
        "resources": to_json(diff.resources),
        "pools": [
            {"name": row.name, "before": _facts(row.before), "after": _facts(row.after)} for row in diff.pools
        ],
        "cost": {"before": _estimate(diff.cost_before), "after": _estimate(diff.cost_after)},
    }


def _facts(facts: PoolFacts | None) -> Object | None:
    if facts is None:
        return None
    return {
        "min": facts.least,
        "max": facts.most,
        "machines": to_json(facts.machines),
        "gpus": facts.gpus,
        "cost": {"min": _amount(facts.cost_least), "max": _amount(facts.cost_most)},
    }


def _estimate(estimate: Estimate) -> Object:
    return {
        "currency": estimate.currency,
        "prices": {"date": estimate.prices_date, "region": estimate.prices_region},
        "min": _amount(estimate.least),
        "max": _amount(estimate.most),
        "lines": [
            {
                "kind": one.kind,
                "name": one.name,
                "min": _amount(one.least),
                "max": _amount(one.most),
                "notes": to_json(one.notes),
            }
            for one in estimate.lines
        ],
    }


def _amount(amount: Amount) -> Object:
    """`known` is a lower bound while `unknown` names anything."""
    return {"known": str(cents(amount.known)), "unknown": to_json(amount.unknown)}
