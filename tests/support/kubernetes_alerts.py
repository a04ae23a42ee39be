"""Series of metrics, and the alerts that fire after them, for promtool. Each alert has a case with it and a case without it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """`series` are promtool's: a metric and its values each minute. `labels` of the alert at `at`; None: it does not fire."""

    alert: str
    series: dict[str, str]
    at: str
    labels: dict[str, str] | None
    name: str = ""


_QUEUE = 'cluster_queue="kube-research"'
_ACTIVE = 'kueue_cluster_queue_status{cluster_queue="kube-research", status="active"}'
_SERVING = 'kueue_cluster_queue_status{cluster_queue="kube-serving", status="active"}'
_OTHER = 'kueue_cluster_queue_status{cluster_queue="other-research", status="active"}'
_RESOURCE = f'cohort="kube", {_QUEUE}, flavor="kube-tune", resource="nvidia.com/gpu"'
_PENDING = f'kueue_pending_workloads{{{_QUEUE}, status="inadmissible"}}'
_QUOTA = f"kueue_cluster_queue_nominal_quota{{{_RESOURCE}}}"
_USE = f"kueue_cluster_queue_resource_usage{{{_RESOURCE}}}"
_GPU = 'Hostname="node-a", gpu="3"'
_UTIL = 'DCGM_FI_DEV_GPU_UTIL{Hostname="node-a", gpu="3", namespace="research", pod="tune-0"}'
_MIG = 'Hostname="node-b", gpu="0", GPU_I_PROFILE="1g.10gb", GPU_I_ID="7", namespace="research", pod="chat-0"'
_SLICE, _UTIL_OF_SLICED = f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{_MIG}}}", f"DCGM_FI_DEV_GPU_UTIL{{{_MIG}}}"
_EVICTED = 'kueue_evicted_workloads_total{cluster_queue="kube-research", reason="%s"}'
_RESEARCH = {"cluster_queue": "kube-research"}
_ON_GPU = {"Hostname": "node-a", "gpu": "3"}

CASES = (
    Case("GpuclusterKueueNotScraped", {_OTHER: "1x20"}, "15m", {"cluster_queue": "kube-serving"}),
    Case("GpuclusterKueueNotScraped", {_SERVING: "1x20"}, "15m", None),
    Case("GpuclusterQueueInactive", {_ACTIVE: "0x20"}, "10m", _RESEARCH),
    Case("GpuclusterQueueInactive", {_ACTIVE: "1x20", _OTHER: "0x20"}, "10m", None),
    Case("GpuclusterWaitsBesideFreeQuota", {_PENDING: "2x60", _QUOTA: "32x60", _USE: "24x60"}, "45m", _RESEARCH),
    Case("GpuclusterWaitsBesideFreeQuota", {_PENDING: "2x60", _QUOTA: "32x60", _USE: "32x60"}, "45m", None, "the quota is used"),
    Case("GpuclusterWaitsBesideFreeQuota", {_PENDING: "0x60", _QUOTA: "32x60", _USE: "0x60"}, "45m", None, "nothing waits"),
    Case("GpuclusterWorkloadsEvicted", {_EVICTED % "NodeFailures": "0x30 1x30"}, "45m", {**_RESEARCH, "reason": "NodeFailures"}),
    Case("GpuclusterWorkloadsEvicted", {_EVICTED % "Preempted": "0x30 1x30"}, "45m", None),
    Case("GpuclusterWorkloadsEvicted", {_EVICTED % "NodeFailures": "_x30 1x30"}, "45m", {**_RESEARCH, "reason": "NodeFailures"}, "the first one: Kueue has no counter before it"),
    Case("GpuclusterWorkloadsEvicted", {_EVICTED % "NodeFailures": "_x30 1x120"}, "110m", None, "the first one was more than an hour ago"),
    Case("GpuclusterGpusNotScraped", {_ACTIVE: "1x60"}, "30m", {}),
    Case("GpuclusterGpusNotScraped", {f"DCGM_FI_DEV_GPU_TEMP{{{_GPU}}}": "50x60"}, "30m", None),
    Case("GpuclusterGpuFault", {f"DCGM_FI_DEV_XID_ERRORS{{{_GPU}}}": "79x20"}, "5m", _ON_GPU),
    Case("GpuclusterGpuFault", {f"DCGM_FI_DEV_XID_ERRORS{{{_GPU}}}": "31x20"}, "5m", None, "a fault of the job"),
    Case("GpuclusterGpuFault", {f"DCGM_FI_DEV_XID_ERRORS{{{_GPU}}}": "0x20"}, "5m", None),
    Case("GpuclusterRowRemapFailed", {f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{_GPU}}}": "1x20"}, "5m", _ON_GPU),
    Case("GpuclusterRowRemapFailed", {f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{_GPU}}}": "0x20"}, "5m", None),
    Case("GpuclusterGpusIdle", {_UTIL: "0x240"}, "200m", {"namespace": "research", "pod": "tune-0"}),
    Case("GpuclusterGpusIdle", {_UTIL: "0x90"}, "90m", None, "it started less than two hours ago"),
    Case("GpuclusterGpusIdle", {_SLICE: "0x240"}, "200m", {"namespace": "research", "pod": "chat-0"}),
    Case("GpuclusterGpusIdle", {_SLICE: "0x60 0.01 0x240"}, "150m", None, "its slice worked in the last two hours"),
    Case("GpuclusterGpusIdle", {_SLICE: "0.2x240", _UTIL_OF_SLICED: "0x240"}, "200m", None, "the GPU of a slice has no utilization of its own"),
    Case("GpuclusterGpusIdle", {_UTIL: "0x60 90 0x240"}, "150m", None, "it worked in the last two hours"),
)  # fmt: skip
