"""What the user wrote: models, YAML with marks, rules, JSON Schema."""

from gpucluster.spec.load import InvalidSpecError, Report, inspect, inspect_text, load
from gpucluster.spec.model import ClusterSpec, UpdateClass
from gpucluster.spec.problem import Level, Problem

__all__ = [
    "ClusterSpec",
    "InvalidSpecError",
    "Level",
    "Problem",
    "Report",
    "UpdateClass",
    "inspect",
    "inspect_text",
    "load",
]
