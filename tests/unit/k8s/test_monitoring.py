"""Alerts, sums and the dashboard for the Prometheus operator. `tests/monitoring/test_kubernetes_rules.py` runs the rules in promtool.

`tests/kubernetes/test_sharing.py` reads Kueue's metrics from the real manager.
"""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.builders import KUBE, a_kube_plan, a_kube_spec, changed
from support.kube import BOUND, MONITORED, PRICED, files, objects

from gpucluster import catalog
from gpucluster.plan.explain.kubernetes import explain
from gpucluster.spec import inspect_text

ROOT = Path(__file__).parents[3]


def rules(texts: dict[str, str]) -> dict[str, Any]:
    """All rules of the tree by their name; several prices have one."""
    (found,) = yaml.safe_load_all(texts["45-monitoring/rules.yaml"])
    every = [rule for group in found["spec"]["groups"] for rule in group["rules"]]
    return {rule.get("alert") or rule["record"] + rule["labels"].get("flavor", ""): rule for rule in every}


def test_without_the_field_there_is_nothing() -> None:
    texts = files(bindings=BOUND)
    assert not [path for path in texts if "monitoring" in path]
    assert "enablePrometheus" not in texts["helm/kueue.yaml"]
    assert "enableClusterQueueResources" not in texts["helm/kueue.yaml"]
    assert "serviceMonitor" not in texts["helm/karpenter.yaml"]
    (values,) = yaml.safe_load_all(texts["helm/gpu-operator.yaml"])
    assert values["dcgmExporter"]["serviceMonitor"]["enabled"] is False


def test_charts_make_the_service_monitors() -> None:
    texts = files(MONITORED, bindings=BOUND)
    values = {path: yaml.safe_load(text) for path, text in texts.items() if path.startswith("helm/")}
    assert values["helm/kueue.yaml"]["enablePrometheus"] is True
    config = yaml.safe_load(values["helm/kueue.yaml"]["managerConfig"]["controllerManagerConfigYaml"])
    assert config["metrics"]["enableClusterQueueResources"] is True
    assert values["helm/karpenter.yaml"]["serviceMonitor"] == {"enabled": True}
    assert values["helm/gpu-operator.yaml"]["dcgmExporter"]["serviceMonitor"] == {
        "enabled": True,
        "honorLabels": True,
    }


def test_objects_are_in_a_namespace_of_their_own() -> None:
    made = objects(files(MONITORED, bindings=BOUND))
    ours = {key for key in made if "monitoring" in key}
    assert ours == {
        "Namespace/kube-monitoring",
        "PrometheusRule/kube-monitoring/kube",
        "ConfigMap/kube-monitoring/kube-dashboard",
    }


def test_team_with_the_name_of_that_namespace_is_refused() -> None:
    team = ("name: research, quota", "name: lab-monitoring, quota")
    text = changed(KUBE, MONITORED, team, ("name: kube\n", "name: lab\n"))
    problems = inspect_text(text, "kube.yaml", catalog.load()).problems
    assert [one.id for one in problems] == ["reserved-name"]
    other = changed(KUBE, team, ("name: kube\n", "name: lab\n"))
    assert inspect_text(other, "kube.yaml", catalog.load()).problems == ()


def test_rules_are_of_the_queues_of_this_cluster() -> None:
    found = rules(files(MONITORED, bindings=BOUND))
    for rule in found.values():
        assert rule["labels"]["cluster"] == "kube"
        if "kueue_" in rule["expr"]:
            assert (
                'cluster_queue=~"kube-serving|kube-research"' in rule["expr"]
                or 'cluster_queue="kube-serving"' in rule["expr"]
            )


def test_each_alert_says_what_to_do() -> None:
    alerts = [rule for rule in rules(files(MONITORED, bindings=BOUND)).values() if "alert" in rule]
    assert len(alerts) == 8
    for rule in alerts:
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"].keys() == {"summary", "next"}


def test_prices_are_the_lists_divided_by_gpus_and_slices() -> None:
    """p4de.24xlarge has eight GPUs, and seven slices of each in the pool `serve`."""
    hour = float(catalog.prices().rows["p4de.24xlarge"])
    found = rules(files(*PRICED, bindings=BOUND))
    tune, serve = (
        found[f"gpucluster:gpu_hour:usd{flavor}"]
        for flavor in ("kube-tune.zone-spine-block-leaf-host", "kube-serve")
    )
    assert tune["labels"]["resource"] == "nvidia.com/gpu"
    assert float(tune["expr"][7:-1]) == pytest.approx(hour / 8, abs=1e-6)
    assert serve["labels"]["resource"] == "nvidia.com/mig-1g.10gb"
    assert float(serve["expr"][7:-1]) == pytest.approx(hour / 56, abs=1e-6)
    assert "gpucluster:team_cost:usd_per_hour" in found


def test_region_without_prices_has_gpu_hours_and_no_cost() -> None:
    found = rules(files(MONITORED, bindings=BOUND))
    assert "gpucluster:team_gpus:used" in found
    assert not [name for name in found if "usd" in name]


@pytest.mark.parametrize(("changes", "value"), [((MONITORED,), "none"), (PRICED, "USD/h")])
def test_plan_explains_the_prices(changes: tuple[tuple[str, str], ...], value: str) -> None:
    spec, plan = a_kube_spec(*changes), a_kube_plan(*changes).kubernetes
    assert plan is not None
    notes = [
        note for note in explain(spec, catalog.load(), plan) if note.path.startswith("kubernetes.monitoring")
    ]
    assert len(notes) == len(plan.pools)
    assert all(value in note.value for note in notes)


def test_alert_of_xids_has_those_of_machines_alone() -> None:
    text = rules(files(MONITORED, bindings=BOUND))["GpuclusterGpuFault"]["expr"]
    assert "DCGM_FI_DEV_XID_ERRORS == 79 " in text  # the GPU has fallen off the bus
    assert "DCGM_FI_DEV_XID_ERRORS == 31 " not in text  # a fault of the job


def test_dashboard_is_what_the_tool_writes_and_has_the_clusters_name() -> None:
    tool = runpy.run_path(str(ROOT / "tools/make_dashboard.py"))
    file = ROOT / "templates/dashboards/kubernetes.json"
    board = next(board for board in tool["BOARDS"] if board.file == file)
    assert file.read_text() == tool["dashboard_text"](board), "python tools/make_dashboard.py"
    found = objects(files(MONITORED, bindings=BOUND))["ConfigMap/kube-monitoring/kube-dashboard"]
    shown = json.loads(found["data"]["dashboard.json"])
    assert (shown["uid"], shown["title"]) == ("gpucluster-kube", "gpucluster: kube")
    assert shown["panels"] == json.loads(file.read_text())["panels"]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
