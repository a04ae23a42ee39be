"""Run the rules of a Kubernetes cluster in promtool."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.kube import BOUND, MONITORED, PRICED, files
from support.kubernetes_alerts import CASES, Case
from support.promtool import run_promtool

TUNE = "tune.zone-spine-block-leaf-host"


def written(folder: Path, tests: list[dict[str, Any]], *changes: tuple[str, str]) -> Path:
    """The rules of the cluster, as Prometheus reads them, and the tests."""
    (found,) = yaml.safe_load_all(files(*changes, bindings=BOUND)["45-monitoring/rules.yaml"])
    (folder / "rules.yml").write_text(yaml.safe_dump(found["spec"]))
    whole = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (folder / "tests.yml").write_text(yaml.safe_dump(whole))
    return folder


def judged(promtool: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return run_promtool(promtool, "test", "rules", "tests.yml", folder=folder)


def rules(folder: Path) -> list[dict[str, Any]]:
    return [
        rule
        for group in yaml.safe_load((folder / "rules.yml").read_text())["groups"]
        for rule in group["rules"]
    ]


def expected(case: Case, folder: Path) -> dict[str, Any]:
    """promtool compares the whole alert: its labels and its texts."""
    if case.labels is None:
        return {"eval_time": case.at, "alertname": case.alert, "exp_alerts": []}
    rule = next(rule for rule in rules(folder) if rule.get("alert") == case.alert)
    value = next(iter(case.series.values())).split("x")[0]
    texts = {key: filled(text, case.labels, value) for key, text in rule["annotations"].items()}
    alert = {"exp_labels": {**rule["labels"], **case.labels}, "exp_annotations": texts}
    return {"eval_time": case.at, "alertname": case.alert, "exp_alerts": [alert]}


def filled(text: str, labels: dict[str, str], value: str) -> str:
    for key, word in labels.items():
        text = text.replace("{{ $labels." + key + " }}", word)
    return text.replace("{{ $value }}", value)


def test_promtool_accepts_the_rules(promtool: Path, tmp_path: Path) -> None:
    written(tmp_path, [], *PRICED)
    done = run_promtool(
        promtool, "check", "rules", "--lint=all", "--lint-fatal", "rules.yml", folder=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_case_with_it_and_one_without_it(tmp_path: Path) -> None:
    names = {rule["alert"] for rule in rules(written(tmp_path, [], MONITORED)) if "alert" in rule}
    assert {case.alert for case in CASES if case.labels is not None} == names
    assert {case.alert for case in CASES if case.labels is None} == names


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.alert}-{case.name or (case.labels is not None)}"
)
def test_alert(promtool: Path, tmp_path: Path, case: Case) -> None:
    written(tmp_path, [], MONITORED)
    series = [{"series": key, "values": values} for key, values in case.series.items()]
    test = {"interval": "1m", "input_series": series, "alert_rule_test": [expected(case, tmp_path)]}
    done = judged(promtool, written(tmp_path, [test], MONITORED))
    assert done.returncode == 0, done.stdout + done.stderr


def cost_of(use: str) -> list[dict[str, Any]]:
    """32 GPUs of the pool `tune`, and 28 slices of `serve`, each for an hour."""
    labels = 'cohort="kube", cluster_queue="kube-%s", flavor="kube-%s", resource="%s"'
    return [
        {"series": f"kueue_cluster_queue_resource_usage{{{labels % ('research', TUNE, 'nvidia.com/gpu')}}}", "values": use},
        {"series": f"kueue_cluster_queue_resource_usage{{{labels % ('serving', 'serve', 'nvidia.com/mig-1g.10gb')}}}", "values": "28x90"},
        {"series": f"kueue_cluster_queue_resource_usage{{{labels % ('research', TUNE, 'memory')}}}", "values": "1000x90"},
    ]  # fmt: skip


def test_cost_of_a_team_is_its_gpus_at_the_price_of_their_pool(promtool: Path, tmp_path: Path) -> None:
    """p4de.24xlarge: four nodes for `research`, and half a node for `serving`."""
    folder = written(tmp_path, [], *PRICED)
    prices = {
        rule["labels"]["flavor"]: float(rule["expr"][7:-1])
        for rule in rules(folder)
        if rule.get("record") == "gpucluster:gpu_hour:usd"
    }
    rows = [
        {
            "labels": f'gpucluster:team_cost:usd_per_hour{{cluster="kube", cluster_queue="kube-{team}"}}',
            "value": count * prices[flavor],
        }
        for team, flavor, count in (("research", f"kube-{TUNE}", 32), ("serving", "kube-serve", 28))
    ]
    test = {
        "interval": "1m",
        "input_series": cost_of("32x90"),
        "promql_expr_test": [
            {"expr": "gpucluster:team_cost:usd_per_hour", "eval_time": "60m", "exp_samples": rows}
        ],
    }
    done = judged(promtool, written(tmp_path, [test], *PRICED))
    assert done.returncode == 0, done.stdout + done.stderr


def test_wrong_cost_is_found(promtool: Path, tmp_path: Path) -> None:
    rows = [
        {
            "labels": 'gpucluster:team_gpus:used{cluster="kube", cluster_queue="kube-research", flavor="kube-'
            f'{TUNE}", resource="nvidia.com/gpu"}}',
            "value": 31,
        }
    ]
    query = {
        "expr": 'gpucluster:team_gpus:used{cluster_queue="kube-research"}',
        "eval_time": "60m",
        "exp_samples": rows,
    }
    test = {"interval": "1m", "input_series": cost_of("32x90"), "promql_expr_test": [query]}
    assert judged(promtool, written(tmp_path, [test], *PRICED)).returncode != 0
    rows[0]["value"] = 32
    assert judged(promtool, written(tmp_path, [test], *PRICED)).returncode == 0
