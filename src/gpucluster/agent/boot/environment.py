"""The environment of jobs as files: of every pool for users to read, and on a node of its own pool for job scripts."""

from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.machine import Machine
from gpucluster.plan import names


def install(machine: Machine, state: BootState) -> BootState:
    """Copy the file of each pool and the profile of software from the bundle, and remove those that have left it."""
    sources = sorted((require(state.bundle).tree / names.ENV_DIR).glob("*.sh"))
    for source in sources:
        machine.write(f"{names.JOB_ENV_DIR}/{source.name}", source.read_bytes())
    kept = {source.name for source in sources}
    for file in machine.path(names.JOB_ENV_DIR).glob("*.sh"):
        if file.name not in kept:
            file.unlink(missing_ok=True)
    profile = require(state.bundle).tree / names.PROFILE_FILE
    if profile.is_file():
        machine.write(names.PROFILE, profile.read_bytes())
    else:
        machine.path(names.PROFILE).unlink(missing_ok=True)
    return state


def install_on_node(machine: Machine, state: BootState) -> BootState:
    """Install the files of the pools, and the node's own as names.JOB_ENV. A bundle of an older release has none."""
    install(machine, state)
    pool = require(state.bundle).plan.pool_of(require(state.answer).node)
    own = None if pool is None else require(state.bundle).tree / names.ENV_DIR / f"{pool.name}.sh"
    machine.write(names.JOB_ENV, own.read_bytes() if own is not None and own.is_file() else b"")
    return state
