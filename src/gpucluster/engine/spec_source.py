"""Read what a bundle records of its spec: the file's bytes, the commit, and our version."""

import hashlib
from importlib.metadata import version
from pathlib import Path

from gpucluster.engine.git_objects import committed
from gpucluster.plan.model import ClusterPlan
from gpucluster.plan.spec_source import SpecSource, plan_digest
from gpucluster.shell import CommandError


def source_of(file: Path, plan: ClusterPlan) -> SpecSource:
    """Return the source of a plan that was made of this file; OSError if it cannot be read."""
    try:
        commit, dirty = committed(file)
    except CommandError:  # there is no git
        commit, dirty = "", False
    return SpecSource(
        spec=hashlib.sha256(file.read_bytes()).hexdigest(),
        plan=plan_digest(plan),
        commit=commit,
        dirty=dirty,
        version=version("gpucluster"),
    )
