"""Write `catalog/data/aws-properties.json` and `docs/facts/aws-properties.md`: what a change of an AWS property does.

Three sources, none of them ours:
- `aws-properties-terraform.json`: flags of the Terraform provider's source, typed by hand with path and commit.
- The CloudFormation schemas in the package cfn-lint: `createOnlyProperties` and `readOnlyProperties`.
- The package pulumi-aws: the name of each property in Pulumi, and which are inputs.
Where the first two differ, `aws-properties-decisions.json` has a row. A difference without a row is an error, and
so is a row without a difference.

    python tools/make_property_facts.py [--check]
"""

import importlib
import inspect
import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cfnlint

ROOT = Path(__file__).parent.parent
DATA = ROOT / "src/gpucluster/catalog/data"
DOC = ROOT / "docs/facts/aws-properties.md"
SCHEMAS = Path(cfnlint.__file__).parent / "data/schemas"
REGION = "us-east-1"  # the region with every resource type

Row = dict[str, Any]


def main() -> None:
    facts = merged()
    texts = {DATA / "aws-properties.json": json_text(facts), DOC: doc(facts)}
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        sys.exit("".join(f"{path.relative_to(ROOT)} is stale\n" for path in stale))
    for path, text in texts.items():
        path.write_text(text)
    print(f"{len(facts['types'])} types, {len(stale)} files written")


def merged() -> Row:
    """Return the facts of every type. SystemExit names a property that no source or decision explains."""
    terraform = _read(DATA / "aws-properties-terraform.json")
    schemas = _read(SCHEMAS / f"providers/{REGION}.json")
    decisions = _decisions()
    used: set[tuple[str, str]] = set()
    types: dict[str, Row] = {}
    for token, typed in terraform["types"].items():
        name = typed.get("cloudformation")
        schema = _read(SCHEMAS / f"resources/{schemas[name]}.json") if name else None
        types[token] = _type(token, typed, schema, decisions, used)
    if left := sorted(decisions.keys() - used):
        sys.exit(f"aws-properties-decisions.json: no difference for {left}")
    return {
        "schema": 1,
        "source": "tools/make_property_facts.py, from the three sources below",
        "terraform": {"source": terraform["source"], "date": terraform["date"]},
        "bridge": terraform["bridge"],
        "cloudformation": {
            "package": f"cfn-lint {version('cfn-lint')}",
            "date": _read(SCHEMAS / "version.json")["schema_date"][:10],
        },
        "pulumi": {"package": f"pulumi-aws {version('pulumi-aws')}"},
        "types": types,
    }


def _type(
    token: str,
    typed: Row,
    schema: Row | None,
    decisions: Mapping[tuple[str, str], Row],
    used: set[tuple[str, str]],
) -> Row:
    names = _pulumi_names(token, typed["properties"])
    nested = typed.get("nested", {})
    conditions = [_condition(one, names) for one in typed.get("conditions", [])]
    conditional = {one["property"] for one in conditions}
    properties: dict[str, Row] = {}
    for terraform_name, flags in typed["properties"].items():
        name = names[terraform_name]
        fixed = sorted(
            _camel(inner.partition(".")[2])
            for inner, of_inner in nested.items()
            if inner.startswith(f"{terraform_name}.") and "force_new" in of_inner.split()
        )
        row = _property(flags.split(), fixed, name in conditional)
        theirs = None if schema is None else _in_cloudformation(terraform_name, typed, schema)
        if theirs is not None:
            row["cloudformation"] = theirs
            if theirs != row["terraform"]:
                key = (token, name)
                if key not in decisions:
                    sys.exit(
                        f"{token} {name}: terraform {row['terraform']}, cloudformation {theirs}: no decision"
                    )
                used.add(key)
                row |= decisions[key]
                if row["taken"] == "cloudformation":
                    row["change"] = theirs
        properties[name] = row
    sets = sorted(
        f"{names[inner.partition('.')[0]]}.{_camel(inner.partition('.')[2])}"
        for inner, flags in nested.items()
        if "set" in flags.split()
    )
    found: Row = {"terraform": typed["terraform"], "path": typed["path"], "commit": typed["commit"]}
    found |= {key: typed[key] for key in ("cloudformation", "note", "delete_before_replace") if key in typed}
    if auto := _auto_name(typed["properties"]):
        found["auto_name"] = names[auto]
    found["properties"] = dict(sorted(properties.items()))
    if sets:
        found["sets"] = sets
    if conditions:
        found["conditions"] = conditions
    return found


def _property(flags: list[str], fixed: list[str], conditional: bool) -> Row:
    if "computed" in flags and not {"optional", "required"} & set(flags):
        change = "computed"
    else:
        change = "replace" if "force_new" in flags else "update"
    row: Row = {"change": change}
    row["terraform"] = "conditional" if change == "update" and (conditional or fixed) else change
    if "optional" in flags and "computed" in flags:
        row["optional_computed"] = True
    if kind := next((word for word in ("set", "json", "decimal") if word in flags), None):
        row["compare"] = kind
    if fixed:
        row["replacing_fields"] = fixed
    return row


def _auto_name(properties: Mapping[str, str]) -> str | None:
    """Return the name that is drawn when the program gives none. Pulumi draws every `name` that is an input."""
    for name in ("name", "bucket", "creation_token", "target_id"):
        drawn = ("optional computed force_new", "required force_new")
        if properties.get(name) in (drawn if name == "name" else drawn[:1]):
            return name
    return None


