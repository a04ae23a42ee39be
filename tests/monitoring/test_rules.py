"""Check the alert rules with promtool. `tools/warm.py` and `make test` fetch it."""

import runpy
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULES = ROOT / "monitoring"


@pytest.fixture(scope="module")
def promtool() -> Path:
    found = runpy.run_path(str(ROOT / "tools" / "promtool.py"))["find"]()
    assert found is not None, "promtool is not found; next: python tools/promtool.py"
    return found


def run_promtool(promtool: Path, *words: str, folder: Path = RULES) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [promtool, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=600
    )


def test_promtool_accepts_the_rules(promtool: Path) -> None:
    done = run_promtool(promtool, "check", "rules", "rules.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_passes_its_rule_tests(promtool: Path) -> None:
    done = run_promtool(promtool, "test", "rules", "rules_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_inverted_condition_fails_the_rule_tests(promtool: Path, tmp_path: Path) -> None:
    text = (RULES / "rules.yml").read_text()
    assert text.count("gpucluster_jobs_stalled > 0") == 1
    (tmp_path / "rules.yml").write_text(
        text.replace("gpucluster_jobs_stalled > 0", "gpucluster_jobs_stalled < 1")
    )
    (tmp_path / "rules_test.yml").write_text((RULES / "rules_test.yml").read_text())
    assert run_promtool(promtool, "test", "rules", "rules_test.yml", folder=tmp_path).returncode != 0
