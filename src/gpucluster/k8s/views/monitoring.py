"""What the Prometheus operator and Grafana get: alerts, the GPU hours and the cost of each team, a dashboard.

Sources of the metrics: Kueue v0.19.2, pkg/metrics/metrics.go (read from the real manager in tests/kubernetes/test_sharing.py); NVIDIA's
dcgm-exporter d5e5f51, etc/dcp-metrics-included.csv, which the GPU operator names; Karpenter 226646810, pkg/controllers/metrics. `tests/monitoring` runs the rules in promtool.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from gpucluster.catalog import xids
from gpucluster.files import shipped
from gpucluster.json_text import parse_json
from gpucluster.k8s.manifest import scalar
from gpucluster.k8s.site import Site
from gpucluster.plan import names
from gpucluster.plan.model.kubernetes import Monitoring

Rule = dict[str, Any]
DASHBOARD = "dashboards/kubernetes.json"  # written by tools/make_dashboard.py
USED = "gpucluster:team_gpus:used"  # whole GPUs or slices that Kueue has given to a team
PRICE = "gpucluster:gpu_hour:usd"
COST = "gpucluster:team_cost:usd_per_hour"
_GPUS = "nvidia.com/.*"
_REPLACE = "kubectl cordon {{ $labels.Hostname }}; then move its pods, and replace it"


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringNamespace:
    """templates/k8s/monitoring-namespace.yaml.j2"""

    name: str
    labels: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """templates/k8s/rules.yaml.j2"""

    name: str
    namespace: str
    labels: str
    groups: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """templates/k8s/dashboard.yaml.j2"""

    name: str
    namespace: str
    labels: str
    dashboard: str


def namespaces(site: Site) -> Iterator[tuple[str, MonitoringNamespace]]:
    if site.kubernetes.monitoring is not None:
        labels = {**site.labels, "pod-security.kubernetes.io/enforce": "restricted"}
        name = names.monitoring_namespace(site.plan.name)
        yield "namespace.monitoring", MonitoringNamespace(name=scalar(name), labels=scalar(labels))


def rules(site: Site) -> Iterator[tuple[str, Rules]]:
    if site.kubernetes.monitoring is not None:
        yield (
            "rules",
            Rules(
                name=scalar(site.plan.name),
                namespace=scalar(names.monitoring_namespace(site.plan.name)),
                labels=scalar(site.labels),
                groups=scalar(groups(site, site.kubernetes.monitoring)),
            ),
        )


def dashboards(site: Site) -> Iterator[tuple[str, Dashboard]]:
    if site.kubernetes.monitoring is not None:
        whole = {
            **parse_json(_dashboard()),
            "uid": f"gpucluster-{site.plan.name}",
            "title": f"gpucluster: {site.plan.name}",
        }
        yield (
            "dashboard",
            Dashboard(
                name=scalar(f"{site.plan.name}-dashboard"),
                namespace=scalar(names.monitoring_namespace(site.plan.name)),
                labels=scalar({**site.labels, "grafana_dashboard": "1"}),
                dashboard=scalar(json.dumps(whole, indent=1, sort_keys=True) + "\n"),
            ),
        )


def groups(site: Site, monitoring: Monitoring) -> list[dict[str, Any]]:
    """Return the groups of rules, each for the queues of this cluster alone."""
    found = [
        {"name": f"{site.plan.name}-teams", "interval": "1m", "rules": list(_sums(site, monitoring))},
        {"name": f"{site.plan.name}-queues", "rules": list(_queues(site))},
    ]
    gpus = list(_gpus(site))
    return [*found, {"name": f"{site.plan.name}-gpus", "rules": gpus}] if gpus else found


def _sums(site: Site, monitoring: Monitoring) -> Iterator[Rule]:
    """Yield what each team uses, what it costs, and the prices."""
    used = f'kueue_cluster_queue_resource_usage{{{_ours(site)}, resource=~"{_GPUS}"}}'
    yield _record(site, USED, f"sum by (cluster_queue, flavor, resource) ({used})")
    for price in monitoring.prices:
        labels = {"flavor": site.flavor(price.pool), "resource": price.resource}
        yield _record(site, PRICE, f"vector({Decimal(price.hour).scaleb(-6):f})", **labels)
    if monitoring.prices:
        cluster = f'cluster="{site.plan.name}"'
        priced = f"{USED}{{{cluster}}} * on (flavor, resource) group_left () {PRICE}{{{cluster}}}"
        yield _record(site, COST, f"sum by (cluster_queue) ({priced})")


def _queues(site: Site) -> Iterator[Rule]:
    ours = _ours(site)
    first = site.kubernetes.teams[0].queue
    yield _alert(
        site,
        "GpuclusterKueueNotScraped",
        f'absent(kueue_cluster_queue_status{{cluster_queue="{first}"}})',
        after="10m",
        summary="Prometheus has no metrics of Kueue: no alert about queues can fire.",
        step="kubectl get servicemonitors --namespace kueue-system",
    )
    yield _alert(
        site,
        "GpuclusterQueueInactive",
        f'max by (cluster_queue) (kueue_cluster_queue_status{{{ours}, status="active"}}) == 0',
        after="5m",
        summary="The queue {{ $labels.cluster_queue }} admits nothing.",
        step="kubectl describe clusterqueue {{ $labels.cluster_queue }}",
        severity="critical",
    )
    free = f'max by (cluster_queue) (kueue_cluster_queue_nominal_quota{{{ours}, resource=~"{_GPUS}"}} - kueue_cluster_queue_resource_usage)'
    yield _alert(
        site,
        "GpuclusterWaitsBesideFreeQuota",
        f"sum by (cluster_queue) (kueue_pending_workloads{{{ours}}}) > 0 and on (cluster_queue) {free} > 0",
        after="30m",
        summary="{{ $value }} workloads wait in {{ $labels.cluster_queue }}, which has unused quota.",
        step=f"gpucluster k8s status {site.plan.name}",
    )
    lost = f'kueue_evicted_workloads_total{{{ours}, reason=~"PodsReadyTimeout|NodeFailures|Deactivated"}}'
    # Kueue's counter begins with the first eviction of a queue, reason and priority, at 1: `increase` does not see that one.
    by = "sum by (cluster_queue, reason)"
    yield _alert(
        site,
        "GpuclusterWorkloadsEvicted",
        f"{by} (increase({lost}[1h])) > 0 or {by} ({lost} unless {lost} offset 1h) > 0",
        summary="Kueue evicted workloads of {{ $labels.cluster_queue }}: {{ $labels.reason }}.",
        step=f"gpucluster k8s status {site.plan.name}",
    )


def _gpus(site: Site) -> Iterator[Rule]:
    """Yield alerts about GPUs. DCGM's XID metric keeps the last XID of a GPU."""
    if not any(pool.gpu_count for pool in site.kubernetes.pools):
        return
    if any(pool.gpu_count and pool.min for pool in site.kubernetes.pools):
        yield _alert(
            site,
            "GpuclusterGpusNotScraped",
            "absent(DCGM_FI_DEV_GPU_TEMP)",
            after="15m",
            summary="Prometheus has no metrics of GPUs: no alert about them can fire.",
            step="kubectl get servicemonitors --namespace gpu-operator",
        )
    bad = " or ".join(f"DCGM_FI_DEV_XID_ERRORS == {xid}" for xid in xids.of_machines())
    yield _alert(
        site,
        "GpuclusterGpuFault",
        f"max by (Hostname, gpu) ({bad})",
        summary="GPU {{ $labels.gpu }} of {{ $labels.Hostname }} has XID {{ $value }}.",
        step=_REPLACE,
        severity="critical",
    )
    yield _alert(
        site,
        "GpuclusterRowRemapFailed",
        "max by (Hostname, gpu) (DCGM_FI_DEV_ROW_REMAP_FAILURE) > 0",
        summary="GPU {{ $labels.gpu }} of {{ $labels.Hostname }} has bad memory that it cannot replace.",
        step=_REPLACE,
        severity="critical",
    )
    spaces = "|".join(team.namespace for team in site.kubernetes.teams)
    yield _alert(
        site,
        "GpuclusterGpusIdle",
        _idle(spaces),
        after="2h",
        summary="The pod {{ $labels.pod }} of {{ $labels.namespace }} has GPUs or slices of GPUs and has not used them for two hours.",
        step="ask the team; kubectl logs {{ $labels.pod }} --namespace {{ $labels.namespace }}",
        severity="info",
    )


