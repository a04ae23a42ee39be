"""Write a diff as a pull request comment. GitHub accepts 65,535 characters; this module stops at 60,000.

The summary comes first, with bounded lists. Resources and one folded block for each file follow, up to the size
limit. The comment names omitted parts. A bot finds its comment by the hidden first line.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby

from gpucluster.cost import ASSUMPTIONS
from gpucluster.gitops.model import (
    ORDER,
    Diff,
    Kind,
    Origin,
    PoolFacts,
    PoolRow,
    ResourceChange,
    RightChange,
    SpecChange,
    worst,
)
from gpucluster.gitops.report import words
from gpucluster.gitops.report.comments import marker
from gpucluster.gitops.report.opening import opening
from gpucluster.markdown import LIMIT, code, details, fence, table
from gpucluster.markdown import text as prose
from gpucluster.spec import Problem
from gpucluster.text import cut_middle as cut
from gpucluster.text import printable

_LIST = 15_000  # characters of one list of the summary
_LONGEST = 120  # characters of one value
_ROOM = 400  # reserved for the line that names omitted parts
_DIGEST = 16  # hexadecimal digits of a digest that a person compares; `--output json` has all
_COLUMNS = ("pool", "nodes", "machines", "GPUs a node", "a month, least", "a month, most")


def markdown(diff: Diff, *, version: str, command: str) -> str:
    """Return the comment, without a newline at its end. `command` reproduces it."""
    summary = "\n\n".join(_summary(diff))
    end = "\n\n".join(_end(diff, version=version, command=command))
    kept, left_out = _fitting(_blocks(diff), LIMIT - len(summary) - len(end) - _ROOM)
    return "\n\n".join((summary, *kept, *_left_out(left_out), end))


def not_compared(
    name: str, reason: str, problems: tuple[str, ...], read: tuple[tuple[Origin, ...], tuple[Origin, ...]]
) -> str:
    """Return the comment of a stack of which one spec is not valid. `read` has the files of both sides."""
    shown = _bounded(problems, _LIST)
    left = len(problems) - len(shown)
    more = [f"and {left} more problems: the log of the review has all"] if left else []
    title = f"## {name}: not compared"
    parts = (marker(name), title, prose(reason), fence("\n".join(shown), "text"), *more, _origins(*read))
    return "\n\n".join(parts)


def _origins(old: tuple[Origin, ...], new: tuple[Origin, ...]) -> str:
    """Return which bytes were read. A reader compares them with what is merged."""
    lines = (f"- {side}: {_origin(one)}" for side, found in (("old", old), ("new", new)) for one in found)
    return "Read:\n" + "\n".join(lines)


def _origin(one: Origin) -> str:
    place = "the file system" if one.commit is None else f"commit {code(one.commit)}"
    return f"{code(cut(one.file, _LONGEST))} of {place}, SHA-256 {code(one.sha256[:_DIGEST])}"


def _summary(diff: Diff) -> Iterator[str]:
    yield marker(diff.name)
    yield f"## {diff.name}: {diff.worst or 'no change'}"
    first = opening(diff)
    yield f"**{prose(_sentence(first))}**"
    yield from _effects(diff)
    said = f"{diff.effect} " if diff.effect and diff.effect.removesuffix(".") != first else ""
    yield prose(f"{said}{cut(_sentence(words.cost(diff)), 1_500)}")
    yield from (f"**{prose(_sentence(one))}**" for one in words.starts(diff) if one != first)
    if diff.engine_note:
        yield prose(cut(_sentence(diff.engine_note), 600))
    if diff.access:
        yield f"**Who gets in** changes: {code(cut(words.who_gets_in(diff), 1_500))}"
    if diff.warnings:
        yield "**Warnings of `check`**:\n" + "\n".join(_first(map(_warning, diff.warnings)))
    if diff.unseen:
        yield "**Not looked at**:\n" + "\n".join(_first(f"- {prose(cut(one, 600))}" for one in diff.unseen))
    yield table(_COLUMNS, _pools(diff))
    if diff.whole is not None:
        yield f"### What the {'new' if diff.whole is Kind.ADDED else 'deleted'} spec has"
        yield "\n".join(_within([f"- {_change((one,))}" for one in diff.spec], _LIST))
    elif diff.spec or diff.consequences:
        yield "### Changes"
        yield from _by_class(diff)
    if diff.resources is None:
        yield "Resources were not compared."
    else:
        yield f"Resources: {words.compared_resources(diff)}."


def _effects(diff: Diff) -> Iterator[str]:
    if diff.effects is None:
        return
    if diff.effects.refused:
        yield f"{prose(cut(_sentence(diff.effects.refused), 1_500))}"
    if diff.effects.steps:
        steps = enumerate(diff.effects.steps, start=1)
        yield "In this order:\n\n" + "\n".join(_first(f"{place}. {code(step)}" for place, step in steps))
    yield "\n".join(f"- **{subject}** {prose(cut(what, 1_500))}" for subject, what in diff.effects.lines())


def _warning(one: Problem) -> str:
    place = f" {code(cut(one.path, _LONGEST))}:" if one.path else ""
    return f"- **{one.id}**{place} {prose(cut(one.message, 600))}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _pools(diff: Diff) -> Iterator[tuple[str, ...]]:
    currency = diff.cost_after.currency
    rows = [(code(row.name), *_cells(row, currency)) for row in diff.pools]
    kept = len(_bounded(["  |  ".join(row) for row in rows], _LIST))
    yield from rows[:kept]
    if kept < len(rows):
        yield (_more(len(rows) - kept), *("",) * (len(_COLUMNS) - 1))


def _cells(row: PoolRow, currency: str) -> Iterator[str]:
    before = ("not there",) * 5 if row.before is None else _facts(row.before, currency)
    after = ("not there",) * 5 if row.after is None else _facts(row.after, currency)
    for was, now in zip(before, after, strict=True):
        yield now if was == now else f"{was} → {now}"


def _facts(facts: PoolFacts, currency: str) -> tuple[str, ...]:
    machines = ", ".join(code(machine) for machine in facts.machines) or "its own"
    cost = (facts.cost_least.short(currency), facts.cost_most.short(currency))
    return (words.nodes(facts), machines, code(facts.gpus) if facts.gpus else "none", *cost)


def _by_class(diff: Diff) -> Iterator[str]:
    groups = words.like(diff.spec, words.kind_of_change)
    items = [(group[0].update, _change(group)) for group in groups]
    items += [(one.update, f"{code(one.path)}: {prose(one.message)}") for one in diff.consequences]
    items.sort(key=lambda item: -ORDER[item[0]])
    room = _LIST
    for update, group in groupby(items, key=lambda item: item[0]):
        texts = [f"- {text}" for _, text in group]
        yield f"**{update}**\n\n" + "\n".join(_within(texts, room))
        room -= sum(map(len, texts))


def _change(group: tuple[SpecChange, ...]) -> str:
    path, what = words.changes(group)
    why = f" ({prose(group[0].why)})" if group[0].why else ""
    return f"{code(cut(path, _LONGEST))}: {code(cut(what, 2 * _LONGEST))}{why}"


def _blocks(diff: Diff) -> Iterator[tuple[str, str]]:
    """Return optional blocks as title and text. Resources come first because they cost money."""
    if diff.resources:
        yield "the resources", details(_title(diff.resources), "\n".join(_resources(diff.resources)))
    if diff.rights:
        lines = "\n".join(line for one in diff.rights for line in _right(one))
        yield "the rights", details(words.RIGHTS, fence(lines, "diff"))
    for file in diff.files:
        title = f"{file.path}: {file.kind}, {file.lines} lines"
        yield f"{code(file.path)} ({file.lines} lines)", details(title, fence(file.diff, "diff"))


def _title(resources: tuple[ResourceChange, ...]) -> str:
    update = worst(one.update for one in resources)
    return f"resources, at worst {update}: {words.counted(resources)}"


def _resources(resources: Iterable[ResourceChange]) -> Iterator[str]:
    for group in words.like(resources, words.kind_of_resource):
        one, *more = group
        if more:
            said = words.many(len(group), one.kind, [found.name for found in group])
            yield f"- **{one.update}**: {code(one.type)}: {code(cut(said, 2 * _LONGEST))}"
            continue
        why = f": {prose(one.why)}" if one.why else ""
        yield f"- **{one.update}**, {one.kind}: {code(one.type)} {code(one.name)}{why}"
        for change in one.properties:
            yield f"  - {code(words.property_change(change))}"


def _right(one: RightChange) -> Iterator[str]:
    yield f"@@ {one.kind} {one.type} {one.name} @@"
    yield from words.right_change(one)


def _first(lines: Iterable[str]) -> Iterator[str]:
    """Yield the first lines, and how many more there are."""
    every = tuple(lines)
    yield from every[: words.MOST]
    if len(every) > words.MOST:
        yield f"- {_more(len(every) - words.MOST)}"


def _within(lines: Sequence[str], room: int) -> Iterator[str]:
    """Yield the lines up to the size limit, and how many more there are."""
    shown = _bounded(lines, room)
    yield from shown
    if len(shown) < len(lines):
        yield f"- {_more(len(lines) - len(shown))}"


def _more(count: int) -> str:
    return f"and {count} more: the command at the end shows all"


def _bounded(texts: Sequence[str], room: int) -> list[str]:
    """Return the first lines, up to the size limit."""
    sizes = accumulate(len(text) + 1 for text in texts)
    return [text for text, size in zip(texts, sizes, strict=True) if size <= room]


def _fitting(blocks: Iterable[tuple[str, str]], room: int) -> tuple[list[str], list[str]]:
    """Return the blocks that fit, in order, and the titles of the others."""
    kept: list[str] = []
    left_out: list[str] = []
    for title, block in blocks:
        size = len(block) + 2
        if size <= room:
            kept.append(block)
            room -= size
        else:
            left_out.append(title)
    return kept, left_out


def _left_out(titles: list[str]) -> Iterator[str]:
    """Return a few names, or only their number: this line has a bounded length."""
    if titles:
        named = f"{', '.join(titles[:3])}{f' and {len(titles) - 3} more' if len(titles) > 3 else ''}"
        what = named if len(named) <= _ROOM - 120 else f"{len(titles)} parts"
        yield f"Left out because of the size limit of a comment: {what}. The command below shows everything."


def _end(diff: Diff, *, version: str, command: str) -> Iterator[str]:
    assumed = [f"- {one}" for one in ASSUMPTIONS]
    unknown = sorted({*diff.cost_before.most.unknown, *diff.cost_after.most.unknown})
    named = _within([f"- unknown: {code(cut(reason, _LONGEST))}" for reason in unknown], 2_000)
    yield details("what the cost assumes", "\n".join((*assumed, *named)))
    if diff.old_origins or diff.new_origins:
        yield _origins(diff.old_origins, diff.new_origins)
    prices = f"prices of {diff.cost_after.prices_date} for {diff.cost_after.prices_region}"
    yield f"gpucluster {version}, {prices}; reproduce with: {code(cut(printable(command), 400))}"
