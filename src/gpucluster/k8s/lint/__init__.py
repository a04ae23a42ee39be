"""Checkers of Kubernetes manifests: what an API server, its webhooks and a scheduler would refuse, before there is one.

    check(manifests, facts(plan)) -> (Finding, ...)

To add a rule: a function in the module of its noun, a row in its tests that fails without it; a new module is one line
in `check.CHECKERS`.
"""

from gpucluster.k8s.lint.check import CHECKERS, check, unchecked
from gpucluster.k8s.lint.document import Document, documents
from gpucluster.k8s.lint.facts import ANY, Distribution, Facts, PoolFacts, Present, Taint
from gpucluster.k8s.lint.finding import Finding, Level
from gpucluster.k8s.lint.of_plan import facts

__all__ = [
    "ANY",
    "CHECKERS",
    "Distribution",
    "Document",
    "Facts",
    "Finding",
    "Level",
    "PoolFacts",
    "Present",
    "Taint",
    "check",
    "documents",
    "facts",
    "unchecked",
]
