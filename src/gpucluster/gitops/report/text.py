"""Write a diff for a terminal: plain lines without colour, worst change first."""

from collections.abc import Iterator

from gpucluster.cost import ASSUMPTIONS
from gpucluster.gitops.model import ORDER, Diff, PoolFacts, PoolRow, ResourceChange
from gpucluster.gitops.report import words
from gpucluster.gitops.report.opening import opening
from gpucluster.text import printable as line

_WIDTH = max(len(update) for update in ORDER) + 2
_SUBJECT = len("running jobs:") + 1


def text(diff: Diff) -> str:
    """Return the whole report, without a newline at its end."""
    parts = (
        _verdict(diff),
        _changes(diff),
        _pools(diff),
        _files(diff),
        _resources(diff),
        _rights(diff),
        _assumptions(diff),
    )
    return "\n".join(one for part in parts for one in part)


def _verdict(diff: Diff) -> Iterator[str]:
    yield line(f"{diff.name}: {diff.old} -> {diff.new}")
    first = opening(diff)
    yield line(f"{diff.worst or 'no change'}: {first}")
    yield from _effects(diff)
    if diff.effect and diff.effect.removesuffix(".") != first:
        yield line(f"  {diff.effect}")
    if diff.engine_note:
        yield line(diff.engine_note)
    yield line(words.cost(diff))
    yield from (line(one) for one in words.starts(diff))
    if diff.access:
        yield line(f"who gets in: {words.who_gets_in(diff)}")
    yield from (line(f"not looked at: {one}") for one in diff.unseen)


def _effects(diff: Diff) -> Iterator[str]:
    if diff.effects is None:
        return
    if diff.effects.refused:
        yield line(f"  {diff.effects.refused}")
    yield from (line(f"  {place}. {step}") for place, step in enumerate(diff.effects.steps, start=1))
    yield from (line(f"  {f'{subject}:':<{_SUBJECT}}{what}") for subject, what in diff.effects.lines())


def _changes(diff: Diff) -> Iterator[str]:
    if diff.spec or diff.consequences:
        yield ""
        yield "changes:"
    groups = words.like(diff.spec, words.kind_of_change)
    found = [(group[0].update, ": ".join(words.changes(group)), group[0].why) for group in groups]
    found += [(one.update, f"{one.path}: {one.message}", "") for one in diff.consequences]
    for update, what, why in sorted(found, key=lambda one: -ORDER[one[0]]):
        yield line(f"  {update:<{_WIDTH}}{what}")
        if why:
            yield line(f"  {'':<{_WIDTH}}  {why}")


def _pools(diff: Diff) -> Iterator[str]:
    yield ""
    yield "pools:"
    currency = diff.cost_after.currency
    for row in diff.pools:
        yield from _pool(row, currency)


def _pool(row: PoolRow, currency: str) -> Iterator[str]:
    before = "not there" if row.before is None else _facts(row.before, currency)
    after = "not there" if row.after is None else _facts(row.after, currency)
    if before == after:
        yield line(f"  {row.name}: {after}")
        return
    yield line(f"  {row.name}: {before}")
    yield line(f"  {'':<{len(row.name)}}  -> {after}")


def _facts(facts: PoolFacts, currency: str) -> str:
    gpus = f" with {facts.gpus}" if facts.gpus else ""
    machines = f", {' or '.join(facts.machines)}" if facts.machines else ""
    least, most = facts.cost_least.short(currency), facts.cost_most.short(currency)
    cost = most if least == most else f"{least} to {most}"
    return f"{words.nodes(facts)} nodes{gpus}{machines}; {cost} a month"


def _files(diff: Diff) -> Iterator[str]:
    for file in diff.files:
        yield ""
        yield line(f"{file.path}: {file.kind}")
        yield from (line(one) for one in file.diff.split("\n"))


def _resources(diff: Diff) -> Iterator[str]:
    if diff.resources is None:
        return
    yield ""
    yield f"resources: {words.compared_resources(diff)}"
    for group in words.like(diff.resources, words.kind_of_resource):
        if len(group) == 1:
            yield from _resource(group[0])
        else:
            said = words.many(len(group), group[0].kind, [one.name for one in group])
            yield line(f"  {group[0].update:<{_WIDTH}}{group[0].type}: {said}")


def _resource(one: ResourceChange) -> Iterator[str]:
    why = f" ({one.why})" if one.why else ""
    yield line(f"  {one.update:<{_WIDTH}}{one.kind} {one.type} {one.name}{why}")
    for change in one.properties:
        yield line(f"  {'':<{_WIDTH}}  {words.property_change(change)}")


def _rights(diff: Diff) -> Iterator[str]:
    if diff.rights:
        yield ""
        yield f"{words.RIGHTS}:"
    for one in diff.rights or ():
        yield line(f"  {one.kind} {one.type} {one.name}")
        yield from (line(f"    {statement}") for statement in words.right_change(one))


def _assumptions(diff: Diff) -> Iterator[str]:
    yield ""
    yield f"prices of {diff.cost_after.prices_date} for {diff.cost_after.prices_region}:"
    yield from (f"  {one}" for one in ASSUMPTIONS)
