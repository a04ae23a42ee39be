"""Phrases that several report formats use."""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import TypeVar

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
from gpucluster.plan.model.values import HOURS_A_MONTH
from gpucluster.text import format_amount

T = TypeVar("T")
MOST = 20  # like lines; more of them are one line with their count
_ITEM = re.compile(r"\[[^\]]*\]")


def like(found: Iterable[T], kind: Callable[[T], Hashable]) -> Iterator[tuple[T, ...]]:
    """Yield each value alone, but more than 20 of one kind together, where the first of them stands."""
    groups: dict[Hashable, list[T]] = {}
    for one in found:
        groups.setdefault(kind(one), []).append(one)
    for group in groups.values():
        yield from (tuple(group),) if len(group) > MOST else ((one,) for one in group)


def kind_of_change(one: SpecChange) -> Hashable:
    return one.update, one.kind, pattern(one.path)


def kind_of_resource(one: ResourceChange) -> Hashable:
    return one.update, one.kind, one.type, tuple(sorted(change.name for change in one.properties))


def pattern(path: str) -> str:
    """Return the path without the names of its items: `users[].keys`."""
    return _ITEM.sub("[]", path)


def many(count: int, kind: Kind, names: list[str]) -> str:
    """Return `30 added: a, b, c and 27 more`."""
    return f"{count} {kind}: {', '.join(names[:3])} and {count - 3} more"


def changes(group: tuple[SpecChange, ...]) -> tuple[str, str]:
    """Return path and kind of a change, or of many like ones."""
    if len(group) == 1:
        return change(group[0])
    return pattern(group[0].path), many(len(group), group[0].kind, [one.path for one in group])


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
    return "; ".join(": ".join(changes(group)) for group in like(diff.access, kind_of_change))


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
    if diff.stays_beside:
        old = (
            f"{span(before)} for {diff.stays_beside}, until `gpucluster down {diff.stays_beside}` deletes it"
        )
        return f"a month costs {span(after)} for {diff.name}, and in addition {old}{named}"
    if not costs_differ(diff):
        return f"a month costs {span(after)}, as before{named}"
    return f"a month costs {span(after)}; before, {span(before)}{_difference(before, after)}{named}"


def costs_differ(diff: Diff) -> bool:
    before, after = diff.cost_before, diff.cost_after
    same = (before.least, before.most) == (after.least, after.most)
    return not same or before.most.quantity_of() != after.most.quantity_of()


def starts(diff: Diff) -> Iterator[str]:
    """Yield a sentence for each pool with more machines that are always up, without a full stop."""
    for row in diff.pools:
        after = row.after
        if diff.whole is Kind.REMOVED or after is None or not after.machines:
            continue
        before = None if diff.stays_beside else row.before
        was, paid = (0, Amount()) if before is None else (before.stays, before.stays_month)
        if after.stays > was:
            known = paid.exact and after.stays_month.exact
            hour = (after.stays_month.known - paid.known) / HOURS_A_MONTH
            price = f"{format_amount(hour, diff.cost_after.currency)} an hour" if known else "unknown price"
            yield f"{_machines(after.stays - was)} at once in the pool {row.name}, to stay: {price}"


def _machines(count: int) -> str:
    return "1 machine starts" if count == 1 else f"{count} machines start"


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
    """Return the change of the least, if it changes, and of the most."""
    if not (before.most.exact and after.most.exact):
        return ""
    least, most = after.least.known - before.least.known, after.most.known - before.most.known
    parts = ((least, "at least"),) if least and before.least.exact and after.least.exact else ()
    found = (
        f"{format_amount(change, after.currency, signed=True)} {word}"
        for change, word in (*parts, (most, "at most"))
    )
    return f" ({', '.join(found)})"
