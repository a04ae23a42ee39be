"""`gpucluster plan --operator-policy`: documents as text, JSON and files, without an account."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpucluster.cli import main as program

ROOT = Path(__file__).parents[3]
BURST = str(ROOT / "stacks" / "burst.yaml")


def run(*words: str) -> tuple[int, str, str]:
    argv = ["plan", *words]
    result = CliRunner().invoke(program.app_of(argv), argv)
    return result.exit_code, result.stdout, result.stderr


def test_json_has_documents_with_their_sizes() -> None:
    code, out, _ = run(BURST, "--operator-policy", "apply", "--output", "json")
    found = json.loads(out)
    assert (code, found["role"], found["limit"]) == (0, "apply", 6144)
    assert [one["name"] for one in found["policies"]] == [f"burst-operator-apply-{n}" for n in (1, 2, 3)]
    assert all(one["size"] <= 6144 for one in found["policies"])
    assert all(one["document"]["Version"] == "2012-10-17" for one in found["policies"])


def test_files_are_pasted_as_they_are(tmp_path: Path) -> None:
    code, out, said = run(
        BURST, "--operator-policy", "plan", "--state", "s3://states/a", "--to", str(tmp_path)
    )
    assert (code, out) == (0, "")
    (file,) = tmp_path.iterdir()
    assert file.name == "burst-operator-plan.json"
    allowed = {tuple(s["Resource"]): s["Action"] for s in json.loads(file.read_text())["Statement"]}
    assert allowed["arn:aws:s3:::states/a/.pulumi/*",] == ["s3:GetObject"]
    assert "of 6144 characters" in said


def test_missing_state_is_reported() -> None:
    _, _, said = run(BURST, "--operator-policy", "apply")
    assert "no rights on the state of Pulumi: name its bucket with --state s3://BUCKET" in said
    assert "attach all 3 to the role" in said


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--operator-policy", "plan", "--state", "file:///x"), "expected s3://BUCKET"),
        (("--operator-policy", "plan", "--state", "s3://a*b"), "expected s3://BUCKET"),
        (("--operator-policy", "plan", "--state-key", "alias/x"), "--state-key needs --state"),
        (("--operator-policy", "plan", "--state", "s3://states", "--state-key", "*"), "expected alias/NAME"),
        (("--state", "s3://states"), "need --operator-policy"),
        (("--operator-policy", "plan", "--resources"), "--operator-policy takes"),
        (("--operator-policy", "plan", "--output", "sarif"), "--operator-policy takes"),
    ],
)
def test_wrong_options_are_refused(words: tuple[str, ...], text: str) -> None:
    code, _, said = run(BURST, *words)
    assert code == 2
    assert text in " ".join(said.replace("│", " ").split())


def test_a_spec_without_aws_has_no_operator() -> None:
    code, _, said = run(str(ROOT / "stacks" / "lab.yaml"), "--operator-policy", "apply")
    assert code != 0
    assert "it has no `aws:`" in said
