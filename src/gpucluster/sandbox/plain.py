"""Machines of a plan on hosts that exist, and the way to them from this host."""

from gpucluster.plan.model import ClusterPlan, there
from gpucluster.sandbox.capsule import Plain


def plain_of(plan: ClusterPlan) -> tuple[Plain, ...]:
    """The head and every node of the plan."""
    head = there(plan.head)
    nodes = (
        Plain(name=name, address=address, gpus=pool.shape.gpu_count)
        for pool in plan.pools
        for name, address in pool.hosts()
    )
    return (Plain(name=head.name, address=head.address, gpus=0), *nodes)


def reach_argv(init: int, command: tuple[str, ...]) -> list[str]:
    """Run a program of this host in the sandbox's network alone: its files, users and mounts are this host's."""
    return ["nsenter", f"--target={init}", "--net", "--", *command]
