"""Check that alerts and dashboard use existing metrics and labels."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpucluster.elastic.inspect.metrics.counters import COUNTERS
from gpucluster.elastic.inspect.metrics.gauges import GAUGES
from gpucluster.plan import names
from gpucluster.slurm.states import SlurmPhase

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "monitoring"
LABELS: dict[str, set[str]] = {
    **{f"gpucluster_{name}": set(labels) for name, (_, labels) in COUNTERS.items()},
    **{f"gpucluster_{name}": set(gauge.labels) for name, gauge in GAUGES.items()},
    "gpucluster_stage_seconds_bucket": {"stage", "le"},
    "gpucluster_pass_seconds_bucket": {"le"},
}
USE = re.compile(r"(gpucluster_[a-z_]+)(\{[^}]*\})?")


def alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def unknown(expr: str) -> list[str]:
    """Metrics that we do not have, and labels that they do not have."""
    found: list[str] = []
    for name, chosen in USE.findall(expr):
        labels = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", chosen)
        if name not in LABELS:
            found.append(name)
        else:
            found += [f"{name}.{label}" for label in labels if label not in LABELS[name] | {"instance"}]
    return found


def panels() -> list[dict[str, Any]]:
    return json.loads((FOLDER / "dashboard.json").read_text())["panels"]


def test_unknown_reports_metrics_that_do_not_exist() -> None:
    assert unknown(
        'gpucluster_nodes{pool="a"} + gpucluster_nope{x="y"} + gpucluster_nodes{color=~"red"}'
    ) == [
        "gpucluster_nope",
        "gpucluster_nodes.color",
    ]


@pytest.mark.parametrize("name", sorted(alerts()))
def test_alert_uses_existing_metrics_and_has_a_next_step(name: str) -> None:
    rule = alerts()[name]
    assert unknown(rule["expr"]) == []
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "next"}
    used = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
    metrics = [metric for metric, _ in USE.findall(rule["expr"])]
    assert used <= set().union(*(LABELS[metric] for metric in metrics))


def test_alert_names_only_existing_phases() -> None:
    """`wanted` was renamed to `powering-up`, so an ordinary boot of 30 minutes raised the alert."""
    phases = {
        phase
        for rule in alerts().values()
        if "gpucluster_" in rule["expr"]
        for phase in re.findall(r'\bstate!?="([^"]*)"', rule["expr"])
    }
    assert phases
    assert phases <= {phase.value for phase in SlurmPhase}


def test_each_alert_has_a_firing_and_a_silent_case() -> None:
    tests = yaml.safe_load((FOLDER / "rules_test.yml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == set(alerts())
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == set(alerts())


def test_dashboard_matches_the_tool(request: pytest.FixtureRequest) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "make_dashboard.py"))
    file = FOLDER / "dashboard.json"
    made = next(tool["dashboard_text"](board) for board in tool["BOARDS"] if board.file == file)
    if request.config.getoption("--update-golden"):
        file.write_text(made)
    assert file.read_text() == made, "python tools/make_dashboard.py"


def test_dashboard_uses_existing_metrics_and_panels_do_not_overlap() -> None:
    shown = [panel for panel in panels() if panel["type"] != "row"]
    assert [bad for panel in shown for target in panel["targets"] for bad in unknown(target["expr"])] == []
    cells = [
        (x, y)
        for panel in panels()
        for at in (panel["gridPos"],)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_every_metric_is_in_an_alert_or_a_panel() -> None:
    texts = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    texts += [rule["expr"] for rule in alerts().values()]
    seen = {name for text in texts for name, _ in USE.findall(text)}
    assert set(LABELS) - seen == set()


def test_readme_names_the_port() -> None:
    assert f"127.0.0.1:{names.METRICS_PORT}/metrics" in (FOLDER / "README.md").read_text()
