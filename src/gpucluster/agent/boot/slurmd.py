"""slurmd, the last step: wait for its GPUs, write its options, start it with -b once in each incarnation of a slot."""

import contextlib
import logging
import os
import re
import stat
from dataclasses import replace

from gpucluster.agent.boot import boot_state, systemd
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.boot.runner import one_line
from gpucluster.agent.machine import Machine, NotYetError, StepError
from gpucluster.errors import GpuclusterError
from gpucluster.plan import names
from gpucluster.plan.messages import NodeAnswer
from gpucluster.plan.model import SlurmPlan
from gpucluster.slurm.parse import parse_nodes
from gpucluster.slurm.states import POWERED_DOWN

log = logging.getLogger(__name__)
OPTIONS = f"{names.AGENT_RUN}/slurmd.env"
DEVICE = re.compile(r"nvidia[0-9]+")
NVIDIA_SMI = "/usr/bin/nvidia-smi"
FABRIC = re.compile(r"^ {4}Fabric *\n((?: {8}.*\n)+)", re.MULTILINE)
FABRIC_LINE = re.compile(r"^ {8}(State|Status) *: (.*)$", re.MULTILINE)
FABRIC_S = 300.0  # Fabric Manager trains all links; after this time the NVSwitch counts as broken
# Exit code of a process is one byte. No library: CUDA is not in this image, and no job can use it either.
CUDA_INIT = """
import ctypes, sys
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError:
    sys.exit(0)
code = cuda.cuInit(0)
sys.exit(0 if code == 0 else 2 if code == 802 else 3)
"""
CUDA_CODES = {2: "802 (SYSTEM_NOT_READY)", 3: "an error"}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
DEVICES_S = 120.0  # drivers load during the boot; a device that is missing after this time counts as broken


def wait_for_gpus(machine: Machine, state: BootState) -> BootState:
    """Wait for the GPUs that gres.conf names: slurmd ends if one is missing."""
    pool = require(state.bundle).plan.pool_of(require(state.answer).node)
    wanted = pool.shape.gpu_count if pool else 0
    found = sum(1 for p in machine.path("/dev").glob("nvidia*") if DEVICE.fullmatch(p.name))
    if found < wanted:
        raise NotYetError(f"found {found} GPUs as /dev/nvidia*, expected {wanted}", limit_s=DEVICES_S)
    return state


def wait_for_fabric(machine: Machine, state: BootState) -> BootState:
    """Wait for NVSwitch: until Fabric Manager is done, CUDA answers SYSTEM_NOT_READY, and each job on the node would fail."""
    answer, saved = require(state.answer), boot_state.load(machine)
    pool = require(state.bundle).plan.pool_of(answer.node)
    if pool is None or not pool.shape.nvswitch:
        return state
    if (saved.slurmd_node, saved.incarnation) == (answer.node, answer.incarnation):
        return state  # slurmd has started: the health checks watch the GPUs from here on
    if not machine.path(NVIDIA_SMI).exists():
        return state  # an image without the driver's programs, such as the sandbox's: there is nothing to ask
    report = machine.run([NVIDIA_SMI, "-q"], timeout_s=60).stdout
    if waits := unfinished(report):
        raise NotYetError(f"NVSwitch is not ready: {waits}", limit_s=FABRIC_S)
    code = machine.run([f"{names.VENV}/bin/python", "-I", "-c", CUDA_INIT], timeout_s=60, check=False).code
    if code:
        raise NotYetError(
            f"CUDA cannot be initialised: cuInit answered {CUDA_CODES.get(code, code)}", limit_s=FABRIC_S
        )
    return state


def unfinished(report: str) -> str:
    """Return the first state or status of a GPU's fabric in `nvidia-smi -q` that is not final; empty if all are.

    A GPU before Hopper answers N/A for both: only CUDA shows whether its NVSwitch is ready.
    """
    for block in FABRIC.findall(report):
        found = dict(FABRIC_LINE.findall(block))
        for key, wanted in (("State", "Completed"), ("Status", "Success")):
            value = found.get(key, "missing").strip()
            if value not in (wanted, "N/A") or (value == "N/A" and found.get("State", "").strip() != "N/A"):
                return f"{key} is {value!r}, expected {wanted!r}"
    return ""


