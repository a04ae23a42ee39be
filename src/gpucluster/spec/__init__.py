"""What the user wrote: models, YAML with marks, rules, JSON Schema."""

from gpucluster.spec.load import InvalidSpecError, Report, inspect, inspect_text, load
from gpucluster.spec.load_workloads import (
    WorkloadsReport,
    inspect_any,
    inspect_workloads,
    inspect_workloads_text,
)
from gpucluster.spec.model import ClusterSpec, UpdateClass
from gpucluster.spec.problem import Level, Problem
from gpucluster.spec.workloads import WorkloadsSpec

__all__ = [
    "ClusterSpec",
    "InvalidSpecError",
    "Level",
    "Problem",
    "Report",
    "UpdateClass",
    "WorkloadsReport",
    "WorkloadsSpec",
    "inspect",
    "inspect_any",
    "inspect_text",
    "inspect_workloads",
    "inspect_workloads_text",
    "load",
]
