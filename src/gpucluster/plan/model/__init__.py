"""The ClusterPlan, its parts, and the Bindings.

The dataclasses are imported when one is first read. The spec needs only the words of `values`, and making the dataclasses
takes as long as reading a spec.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpucluster.plan.model.cluster import *  # noqa: F403  its `__all__`


def __getattr__(name: str) -> object:
    if not name.startswith("_"):
        cluster = import_module("gpucluster.plan.model.cluster")
        if name in cluster.__all__:
            globals().update({one: getattr(cluster, one) for one in cluster.__all__})
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