def create_private_tmp(machine: Machine, state: BootState) -> BootState:
    """Create the folder of the /tmp of each job. Each folder above it belongs to root, so no user can put a link there."""
    path = require(state.bundle).plan.slurm.private_tmp
    if path is None:
        return state
    above = os.open(machine.root, _FOLDER)
    try:
        root = os.fstat(above).st_uid
        for part in path.strip("/").split("/"):
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=above)
            try:
                below = os.open(part, _FOLDER, dir_fd=above)
            except OSError as error:
                raise StepError(
                    f"{path}: {part!r} is no plain folder ({error.strerror}); name the real path in `slurm.private_tmp.path`"
                ) from error
            os.close(above)
            above, found = below, os.fstat(below)
            if found.st_uid != root or (found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX):
                raise StepError(
                    f"{path}: {part!r} belongs to another user, or others may replace what is in it"
                )
        os.fchmod(above, 0o755)
    finally:
        os.close(above)
    return state


def name_from_plan(machine: Machine, state: BootState) -> BootState:
    """Set the answer from the plan: on an existing host no controller gives the name and the address of slurmctld."""
    plan, node = require(state.bundle).plan, require(state.identity).instance_id
    if plan.pool_of(node) is None:
        raise StepError(f"the plan has no node {node!r}")
    head = plan.head
    answer = NodeAnswer(
        node=node, incarnation=0, controller=f"{head.address}:{head.controller_port}", heartbeat_s=0.0
    )
    return replace(state, answer=answer)


def run_on_host(machine: Machine, state: BootState) -> BootState:
    """Run slurmd on an existing host, which has one incarnation and never needs -b.

    With a new munge key slurmd restarts: it then registers at once. While the keys differed, slurmctld may have set the
    node DOWN, and it asks nodes to register only about every 20 pings (ping_nodes.c).
    """
    answer, saved = require(state.answer), boot_state.load(machine)
    key_time = machine.path(names.MUNGE_KEY).stat().st_mtime_ns
    fresh = machine.write(OPTIONS, options(answer.node, answer.controller))
    if fresh or saved.munge_key_time_ns != key_time or not systemd.active(machine, "slurmd"):
        systemd.ensure(machine, "slurmd", restart=True)
        boot_state.update(machine, munge_key_time_ns=key_time)
    return state


def run_on_node(machine: Machine, state: BootState) -> BootState:
    """Start slurmd with -b in a new incarnation. Later restarts of the unit are without -b."""
    answer, saved = require(state.answer), boot_state.load(machine)
    if (saved.slurmd_node, saved.incarnation) == (answer.node, answer.incarnation):
        return state
    servers = _servers(answer, require(state.bundle).plan)
    machine.write(OPTIONS, options(answer.node, servers, "-b"))
    systemd.ensure(machine, "slurmd", restart=True)
    machine.write(OPTIONS, options(answer.node, servers))
    boot_state.update(machine, slurmd_node=answer.node, incarnation=answer.incarnation)
    return state


def is_left_alone(machine: Machine, state: BootState) -> bool:
    """Return whether the daemon tells this machine to end, and slurmctld itself shows its node powered down."""
    if state.answer is None or not state.answer.ends:
        return False
    argv = ["scontrol", "--future", "show", "nodes", state.answer.node, "--json"]
    try:
        nodes = parse_nodes(machine.run(argv, timeout_s=10).stdout)
    except (GpuclusterError, OSError, ValueError) as error:
        log.warning("slurmctld does not show this node: %s", one_line(error))
        return False
    return any(one.name == state.answer.node and one.states & POWERED_DOWN for one in nodes)


def options(node: str, controller: str, *more: str) -> str:
    """Return the text of the unit's environment file."""
    return f'SLURMD_OPTIONS="{" ".join(("-N", node, *more, "--conf-server", controller))}"\n'


def _servers(answer: NodeAnswer, plan: SlurmPlan) -> str:
    """Return the controller that answered, then the other one, if there is one."""
    head, port = plan.head, plan.head.controller_port
    return ",".join(dict.fromkeys((answer.controller, *(f"{a}:{port}" for a in head.addresses[1:]))))
