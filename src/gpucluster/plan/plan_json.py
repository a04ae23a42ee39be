"""The text of `plan.json`, and back. Apart from `codec`: the plan's types take longer to import than a hook may run."""

from typing import Any, cast

from gpucluster.json_text import parse_json
from gpucluster.plan import codec
from gpucluster.plan.model import ClusterPlan, SlurmPlan


def load(text: str | bytes) -> ClusterPlan:
    """Parse `plan.json` of any cluster; ValueError names the place of what does not fit."""
    return codec.from_json(cast(Any, ClusterPlan), parse_json(text), "plan")


def load_slurm(text: str | bytes) -> SlurmPlan:
    """Parse `plan.json` of a cluster with Slurm; ValueError for another kind of cluster, too."""
    return codec.from_json(cast(Any, SlurmPlan), parse_json(text), "plan")
