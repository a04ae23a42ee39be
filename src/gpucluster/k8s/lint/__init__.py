"""Checkers of Kubernetes manifests. They find what an API server, its webhooks and a scheduler would refuse.

    check(manifests, facts(plan)) -> (Finding, ...)

To add a rule: write a function in the module of its subject, and a row in its tests that fails without the rule. A new
module is one line in `check.CHECKERS`.
"""

from gpucluster.k8s.lint.check import CHECKERS, check, unchecked
from gpucluster.k8s.lint.document import Document, documents
from gpucluster.k8s.lint.facts import ANY, Distribution, Facts, PoolFacts, Present, Taint
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.of_plan import facts

__all__ = [
    "ANY",
    "CHECKERS",
    "Distribution",
    "Document",
    "Facts",
    "Finding",
    "PoolFacts",
    "Present",
    "Severity",
    "Taint",
    "check",
    "documents",
    "facts",
    "unchecked",
]
