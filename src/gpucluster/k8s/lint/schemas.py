# pyright: reportUnknownVariableType=false
"""Check custom resources against the schemas of their projects: strict fields, formats, list keys, then the CEL rules."""

import binascii
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from gpucluster.k8s.lint import builtin, cel, projects
from gpucluster.k8s.lint.custom_resources import CustomResource
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj, is_built_in
from gpucluster.k8s.lint.tree import at, items, mapping
from gpucluster.k8s.lint.words import Complaint, Validator, complaints

Schema = Mapping[str, Any]
_BY_NAMES = (
    ("annotations",),
    ("labels",),
    ("name",),
    ("namespace",),
)  # the checker `names` checks them, for all kinds


_NEAR, _SURE = 0.8, 0.9  # from which similarity a kind can be misspelt, and is


def check(manifests: ManifestSet) -> Iterator[Finding]:
    """Check every custom resource with a known schema. `check.unchecked` lists the other ones."""
    for thing in manifests.objects:
        if not is_built_in(thing.api_version) and not thing.is_client_file:
            resource = manifests.resource(thing)
            if resource:
                yield from _check(thing, resource)
            elif (thing.api_version, thing.kind) not in manifests.resources:
                yield from _unknown(manifests, thing)
            yield from _metadata(
                thing, manifests.facts.kubernetes, Severity.ERROR if resource else Severity.WARNING
            )


def defaulted(schema: Schema, value: Any) -> Any:
    """Return the value with the schema's defaults, as the API server stores it, because CEL rules see them."""
    if isinstance(value, dict):
        return _defaulted_fields(schema, mapping(value))
    if isinstance(value, list):
        inner = mapping(schema.get("items"))
        return [defaulted(inner, entry) for entry in items(value)]
    return value


