"""Write the Grafana dashboards of Slurm and of Kubernetes, each from a table of panels. The output is deterministic."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
WIDTH, HEIGHT = 8, 7  # Grafana has 24 columns: three panels in a row
SOURCE = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True)
class Panel:
    """A panel. Each query is (expression, legend)."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    description: str = ""


def quantile(share: float, of: str, by: str) -> str:
    return f"histogram_quantile({share}, sum by (le{by}) (rate({of}_bucket[$__rate_interval])))"


Rows = tuple[tuple[str, tuple[Panel, ...]], ...]


@dataclass(frozen=True)
class Board:
    """A dashboard and its file. `variables` are Grafana's, beside the data source."""

    file: Path
    name: str
    of: str
    rows: Rows
    variables: tuple[dict[str, Any], ...] = ()


SLURM: Rows = (
    (
        "Current state",
        (
            Panel("Waiting jobs by cause", (("gpucluster_jobs_waiting", "{{cause}}"),), description="gpucluster why JOB shows the details."),
            Panel("Nodes by state", (("sum by (state) (gpucluster_nodes)", "{{state}}"),)),
            Panel("Instances", (("sum by (market, machine) (gpucluster_instances)", "{{market}} {{machine}}"),)),
            Panel("Longest wait of a job", (("gpucluster_jobs_waiting_seconds", "{{cause}}"),), "s"),
            Panel("Longest time of a node in a transitional state", (("gpucluster_transition_seconds", "{{pool}} {{state}}"),), "s"),
            Panel(
                "Needs attention",
                (
                    ("gpucluster_jobs_stalled", "stalled jobs"),
                    ("gpucluster_unknown_states", "unknown states"),
                    ("gpucluster_stray_instances", "stray instances"),
                    ("sum(gpucluster_interrupted) or vector(0)", "interrupted instances"),
                    ("sum(gpucluster_pool_stopped) or vector(0)", "stopped pools"),
                    ("gpucluster_halted", "all launches stopped"),
                ),
                kind="bargauge",
            ),
        ),
    ),
    (
        "From job submission to start",
        (
            Panel("Nodes by row of the node table", (("sum by (row) (gpucluster_node_rows)", "{{row}}"),)),
            Panel("Median duration of each stage", ((quantile(0.5, "gpucluster_stage_seconds", ", stage"), "{{stage}}"),), "s"),
            Panel("90th percentile of the duration of each stage", ((quantile(0.9, "gpucluster_stage_seconds", ", stage"), "{{stage}}"),), "s"),
            Panel("Jobs with booting nodes", (("gpucluster_jobs_starting", "starting"),)),
        ),
    ),
    (
        "EC2",
        (
            Panel("Instances launched per minute", (("sum by (market, zone) (rate(gpucluster_launched_total[$__rate_interval])) * 60", "{{market}} {{zone}}"),)),
            Panel("Refusals per minute", (("sum by (machine, zone, fault) (rate(gpucluster_refusals_total[$__rate_interval])) * 60", "{{machine}} {{zone}} {{fault}}"),)),
            Panel("Refused offers", (("gpucluster_offer_refused", "{{offer}}"),), description="Consecutive refusals."),
            Panel("Launch requests by outcome", (("sum by (outcome) (rate(gpucluster_launch_requests_total[$__rate_interval])) * 60", "{{outcome}}"), ("rate(gpucluster_throttles_total[$__rate_interval]) * 60", "throttled"))),
            Panel("Tokens left for API calls", (("gpucluster_bucket_tokens", "{{bucket}}"),)),
            Panel("Instances terminated per minute", (("rate(gpucluster_terminations_total[$__rate_interval]) * 60", "terminated"), ("rate(gpucluster_terminations_refused_total[$__rate_interval]) * 60", "refused"))),
        ),
    ),
    (
        "Failures",
        (
            Panel("Failed boots", (("increase(gpucluster_boot_failures_total[$__rate_interval])", "{{pool}}"), ("increase(gpucluster_breaker_trips_total[$__rate_interval])", "{{pool}} breaker"))),
            Panel("Interruptions", (("increase(gpucluster_interruptions_total[$__rate_interval])", "{{kind}}"), ("gpucluster_interrupted", "{{kind}} now"))),
            Panel("GPU faults by XID", (("gpucluster_xids_total", "XID {{xid}} ({{severity}})"),)),
            Panel("Jobs signalled and requeued", (("increase(gpucluster_jobs_signalled_total[$__rate_interval])", "signalled"), ("increase(gpucluster_jobs_requeued_total[$__rate_interval])", "requeued"))),
            Panel("Orders of operators", (("increase(gpucluster_orders_total[$__rate_interval])", "{{verb}}"),)),
            Panel("Nodes in unknown states", (("increase(gpucluster_unknown_states_total[$__rate_interval])", "unknown"),)),
        ),
    ),
    (
        "Money",
        (
            Panel("Spend of this month", (("gpucluster_spend_month_usd", "spent"), ("gpucluster_budget_usd", "{{line}}")), "currencyUSD", description="From the daemon's ledger and catalog prices."),
            Panel("Spend per hour", (("gpucluster_spend_rate_usd_per_hour", "now"),), "currencyUSD"),
            Panel("Instances without a price", (("gpucluster_instances_without_price", "instances"),), description="The costs do not include them."),
        ),
    ),
    (
        "The daemon",
        (
            Panel("Age of the last answers of Slurm and EC2", (("gpucluster_view_age_seconds", "{{of}}"),), "s"),
            Panel("Duration of a pass", ((quantile(0.5, "gpucluster_pass_seconds", ""), "median"), (quantile(0.99, "gpucluster_pass_seconds", ""), "99th percentile")), "s"),
            Panel("Holder of the lease", (("gpucluster_lease_held * on(instance) group_left(holder) gpucluster_info", "{{holder}}"),)),
        ),
    ),
)  # fmt: skip


