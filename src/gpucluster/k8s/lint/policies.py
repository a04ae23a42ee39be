"""Check expressions in CEL of admission policies, webhooks, classes and claims of devices, and definitions of kinds: they
parse, and name only variables that are there.

The API server also checks types against the resources that a policy matches. This module checks only the language.
"""

import re
from collections.abc import Iterator
from typing import Any

from gpucluster.k8s.lint import cel
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.tree import Path, along, at, entries, items, mapping, text
from gpucluster.text import quoted

GROUP, POLICY_KIND = "admissionregistration.k8s.io", "ValidatingAdmissionPolicy"
POLICY = f"{POLICY_KIND}.{GROUP}"
_VARIABLE = re.compile(r"\bvariables\.([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_PARTS = (  # in the order of a policy's evaluation
    ("matchConditions", "expression"),
    ("variables", "expression"),
    ("validations", "expression"),
    ("validations", "messageExpression"),
    ("auditAnnotations", "valueExpression"),
    ("mutations", "applyConfiguration.expression"),
    ("mutations", "jsonPatch.expression"),
)
_RULES = "x-kubernetes-validations"
_DEFINITION = "CustomResourceDefinition.apiextensions.k8s.io"
_OF_HOOKS = ("webhooks.*.matchConditions.*",)
_IN_REQUESTS = tuple(
    f"devices.requests.*.{part}selectors.*.cel" for part in ("", "exactly.", "firstAvailable.*.")
)
# kind, path to the parts with an expression, and names that mean something in other expressions and nothing in these
_OTHERS: tuple[tuple[str, tuple[str, ...], frozenset[str]], ...] = (
    (f"MutatingWebhookConfiguration.{GROUP}", _OF_HOOKS, frozenset({"device", "params", "self", "variables"})),
    (f"ValidatingWebhookConfiguration.{GROUP}", _OF_HOOKS, frozenset({"device", "params", "self", "variables"})),
    *(
        (f"{kind}.resource.k8s.io", ways, frozenset({"authorizer", "object", "oldObject", "params", "request", "self", "variables"}))
        for kind, ways in (
            ("DeviceClass", ("spec.selectors.*.cel",)),
            ("ResourceClaim", tuple(f"spec.{way}" for way in _IN_REQUESTS)),
            ("ResourceClaimTemplate", tuple(f"spec.spec.{way}" for way in _IN_REQUESTS)),
        )
    ),
)  # fmt: skip


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for policy in manifests.all(POLICY, f"MutatingAdmissionPolicy.{GROUP}"):
        yield from _check(policy)
    for kind, ways, unknown in _OTHERS:
        for thing in manifests.all(kind):
            for way in ways:
                for path, part in along(thing.body, way.split(".")):
                    yield from _other(thing, path, part, unknown)
    for definition in manifests.all(_DEFINITION):
        for path, version in entries(definition.body, "spec", "versions"):
            where = ("schema", "openAPIV3Schema")
            yield from _of_schema(definition, (*path, *where), at(version, *where))


def _check(policy: Obj) -> Iterator[Finding]:
    known: set[str] = set()
    for part, field in _PARTS:
        for path, entry in entries(policy.body, "spec", part):
            written = text(at(entry, *field.split(".")))
            if written:
                yield from _expression(policy, (*path, *field.split(".")), written, known)
            if part == "variables":
                known.add(text(at(entry, "name")))


def _expression(policy: Obj, path: Path, written: str, known: set[str]) -> Iterator[Finding]:
    if words := _complaint(written):
        yield policy.found("cel-syntax", words, path)
        return
    for name in sorted({*_VARIABLE.findall(written)} - known):
        yield policy.found("cel-variable", f"no variable {name!r} is defined before it", path)


def _complaint(written: str) -> str:
    try:
        cel.compiled(written)
    except cel.ENGINE_ERRORS as error:
        return f"the expression does not parse: {str(error).splitlines()[0]}"
    return ""


def _other(thing: Obj, path: Path, part: Any, unknown: frozenset[str]) -> Iterator[Finding]:
    written, where = text(at(part, "expression")), (*path, "expression")
    if at(part, "expression") == "":
        yield thing.found("schema", "`expression` is required", path)
    elif written and (words := _complaint(written)):
        yield thing.found("cel-syntax", words, where)
    elif written:
        for name in sorted({*cel.compiled(written).variables()} & unknown):
            if not re.search(rf"\(\s*{name}\s*,|,\s*{name}\s*,", written):  # a macro can bind any name
                yield thing.found("cel-variable", f"these expressions have no variable {quoted(name)}", where)


def _of_schema(thing: Obj, path: Path, schema: Any) -> Iterator[Finding]:
    for number, rule in enumerate(items(at(schema, _RULES))):
        for field in ("rule", "messageExpression"):
            written = text(at(rule, field)).strip()
            if written and (words := _complaint(written)):
                yield thing.found("cel-syntax", words, (*path, _RULES, number, field))
    for name, inner in mapping(at(schema, "properties")).items():
        yield from _of_schema(thing, (*path, "properties", name), inner)
    for key in ("items", "additionalProperties"):
        if inner := mapping(at(schema, key)):
            yield from _of_schema(thing, (*path, key), inner)
