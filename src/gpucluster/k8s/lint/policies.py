"""Check admission policies: their CEL parses, and names only earlier variables.

The API server also checks types against the resources that a policy matches. This module checks only the language.
"""

import re
from collections.abc import Iterator

from gpucluster.k8s.lint import cel
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.tree import Path, at, entries, text

GROUP, POLICY_KIND = "admissionregistration.k8s.io", "ValidatingAdmissionPolicy"
POLICY = f"{POLICY_KIND}.{GROUP}"
_VARIABLE = re.compile(r"\bvariables\.([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_PARTS = (  # in the order of a policy's evaluation
    ("matchConditions", "expression"),
    ("variables", "expression"),
    ("validations", "expression"),
    ("validations", "messageExpression"),
    ("auditAnnotations", "valueExpression"),
)


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for policy in manifests.all(POLICY):
        yield from _check(policy)


def _check(policy: Obj) -> Iterator[Finding]:
    known: set[str] = set()
    for part, field in _PARTS:
        for path, entry in entries(policy.body, "spec", part):
            written = text(at(entry, field))
            if written:
                yield from _expression(policy, (*path, field), written, known)
            if part == "variables":
                known.add(text(at(entry, "name")))


def _expression(policy: Obj, path: Path, written: str, known: set[str]) -> Iterator[Finding]:
    try:
        cel.compiled(written)
    except cel.ENGINE_ERRORS as error:
        yield policy.found("cel-syntax", f"the expression does not parse: {str(error).splitlines()[0]}", path)
        return
    for name in sorted({*_VARIABLE.findall(written)} - known):
        yield policy.found("cel-variable", f"no variable {name!r} is defined before it", path)
