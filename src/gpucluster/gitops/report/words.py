"""Sentences that more than one format says."""

from gpucluster.cost import Amount, Estimate
from gpucluster.cost.amount import money
from gpucluster.gitops.model import Diff, Kind, PoolFacts, PropertyChange, ResourceChange, SpecChange


def change(one: SpecChange) -> tuple[str, str]:
    """The path, and what became of it."""
    if one.kind is Kind.ADDED:
        return one.path, f"added {one.after}"
    if one.kind is Kind.REMOVED:
        return one.path, f"removed {one.before}"
    word = "reordered " if one.kind is Kind.REORDERED else ""
    return one.path, f"{word}{one.before} -> {one.after}"


def property_change(one: PropertyChange) -> str:
    """`instanceType: m7i.xlarge -> m7i.2xlarge`."""
    before = "unset" if one.before is None else one.before
    after = "unset" if one.after is None else one.after
    if before == after:  # what is shown of both is the same: cut, or known only to the cloud
        return f"{one.name}: another value"
    return f"{one.name}: {before} -> {after}"


NOT_COMPARED = "secrets, and values that only the deployment tells, are not compared"


def counted(resources: tuple[ResourceChange, ...]) -> str:
    """`2 added, 1 replaced`."""
    kinds = [one.kind for one in resources]
    parts = [f"{kinds.count(kind)} {kind}" for kind in Kind if kind in kinds]
    return ", ".join(parts) or "none touched"


def nodes(facts: PoolFacts) -> str:
    """`0 to 16`, or `4` for a pool that does not stretch."""
    return str(facts.most) if facts.least == facts.most else f"{facts.least} to {facts.most}"


def cost(diff: Diff) -> str:
    """What becomes of a month's cost, in a sentence without its full stop."""
    before, after = diff.cost_before, diff.cost_after
    unknown = sorted({*before.most.unknown, *after.most.unknown})
    named = f"; unknown: {', '.join(unknown)}" if unknown else ""
    if (before.least, before.most) == (after.least, after.most):
        return f"a month costs {span(after)}, as before{named}"
    return f"a month costs {span(after)}; before, {span(before)}{_difference(before, after)}{named}"


def span(estimate: Estimate) -> str:
    """`294.34 USD to 739,591.62 USD`; reasons of what is unknown stand elsewhere."""
    least, most = (_bare(amount, estimate.currency) for amount in (estimate.least, estimate.most))
    return most if least == most else f"{least} to {most}"


def _bare(amount: Amount, currency: str) -> str:
    if amount.exact:
        return money(amount.known, currency)
    return f"at least {money(amount.known, currency)}" if amount.known else "an unknown amount"


def _difference(before: Estimate, after: Estimate) -> str:
    if not (before.most.exact and after.most.exact):
        return ""
    change = after.most.known - before.most.known
    return f" ({money(change, after.currency, signed=True)} at most)"
