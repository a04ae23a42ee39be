"""Phrases that several report formats use."""

from collections.abc import Iterator, Mapping
from decimal import Decimal

from gpucluster.cost import Amount, Estimate
from gpucluster.gitops.model import (
    Diff,
    Kind,
    PoolFacts,
    PropertyChange,
    ResourceChange,
    RightChange,
    SpecChange,
)
from gpucluster.text import format_amount


def change(one: SpecChange) -> tuple[str, str]:
    """Return the path and the kind of change."""
    if one.kind is Kind.ADDED:
        return one.path, f"added {one.after}"
    if one.kind is Kind.REMOVED:
        return one.path, f"removed {one.before}"
    word = "reordered " if one.kind is Kind.REORDERED else ""
    return one.path, f"{word}{one.before} -> {one.after}"


def who_gets_in(diff: Diff) -> str:
    """Return the changes of people, keys, networks and rights, as one line."""
    return "; ".join(": ".join(change(one)) for one in diff.access)


def property_change(one: PropertyChange) -> str:
    """Return `instanceType: m7i.xlarge -> m7i.2xlarge`."""
    before = "unset" if one.before is None else one.before
    after = "unset" if one.after is None else one.after
    if before == after:  # both shown values are equal: shortened, or known only to the cloud
        return f"{one.name}: another value"
    return f"{one.name}: {before} -> {after}"


NOT_COMPARED = "secrets, and values that are known only after the deployment, are not compared"


def counted(resources: tuple[ResourceChange, ...]) -> str:
    """Return counts such as `2 added, 1 replaced`."""
    kinds = [one.kind for one in resources]
    parts = [f"{kinds.count(kind)} {kind}" for kind in Kind if kind in kinds]
    return ", ".join(parts) or "none touched"


def compared_resources(diff: Diff) -> str:
    """Return what a report says of resources that were compared."""
    if diff.whole is Kind.REMOVED:
        return f"{diff.stay} of the cluster stay"
    found = counted(diff.resources or ())
    if not diff.resources and diff.unseen:
        found = "no change is seen, apart from what was not looked at"
    return f"{found}; {NOT_COMPARED}"


def nodes(facts: PoolFacts) -> str:
    """Return `0 to 16`, or `4` for a pool of fixed size."""
    return str(facts.most) if facts.least == facts.most else f"{facts.least} to {facts.most}"


def cost(diff: Diff) -> str:
    """Return the change of the monthly cost as a sentence without a full stop."""
    before, after = diff.cost_before, diff.cost_after
    was, now = before.most.quantity_of(), after.most.quantity_of()
    named = f"; unknown: {', '.join(_quantities(was, now))}" if was or now else ""
    if diff.whole is Kind.ADDED:
        return f"a month costs {span(after)}{named}"
    if diff.whole is Kind.REMOVED:
        return f"a month costs {span(before)} until the cluster is deleted{named}"
    if (before.least, before.most) == (after.least, after.most) and was == now:
        return f"a month costs {span(after)}, as before{named}"
    return f"a month costs {span(after)}; before, {span(before)}{_difference(before, after)}{named}"


def _quantities(was: Mapping[str, Decimal], now: Mapping[str, Decimal]) -> Iterator[str]:
    """Return the unknown parts; one whose quantity changes has both: `p5e.48xlarge (...), 4 -> 64 of it`."""
    for name in sorted(was.keys() | now.keys()):
        before, after = was.get(name, Decimal(0)), now.get(name, Decimal(0))
        yield name if before == after else f"{name}, {before:f} -> {after:f} of it"


def right_change(one: RightChange) -> Iterator[str]:
    """Return `- Allow ...` for each statement that leaves, `+ Allow ...` for each new one."""
    yield from (f"- {statement}" for statement in one.removed)
    yield from (f"+ {statement}" for statement in one.added)


RIGHTS = "rights, with placeholder names (account 000000000000)"


def span(estimate: Estimate) -> str:
    """Return `294.34 USD to 739,591.62 USD`. The caller shows reasons for unknown costs."""
    least, most = (_bare(amount, estimate.currency) for amount in (estimate.least, estimate.most))
    return most if least == most else f"{least} to {most}"


def _bare(amount: Amount, currency: str) -> str:
    if amount.exact:
        return format_amount(amount.known, currency)
    return f"at least {format_amount(amount.known, currency)}" if amount.known else "an unknown amount"


def _difference(before: Estimate, after: Estimate) -> str:
    if not (before.most.exact and after.most.exact):
        return ""
    change = after.most.known - before.most.known
    return f" ({format_amount(change, after.currency, signed=True)} at most)"
