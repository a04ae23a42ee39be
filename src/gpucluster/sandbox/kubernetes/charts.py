"""What stands for the charts of a plan: managers of Kueue, JobSet and Kubeflow Trainer as processes, and the definitions of the other charts' kinds.

Containers cannot run here, so helm would install Deployments that do nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.errors import HostError
from gpucluster.k8s import manifest
from gpucluster.k8s.render import render
from gpucluster.plan.model import AwsPlan
from gpucluster.plan.names import KARPENTER
from gpucluster.sandbox.kubernetes import crds, managers, trainer
from gpucluster.sandbox.kubernetes.control_plane import ControlPlane
from gpucluster.sandbox.kubernetes.programs import Programs

_KUEUE = "helm/kueue.yaml"  # values of the chart, below the root of the rendered tree


def stand_in(plane: ControlPlane, plan: AwsPlan) -> None:
    """Start them for a control plane that runs."""
    for one in crds.from_catalog():
        plane.client.apply(one)
    managers.start(plane, managers.jobset())  # in the order in which `k8s up` installs them
    if plan.kubernetes is not None and plan.kubernetes.trainer is not None:
        managers.start(plane, managers.TRAINER, _trainer())
    managers.start(plane, managers.kueue(kueue_config(plan)))
    for one in _karpenter():
        plane.client.apply(one)


def _trainer() -> Programs:
    found = trainer.find()
    if found is None:
        raise HostError(
            "Kubeflow Trainer is not built", next_step="gpucluster sandbox up NAME, which builds it"
        )
    return found


def _karpenter() -> Iterator[dict[str, Any]]:
    """What its chart installs that others look at. The stand-in works while the Deployment is available; kwok plays its pod."""
    marks = {"app.kubernetes.io/name": KARPENTER}
    spec = {"containers": [{"name": "controller", "image": "sandbox.invalid/karpenter"}]}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KARPENTER}}
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": KARPENTER, "namespace": KARPENTER, "labels": marks},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": marks},
            "template": {"metadata": {"labels": marks}, "spec": spec},
        },
    }


def kueue_config(plan: AwsPlan) -> Mapping[str, Any]:
    """What the values of Kueue's chart give to its manager."""
    (text,) = (one.content.decode() for one in render(plan) if one.path.endswith(_KUEUE))
    (values,) = manifest.documents(text)
    (config,) = manifest.documents(values["managerConfig"]["controllerManagerConfigYaml"])
    return config
