"""Tests of a site's own pack: levels, several packs, and errors for invalid packs."""

import json
from pathlib import Path

import pytest
from support.policy_mistakes import good
from typer.testing import CliRunner

from gpucluster.cli.main import app_of
from gpucluster.engine.policy import evaluate, load
from gpucluster.errors import GpuclusterError

SITE = """
from gpucluster.engine.policy import EnforcementLevel, Rule, Violation
from .words import STEP

def cheap(stack):
    for one in stack.of_type("aws:ec2/instance:Instance"):
        yield Violation(resource=one, property="instanceType", found="a | b\\x1b[31m", expected="t3.*", next_step=STEP)

RULES = (Rule(name="cheap", level=EnforcementLevel.{level}, about="Heads are small.", check=cheap),)
"""
PROJECT = "name: site\nversion: 0.1.0\nruntime: python\n"


def a_pack(folder: Path, rules: str, project: str = PROJECT) -> Path:
    (folder / "rules").mkdir(parents=True)
    (folder / "PulumiPolicy.yaml").write_text(project)
    (folder / "rules" / "__init__.py").write_text(rules)
    (folder / "rules" / "words.py").write_text("STEP = 'take a smaller one'\n")
    return folder


@pytest.mark.parametrize(("level", "passed"), [("MANDATORY", False), ("ADVISORY", True)])
def test_a_site_s_rule_has_its_level(tmp_path: Path, level: str, passed: bool) -> None:
    pack = load(a_pack(tmp_path / "p", SITE.replace("{level}", level)))
    report = evaluate([pack], good().values())
    assert (report.passed, [f.name for f in report.violations], report.rules) == (
        passed,
        ["head"],
        ("site/cheap",),
    )


def test_two_packs_may_call_their_modules_alike(tmp_path: Path) -> None:
    one = load(a_pack(tmp_path / "a", SITE.replace("{level}", "MANDATORY")))
    two = load(a_pack(tmp_path / "b", SITE.replace("{level}", "ADVISORY")))
    assert [f.level for f in evaluate([one, two], good().values()).violations] == ["mandatory", "advisory"]


@pytest.mark.parametrize(
    ("sentence", "rules", "project", "said"),
    [
        ("no rules", "", PROJECT, "has no RULES"),
        ("rules of another kind", "RULES = ('a',)", PROJECT, "has no RULES"),
        ("rules that do not run", "import nowhere", PROJECT, "No module named 'nowhere'"),
        ("two of one name", SITE.replace("{level}", "ADVISORY") + "\nRULES *= 2", PROJECT, "two of its rules are called 'cheap'"),
        ("a project that is no YAML", "RULES = ()", "a: [", "is no YAML"),
        ("a project that is a list", "RULES = ()", "- a", "is no mapping"),
    ],
)  # fmt: skip
def test_invalid_pack_is_rejected(tmp_path: Path, sentence: str, rules: str, project: str, said: str) -> None:
    with pytest.raises(GpuclusterError, match=r"not a policy pack") as caught:
        load(a_pack(tmp_path / "p", rules, project))
    assert said in str(caught.value), sentence


def test_empty_folder_is_no_pack(tmp_path: Path) -> None:
    with pytest.raises(GpuclusterError, match=r"PulumiPolicy.yaml cannot be read"):
        load(tmp_path)


def test_failing_rule_is_an_error(tmp_path: Path) -> None:
    text = SITE.replace("{level}", "MANDATORY").replace("yield Violation(", "raise KeyError(one.urn) or (")
    pack = load(a_pack(tmp_path / "p", "def dict(**k): pass\n" + text.replace("(resource", "dict(resource")))
    with pytest.raises(GpuclusterError, match=r"the rule 'cheap' of .* failed: KeyError: 'head'"):
        evaluate([pack], good().values())


def run(*argv: str) -> tuple[int, str]:
    done = CliRunner().invoke(app_of(["plan"]), ["plan", "stacks/burst.yaml", *argv])
    return done.exit_code, done.stdout


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(Path(__file__).parents[3])
    return str(a_pack(tmp_path / "p", SITE.replace("{level}", "MANDATORY")))


def test_plan_policy_has_four_formats_and_exit_code_1(site: str) -> None:
    told = {
        form: run("--policy-pack", site, "--output", form) for form in ("text", "json", "markdown", "sarif")
    }
    assert {code for code, _ in told.values()} == {1}
    assert "mandatory[cheap] aws:ec2/instance:Instance burst-head" in told["text"][1]
    assert "10 rules" in told["text"][1]
    assert "1 mandatory violation," in told["text"][1]
    assert "\x1b" not in told["text"][1] + told["markdown"][1]
    assert "a \\| b" in told["markdown"][1]
    assert json.loads(told["json"][1])["ok"] is False
    (result,) = json.loads(told["sarif"][1])["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("policy-cheap", "error")


def test_conflicting_options_are_rejected() -> None:
    for argv in (["--policy", "--resources"], ["--policy", "--explain"], ["--output", "sarif"]):
        assert run(*argv)[0] == 2
