"""What the stand-ins of kubectl and helm share: one file of values, a log of calls, and planted faults."""

import fcntl
import json
import marshal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

BUILT_IN = {
    "v1": ["ConfigMap", "Event", "LimitRange", "Namespace", "Node", "PersistentVolume", "PersistentVolumeClaim", "Pod", "ReplicationController", "ResourceQuota", "Secret", "Service", "ServiceAccount"],
    "admissionregistration.k8s.io/v1": ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
    "apiextensions.k8s.io/v1": ["CustomResourceDefinition"],
    "apps/v1": ["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"],
    "batch/v1": ["CronJob", "Job"],
    "autoscaling/v2": ["HorizontalPodAutoscaler"],
    "coordination.k8s.io/v1": ["Lease"],
    "networking.k8s.io/v1": ["Ingress", "NetworkPolicy"],
    "policy/v1": ["PodDisruptionBudget"],
    "rbac.authorization.k8s.io/v1": ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    "scheduling.k8s.io/v1": ["PriorityClass"],
    "storage.k8s.io/v1": ["StorageClass"],
}  # fmt: skip
OF_CHARTS = {  # release -> the kinds of its CustomResourceDefinitions
    "aws-efa-k8s-device-plugin": {},
    "gpu-operator": {
        "nvidia.com/v1": ["ClusterPolicy"],
        "nvidia.com/v1alpha1": ["GPUCluster", "NVIDIADriver"],
        "resource.nvidia.com/v1beta1": ["ComputeDomain", "ComputeDomainClique"],
        "nfd.k8s-sigs.io/v1alpha1": ["NodeFeature", "NodeFeatureGroup", "NodeFeatureRule"],
    },
    "jobset": {"jobset.x-k8s.io/v1alpha2": ["JobSet"]},
    "karpenter": {"karpenter.sh/v1": ["NodePool", "NodeClaim"], "karpenter.sh/v1alpha1": ["NodeOverlay"], "karpenter.k8s.aws/v1": ["EC2NodeClass"], "autoscaling.x-k8s.io/v1beta1": ["CapacityBuffer"]},
    "kueue": {"kueue.x-k8s.io/v1beta2": ["ClusterQueue", "Cohort", "LocalQueue", "MultiKueueConfig", "ResourceFlavor", "Topology", "Workload", "WorkloadPriorityClass"]},
    "prometheus-operator": {"monitoring.coreos.com/v1": ["PodMonitor", "PrometheusRule", "ServiceMonitor"]},
    "kubeflow-trainer": {
        "trainer.kubeflow.org/v1alpha1": ["ClusterTrainingRuntime", "TrainingRuntime", "TrainJob"],
    },
    "lws": {"leaderworkerset.x-k8s.io/v1": ["LeaderWorkerSet"], "disaggregatedset.x-k8s.io/v1": ["DisaggregatedSet"]},
}  # fmt: skip
IN_TEMPLATES = (
    "kueue",
    "kubeflow-trainer",
)  # their charts have the definitions as templates, the others in a folder `crds`
CLUSTER_SCOPED = {
    "ClusterQueue", "ClusterRole", "ClusterRoleBinding", "ClusterPolicy", "ClusterTrainingRuntime", "Cohort", "CustomResourceDefinition", "EC2NodeClass", "GPUCluster", "MultiKueueConfig", "NVIDIADriver", "Namespace", "Node", "NodeClaim", "NodeFeatureRule", "NodeOverlay", "NodePool", "PersistentVolume", "PriorityClass",
    "ResourceFlavor", "StorageClass", "Topology", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "WorkloadPriorityClass",
}  # fmt: skip


def definitions_of(chart: str) -> list[dict[str, Any]]:
    """Return its CustomResourceDefinitions."""
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {"group": group, "names": {"plural": plural}, "versions": [{"name": version, "served": True}]},
        }
        for group, _, version, kind in (
            (*served.partition("/"), kind) for served, kinds in OF_CHARTS[chart].items() for kind in kinds
        )
        for plural in [f"{kind.lower().removesuffix('y')}ies" if kind.endswith("Policy") else f"{kind.lower()}s"]
    ]  # fmt: skip


def stored(one: dict[str, Any], manager: str, **marks: Any) -> dict[str, Any]:
    """Return a definition with labels or annotations, and who has written it."""
    written = {"managedFields": [{"manager": manager}], "resourceVersion": "1"} if manager else {}
    return {**one, "metadata": {**one["metadata"], **written, **marks}}


OWN_EACH = 2  # the newest version of marshal's format in which each object is read as one of its own


class EndedError(Exception):
    """The program ends with these words on stderr."""

    def __init__(self, text: str, code: int, out: str = "") -> None:
        super().__init__(text)
        self.text, self.code, self.out = text, code, out


class CallerIsKilledError(Exception):
    """The program that called is killed, and the stand-in with it."""


def fail(text: str, code: int = 1, *, out: str = "") -> NoReturn:
    """End as the real program does."""
    raise EndedError(text, code, out)


class State:
    """The values of a file, which processes share. A call has them while it holds the lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "state"
        self.planted = folder / "planted"  # is there if faults were planted

    @contextmanager
    def locked(self) -> Generator[dict[str, Any]]:
        """What the block changes is kept, unless it raises."""
        with self.file.open("r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            old = file.read()
            values = marshal.loads(old)  # noqa: S302  our own
            yield values
            if (new := marshal.dumps(values, OWN_EACH)) != old:
                file.seek(0)
                file.write(new)
                file.truncate()

    def begin(self, values: dict[str, Any]) -> None:
        """Make the file, with these values."""
        self.file.write_bytes(marshal.dumps(values, OWN_EACH))

    def log(self, program: str, argv: list[str]) -> None:
        with (self.folder / "calls").open("a") as file:
            file.write(json.dumps([program, *argv]) + "\n")

    def fault(self, program: str, argv: list[str]) -> dict[str, Any] | None:
        """Return the planted fault of this call, if there is one. `skip` calls go well before it, then `times` fail."""
        if not self.planted.exists():
            return None
        line = f"{program} {' '.join(argv)}"
        with self.locked() as values:
            for row in values["faults"]:
                if row["match"] in line and row["times"]:
                    if row.get("skip"):
                        row["skip"] -= 1
                        return None
                    row["times"] -= 1
                    return dict(row)
        return None


@dataclass(frozen=True, slots=True)
class Begun:
    """A call whose words are known, and its planted fault."""

    state: State
    verb: str
    words: list[str]
    flags: dict[str, str]
    stdin: str
    fault: dict[str, Any] | None


def suffer(fault: dict[str, Any] | None, when: str) -> None:
    """Fail, or kill the program that called, before or after the effect."""
    if fault is None or fault.get("when", "before") != when:
        return
    if fault.get("kill"):
        raise CallerIsKilledError
    fail(fault["stderr"], fault.get("code", 1))
