"""Compare the offline planner with `pulumi preview --json`: every difference is one line."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gpucluster.engine.offline.model import STACK_TYPE, UNKNOWN, Planned, Resource, Value
from gpucluster.engine.values import UNKNOWN_ON_WIRE

State = Mapping[str, Any]
# Inputs that the engine or the provider's Check adds; `__defaults` has the name of each default.
ENGINES_OWN = frozenset({"__defaults", "__internal", "tagsAll"})
PROVIDERS_OWN = frozenset({"version"})
LOOKED_UP = frozenset({"ami", "imageId", "blockDeviceMappings"})  # from the look-up of the image
_SECONDS = {"h": 3600, "m": 60, "s": 1}


def compare(planned: Planned, preview: Mapping[str, Any], looked_up: frozenset[str] = LOOKED_UP) -> list[str]:
    """Return nothing if both have the same program. The engine's own default providers are ignored.

    `looked_up` are properties that may be unknown offline; none, when every look-up is answered.
    """
    steps = {s["urn"]: s for s in preview["steps"] if _is_declared(s)}
    ours = {r.urn: r for r in planned.resources}
    found = [f"{urn}: the engine has it, the planner does not" for urn in steps.keys() - ours.keys()]
    found += [f"{urn}: the planner has it, the engine does not" for urn in ours.keys() - steps.keys()]
    for urn in ours.keys() & steps.keys():
        found += [f"{urn}: {line}" for line in _differences(ours[urn], steps[urn], planned, looked_up)]
    return sorted(found)


def _is_declared(step: Mapping[str, Any]) -> bool:
    kind = step["urn"].split("::", 3)[2]
    own = kind == STACK_TYPE or (kind.startswith("pulumi:providers:") and "::default_" in step["urn"])
    return not own and not step["op"].startswith("delete")


def _differences(
    resource: Resource, step: Mapping[str, Any], planned: Planned, looked_up: frozenset[str]
) -> Iterator[str]:
    state: State = step["newState"]
    for word, ours, theirs in _fields(resource, state, planned):
        if ours != theirs:
            yield f"{word}: planned {ours!r}, previewed {theirs!r}"
    was = step.get("oldState", {}).get("urn", resource.urn)
    if was not in {resource.urn, *resource.aliases}:
        yield f"aliases: the engine took it for {was}, planned {resource.aliases!r}"
    yield from _inputs(resource, state.get("inputs", {}), looked_up)


def _fields(resource: Resource, state: State, planned: Planned) -> Iterator[tuple[str, object, object]]:
    stack = f"urn:pulumi:{planned.stack}::{planned.project}::{STACK_TYPE}::{planned.project}-{planned.stack}"
    links = {k: sorted(v) for k, v in state.get("propertyDependencies", {}).items() if v}
    times = {verb: _seconds(getattr(resource.timeouts, verb)) for verb in ("create", "update", "delete")}
    yield "type", resource.type, state["type"]
    yield "name", resource.name, state["urn"].split("::", 3)[3]
    yield "custom", resource.custom, state["custom"]
    yield "parent", resource.parent or stack, state.get("parent")
    yield "dependencies", list(resource.dependencies), sorted(state.get("dependencies", []))
    yield "dependencies by property", {k: list(v) for k, v in resource.property_dependencies.items()}, links
    yield "provider", resource.provider or "", state.get("provider", "").rpartition("::")[0]
    yield "protect", resource.protect, state.get("protect", False)
    yield "retain on delete", resource.retain_on_delete, state.get("retainOnDelete", False)
    yield "timeouts", {k: v for k, v in times.items() if v}, state.get("customTimeouts", {})
    yield "deleted with", resource.deleted_with, state.get("deletedWith")
    yield "external", resource.external, state.get("external", False)
    yield "import id", resource.import_id, state.get("importID", "")
    for word, ours, theirs in (
        ("ignores changes of", resource.ignore_changes, "ignoreChanges"),
        ("replaced on changes of", resource.replace_on_changes, "replaceOnChanges"),
        ("hides changes of", resource.hide_diffs, "hideDiff"),
    ):
        yield word, list(ours), sorted(state.get(theirs, []))
    yield "secret outputs", list(resource.secret_outputs), sorted(state.get("additionalSecretOutputs", []))


def _seconds(text: str) -> int:
    return sum(int(number) * _SECONDS[unit] for number, unit in re.findall(r"(\d+)([hms])", text))


def _inputs(resource: Resource, inputs: Mapping[str, Any], looked_up: frozenset[str]) -> Iterator[str]:
    """The program's inputs must be present. Other inputs of the engine must be marked as defaults."""
    defaults = ENGINES_OWN | frozenset(inputs.get("__defaults", ()))
    if resource.type.startswith("pulumi:providers:"):
        defaults |= PROVIDERS_OWN
    given = {name: value for name, value in inputs.items() if name not in defaults}
    for name in _keys(resource.properties, given):
        open_here = name in looked_up or name in resource.property_dependencies
        yield from _values(name, resource.properties.get(name), given.get(name), open_here=open_here)


def _values(where: str, ours: Value, theirs: Value, *, open_here: bool) -> Iterator[str]:
    """Offline, fewer values of look-ups and of other resources are known. Every other difference is reported."""
    if ours == UNKNOWN and open_here:
        return
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = _keys(ours, theirs)
        yield from _each(where, keys, ours.get, theirs.get, open_here=open_here)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        keys = range(len(ours))
        yield from _each(where, keys, ours.__getitem__, theirs.__getitem__, open_here=open_here)
    elif ours != (UNKNOWN if theirs == UNKNOWN_ON_WIRE else theirs):
        yield f"property {where}: planned {ours!r}, previewed {theirs!r}"


def _keys(ours: Mapping[str, Value], theirs: Mapping[str, Value]) -> Iterable[str]:
    return sorted(ours.keys() | theirs.keys())


def _each(
    where: str,
    keys: Iterable[Any],
    ours: Callable[[Any], Value],
    theirs: Callable[[Any], Value],
    *,
    open_here: bool,
) -> Iterator[str]:
    for key in keys:
        yield from _values(f"{where}.{key}", ours(key), theirs(key), open_here=open_here)
