"""`gpucluster validate` of a cluster of Kubernetes: over kubectl, helm and the AWS API."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpucluster.cli.k8s import Target, access_to, target_of
from gpucluster.errors import GpuclusterError, StateError

if TYPE_CHECKING:
    from gpucluster.sandbox.state_dir import SandboxDir
    from gpucluster.validate.expectation import Expectation
    from gpucluster.validate.kubernetes_session import KubernetesSession


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions:
    """The options of the command line that are about Kubernetes."""

    context: str | None
    bindings: Path | None
    charts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesPart:
    """What the Kubernetes of a spec must be, and the way to it."""

    target: Target
    context: str | None
    charts: bool
    expectations: "Sequence[Expectation]"

    @property
    def is_alone(self) -> bool:
        """Whether the cluster has no Slurm."""
        from gpucluster.plan.model import KubernetesOnAws

        return isinstance(self.target.plan, KubernetesOnAws)

    @contextmanager
    def session(self, chosen: "Sequence[Expectation]") -> "Generator[KubernetesSession]":
        """Yield a session for the chosen checks, whose progress goes to stderr."""
        from gpucluster.cloud.run_command import aws_clients
        from gpucluster.spec.part import require
        from gpucluster.validate.kubernetes_session import KubernetesSession
        from gpucluster.validate.pod_manifests import chosen_sets, pod_sets
        from gpucluster.validate.validation_pods import ValidationPods

        plan, steps = self.target.plan, self.target.steps
        part = require(plan.kubernetes)
        sets = chosen_sets(tuple(pod_sets(part, steps)), chosen)
        with access_to(self.target, self.context, charts=self.charts, any_version=True) as access:
            pods = ValidationPods(access, plan.name, part.validation_image, sets)
            yield KubernetesSession(access, steps, aws_clients(plan.aws.region), pods)


@contextmanager
def session_for(
    part: KubernetesPart | None, chosen: "Sequence[Expectation]"
) -> "Generator[KubernetesSession | None]":
    """Yield the session of the chosen checks of Kubernetes; None if there are none, so that the API server may be away."""
    from gpucluster.checks.kubernetes.table import KUBERNETES

    if part is None or not any(one.check in KUBERNETES for one in chosen):
        yield None
        return
    with part.session(chosen) as session:
        yield session


def find_kubernetes(name: str, options: KubernetesOptions) -> KubernetesPart | None:
    """Return the part of Kubernetes of a spec; None if it has none. In a rehearsal of that name, its kubeconfig, programs and credentials are used."""
    from gpucluster.checks.kubernetes.table import CLUSTER
    from gpucluster.cli.context import resolve_file
    from gpucluster.cli.reviewed import acceptances
    from gpucluster.cli.shell import SANDBOX
    from gpucluster.cli.spec_files import find_spec
    from gpucluster.validate.expectation import expect
    from gpucluster.validate.kubernetes_expectations import kubernetes_expectations

    home, file = _rehearsal(name), find_spec(name)
    if not file.is_file():
        if home is not None:
            raise StateError(
                f"the sandbox {name} has Kubernetes, and its checks need the spec: there is no {file} in {Path.cwd()}",
                next_step="repeat the command in the folder that has stacks/",
            )
        return None
    if resolve_file(file).plan.kubernetes is None:
        return None
    bindings, charts = options.bindings, options.charts
    containers = home is None and SANDBOX not in os.environ
    if home is not None:
        _enter(home)
        bindings, charts = bindings or home.path / "bindings.json", False
    target = target_of(name, bindings)
    expected = kubernetes_expectations(
        target.plan, target.steps, charts=charts, containers=containers, bindings=target.bindings
    )
    if target.plan.slurm is None and (accepted := acceptances(file)) is not None:
        expected = (*expected, expect("cfg.accept", CLUSTER, accepted))
    return KubernetesPart(target=target, context=options.context, charts=charts, expectations=expected)


def _rehearsal(name: str) -> "SandboxDir | None":
    """The living sandbox of that name with EKS, if this is not its shell already."""
    from gpucluster.cli.shell import SANDBOX
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
