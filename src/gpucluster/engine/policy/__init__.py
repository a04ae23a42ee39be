"""Policy packs: rules over what a program declares, judged at the desk and inside the real engine alike.

A pack is a folder with `PulumiPolicy.yaml`, a `__main__.py` that serves it to the engine, and a package `rules` with RULES.
"""

from gpucluster.engine.policy.judge import Finding, Report, judge, open_texts, settled
from gpucluster.engine.policy.model import Level, Open, Rule, Said, Stack, Violation
from gpucluster.engine.policy.pack import Pack, load
from gpucluster.engine.policy.values import at, each, linked, untold

__all__ = [
    "Finding",
    "Level",
    "Open",
    "Pack",
    "Report",
    "Rule",
    "Said",
    "Stack",
    "Violation",
    "at",
    "each",
    "judge",
    "linked",
    "load",
    "open_texts",
    "settled",
    "untold",
]
