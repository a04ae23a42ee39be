"""`gpucluster validate` of a cluster of Kubernetes: over kubectl, helm and the AWS API."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpucluster.cli.k8s import Target, access_to, target_of
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.sandbox.state_dir import SandboxDir
    from gpucluster.validate.expectation import Expectation
    from gpucluster.validate.results import Run

Select = Callable[[Sequence["Expectation"]], Sequence["Expectation"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions:
    """The options of the command line that are about Kubernetes."""

    context: str | None
    bindings: Path | None
    charts: bool


def has_kubernetes_alone(name: str) -> bool:
    """Whether `name` is a spec with Kubernetes and without Slurm."""
    from gpucluster.cli.context import resolve_file
    from gpucluster.cli.spec_files import find_spec
    from gpucluster.plan.model import KubernetesOnAws

    file = find_spec(name)
    return file.is_file() and isinstance(resolve_file(file).plan, KubernetesOnAws)


def validate_kubernetes(name: str, options: KubernetesOptions, select: Select, junit: Path | None) -> "Run":
    """Run the checks. In a rehearsal of that name, its kubeconfig, programs and credentials are used."""
    from gpucluster.cli.validate_table import Live
    from gpucluster.cloud.run_command import aws_clients
    from gpucluster.validate.kubernetes_expectations import kubernetes_expectations
    from gpucluster.validate.kubernetes_session import KubernetesSession
    from gpucluster.validate.run import run_session

    bindings, charts = options.bindings, options.charts
    if (home := _rehearsal(name)) is not None:
        _enter(home)
        bindings, charts = bindings or home.path / "bindings.json", False
    target: Target = target_of(name, bindings)
    chosen = select(kubernetes_expectations(target.plan, target.steps, charts=charts))
    with access_to(target, options.context, charts=charts, any_version=True) as access:
        session = KubernetesSession(access, target.steps, aws_clients(target.plan.aws.region))
        with Live(len(chosen), sys.stderr) as live:
            return run_session(target.plan.name, session, chosen, on_progress=live.update, junit=junit)


def _rehearsal(name: str) -> "SandboxDir | None":
    """The living sandbox of that name with EKS, if this is not its shell already."""
    from gpucluster.cli.shell import SANDBOX
    from gpucluster.errors import StateError
    from gpucluster.sandbox import state_dir

    if SANDBOX in os.environ:
        return None
    try:
        if not state_dir.SandboxDir(name=name).path.is_dir():
            return None
    except (StateError, PermissionError):  # no sandbox has such a name, or only root can read it
        return None
    home = state_dir.living(name)
    return home if home.has_kubernetes() else None


def _enter(home: "SandboxDir") -> None:
    """Let kubectl, aws and boto3 of this process reach the rehearsal."""
    from gpucluster.sandbox.kubernetes import access, programs

    def missing(words: str) -> None:
        raise GpuclusterError(
            f"the programs of the rehearsal are gone: {words}",
            next_step=f"gpucluster sandbox down {home.name}, then: gpucluster sandbox up FILE",
        )

    os.environ.update(access.environment(home, programs.find_or_build(missing)))
