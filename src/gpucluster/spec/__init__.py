"""The user's spec: models, YAML with positions, rules, JSON Schema.

The names below are imported when they are first read: `spec.problem` and `spec.yaml` need neither the models nor pydantic.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpucluster.spec.load_workloads import (
        WorkloadsReport,
        inspect_any,
        inspect_workloads,
        inspect_workloads_text,
    )
    from gpucluster.spec.model import ClusterSpec, UpdateClass
    from gpucluster.spec.problem import Level, Problem
    from gpucluster.spec.reading import InvalidSpecError, Report, inspect, inspect_file, inspect_text, load
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
    "inspect_file",
    "inspect_text",
    "inspect_workloads",
    "inspect_workloads_text",
    "load",
]

_MODULES = {
    "reading": ("InvalidSpecError", "Report", "inspect", "inspect_file", "inspect_text", "load"),
    "load_workloads": ("WorkloadsReport", "inspect_any", "inspect_workloads", "inspect_workloads_text"),
    "model": ("ClusterSpec", "UpdateClass"),
    "problem": ("Level", "Problem"),
    "workloads": ("WorkloadsSpec",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
