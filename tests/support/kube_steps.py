"""The steps of the usual spec with Kubernetes and its workloads, changed."""

from gpucluster import catalog
from gpucluster.k8s_apply.steps import Steps, steps
from gpucluster.plan.model import Bindings
from gpucluster.plan.resolve import resolve
from support.builders import a_kube_spec, some_workloads
from support.kube import BOUND, Change

TESTED: Change = (
    "serve:\n",
    "nccl_test: {team: research, image: registry.example.org/train:2.0, pull_secrets: [registry]}\nserve:\n",
)
GROUPS = (  # a service whose replicas have several nodes
    ("team: serving", "team: research"),
    (
        "{nvidia.com/mig-1g.10gb: 1}",
        "{nvidia.com/gpu: 8}\n    nodes: 2\n    worker_command: [serve, --worker]",
    ),
    ("{min: 2, max: 8}", "{min: 1, max: 2}"),
)


def kube_steps(
    *changes: Change, running: tuple[Change, ...] | None = (), bindings: Bindings | None = BOUND
) -> Steps:
    """`running=None` means no workloads."""
    spec = a_kube_spec(*changes)
    plan = resolve(spec, catalog.load())
    some = None if running is None else some_workloads(plan, spec, *running)
    return steps(plan, some, bindings)
