"""slurmd, last of all: its devices, its options, its start with -b once a life."""

import re
from dataclasses import replace

from gpucluster.node import state, systemd
from gpucluster.node.known import Known, of
from gpucluster.node.machine import Machine, NotYetError, StepError
from gpucluster.plan import names
from gpucluster.plan.messages import NodeAnswer
from gpucluster.plan.model import ClusterPlan, there

OPTIONS = f"{names.AGENT_RUN}/slurmd.env"
DEVICE = re.compile(r"nvidia[0-9]+")
DEVICES_S = 120.0  # drivers load while we boot; what is not there by then is broken


def devices(machine: Machine, known: Known) -> Known:
    """Wait for the GPUs that Slurm is told of: slurmd dies of a missing one."""
    pool = of(known.bundle).plan.pool_of(of(known.answer).node)
    wanted = pool.shape.gpu_count if pool else 0
    found = sum(1 for p in machine.place("/dev").glob("nvidia*") if DEVICE.fullmatch(p.name))
    if found < wanted:
        raise NotYetError(f"{found} of {wanted} GPUs are there (/dev/nvidia*)", limit_s=DEVICES_S)
    return known


def planned(machine: Machine, known: Known) -> Known:
    """On a host that exists the plan says what a controller would: the name, and where slurmctld is."""
    plan, node = of(known.bundle).plan, of(known.identity).instance_id
    if plan.pool_of(node) is None:
        raise StepError(f"the plan has no node {node!r}")
    head = there(plan.head)
    answer = NodeAnswer(
        node=node, life=0, controller=f"{head.address}:{head.controller_port}", heartbeat_s=0.0
    )
    return replace(known, answer=answer)


def serve(machine: Machine, known: Known) -> Known:
    """Have slurmd run with its options: a host that exists has one life, so never with -b."""
    answer = of(known.answer)
    fresh = machine.write(OPTIONS, options(answer.node, answer.controller))
    if fresh or not systemd.active(machine, "slurmd"):
        systemd.ensure(machine, "slurmd", restart=True)
    return known


def run(machine: Machine, known: Known) -> Known:
    """Start slurmd with -b if the life is new. A later restart of the unit, for a fault, is without it."""
    answer, kept = of(known.answer), state.load(machine)
    if (kept.running, kept.life) == (answer.node, answer.life):
        return known
    servers = _servers(answer, of(known.bundle).plan)
    machine.write(OPTIONS, options(answer.node, servers, "-b"))
    systemd.ensure(machine, "slurmd", restart=True)
    machine.write(OPTIONS, options(answer.node, servers))
    state.change(machine, running=answer.node, life=answer.life)
    return known


def options(node: str, controller: str, *more: str) -> str:
    """The unit's environment file."""
    return f'SLURMD_OPTIONS="{" ".join(("-N", node, *more, "--conf-server", controller))}"\n'


def _servers(answer: NodeAnswer, plan: ClusterPlan) -> str:
    """Who answered first, then the other controller, if there is one."""
    head, port = there(plan.head), there(plan.head).controller_port
    return ",".join(dict.fromkeys((answer.controller, *(f"{a}:{port}" for a in head.addresses[1:]))))