def _idle(spaces: str) -> str:
    """Return the pods that use none of their GPUs. DCGM has no utilization of a slice, so there the graphics engine counts."""
    whole = f'DCGM_FI_DEV_GPU_UTIL{{namespace=~"{spaces}", GPU_I_ID=""}}'
    sliced = f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{namespace=~"{spaces}", GPU_I_ID!=""}}'
    return " or ".join(f"max by (namespace, pod) ({metric}) == 0" for metric in (whole, sliced))


def _ours(site: Site) -> str:
    return f'cluster_queue=~"{"|".join(team.queue for team in site.kubernetes.teams)}"'


def _record(site: Site, name: str, expression: str, **labels: str) -> Rule:
    return {"record": name, "expr": expression, "labels": {"cluster": site.plan.name, **labels}}


def _alert(
    site: Site,
    name: str,
    expression: str,
    *,
    summary: str,
    step: str,
    after: str = "",
    severity: str = "warning",
) -> Rule:
    wait = {"for": after} if after else {}
    labels = {"cluster": site.plan.name, "severity": severity}
    notes = {"summary": summary, "next": step}
    return {"alert": name, "expr": expression, **wait, "labels": labels, "annotations": notes}


@cache
def _dashboard() -> str:
    return (shipped("templates") / DASHBOARD).read_text(encoding="utf-8")
