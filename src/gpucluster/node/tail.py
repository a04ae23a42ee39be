"""The last words of agent and slurmd, for whoever waits for this node: told when a step failed or a boot is late."""

from gpucluster.errors import GpuclusterError
from gpucluster.node.machine import Machine
from gpucluster.node.state import AgentState
from gpucluster.plan import names
from gpucluster.plan.messages import NodePhase

LINES, WIDTH = 20, 160
JOURNAL = ("journalctl", "--boot", "--no-pager", "--quiet", "--output=cat", f"--lines={LINES}")


def of(machine: Machine, kept: AgentState, phase: NodePhase, *, awaited: bool) -> str:
    """The lines, or nothing while all is well. `awaited`: Slurm does not have the node yet."""
    failed = phase is NodePhase.FAILED or any(not step.ok for step in kept.steps)
    if not failed and not (phase is NodePhase.UP and kept.running and awaited):
        return ""
    argv = [*JOURNAL, f"--unit={names.AGENT_UNIT}", "--unit=slurmd.service"]
    try:
        said = machine.run(argv, timeout_s=5, check=False).stdout
    except (GpuclusterError, OSError):
        return ""
    lines = [
        "".join(c if c.isprintable() and c.isascii() else "?" for c in line)[:WIDTH]
        for line in said.splitlines()
    ]
    return "\n".join(lines[-LINES:])
