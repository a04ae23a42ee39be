# pyright: reportUnknownVariableType=false
"""Custom resources against the schemas of their own projects: strict fields, formats, list keys, then the CEL rules."""

import binascii
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from datetime import datetime
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from gpucluster.catalog import crd_schema, crd_schemas
from gpucluster.k8s.lint import builtin, cel
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.tree import at, items, mapping
from gpucluster.k8s.lint.words import Complaint, Validator, complaints
from gpucluster.k8s.lint.world import CLIENT_GROUPS, Obj, World, is_built_in

Schema = Mapping[str, Any]
_BY_NAMES = (("annotations",), ("labels",), ("name",), ("namespace",))  # its checker's, for all kinds


def check(world: World) -> Iterator[Finding]:
    """Every custom resource; one whose schema we lack is said, never passed."""
    for thing in world.objects:
        if not is_built_in(thing.api_version) and thing.group not in CLIENT_GROUPS:
            yield from _check(thing) if _known(thing) else _unknown(thing)
            yield from _metadata(thing, world.facts.kubernetes)


def defaulted(schema: Schema, value: Any) -> Any:
    """The value as the API server would keep it: the schema's defaults taken, for CEL sees them."""
    if isinstance(value, dict):
        return _defaulted_fields(schema, mapping(value))
    if isinstance(value, list):
        inner = mapping(schema.get("items"))
        return [defaulted(inner, entry) for entry in items(value)]
    return value


def _known(thing: Obj) -> bool:
    return (thing.api_version, thing.kind) in crd_schemas()


def _unknown(thing: Obj) -> Iterator[Finding]:
    groups = {api_version.rpartition("/")[0] for api_version, _ in crd_schemas()}
    what = f"{thing.api_version} {thing.kind}"
    if thing.group in groups:
        known = sorted({f"{api} {kind}" for api, kind in crd_schemas() if api.startswith(f"{thing.group}/")})
        yield thing.found("unknown-kind", f"{what} is none of {', '.join(known)}", ("kind",))
    else:
        yield thing.warned("no-schema", f"no schema of {what} is in the catalog: not checked", ("kind",))


def _check(thing: Obj) -> Iterator[Finding]:
    schema = crd_schema(thing.api_version, thing.kind)
    body = defaulted(schema, {key: value for key, value in thing.body.items() if key != "status"})
    found = list(complaints(_validator(thing.api_version, thing.kind), body))
    for said in found:
        yield thing.found(said.rule, said.message, said.path)
    yield from _rules(thing, schema, body, found)
    if "status" in thing.body:
        yield thing.warned("status", "the status is the cluster's to write; it is not checked", ("status",))


def _metadata(thing: Obj, release: str) -> Iterator[Finding]:
    for said in complaints(builtin.metadata(release), thing.body.get("metadata", {})):
        if said.path[:1] not in _BY_NAMES:
            yield thing.found(said.rule, said.message, ("metadata", *said.path))


def _rules(thing: Obj, schema: Schema, body: Any, found: list[Complaint]) -> Iterator[Finding]:
    wrong = frozenset(said.path for said in found if said.typed)
    for broken in cel.evaluate(schema, body, wrong):
        if broken.engine:
            words = f"a rule could not be evaluated ({broken.engine}): {broken.message}"
            yield thing.found("cel-engine", words, broken.path)
        else:
            yield thing.found("cel", broken.message, broken.path)


def _defaulted_fields(schema: Schema, value: Mapping[str, Any]) -> dict[str, Any]:
    known, others = mapping(schema.get("properties")), mapping(schema.get("additionalProperties"))
    full: dict[str, Any] = dict(value)
    for name, inner in known.items():
        absent = name not in full or (full[name] is None and not at(inner, "nullable"))
        if absent and "default" in mapping(inner):
            full[name] = deepcopy(inner["default"])
    return {name: defaulted(mapping(known.get(name, others)), entry) for name, entry in full.items()}


@cache
def _validator(api_version: str, kind: str) -> Validator:
    return _STRICT(_strict(crd_schema(api_version, kind), root=True))


def _strict(schema: Schema, *, root: bool = False) -> dict[str, Any]:
    """The same as the API server prunes and refuses: no field beyond those named, unless the schema keeps unknown ones."""
    made = {key: value for key, value in schema.items() if key != "x-kubernetes-validations"}
    if "properties" in made:
        made["properties"] = {name: _strict(mapping(inner)) for name, inner in made["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = _strict(mapping(made[key]))
    open_ended = "additionalProperties" in made or made.get("x-kubernetes-preserve-unknown-fields")
    if made.get("type") == "object" and not open_ended:
        made["additionalProperties"] = False
    if root:
        made["properties"] = {**made["properties"], "metadata": {"type": "object"}}  # `names` looks at it
    if made.get("nullable") and "type" in made:
        made["type"] = [made["type"], "null"]
    return made


def _pattern(_v: Any, pattern: str, value: Any, _schema: Schema) -> Iterator[ValidationError]:
    if isinstance(value, str):
        try:
            good = cel.matches(value, pattern)
        except cel.ENGINE_ERRORS:  # text that is no Unicode
            good = False
        if not good:
            yield ValidationError("does not match")


def _format(_v: Any, name: str, value: Any, _schema: Schema) -> Iterator[ValidationError]:
    if name in _FORMATS and not _FORMATS[name](value):
        yield ValidationError(f"is no {name}")


def _list_type(_v: Any, kind: str, value: Any, schema: Schema) -> Iterator[ValidationError]:
    """A set has no entry twice, a map none with the same keys."""
    keys = [str(key) for key in items(schema.get("x-kubernetes-list-map-keys"))] if kind == "map" else []
    if kind not in ("map", "set") or not isinstance(value, list):
        return
    seen: set[str] = set()
    for entry in items(value):
        sign = repr([mapping(entry).get(key) for key in keys] if keys else entry)
        if sign in seen:
            yield ValidationError(f"an entry stands twice: {sign[:120]}")
        seen.add(sign)


def _whole(bits: int) -> Callable[[Any], bool]:
    """JSON Schema counts 1.0 as whole, so does the API server; the type is another keyword's."""
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
