"""The machines of a plan on existing hosts, and how this host reaches them."""

from gpucluster.plan.model import HostPool, SlurmPlan
from gpucluster.sandbox.capsule.process import PlainMachine
from gpucluster.sandbox.machines import gpu_facts


def plain_of(plan: SlurmPlan) -> tuple[PlainMachine, ...]:
    """The head and every node of the plan."""
    head = plan.head
    nodes = (
        PlainMachine(name=name, address=address, gpus=pool.shape.gpu_count, gpu_facts=gpu_facts.of_pool(pool))
        for pool in plan.pools
        if isinstance(pool, HostPool)
        for name, address in pool.hosts()
    )
    return (PlainMachine(name=head.name, address=head.address, gpus=0), *nodes)


def reach_argv(init: int, command: tuple[str, ...]) -> list[str]:
    """Run a program of this host in the network of the sandbox; its files, users and mounts are the host's."""
    return ["nsenter", f"--target={init}", "--net", "--", *command]
