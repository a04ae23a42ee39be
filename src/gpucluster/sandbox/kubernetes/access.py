"""How a person reaches the cluster of a rehearsal: the real `aws` and `kubectl`, and a kubeconfig."""

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

from gpucluster import shell
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model.eks import EksControlPlane
from gpucluster.plan.model.kubernetes import Kubernetes
from gpucluster.sandbox.kubernetes import programs, trainer
from gpucluster.sandbox.kubernetes.programs import Programs
from gpucluster.sandbox.state_dir import SandboxDir

_WAVES_S = 1800.0  # minutes on a busy machine; only something that hangs takes so long


def programs_of(part: Kubernetes, progress: Callable[[str], None]) -> Programs:
    """Return the control plane's programs, built if they are missing, as those of the charts that the plan wants."""
    built = programs.find_or_build(progress)
    if part.trainer is not None:
        trainer.find_or_build(progress, built)
    return built


def environment(home: SandboxDir, built: Programs, *, path: str | None = None) -> dict[str, str]:
    """Return what `aws`, `kubectl` and `gpucluster k8s` need to reach the cluster of a rehearsal, as its operator."""
    inside = home.path / "bin"
    inside.mkdir(exist_ok=True)
    for name, program in (("kubectl", built["kubectl"]), ("aws", _aws())):
        link = inside / name
        if not link.exists():
            link.symlink_to(program)
    after = os.environ.get("PATH", os.defpath) if path is None else path
    cloud = home.environment()
    return {
        **cloud,
        "AWS_DEFAULT_REGION": cloud["AWS_REGION"],  # the AWS CLI reads no other variable
        "KUBECONFIG": str(home.kubeconfig),
        "PATH": f"{inside}:{after}",
    }


def write_kubeconfig(home: SandboxDir, built: Programs) -> None:
    """Write it by `aws eks update-kubeconfig`, as a person does."""
    argv = ["aws", "eks", "update-kubeconfig", "--name", home.name]
    shell.run([str(_aws()), *argv[1:]], env={**environment(home, built), "HOME": str(home.path)})


def _aws() -> Path:
    """The AWS CLI beside our Python, or on PATH."""
    own = Path(sysconfig.get_path("scripts")) / "aws"
    found = own if own.exists() else Path(shutil.which("aws") or "")
    if not found.is_file():
        raise GpuclusterError("there is no `aws`", next_step="pip install awscli")
    return found


def nodes_of(part: Kubernetes) -> int:
    """Room in the cloud for every node of the plan and its replacement, and for those of the add-ons."""
    plane = part.control_plane
    standing = sum(one.nodes for one in plane.groups) if isinstance(plane, EksControlPlane) else 0
    return 2 * (sum(pool.max for pool in part.pools) + standing)


def apply_waves(
    home: SandboxDir, built: Programs, file: Path, bindings: str, progress: Callable[[str], None]
) -> None:
    """Apply the waves of a spec by the command that a person types. `bindings` is the output of the stack with that name."""
    ids = home.path / "bindings.json"
    ids.write_text(bindings)
    words = ["k8s", "up", str(file), "--no-charts", "--bindings", str(ids)]
    progress(f"gpucluster {' '.join(words)}")
    argv = [sys.executable, "-m", "gpucluster.cli", *words]
    done = shell.run(argv, env=environment(home, built), timeout_s=_WAVES_S, check=False)
    if done.code:
        raise GpuclusterError(
            f"the waves are not applied, or a service is not ready:\n{done.stderr}{done.stdout}".rstrip(),
            next_step="run the same command again; nothing of this try is left",
        )
