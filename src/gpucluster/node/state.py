"""What the agent remembers over its own restarts, for one boot of the machine. Written in one rename."""

from dataclasses import dataclass, replace
from typing import Any

from gpucluster.node.machine import Machine
from gpucluster.plan import codec, names
from gpucluster.plan.messages import Step

BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """`node` and `good` outlive a boot; the rest belongs to `boot_id`. Times are of `Machine.now`."""

    boot_id: str
    heard_at: float  # the controller's last answer, or a job's last step, or else the agent's first start
    node: str = ""
    good: str = ""  # head: the last bundle with which everything came up
    running: str = ""  # the name with which slurmd was last started
    life: int = 0  # and the life
    slurm: str = ""  # head: mark of the files that slurmctld has read
    farewells: tuple[str, ...] = ()  # kinds of trouble for which the site's program was started
    elastic: str = ""  # head: mark of the files that the daemon has read
    looked_at: float = 0.0  # node: when it last looked for new people
    # head: how often the second's slurmctld was ended for ours, which has not answered since
    relieved: int = 0
    ended_at: float | None = None  # standby: since when our slurmctld is off, as far as we saw
    yielded_at: float | None = None  # standby: when its daemon last let the head's go first
    steps: tuple[Step, ...] = ()


def load(machine: Machine) -> AgentState:
    """The state of this boot: a fresh one after a reboot, or if the file cannot be read."""
    boot_id = machine.read(BOOT_ID).strip()
    fresh = AgentState(boot_id=boot_id, heard_at=machine.now())
    try:
        kept = codec.loads(AgentState, machine.read(names.AGENT_STATE))
    except ValueError:
        return fresh
    return kept if kept.boot_id == boot_id else replace(fresh, node=kept.node, good=kept.good)


def save(machine: Machine, state: AgentState) -> None:
    """Keep it."""
    machine.write(names.AGENT_STATE, codec.dumps(state))


def change(machine: Machine, **fields: Any) -> None:
    """Keep these fields, as they are now."""
    save(machine, replace(load(machine), **fields))


def record(machine: Machine, step: Step) -> None:
    """Put the step in place of its earlier report, if there is one, else at the end."""
    others = {s.name: s for s in load(machine).steps}
    change(machine, steps=tuple({**others, step.name: step}.values()))