def _unknown(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    """Report a version that a project does not have, and a kind that is nearly one of its kinds. Another release of the
    project can have the version."""
    kinds = {one.kind for one in manifests.resources.values() if one.group == thing.group}
    if thing.kind in kinds:
        near, level = thing.kind, Severity.ERROR
    elif thing.kind in projects.KINDS.get(thing.group, ()):
        return
    else:
        near, level = _nearest(thing.kind, kinds)
        if not projects.release(thing.group):
            level = Severity.WARNING  # the manifests can define some kinds of a group and use others
    have = sorted(
        one.api_version
        for one in manifests.resources.values()
        if (one.group, one.kind) == (thing.group, near)
    )
    if have:
        release = projects.release(thing.group)
        place = f" in {release}" if release else ""
        words = f"there is no {thing.api_version} {thing.kind}{place}; {near} is in {' and '.join(have)}"
        yield thing.found("unknown-kind", words, ("kind",), level)


def _nearest(kind: str, kinds: set[str]) -> tuple[str, Severity]:
    """Return the kind that is meant; "" for none. A later release of a project can have a kind of a similar name."""
    near = get_close_matches(kind, sorted(kinds), n=1, cutoff=_NEAR)
    sure = get_close_matches(kind, near, n=1, cutoff=_SURE)
    return "".join(near), Severity.ERROR if sure else Severity.WARNING


def _check(thing: Obj, resource: CustomResource) -> Iterator[Finding]:
    schema = resource.schema
    body = defaulted(schema, {key: value for key, value in thing.body.items() if key != "status"})
    found = list(complaints(_validator(resource), body))
    for error in found:
        yield thing.found(error.rule, error.message, error.path)
    yield from _rules(thing, schema, body, found)
    if "status" in thing.body:
        yield thing.warned("status", "the cluster writes the status; it is not checked", ("status",))


def _metadata(thing: Obj, release: str, level: Severity) -> Iterator[Finding]:
    for error in complaints(builtin.metadata(release), thing.body.get("metadata", {})):
        if error.path[:1] not in _BY_NAMES:
            yield thing.found(error.rule, error.message, ("metadata", *error.path), level)


def _rules(thing: Obj, schema: Schema, body: Any, found: list[Complaint]) -> Iterator[Finding]:
    wrong = frozenset(error.path for error in found if error.typed)
    for broken in cel.evaluate(schema, body, wrong):
        if broken.engine:
            words = f"a rule could not be evaluated ({broken.engine}): {broken.message}"
            yield thing.warned("cel-engine", words, broken.path)
        else:
            yield thing.found("cel", broken.message, broken.path)


def _defaulted_fields(schema: Schema, value: Mapping[str, Any]) -> dict[str, Any]:
    known, others = mapping(schema.get("properties")), mapping(schema.get("additionalProperties"))
    full: dict[str, Any] = dict(value)
    for name, inner in known.items():
        absent = name not in full or (full[name] is None and not at(inner, "nullable"))
        if absent and "default" in mapping(inner):
            full[name] = deepcopy(inner["default"])
        elif absent and name in full:
            del full[name]  # the server drops a null of a field that is not nullable
    return {name: defaulted(mapping(known.get(name, others)), entry) for name, entry in full.items()}


@lru_cache(maxsize=256)
def _validator(resource: CustomResource) -> Validator:
    return _STRICT(_strict(resource.schema, root=True))


def _strict(schema: Schema, *, root: bool = False) -> dict[str, Any]:
    """Make a schema strict, as the API server's validation is: no unknown field, unless the schema preserves unknown ones."""
    made = {key: value for key, value in schema.items() if key != "x-kubernetes-validations"}
    if "properties" in made:
        made["properties"] = {name: _strict(mapping(inner)) for name, inner in made["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = _strict(mapping(made[key]))
    if made.get("x-kubernetes-embedded-resource"):
        made["properties"] = {"apiVersion": {}, "kind": {}, "metadata": {}, **mapping(made.get("properties"))}
    open_ended = "additionalProperties" in made or made.get("x-kubernetes-preserve-unknown-fields")
    if made.get("type") == "object" and not open_ended:
        made["additionalProperties"] = False
    if root:
        made["properties"] = {
            "apiVersion": {},
            "kind": {},
            **made["properties"],
            "metadata": {"type": "object"},
        }  # `names` checks it
    if made.get("nullable") and "type" in made:
        made["type"] = [made["type"], "null"]
    return made


def _pattern(_v: Any, pattern: str, value: Any, _schema: Schema) -> Iterator[ValidationError]:
    if isinstance(value, str):
        try:
            good = cel.matches(value, pattern)
        except cel.ENGINE_ERRORS:  # text that is no valid Unicode
            good = False
        if not good:
            yield ValidationError("does not match")


def _format(_v: Any, name: str, value: Any, _schema: Schema) -> Iterator[ValidationError]:
    if name in _FORMATS and not _FORMATS[name](value):
        yield ValidationError(f"is not a valid {name}")


def _list_type(_v: Any, kind: str, value: Any, schema: Schema) -> Iterator[ValidationError]:
    """Check that a set has no entry twice, and a map no two entries with the same keys."""
    keys = [str(key) for key in items(schema.get("x-kubernetes-list-map-keys"))] if kind == "map" else []
    if kind not in ("map", "set") or not isinstance(value, list):
        return
    seen: set[str] = set()
    for entry in items(value):
        sign = repr([mapping(entry).get(key) for key in keys] if keys else entry)
        if sign in seen:
            yield ValidationError(f"an entry is repeated: {sign[:120]}")
        seen.add(sign)


def _whole(bits: int) -> Callable[[Any], bool]:
    """JSON Schema and the API server count 1.0 as an integer. The keyword `type` checks the rest."""
    return lambda value: not isinstance(value, int | float) or -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def _is_time(value: Any) -> bool:
    try:
        return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _is_base64(value: Any) -> bool:
    try:
        b64decode(value if isinstance(value, str) else "", validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


_FORMATS: dict[str, Callable[[Any], bool]] = {
    "int32": _whole(32),
    "int64": _whole(64),
    "date-time": _is_time,
    "byte": _is_base64,
}
_STRICT: Callable[[Schema], Validator] = extend(
    Draft202012Validator,
    {"pattern": _pattern, "format": _format, "x-kubernetes-list-type": _list_type},
)
