"""Check the alert rules with promtool. `tools/warm.py` and `make test` fetch it."""

from pathlib import Path

from support.promtool import run_promtool

ROOT = Path(__file__).parents[2]
RULES = ROOT / "monitoring"


def test_promtool_accepts_the_rules(promtool: Path) -> None:
    done = run_promtool(promtool, "check", "rules", "rules.yml", folder=RULES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_passes_its_rule_tests(promtool: Path) -> None:
    done = run_promtool(promtool, "test", "rules", "rules_test.yml", folder=RULES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_inverted_condition_fails_the_rule_tests(promtool: Path, tmp_path: Path) -> None:
    text = (RULES / "rules.yml").read_text()
    assert text.count("gpucluster_jobs_stalled > 0") == 1
    (tmp_path / "rules.yml").write_text(
        text.replace("gpucluster_jobs_stalled > 0", "gpucluster_jobs_stalled < 1")
    )
    (tmp_path / "rules_test.yml").write_text((RULES / "rules_test.yml").read_text())
    assert run_promtool(promtool, "test", "rules", "rules_test.yml", folder=tmp_path).returncode != 0
