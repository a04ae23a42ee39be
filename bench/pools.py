"""A cluster with any number of pools, on the sandbox's own image."""

from gpucluster import catalog
from gpucluster.plan.model import ClusterPlan
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text

_HEAD = """\
schema: 1
name: burst
aws: {region: us-east-1, network: {cidr: 10.42.0.0/16, zones: [us-east-1a, us-east-1b]}}
slurm: {version: "24.11"}
head: {machine: m7i.2xlarge}
pools:
"""
_POOL = """\
  - name: pool{number}
    nodes: {{min: 0, max: 4}}
    idle: 5m
    capacity:
      - {{from: spot, machines: [p5en.48xlarge]}}
      - {{from: on-demand, machines: [p5en.48xlarge], max: 2}}
"""


def text_of(pools: int) -> str:
    """Return the spec: each pool has two sources, so two launch templates."""
    names = ", ".join(f"pool{number}" for number in range(1, pools + 1))
    every = "".join(_POOL.format(number=number) for number in range(1, pools + 1))
    return f"{_HEAD}{every}partitions:\n  - {{name: gpu, pools: [{names}], default: true, max_time: 1d}}\n"


def plan_of(pools: int) -> ClusterPlan:
    """Return the plan."""
    facts = catalog.load()
    return resolve(inspect_text(text_of(pools), "pools.yaml", facts).result(), facts)
