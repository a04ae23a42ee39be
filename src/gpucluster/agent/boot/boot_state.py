"""The state of a boot: values that pass from step to step, and values that the agent saves on disk.

`BootState` is in memory: each step returns it with more fields set. `SavedState` survives a restart of the agent.
A full disk does not stop the agent: the state then stays in the agent's own file system in memory, or in the process.
"""

import contextlib
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from gpucluster.agent.machine import Machine, StepError
from gpucluster.plan import codec, names
from gpucluster.plan.messages import NodeAnswer, Step
from gpucluster.plan.model import Bindings, SlurmPlan

T = TypeVar("T")
RUN_STATE = f"{names.AGENT_RUN}/state.json"  # the same state, for a root disk without room
BOOT_ID = "/proc/sys/kernel/random/boot_id"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The machine's id, address and role, and the place of its bundle.

    On an existing host `instance_id` is the node name, `region` is empty, and `bucket` is a local folder.
    """

    instance_id: str
    address: str
    cluster: str
    region: str
    bucket: str
    key: str
    role: str
    name: str = ""  # of a login machine: its host name


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A bundle that was fetched, checked and unpacked into `tree`."""

    digest: str
    etag: str
    tree: Path
    plan: SlurmPlan
    bindings: Bindings | None  # None on existing hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class BootState:
    """A field is None until the step that sets it has run."""

    identity: Identity | None = None
    bundle: Bundle | None = None  # the bundle to run
    offered: Bundle | None = None  # the last bundle found in the bucket
    refused: str = ""  # why the newest bundle in the bucket is not applied
    damaged: str = ""  # digest of the newest bundle in the bucket if it is damaged: then it is not `offered`
    held: str = ""  # a head: why `offered` is not applied yet
    accounting: str = ""  # a head: why slurmdbd is away, or why the accounts are not applied
    reservations: str = ""  # a head: which reservations slurmctld refuses, and why
    without_reservations: str = ""  # a head: digest of the bundle without reservations that slurmctld has
    answer: NodeAnswer | None = None


def require(value: T | None) -> T:
    """Return a value that an earlier step sets; StepError if that step has not run."""
    if value is None:
        raise StepError("the steps ran in the wrong order: a value of an earlier step is missing")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """`node`, `good` and `clustername` survive a reboot; the other fields belong to `boot_id`. Times are those of `Machine.now`."""

    boot_id: str
    last_contact_at: (
        float  # the controller's last answer or the last job step seen; at first the agent's start
    )
    node: str = ""
    good: str = ""  # head: digest of the last bundle with which slurmctld and the daemon started
    clustername: str = ""  # head: `NAME|NUMBER` of slurmctld's state at its last start
    slurmd_node: str = ""  # the node name of slurmd's last start
    incarnation: int = 0  # the slot's incarnation at slurmd's last start
    munge_key_time_ns: int = 0  # host: when the munge key of slurmd's last start was written
    slurm_digest: str = ""  # head: of the files that slurmctld has read
    termination_scripts: tuple[str, ...] = ()  # kinds of interruption for which the site's script was started
    daemon_digest: str = ""  # head: of the files that the daemon has read
    users_checked_at: float = 0.0  # node
    standby_stops: int = 0  # head: stops of the standby's slurmctld since our own slurmctld last answered
    slurmctld_down_since: float | None = None  # standby: our own slurmctld
    slurmctld_silent_since: float | None = None  # head: no answer since, although it runs
    slurmctld_restarts: tuple[float, ...] = ()  # head: by the watchdog, in the last hour
    lease_yielded_at: float | None = None  # standby: when our daemon last gave the lease to the head's daemon
    state_move_failed_at: float | None = None  # head: the last failed move of Slurm's state to its volume
    accounts_digest: str = ""  # head: of the accounts that slurmdbd has
    steps: tuple[Step, ...] = ()


def load(machine: Machine) -> SavedState:
    """Return the state of this boot. After a reboot, and if the file cannot be read, it is new."""
    boot_id = machine.read(BOOT_ID).strip()
    new = SavedState(boot_id=boot_id, last_contact_at=machine.now())
    for text in (machine.unsaved.text, machine.read(RUN_STATE), machine.read(names.AGENT_STATE)):
        try:
            saved = codec.loads(SavedState, text)
        except ValueError:
            continue
        if saved.boot_id == boot_id:
            return saved
        return replace(new, node=saved.node, good=saved.good, clustername=saved.clustername)
    return new


def save(machine: Machine, state: SavedState) -> None:
    """Write the state to disk and to the agent's own file system. What neither takes stays in the process."""
    text = codec.dumps(state)
    written = [_write(machine, path, text) for path in (RUN_STATE, names.AGENT_STATE)]
    machine.unsaved.text = "" if any(written) else text
    if all(written):
        machine.unsaved.reported = False


def _write(machine: Machine, path: str, text: str) -> bool:
    """Write the file. If that fails, log it once, and remove the old file, which has an older state."""
    try:
        machine.write(path, text)
    except OSError as error:
        if not machine.unsaved.reported:
            log.warning("the agent's state is not in %s: %s; it goes on with a copy in memory", path, error)
            machine.unsaved.reported = True
        if path == RUN_STATE:
            with contextlib.suppress(OSError):
                machine.path(path).unlink(missing_ok=True)
        return False
    return True


def update(machine: Machine, **fields: Any) -> None:
    """Set these fields of the saved state."""
    save(machine, replace(load(machine), **fields))


def record(machine: Machine, step: Step) -> None:
    """Save the step's result in place of its earlier result, or at the end."""
    others = {s.name: s for s in load(machine).steps}
    update(machine, steps=tuple({**others, step.name: step}.values()))