def _in_cloudformation(terraform_name: str, typed: Row, schema: Row) -> str | None:
    """Return what the schema says; None when the property is not in it."""
    name = typed.get("cloudformation_names", {}).get(terraform_name) or _upper(terraform_name)
    if name.partition("/")[0] not in schema["properties"]:
        return None
    for word, key in (
        ("replace", "createOnlyProperties"),
        ("conditional", "conditionalCreateOnlyProperties"),
        ("computed", "readOnlyProperties"),
    ):
        if any(name == one or name.startswith(f"{one}/") for one in _paths(schema, key)):
            return word
    inside = any(one.startswith(f"{name}/") for one in _paths(schema, "createOnlyProperties"))
    return "conditional" if inside else "update"


def _paths(schema: Row, key: str) -> list[str]:
    return [str(one).removeprefix("/properties/") for one in schema.get(key, [])]


def _condition(typed: Row, names: Mapping[str, str]) -> Row:
    """Return the condition in Pulumi's names."""
    found: Row = {"property": names[typed["property"]]}
    for word, value in typed.items():
        if word in ("if", "if_old", "unless"):
            found[word] = {names[name]: expected for name, expected in value.items()}
        elif word == "other_kind":
            found[word] = [names[name] for name in value]
        elif word != "property":
            found[word] = value
    return found


def _pulumi_names(token: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return Terraform's name -> Pulumi's. SystemExit when pulumi-aws does not have it, or disagrees on inputs."""
    module, _, cls = token.removeprefix("aws:").partition("/")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sdk = getattr(importlib.import_module(f"pulumi_aws.{module}"), cls.partition(":")[2])
    inputs = inspect.signature(sdk._internal_init).parameters  # noqa: SLF001  the SDK lists inputs nowhere else
    found: dict[str, str] = {}
    for name, flags in properties.items():
        plural = next((one for one in (name, f"{name}s", f"{name[:-1]}ies") if hasattr(sdk, one)), None)
        if plural is None:
            sys.exit(f"{token} {name}: not in pulumi-aws")
        if (plural in inputs) != bool({"optional", "required"} & set(flags.split())):
            sys.exit(f"{token} {name}: {flags}, and pulumi-aws says otherwise")
        found[name] = getattr(sdk, plural).fget._pulumi_name  # noqa: SLF001
    return found


def _decisions() -> dict[tuple[str, str], Row]:
    rows = _read(DATA / "aws-properties-decisions.json")["rows"]
    return {
        (token, name): {"taken": row["taken"], "why": row["why"]}
        for row in rows
        for token in row["types"]
        for name in row["properties"]
    }


def _camel(name: str) -> str:
    return _upper(name)[:1].lower() + _upper(name)[1:]


def _upper(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def json_text(facts: Row) -> str:
    """Return JSON with one property a line."""
    head = {key: value for key, value in facts.items() if key != "types"}
    lines = [json.dumps(head, indent=1)[:-2] + ',\n "types": {']
    lines.append(",\n".join(_type_text(token, row) for token, row in facts["types"].items()))
    return "\n".join([*lines, " }\n}\n"])


def _type_text(token: str, row: Row) -> str:
    rest = {key: value for key, value in row.items() if key != "properties"}
    properties = ",\n".join(
        f"    {json.dumps(name)}: {json.dumps(one)}" for name, one in row["properties"].items()
    )
    return f'  {json.dumps(token)}: {json.dumps(rest)[:-1]},\n   "properties": {{\n{properties}\n   }}}}'


def doc(facts: Row) -> str:
    """Return the page for people: the counts, and each difference."""
    return "\n".join(_doc(facts)) + "\n"


def _doc(facts: Row) -> Iterator[str]:
    rows = [
        (token, name, row) for token, one in facts["types"].items() for name, row in one["properties"].items()
    ]
    both = [row for _, _, row in rows if "cloudformation" in row]
    differ = [(token, name, row) for token, name, row in rows if "taken" in row]
    yield "# What a change of an AWS property does"
    yield ""
    yield "`tools/make_property_facts.py` writes this page and `src/gpucluster/catalog/data/aws-properties.json`."
    yield "`diff --resources` and the policies read that file. A test holds the rehearsal's provider against it."
    yield ""
    yield f"- Terraform: {facts['terraform']['source']}. Read on {facts['terraform']['date']}."
    yield f"- CloudFormation: the schemas of {facts['cloudformation']['package']}, dated {facts['cloudformation']['date']}."
    yield f"- Pulumi: names and inputs of {facts['pulumi']['package']}."
    yield f"- Deletion before replacement: {facts['bridge']['source']}, commit {facts['bridge']['commit'][:12]}: {facts['bridge']['read']}."
    yield ""
    yield "| | count |"
    yield "|---|---|"
    yield f"| resource types | {len(facts['types'])} |"
    yield f"| properties | {len(rows)} |"
    yield f"| in Terraform and CloudFormation | {len(both)} |"
    yield f"| both agree | {len(both) - len(differ)} |"
    yield f"| they differ | {len(differ)} |"
    yield ""
    yield "## Sources by type"
    yield ""
    yield "| type | Terraform's source | commit | CloudFormation | deleted before replacement |"
    yield "|---|---|---|---|---|"
    for token, one in facts["types"].items():
        first = "yes" if one.get("delete_before_replace") else ""
        commit = one["commit"][:12] or "-"
        yield f"| {token} | {one['path']} | {commit} | {one.get('cloudformation', '-')} | {first} |"
    yield ""
    yield "## Differences"
    yield ""
    yield "| type | property | Terraform | CloudFormation | taken | why |"
    yield "|---|---|---|---|---|---|"
    for token, name, row in differ:
        yield (
            f"| {token.rpartition(':')[2]} | {name} | {row['terraform']} | {row['cloudformation']} | {row['taken']}"
            f" | {row['why']} |"
        )


if __name__ == "__main__":
    main()
