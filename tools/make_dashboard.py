"""Write monitoring/dashboard.json, Grafana's dashboard of a cluster: one table of panels, the same bytes each time."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent.parent / "monitoring" / "dashboard.json"
WIDTH, HEIGHT = 8, 7  # of Grafana's 24 columns, three panels in a row
SOURCE = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True)
class Panel:
    """A panel; each query is (expression, legend)."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    words: str = ""


def quantile(share: float, of: str, by: str) -> str:
    return f"histogram_quantile({share}, sum by (le{by}) (rate({of}_bucket[$__rate_interval])))"


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Now",
        (
            Panel("Jobs that wait, by cause", (("gpucluster_jobs_waiting", "{{cause}}"),), words="gpucluster why JOB says more."),
            Panel("Nodes by state", (("sum by (state) (gpucluster_nodes)", "{{state}}"),)),
            Panel("Machines that live", (("sum by (market, machine) (gpucluster_machines)", "{{market}} {{machine}}"),)),
            Panel("The longest wait", (("gpucluster_jobs_waiting_seconds", "{{cause}}"),), "s"),
            Panel("The slowest node in each passing state", (("gpucluster_moving_seconds", "{{pool}} {{state}}"),), "s"),
            Panel(
                "What needs a look",
                (
                    ("gpucluster_jobs_hung", "hung jobs"),
                    ("gpucluster_unknown_states", "unknown states"),
                    ("gpucluster_strays", "machines that no node is"),
                    ("sum(gpucluster_troubled) or vector(0)", "machines to be left"),
                    ("sum(gpucluster_pool_stopped) or vector(0)", "pools that are stopped"),
                    ("gpucluster_halted", "all launches stopped"),
                ),
                kind="bargauge",
            ),
        ),
    ),
    (
        "From asked to running",
        (
            Panel("Nodes by their row in the table of a node's life", (("sum by (row) (gpucluster_node_rows)", "{{row}}"),)),
            Panel("Half of all: seconds of each stage", ((quantile(0.5, "gpucluster_stage_seconds", ", stage"), "{{stage}}"),), "s"),
            Panel("The slowest tenth", ((quantile(0.9, "gpucluster_stage_seconds", ", stage"), "{{stage}}"),), "s"),
            Panel("Jobs whose nodes boot", (("gpucluster_jobs_starting", "starting"),)),
        ),
    ),
    (
        "The cloud",
        (
            Panel("Machines launched a minute", (("sum by (market, zone) (rate(gpucluster_launched_total[$__rate_interval])) * 60", "{{market}} {{zone}}"),)),
            Panel("Refusals a minute", (("sum by (machine, zone, fault) (rate(gpucluster_refusals_total[$__rate_interval])) * 60", "{{machine}} {{zone}} {{fault}}"),)),
            Panel("Offers that are not asked for now", (("gpucluster_offer_refused", "{{offer}}"),), words="Refusals in a row."),
            Panel("Requests, by how they ended", (("sum by (outcome) (rate(gpucluster_launch_requests_total[$__rate_interval])) * 60", "{{outcome}}"), ("rate(gpucluster_throttles_total[$__rate_interval]) * 60", "throttled"))),
            Panel("Tokens in the API's buckets", (("gpucluster_bucket_tokens", "{{bucket}}"),)),
            Panel("Machines ended a minute", (("rate(gpucluster_ends_total[$__rate_interval]) * 60", "ended"),)),
        ),
    ),
    (
        "Failures",
        (
            Panel("Boots that failed", (("increase(gpucluster_boot_failures_total[$__rate_interval])", "{{pool}}"), ("increase(gpucluster_breaker_trips_total[$__rate_interval])", "{{pool}} breaker"))),
            Panel("Notices", (("increase(gpucluster_notices_total[$__rate_interval])", "{{kind}}"), ("gpucluster_troubled", "{{kind}} now"))),
            Panel("GPU faults by XID", (("gpucluster_xids_total", "XID {{xid}} ({{severity}})"),)),
            Panel("Jobs told and sent back", (("increase(gpucluster_jobs_signalled_total[$__rate_interval])", "signalled"), ("increase(gpucluster_jobs_sent_back_total[$__rate_interval])", "requeued"))),
            Panel("Orders of operators", (("increase(gpucluster_orders_total[$__rate_interval])", "{{verb}}"),)),
            Panel("States that no row has", (("increase(gpucluster_unknown_states_total[$__rate_interval])", "unknown"),)),
        ),
    ),
    (
        "Money",
        (
            Panel("This month", (("gpucluster_spend_month_usd", "spent"), ("gpucluster_budget_usd", "{{line}}")), "currencyUSD", words="By the daemon's own ledger at catalog prices."),
            Panel("An hour", (("gpucluster_spend_rate_usd_per_hour", "now"),), "currencyUSD"),
            Panel("Machines without a price", (("gpucluster_machines_without_price", "machines"),), words="They are missing in the sums."),
        ),
    ),
    (
        "The daemon",
        (
            Panel("Age of the last view", (("gpucluster_view_age_seconds", "{{of}}"),), "s"),
            Panel("A turn of its loop", ((quantile(0.5, "gpucluster_turn_seconds", ""), "half"), (quantile(0.99, "gpucluster_turn_seconds", ""), "99 of 100")), "s"),
            Panel("Who may act", (("gpucluster_lease_held * on(instance) group_left(holder) gpucluster_info", "{{holder}}"),)),
        ),
    ),
)  # fmt: skip


def main() -> int:
    OUT.write_text(text())
    return 0


def text() -> str:
    """The file's content."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        panels.append(
            {
                "type": "row",
                "title": title,
                "id": len(panels) + 1,
                "collapsed": False,
                "panels": [],
                "gridPos": place(0, top, 24, 1),
            }
        )
        top += 1
        for number, panel in enumerate(row):
            at = place(number % 3 * WIDTH, top + number // 3 * HEIGHT, WIDTH, HEIGHT)
            panels.append({**shown(panel), "id": len(panels) + 1, "gridPos": at})
        top += -(-len(row) // 3) * HEIGHT
    return json.dumps(dashboard(panels), indent=1, sort_keys=True) + "\n"


def dashboard(panels: list[dict[str, Any]]) -> dict[str, Any]:
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": "gpucluster",
        "title": "gpucluster",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "tags": ["gpucluster", "slurm"],
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "utc",
        "templating": {"list": [source]},
        "annotations": {"list": []},
        "panels": panels,
    }


def shown(panel: Panel) -> dict[str, Any]:
    targets = [
        {"datasource": SOURCE, "expr": expr, "legendFormat": legend, "refId": chr(ord("A") + number)}
        for number, (expr, legend) in enumerate(panel.queries)
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.words,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}}
        if panel.kind == "timeseries"
        else {},
        "targets": targets,
    }


def place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


if __name__ == "__main__":
    sys.exit(main())