QUEUE = {
    "name": "queue",
    "label": "Queue",
    "type": "query",
    "datasource": SOURCE,
    "query": "label_values(kueue_cluster_queue_status, cluster_queue)",
    "multi": True,
    "includeAll": True,
    "allValue": ".*",
    "refresh": 2,
}
# Their controllers make such a counter with its first event, at 1, so `increase` does not see that one.
_FIRST = "The counter itself: an increase would miss the first event of each line."
_Q = 'cluster_queue=~"$queue"'
_GPU = f'{_Q}, resource=~"nvidia.com/.*"'
KUBERNETES: Rows = (
    (
        "Queues",
        (
            Panel("GPUs and slices in use", ((f"sum by (cluster_queue, resource) (kueue_cluster_queue_resource_usage{{{_GPU}}})", "{{cluster_queue}} {{resource}}"),)),
            Panel("Quota", ((f"sum by (cluster_queue, resource) (kueue_cluster_queue_nominal_quota{{{_GPU}}})", "{{cluster_queue}} {{resource}}"),)),
            Panel("Share of what is borrowed", ((f"max by (cluster_queue) (kueue_cluster_queue_weighted_share{{{_Q}}})", "{{cluster_queue}}"),), description="Kueue's ratio by weight: the queue with the smallest goes first."),
            Panel("Waiting workloads", ((f"sum by (cluster_queue, status) (kueue_pending_workloads{{{_Q}}})", "{{cluster_queue}} {{status}}"),), description="gpucluster k8s why NAME WORKLOAD shows the cause."),
            Panel("Admitted workloads", ((f"sum by (cluster_queue) (kueue_admitted_active_workloads{{{_Q}}})", "{{cluster_queue}}"),)),
            Panel("Evictions since Kueue's start", ((f"sum by (cluster_queue, reason) (kueue_evicted_workloads_total{{{_Q}}})", "{{cluster_queue}} {{reason}}"),), description=_FIRST),
            Panel("Median wait until admission", ((quantile(0.5, "kueue_admission_wait_time_seconds", ", cluster_queue"), "{{cluster_queue}}"),), "s"),
            Panel("90th percentile of the wait until admission", ((quantile(0.9, "kueue_admission_wait_time_seconds", ", cluster_queue"), "{{cluster_queue}}"),), "s"),
            Panel("Inactive queues", ((f'max by (cluster_queue) (kueue_cluster_queue_status{{{_Q}, status="active"}}) == 0', "{{cluster_queue}}"),)),
        ),
    ),
    (
        "Money",
        (
            Panel("Cost per hour of each team", ((f"sum by (cluster_queue) (gpucluster:team_cost:usd_per_hour{{{_Q}}})", "{{cluster_queue}}"),), "currencyUSD", description="On-demand list prices of the dearest machine of each pool. Pools without a list price are missing."),
            Panel("Cost of the last 30 days", ((f"sum by (cluster_queue) (sum_over_time(gpucluster:team_cost:usd_per_hour{{{_Q}}}[30d:1h]))", "{{cluster_queue}}"),), "currencyUSD", kind="bargauge"),
            Panel("GPU hours of the last 30 days", ((f"sum by (cluster_queue, resource) (sum_over_time(gpucluster:team_gpus:used{{{_Q}}}[30d:1h]))", "{{cluster_queue}} {{resource}}"),), "h", kind="bargauge"),
        ),
    ),
    (
        "GPUs",
        (
            Panel("Utilization by team", (("avg by (namespace) (DCGM_FI_DEV_GPU_UTIL)", "{{namespace}}"),), "percent"),
            Panel("Memory in use", (("sum by (namespace) (DCGM_FI_DEV_FB_USED)", "{{namespace}}"),), "decmbytes"),
            Panel("Power", (("sum by (Hostname) (DCGM_FI_DEV_POWER_USAGE)", "{{Hostname}}"),), "watt"),
            Panel("Temperature", (("max by (Hostname) (DCGM_FI_DEV_GPU_TEMP)", "{{Hostname}}"),), "celsius"),
            Panel("Last XID of each GPU", (("max by (Hostname, gpu) (DCGM_FI_DEV_XID_ERRORS) > 0", "{{Hostname}} GPU {{gpu}}"),)),
            Panel("Remapped rows", (("sum by (Hostname) (DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS)", "{{Hostname}}"), ("sum by (Hostname) (DCGM_FI_DEV_ROW_REMAP_FAILURE)", "{{Hostname}} failed"))),
        ),
    ),
    (
        "Karpenter",
        (
            Panel("Nodes of each pool", (('karpenter_nodepools_usage{resource_type="nodes"}', "{{nodepool}}"),)),
            Panel("Limit of each pool", (("karpenter_nodepools_limit", "{{nodepool}} {{resource_type}}"),)),
            Panel("Machines that ended since Karpenter's start", (("sum by (nodepool) (karpenter_nodeclaims_terminated_total)", "{{nodepool}}"), ("sum by (nodepool, reason) (karpenter_nodeclaims_disrupted_total)", "{{nodepool}} {{reason}}")), description=_FIRST),
        ),
    ),
)  # fmt: skip
BOARDS = (
    Board(ROOT / "monitoring/dashboard.json", "gpucluster", "slurm", SLURM),
    Board(ROOT / "templates/dashboards/kubernetes.json", "gpucluster-kubernetes", "kubernetes", KUBERNETES, (QUEUE,)),
)  # fmt: skip


