"""A diff for a pull request's comment (GitHub takes 65,535 characters; we stop at 60,000).

First the summary, its lists bounded; then the resources and one folded block a file, as long as there is room;
what is left out is said. The hidden first line lets a bot find its comment.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby

from gpucluster.cost import ASSUMPTIONS
from gpucluster.gitops.classes import JOBS, ORDER, worst
from gpucluster.gitops.model import Diff, PoolFacts, PoolRow, ResourceChange, SpecChange
from gpucluster.gitops.report import words
from gpucluster.gitops.short import cut
from gpucluster.markdown import LIMIT, code, details, fence, printable, table
from gpucluster.markdown import text as prose

_LIST = 15_000  # characters of one list of the summary
_LONGEST = 120  # characters of one value
_ROOM = 400  # for the line that says what was left out
_COLUMNS = ("pool", "nodes", "machines", "GPUs a node", "a month, least", "a month, most")


def marker(name: str) -> str:
    """The hidden line by which one cluster's comment is found again."""
    return f"<!-- gpucluster:diff:{name} -->"


def markdown(diff: Diff, *, version: str, command: str) -> str:
    """The comment, without a newline at its end; `command` is what reproduces it."""
    summary = "\n\n".join(_summary(diff))
    end = "\n\n".join(_end(diff, version=version, command=command))
    kept, left_out = _fitting(_blocks(diff), LIMIT - len(summary) - len(end) - _ROOM)
    return "\n\n".join((summary, *kept, *_left_out(left_out), end))


def _summary(diff: Diff) -> Iterator[str]:
    yield marker(diff.name)
    yield f"## {diff.name}: {diff.worst or 'no change'}"
    yield f"{JOBS[diff.worst] if diff.worst else _same(diff)} {prose(cut(_sentence(words.cost(diff)), 1_500))}"
    if diff.engine_says:
        yield prose(cut(_sentence(diff.engine_says), 600))
    yield table(_COLUMNS, _pools(diff))
    if diff.spec or diff.consequences:
        yield "### What happens to running jobs"
        yield from _by_class(diff)
    if diff.resources is None:
        yield "Resources were not compared."
    else:
        yield f"Resources: {words.counted(diff.resources)}; {words.NOT_COMPARED}."


def _same(diff: Diff) -> str:
    return "Rendered files differ, the spec does not." if diff.differs else "Both sides are the same cluster."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _pools(diff: Diff) -> Iterator[tuple[str, ...]]:
    currency = diff.cost_after.currency
    rows = [(code(row.name), *_cells(row, currency)) for row in diff.pools]
    kept = len(_bounded(["  |  ".join(row) for row in rows], _LIST))
    yield from rows[:kept]
    if kept < len(rows):
        yield (f"and {len(rows) - kept} more", *("",) * (len(_COLUMNS) - 1))


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
    items = [(one.update, _change(one)) for one in diff.spec]
    items += [(one.update, f"{code(one.path)}: {prose(one.says)}") for one in diff.consequences]
    items.sort(key=lambda item: -ORDER[item[0]])
    room = _LIST
    for update, group in groupby(items, key=lambda item: item[0]):
        texts = [f"- {text}" for _, text in group]
        shown = _bounded(texts, room)
        room -= sum(map(len, shown))
        more = [f"- and {len(texts) - len(shown)} more"] if len(shown) < len(texts) else []
        yield f"**{update}**: {JOBS[update]}\n\n" + "\n".join((*shown, *more))


def _change(one: SpecChange) -> str:
    path, what = words.change(one)
    why = f" ({prose(one.why)})" if one.why else ""
    return f"{code(cut(path, _LONGEST))}: {code(cut(what, 2 * _LONGEST))}{why}"


def _blocks(diff: Diff) -> Iterator[tuple[str, str]]:
    """What may be left out: its title, and its text. Resources first, for they are what is paid."""
    if diff.resources:
        yield "the resources", details(_title(diff.resources), "\n".join(_resources(diff.resources)))
    for file in diff.files:
        title = f"{file.path}: {file.kind}, {file.lines} lines"
        yield f"{code(file.path)} ({file.lines} lines)", details(title, fence(file.diff, "diff"))


def _title(resources: tuple[ResourceChange, ...]) -> str:
    update = worst(one.update for one in resources)
    return f"resources, at worst {update}: {words.counted(resources)}"


def _resources(resources: Iterable[ResourceChange]) -> Iterator[str]:
    for one in resources:
        why = f": {prose(one.why)}" if one.why else ""
        yield f"- **{one.update}**, {one.kind}: {code(one.type)} {code(one.name)}{why}"
        for change in one.properties:
            yield f"  - {code(words.property_change(change))}"


def _bounded(texts: list[str], room: int) -> list[str]:
    """The first ones, as many as there is room for."""
    sizes = accumulate(len(text) + 1 for text in texts)
    return [text for text, size in zip(texts, sizes, strict=True) if size <= room]


def _fitting(blocks: Iterable[tuple[str, str]], room: int) -> tuple[list[str], list[str]]:
    """The blocks that fit, in their order; the titles of the others."""
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
    """A few names, or only how many: this line has a bounded length."""
    if titles:
        named = f"{', '.join(titles[:3])}{f' and {len(titles) - 3} more' if len(titles) > 3 else ''}"
        what = named if len(named) <= _ROOM - 120 else f"{len(titles)} parts"
        yield f"Left out, for a comment holds no more: {what}. The command below shows everything."


def _end(diff: Diff, *, version: str, command: str) -> Iterator[str]:
    assumed = "\n".join(f"- {one}" for one in ASSUMPTIONS)
    unknown = sorted({*diff.cost_before.most.unknown, *diff.cost_after.most.unknown})
    named = _bounded([f"\n- unknown: {code(cut(reason, _LONGEST))}" for reason in unknown], 2_000)
    yield details("what the cost assumes", f"{assumed}{''.join(named)}")
    prices = f"prices of {diff.cost_after.prices_date} for {diff.cost_after.prices_region}"
    yield f"gpucluster {version}, {prices}; the same again: {code(cut(printable(command), 400))}"
