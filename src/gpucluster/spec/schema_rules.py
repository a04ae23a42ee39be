"""What the JSON Schema says beyond the fields' types: words of the catalog, and keys that exclude or need each other.

The rules of `spec/rules` refuse the same. A test generates wrong specs and holds both together.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpucluster.catalog import Catalog
from gpucluster.spec.host_fields import HOSTLIST_SCHEMA
from gpucluster.spec.rules.aws import MOST_TAGS
from gpucluster.spec.storage import KINDS

Schema = dict[str, Any]  # JSON; the type checker does not match nested literals with a recursive JSON type

MACHINE, REGION, ZONE = "MachineType", "Region", "Zone"
_RESERVED = ["reservation", "capacity-block"]


def add_rules(schema: Schema, catalog: Catalog) -> None:
    """Add the catalog's words and the rules to a schema whose definitions have the names of the models."""
    models: dict[str, Schema] = {"": schema, **schema["definitions"]}
    schema["definitions"] |= _words(catalog)
    for (model, key), word in _WORD_OF.items():
        if model in models:
            _refer(models[model]["properties"][key], word)
    for (model, key), words in _VERSIONS.items():
        if model in models:
            models[model]["properties"][key]["enum"] = list(words(catalog))
    for model, rules in _RULES.items():
        if "pools" in schema["properties"] and model in models:
            models[model] |= rules


def _words(catalog: Catalog) -> Schema:
    zones = sorted({zone for zones in catalog.regions.values() for zone in zones})
    return {
        MACHINE: {"enum": sorted(catalog.machines)},
        REGION: {"enum": sorted(catalog.regions)},
        ZONE: {"enum": zones},
    }


def _refer(field: Schema, word: str) -> None:
    """Replace the type of a field, of the items of its list, or of the keys of its mapping."""
    if field.get("type") == "array":
        field["items"] = {"$ref": f"#/definitions/{word}"}
    elif field.get("type") == "object":
        field["propertyNames"] = {"$ref": f"#/definitions/{word}"}
    else:
        del field["type"]
        field["allOf"] = [{"$ref": f"#/definitions/{word}"}]  # draft-07 ignores what is beside a $ref


_WORD_OF: Mapping[tuple[str, str], str] = {
    ("Aws", "region"): REGION,
    ("Capacity", "machines"): MACHINE,
    ("Capacity", "zones"): ZONE,
    ("FsxLustre", "zone"): ZONE,
    ("Head", "machine"): MACHINE,
    ("Login", "machine"): MACHINE,
    ("Login", "zone"): ZONE,
    ("Network", "public"): ZONE,
    ("Network", "subnets"): ZONE,
    ("Network", "zones"): ZONE,
    ("Standby", "machine"): MACHINE,
    ("Standby", "zone"): ZONE,
}
_VERSIONS: Mapping[tuple[str, str], Callable[[Catalog], Iterable[str]]] = {
    ("Slurm", "version"): lambda catalog: catalog.slurm_supported,
    ("Kubernetes", "version"): lambda catalog: catalog.kubernetes_known,
}


def _one_of(*keys: str) -> Schema:
    return {"oneOf": [{"required": [key]} for key in keys]}


def _if(condition: Schema, then: Schema, otherwise: Schema | None = None) -> Schema:
    return {"if": condition, "then": then} | ({"else": otherwise} if otherwise else {})


def _has(*keys: str) -> Schema:
    return {"required": list(keys)}


def _none_of(*keys: str) -> Schema:
    return {"not": {"anyOf": [{"required": [key]} for key in keys]}}


def _from(*sources: str) -> Schema:
    return {"properties": {"from": {"enum": list(sources)}}, "required": ["from"]}


def _filled(key: str) -> Schema:
    """The key is there, with a value that is not empty."""
    return {"properties": {key: {"minItems": 1, "minProperties": 1}}, **_has(key)}


def _where(schema: Schema, *path: str) -> Schema:
    """What is below the keys of `path`, if all are there, has the schema."""
    for key in reversed(path):
        schema = {"properties": {key: schema}}
    return schema


def _within(schema: Schema, *path: str) -> Schema:
    """The keys of `path` are there, and what is below them has the schema."""
    for key in reversed(path):
        schema = {"properties": {key: schema}, **_has(key)}
    return schema


_RULES: Mapping[str, Schema] = {
    "": {
        "allOf": [
            _one_of("aws", "hosts"),
            {"anyOf": [_has("slurm"), _has("kubernetes")]},
            _if(_has("slurm"), _has("partitions")),
            _if(_has("slurm", "aws"), _has("head")),
            _if(
                _has("aws"), {"properties": {"pools": {"items": _has("capacity", "nodes")}}}
            ),  # hosts need neither
            *(
                _if(_filled(key), _within(_has("accounting"), "slurm")) for key in ("accounts", "qos")
            ),  # records of a database
            _if(_within(_has("vpc"), "aws", "network"), _where(_has("address"), "head")),
            _if(_within(_has("vpc"), "aws", "network"), _where(_has("address"), "head", "standby")),
        ]
    },
    "Aws": {"allOf": [{"properties": {"tags": {"maxProperties": MOST_TAGS}}}]},
    "Capacity": {
        "allOf": [
            _if(_from(*_RESERVED), _has("id"), _none_of("id")),
            _if(_from("spot"), {}, _none_of("max_price")),
        ]
    },
    "Limits": {"minProperties": 1},
    "NamedTopology": {
        "oneOf": [_has("tree"), _has("block"), {"properties": {"flat": {"const": True}}, **_has("flat")}]
    },
    "Network": _if(
        {"anyOf": [_has("vpc"), _has("subnets"), _has("public")]},
        {"allOf": [_has("vpc", "subnets"), _none_of("cidr", "zones", "nat")]},
        _has("cidr", "zones"),
    ),
    "Nfs": {"allOf": [_one_of("from", "server"), _if(_has("server"), _has("export"))]},
    "Storage": _one_of(*KINDS),
    "_Below": {  # pydantic cannot name a schema in itself
        "anyOf": [
            HOSTLIST_SCHEMA,
            {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {"$ref": "#/definitions/_Below"},
            },
        ]
    },
    "Topology": _one_of("tree", "block", "named"),
}
