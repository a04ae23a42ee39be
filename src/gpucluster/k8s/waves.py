"""The order in which the files are applied. A wave needs the objects of the waves before it."""

from dataclasses import dataclass

FIELD_MANAGER = (
    "gpucluster"  # whoever applies the tree by hand uses it, too: then each continues what the other applied
)


@dataclass(frozen=True, slots=True)
class Wave:
    """A folder of the tree."""

    folder: str
    holds: str  # title for people


CHARTS = Wave("helm", "values for the charts that later waves need; install the charts first")
NAMESPACES = Wave("00-namespaces", "a namespace for each team")
ACCESS = Wave("10-access", "roles, limits and network policies, before any pod runs")
NODES = Wave("20-nodes", "Karpenter's node pools and node classes")
QUEUES = Wave("30-queues", "flavors, quotas, queues and priorities, which pods refer to")
STORAGE = Wave("40-storage", "volumes and claims that pods mount")
MONITORING = Wave("45-monitoring", "alerts, sums and a dashboard, for the Prometheus operator")
RUNTIMES = Wave("47-runtimes", "what the pods of TrainJobs get, for Kubeflow Trainer")
SERVICES = Wave("50-services", "services that answer requests")
TRAINING = Wave("60-training", "gangs")
TESTS = Wave("tests", "a test of NCCL for each pool; no wave: start one by hand")


def apply(wave: Wave) -> str:
    """Return the command that applies a wave, to be run in the folder of the tree."""
    return f"kubectl apply --server-side --field-manager={FIELD_MANAGER} --validate=strict -k {wave.folder}"


WAVES = (NAMESPACES, ACCESS, NODES, QUEUES, STORAGE, MONITORING, RUNTIMES, SERVICES, TRAINING)
