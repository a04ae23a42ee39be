"""Helm values of the charts that our objects need. They configure the charts; we render nothing of the charts."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.k8s.manifest import scalar
from gpucluster.k8s.site import Site, tolerations
from gpucluster.plan import kubernetes as kube
from gpucluster.plan import names
from gpucluster.plan.model.kubernetes import ExistingControlPlane, NodePool
from gpucluster.plan.model.values import EFA, Distribution, Market
from gpucluster.text import format_duration

# The only list of two that Kueue's validation accepts (pkg/config/validation.go, v0.19.2).
_STRATEGIES = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
_FRAMEWORKS = (
    "batch/job",
    "jobset.x-k8s.io/jobset",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "pod",
    "deployment",
    "statefulset",
)
# cmd/nvidia-ctk-installer/toolkit/toolkit.go of NVIDIA/nvidia-container-toolkit; NVIDIA/gpu-operator#1027 has it in `toolkit.env`
_BY_REQUEST = [{"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", "value": "false"}]
KUEUE_CONFIG = "kueue-config.yaml.j2"  # goes into the values as text


@dataclass(frozen=True, slots=True, kw_only=True)
class EfaPlugin:
    """templates/k8s/values-aws-efa-k8s-device-plugin.yaml.j2"""

    tolerations: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOperator:
    """templates/k8s/values-gpu-operator.yaml.j2"""

    driver: str
    toolkit: str
    strategy: str
    sliced: str
    config_name: str
    config: str
    monitored: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KueueConfig:
    """templates/k8s/kueue-config.yaml.j2"""

    namespaces: str
    fair: str
    monitored: str
    frameworks: str
    ready: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kueue:
    """templates/k8s/values-kueue.yaml.j2"""

    config: str
    monitored: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """templates/k8s/values-kubeflow-trainer.yaml.j2"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Karpenter:
    """templates/k8s/values-karpenter.yaml.j2"""

    replicas: str
    cluster: str
    queue: str
    overlay: str
    monitor: str


def needs_efa_plugin(site: Site) -> bool:
    """Return whether we install the plugin: an existing cluster may have one, and a node takes no second."""
    ours = site.kubernetes.distribution is Distribution.EKS
    return ours and any(EFA in pool.allocatable for pool in site.kubernetes.pools)


def efa_plugins(site: Site) -> Iterator[tuple[str, EfaPlugin]]:
    if needs_efa_plugin(site):
        taints = tuple(
            taint for pool in site.kubernetes.pools if EFA in pool.allocatable for taint in pool.taints
        )
        yield "aws-efa-k8s-device-plugin", EfaPlugin(tolerations=scalar(tolerations(taints)))


def gpu_operators(site: Site) -> Iterator[tuple[str, GpuOperator]]:
    """EKS's accelerated images include driver and toolkit. Two installers of one driver would conflict."""
    sliced = [pool for pool in site.kubernetes.pools if pool.mig]
    if not any(pool.gpu_count for pool in site.kubernetes.pools):
        return
    ours = site.kubernetes.distribution is Distribution.EKS
    yield (
        "gpu-operator",
        GpuOperator(
            driver=scalar(False if ours else None),
            toolkit=scalar(None if ours else _BY_REQUEST),
            strategy=scalar("mixed" if sliced else "none"),
            sliced=scalar(bool(sliced)),
            config_name=scalar(site.name("mig") if sliced else ""),
            config=scalar(_mig_config(sliced) if sliced else None),
            monitored=scalar(site.kubernetes.monitoring is not None),
        ),
    )


def kueue_config(site: Site) -> KueueConfig:
    fair = {"preemptionStrategies": list(_STRATEGIES)} if site.kubernetes.fair_sharing else None
    namespaces = scalar({names.LABEL_CLUSTER: site.plan.name})
    trained = [] if site.kubernetes.trainer is None else ["trainer.kubeflow.org/trainjob"]
    return KueueConfig(
        namespaces=namespaces,
        fair=scalar(fair),
        monitored=monitored(site),
        frameworks=scalar([*_FRAMEWORKS, *trained]),
        ready=scalar(format_duration(kube.READY_S.value)),
    )


def monitored(site: Site) -> str:
    """Return true or null."""
    return scalar(None if site.kubernetes.monitoring is None else True)


def karpenters(site: Site) -> Iterator[tuple[str, Karpenter]]:
    elastic = [pool for pool in site.kubernetes.pools if pool.elastic]
    if not elastic:
        return
    spot = any(source.market is Market.SPOT for pool in elastic for source in pool.sources)
    ours = site.kubernetes.distribution is Distribution.EKS
    yield (
        "karpenter",
        Karpenter(
            replicas=scalar(1 if _has_one_node(site) else None),
            cluster=scalar(_eks_name(site)),
            queue=scalar(names.interruption_queue(site.plan.name) if spot or ours else None),
            overlay=scalar(any(pool.unknown_to_karpenter for pool in elastic)),
            monitor=scalar(None if site.kubernetes.monitoring is None else {"enabled": True}),
        ),
    )


def _eks_name(site: Site) -> str | None:
    plane = site.kubernetes.control_plane
    return plane.eks_name if isinstance(plane, ExistingControlPlane) else site.plan.name


def _has_one_node(site: Site) -> bool:
    """Return whether one node takes Karpenter's pods: its chart keeps its two on two nodes that it did not launch itself."""
    plane = site.kubernetes.control_plane
    if isinstance(plane, ExistingControlPlane):
        return False
    return sum(group.nodes for group in plane.groups if not group.taints) == 1


def trainers(site: Site) -> Iterator[tuple[str, Trainer]]:
    if site.kubernetes.trainer is not None:
        yield "kubeflow-trainer", Trainer()


def _mig_config(pools: list[NodePool]) -> str:
    """Return the configuration in mig-parted's format. A node's label names its entry."""
    lines = ["version: v1", "mig-configs:", "  all-disabled:", "  - devices: all", "    mig-enabled: false"]
    for pool in pools:
        lines += [f"  {pool.labels[names.LABEL_MIG]}:", "  - devices: all", "    mig-enabled: true"]
        lines += ["    mig-devices:", *(f"      {scalar(name)}: {n}" for name, n in sorted(pool.mig.items()))]
    return "\n".join(lines) + "\n"
