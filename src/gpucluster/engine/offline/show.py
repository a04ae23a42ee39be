"""Show a planned program: as a tree in a terminal, and as markdown in a pull request."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpucluster import markdown
from gpucluster.engine.offline.lookups import sentence
from gpucluster.engine.offline.model import SECRET, UNKNOWN, Lookup, Planned, Resource, Value, is_provider
from gpucluster.engine.offline.urns import name_of, type_of
from gpucluster.text import printable

NO_COMPONENT: Final = "the stack"  # resources without a component as ancestor

BRIEFLY: Final = 6  # list at most this many names in one place


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts by kind, and by type for resources in the cloud."""

    made: int
    components: int
    providers: int
    read: int
    by_type: Mapping[str, int]


def counts(planned: Planned) -> Counts:
    """Count the declared resources."""
    made = [r for r in planned.resources if _is_made(r)]
    return Counts(
        made=len(made),
        components=sum(not r.custom for r in planned.resources),
        providers=sum(is_provider(r) for r in planned.resources),
        read=sum(r.external for r in planned.resources),
        by_type=dict(sorted(Counter(r.type for r in made).items())),
    )


def verdict(planned: Planned) -> str:
    """Return one sentence: `burst: 35 resources in the cloud, 7 components, 1 provider`."""
    found = counts(planned)
    kinds = (
        (found.components, "component", "components"),
        (found.providers, "provider", "providers"),
        (found.read, "only read", "only read"),
    )
    parts = [f"{found.made} resource{'' if found.made == 1 else 's'} in the cloud"]
    parts += [f"{number} {one if number == 1 else many}" for number, one, many in kinds if number]
    return f"{planned.stack}: {', '.join(parts)}"


def lines(planned: Planned, *, properties: bool) -> Iterator[str]:
    """Return the tree by parent, the dependencies, and the number of resources of each type."""
    yield printable(verdict(planned))
    yield ""
    children = _children(planned.resources)
    for top in children.get(None, ()):
        yield from _branch(top, children, depth=0, properties=properties)
    yield ""
    for kind, number in counts(planned).by_type.items():
        yield f"{number:4} {printable(kind)}"
    yield ""
    for text in remarks(planned):
        yield printable(text)


def comment(planned: Planned, *, reproduce: str, limit: int = markdown.LIMIT) -> str:
    """Return markdown by component. The summary is complete; details stop at the size limit of a comment."""
    groups = _groups(planned.resources)
    rows = [
        (_component(top), str(sum(map(_is_made, group))), _kinds(group), _guarded(group))
        for top, group in groups
    ]
    head = markdown.table(("component", "resources", "types", "guarded"), rows)
    notes = "\n".join(f"- {markdown.text(text)}" for text in remarks(planned))
    summary = "\n\n".join(
        (
            marker(planned.stack),
            f"### {markdown.text(verdict(planned))}",
            head,
            notes,
            f"To see it on your computer: {markdown.code(reproduce)}",
        )
    )
    parts = [markdown.details(_title(top, group), _listing(group)) for top, group in groups]
    return markdown.fitted(
        summary, parts, f"{markdown.code(f'{reproduce} --properties')} shows them", limit=limit
    )


def marker(name: str) -> str:
    """Return the hidden line that identifies the comment of one cluster."""
    return f"<!-- gpucluster:resources:{printable(name).replace('--', '-')} -->"


def remarks(planned: Planned) -> Iterator[str]:
    """Return warnings about values that the planner cannot know."""
    unknown = sum(_has_unknown(r.properties) for r in planned.resources)
    if unknown:
        yield f"{unknown} resources have properties that are known only after `pulumi up`: {UNKNOWN}"
    for lookup in planned.lookups:
        yield asked(lookup)
    if planned.outputs:
        yield "exports " + ", ".join(f"{name} = {_plain(value)}" for name, value in planned.outputs.items())


def asked(lookup: Lookup) -> str:
    """Return a sentence of one look-up, with its answer's origin."""
    what = f"{sentence(lookup.token)} ({lookup.token}: {_json(lookup.arguments)})"
    return f"known from a recorded answer: {what}" if lookup.answered else f"looked up at `pulumi up`: {what}"


def _is_made(resource: Resource) -> bool:
    return resource.custom and not resource.external and not is_provider(resource)


def _children(resources: Iterable[Resource]) -> Mapping[str | None, Sequence[Resource]]:
    found: dict[str | None, list[Resource]] = {}
    for resource in sorted(resources, key=lambda r: (r.type, r.name)):
        found.setdefault(resource.parent, []).append(resource)
    return found


def _branch(
    resource: Resource,
    children: Mapping[str | None, Sequence[Resource]],
    *,
    depth: int,
    properties: bool,
) -> Iterator[str]:
    for line in _lines(resource, properties=properties):
        yield "  " * depth + line
    for child in children.get(resource.urn, ()):
        yield from _branch(child, children, depth=depth + 1, properties=properties)


