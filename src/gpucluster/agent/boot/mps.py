"""MPS: a control daemon for each GPU of a node, with pipes of its own (S31).

Without a daemon CUDA runs a program outside of MPS, with all threads of the GPU, and says nothing. So slurmd starts only after
each daemon has answered. The TaskProlog gives a job the folder of its GPU's daemon.
"""

from gpucluster.agent.boot import boot_state, systemd
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.machine import Machine, NotYetError
from gpucluster.plan import names
from gpucluster.plan.model import Mps

CONTROL = "/usr/bin/nvidia-cuda-mps-control"
ANSWER_S = 60.0


def start_daemons(machine: Machine, state: BootState) -> BootState:
    """Start the daemons before slurmd; afterwards systemd restarts them. End those of a pool that no longer has MPS."""
    answer, saved = require(state.answer), boot_state.load(machine)
    pool = require(state.bundle).plan.pool_of(answer.node)
    if pool is None or not isinstance(pool.shape.sharing, Mps):
        if any(machine.path(names.MPS_DIR).glob("*")):
            machine.run(["systemctl", "stop", f"{names.MPS_UNIT}*"])
        return state
    if (saved.slurmd_node, saved.incarnation) == (answer.node, answer.incarnation):
        return state
    for gpu in range(pool.shape.gpu_count):
        systemd.ensure(machine, f"{names.MPS_UNIT}{gpu}")
    for gpu in range(pool.shape.gpu_count):
        _ask(machine, gpu)
    return state


def _ask(machine: Machine, gpu: int) -> None:
    pipes = {"CUDA_MPS_PIPE_DIRECTORY": f"{names.MPS_DIR}/{gpu}"}
    done = machine.run([CONTROL], stdin="get_server_list\n", env=pipes, timeout_s=30, check=False)
    if done.code:
        said = " ".join((done.stdout + done.stderr).split())[:200] or f"code {done.code}"
        raise NotYetError(f"the MPS control daemon of GPU {gpu} does not answer: {said}", limit_s=ANSWER_S)
