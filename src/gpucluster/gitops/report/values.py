"""Write a diff for programs: the stable JSON of `gpucluster diff --output json`."""

from typing import Any

from gpucluster.cost import Amount, Estimate
from gpucluster.gitops.model import Diff, Origin, PoolFacts
from gpucluster.plan.codec import to_json
from gpucluster.text import cents

Object = dict[str, Any]  # JSON; the type checker does not match nested literals with a recursive JSON type


def values(diff: Diff) -> Object:
    """Return money as text with two decimals, so that no reader rounds it."""
    return {
        "name": diff.name,
        "old": diff.old,
        "new": diff.new,
        "compared": compared_values(diff.old_origins, diff.new_origins),
        "differs": diff.differs,
        "worst": to_json(diff.worst),
        "whole": to_json(diff.whole),
        "jobs": diff.effect,
        "effects": None
        if diff.effects is None
        else {subject.replace(" ", "_"): what for subject, what in diff.effects.lines()},
        "clauses": to_json(() if diff.effects is None else diff.effects.clauses),
        "refused": None if diff.effects is None else diff.effects.refused or None,
        "steps": [] if diff.effects is None else list(diff.effects.steps),
        "engine_note": diff.engine_note,
        "changes": to_json(diff.spec),
        "who_gets_in": to_json(tuple(one.path for one in diff.access)),
        "consequences": to_json(diff.consequences),
        "files": to_json(diff.files),
        "resources": to_json(diff.resources),
        "stay": diff.stay,
        "rights": to_json(diff.rights),
        "unseen": to_json(diff.unseen),
        "pools": [
            {"name": row.name, "before": _facts(row.before), "after": _facts(row.after)} for row in diff.pools
        ],
        "cost": {"before": estimate_values(diff.cost_before), "after": estimate_values(diff.cost_after)},
    }


def compared_values(old: tuple[Origin, ...], new: tuple[Origin, ...]) -> Object:
    """Return the files of both sides, with their commits and digests; an absent spec has none."""
    return {"old": to_json(old), "new": to_json(new)}


def _facts(facts: PoolFacts | None) -> Object | None:
    if facts is None:
        return None
    return {
        "min": facts.least,
        "max": facts.most,
        "machines": to_json(facts.machines),
        "gpus": facts.gpus,
        "stays": facts.stays,
        "cost": {"min": _amount(facts.cost_least), "max": _amount(facts.cost_most)},
    }


def estimate_values(estimate: Estimate) -> Object:
    """Return an estimate line by line."""
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
    """Return the total. `known` is a lower bound if `unknown` is not empty."""
    quantities = {name: f"{quantity:f}" for name, quantity in amount.quantity_of().items()}
    return {"known": str(cents(amount.known)), "unknown": to_json(amount.unknown), "quantities": quantities}
