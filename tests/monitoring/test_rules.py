"""Prometheus' own checker on our alert rules; `tools/warm.py` brings it, and so does `make test`."""

import runpy
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULES = ROOT / "monitoring"


@pytest.fixture(scope="module")
def promtool() -> Path:
    found = runpy.run_path(str(ROOT / "tools" / "promtool.py"))["find"]()
    assert found is not None, "promtool is not here; next: python tools/promtool.py"
    return found


def ask(promtool: Path, *words: str, folder: Path = RULES) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [promtool, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )


def test_the_rules_are_rules(promtool: Path) -> None:
    done = ask(promtool, "check", "rules", "rules.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_when_it_must_and_only_then(promtool: Path) -> None:
    done = ask(promtool, "test", "rules", "rules_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_rule_that_is_turned_round_is_found(promtool: Path, tmp_path: Path) -> None:
    text = (RULES / "rules.yml").read_text()
    assert text.count("gpucluster_jobs_hung > 0") == 1
    (tmp_path / "rules.yml").write_text(text.replace("gpucluster_jobs_hung > 0", "gpucluster_jobs_hung < 1"))
    (tmp_path / "rules_test.yml").write_text((RULES / "rules_test.yml").read_text())
    assert ask(promtool, "test", "rules", "rules_test.yml", folder=tmp_path).returncode != 0