def _lines(resource: Resource, *, properties: bool) -> Iterator[str]:
    words = ", ".join(flags(resource))
    yield printable(_title_of(resource) + (f"  [{words}]" if words else ""))
    if resource.dependencies:
        yield printable(f"    after {_after(resource, most=None if properties else BRIEFLY)}")
    for name, value in resource.properties.items() if properties else ():
        yield printable(f"    {name} = {_json(value)}")


# option -> text for a reviewer; None when it is not set
_FLAGS: Final[tuple[Callable[[Resource], str | None], ...]] = (
    lambda r: "protected" if r.protect else None,
    lambda r: "kept when removed" if r.retain_on_delete else None,
    lambda r: "deleted before it is replaced" if r.delete_before_replace else None,
    lambda r: f"only read: {r.import_id}" if r.external else None,
    lambda r: f"adopts {r.import_id}" if r.import_id and not r.external else None,
    lambda r: f"ignores changes of {', '.join(r.ignore_changes)}" if r.ignore_changes else None,
    lambda r: f"replaced on changes of {', '.join(r.replace_on_changes)}" if r.replace_on_changes else None,
    lambda r: f"goes with {name_of(r.deleted_with)}" if r.deleted_with else None,
    lambda r: f"aliases: {', '.join(_was(r, urn) for urn in r.aliases)}" if r.aliases else None,
    lambda r: f"waits {_waits(r)}" if _waits(r) else None,
)


def flags(resource: Resource) -> Iterator[str]:
    """Return facts for a reviewer that are not properties."""
    return (word for flag in _FLAGS if (word := flag(resource)) is not None)


def _was(resource: Resource, urn: str) -> str:
    """Return the part of an alias that differs."""
    same_type, same_name = type_of(urn) == resource.type, name_of(urn) == resource.name
    if same_name and not same_type:
        return type_of(urn)
    return name_of(urn) if same_type and not same_name else urn


def _waits(resource: Resource) -> str:
    times = resource.timeouts
    limits = (("create", times.create), ("update", times.update), ("delete", times.delete))
    return ", ".join(f"{limit} to {verb}" for verb, limit in limits if limit)


def _title_of(resource: Resource) -> str:
    return f"{resource.type} {resource.name}"


def _after(resource: Resource, *, most: int | None) -> str:
    names = [f"{_short(type_of(urn))} {name_of(urn)}" for urn in resource.dependencies]
    more = len(names) - len(names[:most])
    return ", ".join(names[:most]) + (f" and {more} more" if more else "")


def _short(kind: str) -> str:
    return kind.rpartition(":")[2]


def _json(value: Value) -> str:
    return json.dumps(value, sort_keys=True)


def _plain(value: Value) -> str:
    return value if isinstance(value, str) and value in {SECRET, UNKNOWN} else _json(value)


def _has_unknown(value: Value) -> bool:
    return f'"{UNKNOWN}"' in _json(value)


def _groups(resources: Sequence[Resource]) -> list[tuple[Resource | None, list[Resource]]]:
    """Group resources by their topmost component. Resources without a component come first."""
    by_urn = {r.urn: r for r in resources}
    found: dict[str, list[Resource]] = {}
    for resource in sorted(resources, key=lambda r: (r.type, r.name)):
        top = _top(resource, by_urn)
        found.setdefault("" if top is None else top.urn, []).append(resource)
    return [(by_urn.get(urn), found[urn]) for urn in sorted(found)]


def _top(resource: Resource, by_urn: Mapping[str, Resource]) -> Resource | None:
    while resource.parent is not None and resource.parent in by_urn:
        resource = by_urn[resource.parent]
    return None if resource.custom else resource


def _component(top: Resource | None) -> str:
    return markdown.text(NO_COMPONENT) if top is None else markdown.code(_title_of(top))


def _title(top: Resource | None, group: Sequence[Resource]) -> str:
    made = sum(map(_is_made, group))
    return f"{NO_COMPONENT if top is None else _title_of(top)}: {made} resource{'' if made == 1 else 's'}"


def _kinds(group: Sequence[Resource]) -> str:
    found = Counter(_short(r.type) for r in group if _is_made(r))
    return ", ".join(f"{number} {markdown.code(kind)}" for kind, number in sorted(found.items())) or "-"


def _guarded(group: Sequence[Resource]) -> str:
    names = [r.name for r in group if r.protect or r.retain_on_delete]
    more = f" and {len(names) - BRIEFLY} more" if len(names) > BRIEFLY else ""
    return (", ".join(map(markdown.code, names[:BRIEFLY])) or "-") + more


def _listing(group: Sequence[Resource]) -> str:
    """Return a fenced block: markup and mentions have no effect in it."""
    return markdown.fence("\n".join(line for one in group for line in _lines(one, properties=True)))
