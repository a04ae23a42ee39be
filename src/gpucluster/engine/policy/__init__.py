"""Policy packs: rules over the declared resources. `gpucluster plan --policy` and the Pulumi engine run the same rules.

A pack is a folder with `PulumiPolicy.yaml`, a `__main__.py` that serves the pack to the engine, and a package `rules`
with the tuple RULES.
"""

from gpucluster.engine.policy.evaluation import (
    Finding,
    Report,
    evaluate,
    has_undecided_texts,
    with_decided_texts,
)
from gpucluster.engine.policy.model import EnforcementLevel, Rule, RuleResult, Stack, Undecided, Violation
from gpucluster.engine.policy.pack import Pack, load
from gpucluster.engine.policy.values import at, each, is_unreadable, linked

__all__ = [
    "EnforcementLevel",
    "Finding",
    "Pack",
    "Report",
    "Rule",
    "RuleResult",
    "Stack",
    "Undecided",
    "Violation",
    "at",
    "each",
    "evaluate",
    "has_undecided_texts",
    "is_unreadable",
    "linked",
    "load",
    "with_decided_texts",
]