def main() -> int:
    for board in BOARDS:
        board.file.write_text(dashboard_text(board))
    return 0


def dashboard_text(board: Board) -> str:
    """Return the file's content."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in board.rows:
        panels.append(
            {
                "type": "row",
                "title": title,
                "id": len(panels) + 1,
                "collapsed": False,
                "panels": [],
                "gridPos": grid_position(0, top, 24, 1),
            }
        )
        top += 1
        for number, panel in enumerate(row):
            at = grid_position(number % 3 * WIDTH, top + number // 3 * HEIGHT, WIDTH, HEIGHT)
            panels.append({**panel_json(panel), "id": len(panels) + 1, "gridPos": at})
        top += -(-len(row) // 3) * HEIGHT
    return json.dumps(dashboard(board, panels), indent=1, sort_keys=True) + "\n"


def dashboard(board: Board, panels: list[dict[str, Any]]) -> dict[str, Any]:
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": board.name,
        "title": board.name,
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "tags": ["gpucluster", board.of],
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "utc",
        "templating": {"list": [source, *board.variables]},
        "annotations": {"list": []},
        "panels": panels,
    }


def panel_json(panel: Panel) -> dict[str, Any]:
    targets = [
        {"datasource": SOURCE, "expr": expr, "legendFormat": legend, "refId": chr(ord("A") + number)}
        for number, (expr, legend) in enumerate(panel.queries)
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}}
        if panel.kind == "timeseries"
        else {},
        "targets": targets,
    }


def grid_position(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


if __name__ == "__main__":
    sys.exit(main())
