"""What the stand-ins of a machine know of its GPUs and its fabric, as files in its root."""

import json
from functools import cache
from pathlib import Path

from gpucluster import catalog
from gpucluster.agent.boot import mps
from gpucluster.catalog import nvswitch
from gpucluster.checks.health_wants import ports_of
from gpucluster.files import shipped
from gpucluster.plan import names
from gpucluster.plan.model import HostPool

GPUS, FABRIC, MINORS = "/etc/sandbox-gpus.json", "/etc/sandbox-fabric", "/run/sandbox-mig-minors"


@cache
def of_type(machine: str) -> str:
    """The facts of an EC2 machine type; empty for a type without GPUs."""
    found = catalog.load().machines.get(machine)
    if found is None or found.gpu is None:
        return ""
    gpu = found.gpu
    return _facts(gpu.model, gpu.memory_mib, nvswitch.links(machine, gpu.model), found.efa)


def of_pool(pool: HostPool) -> str:
    """The facts of a host, as its spec describes it."""
    shape = pool.shape
    if shape.gpu_model is None:
        return ""
    return _facts(shape.gpu_model, shape.gpu_memory_mib, shape.nvlinks, ports_of(pool))


def install(root: Path, facts: str) -> None:
    """Write the files that nvidia-smi's stand-in and the health checks read."""
    if not facts:
        return
    _write(root, GPUS, facts)
    _write(
        root,
        mps.CONTROL,
        (shipped("playbooks") / "stand-ins/nvidia-cuda-mps-control").read_text(),
        mode=0o755,
    )
    for port in range(json.loads(facts)["ports"]):
        _write(root, f"{FABRIC}/fabric{port}/ports/1/state", "4: ACTIVE\n")


def environment() -> str:
    """The lines of the agent's environment that name those files."""
    return f"{names.FABRIC_VARIABLE}={FABRIC}\n{names.MIG_VARIABLE}={MINORS}\n"


def _facts(model: str, memory_mib: int | None, nvlinks: int, ports: int) -> str:
    profiles = catalog.load().mig.get((model, memory_mib or 0), {})
    mig = {name: (one.most, one.compute, one.memory) for name, one in profiles.items()}
    memory = {} if memory_mib is None else {"memory_mib": memory_mib}
    facts = {"name": f"NVIDIA {model.upper()}", **memory, "nvlinks": nvlinks, "ports": ports, "mig": mig}
    return json.dumps(facts, sort_keys=True)


def _write(root: Path, path: str, text: str, *, mode: int = 0o644) -> None:
    target = root / path.removeprefix("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    target.chmod(mode)
