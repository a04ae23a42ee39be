"""`image build` and `doctor`: exit codes, JSON, and no traceback."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpucluster.cli.main import run

RunCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> RunCommand:
    """Run a command line without any credentials. Return code, stdout, stderr."""
    for name in (
        "AWS_PROFILE",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_ACCESS_KEY_ID",
        "PULUMI_BACKEND_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    nowhere = str(tmp_path / "none")
    monkeypatch.setenv("AWS_CONFIG_FILE", nowhere)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", nowhere)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def ask(*words: str) -> tuple[int, str, str]:
        code = run(list(words))
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out, said.err

    return ask


def test_doctor_without_credentials_reports_it_once_and_exits_2(run_command: RunCommand) -> None:
    code, out, _ = run_command("doctor", "burst", "--output", "json")
    answer: dict[str, Any] = json.loads(out)
    assert code == answer["exit_code"] == 2
    assert answer["counts"] == {"ok": 0, "warning": 0, "fail": 1, "unknown": 2}
    assert answer["lines"][0]["what"] == "credentials"
    assert any("resources of `pulumi up`" in what for what in answer["not_checked"])


def test_doctor_prints_the_same_as_text(run_command: RunCommand) -> None:
    code, out, _ = run_command("doctor", "stacks/burst.yaml")
    assert code == 2
    assert out.startswith("fail    credentials: there are no credentials\n")
    assert "next: aws configure" in out
    assert "not checked, because no read-only call shows it:\n        your permission to create" in out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("doctor",), 2, "no cluster is named; available: burst"),
        (("doctor", "lab"), 2, "uses existing hosts"),
        (("doctor", "stacks/none.yaml"), 2, "stacks/none.yaml"),
        (("doctor", "burst", "--sandbox", "nobody"), 2, "nobody"),
        (("image", "build"), 2, "slurm-26.05.5.tar.bz2 is missing"),
        (("image", "build", "--check-pins", "--os", "beos"), 2, "'beos' is not an operating system"),
        (("image", "build", "--without", "slurm"), 2, "cannot be built without Slurm"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_error_is_one_sentence_with_a_next_step(
    run_command: RunCommand, words: tuple[str, ...], code: int, said: str
) -> None:
    found, _, err = run_command(*words)
    assert found == code
    assert said in err
    assert "next: " in err


def test_missing_files_fail_the_pin_check_and_name_their_source(run_command: RunCommand) -> None:
    code, out, _ = run_command("image", "build", "--check-pins", "--output", "json")
    answer: dict[str, Any] = json.loads(out)
    assert (code, answer["ok"]) == (1, False)
    assert {row["name"]: row["state"] for row in answer["pins"]} == {
        "slurm-26.05": "missing", "lustre": "missing", "nvidia": "no-file", "efs": "missing", "efa": "missing",
    }  # fmt: skip
    assert "download it from SchedMD's download page" in run_command("image", "build", "--check-pins")[1]
