"""Checkers of Kubernetes manifests: what an API server, its webhooks and a scheduler would refuse, before there is one.

    check(manifests, Facts(kubernetes="1.36", pools=(...))) -> (Finding, ...)

To add a rule: a function in the module of its noun, a row in its tests that fails without it; a new module is one line
in `check.CHECKERS`.
"""

from gpucluster.k8s.lint.check import CHECKERS, check, unchecked
from gpucluster.k8s.lint.document import Document, documents
from gpucluster.k8s.lint.facts import ANY, Distribution, Facts, PoolFacts, Present, Taint
from gpucluster.k8s.lint.finding import Finding, Level

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
    "unchecked",
]
