"""`image build` and `doctor` at the desk: exit codes, JSON, and never a traceback."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpucluster.cli.main import run

Told = Callable[..., tuple[int, str, str]]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Told:
    """Run a command line with no credentials anywhere: code, stdout, stderr."""
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


def test_doctor_without_credentials_says_so_once_and_could_not_run(told: Told) -> None:
    code, out, _ = told("doctor", "burst", "--output", "json")
    answer: dict[str, Any] = json.loads(out)
    assert code == answer["exit_code"] == 2
    assert answer["counts"] == {"ok": 0, "warning": 0, "fail": 1, "unknown": 2}
    assert answer["lines"][0]["what"] == "credentials"
    assert any("what `up` creates" in what for what in answer["not_asked"])


def test_doctor_says_the_same_for_people(told: Told) -> None:
    code, out, _ = told("doctor", "stacks/burst.yaml")
    assert code == 2
    assert out.startswith("fail    credentials: there are no credentials\n")
    assert "next: aws configure" in out
    assert "not asked, because no call that only reads can tell:\n        whether you may create" in out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("doctor",), 2, "which cluster? There are: burst"),
        (("doctor", "lab"), 2, "stands on hosts that exist"),
        (("doctor", "stacks/none.yaml"), 2, "stacks/none.yaml"),
        (("doctor", "burst", "--sandbox", "nobody"), 2, "nobody"),
        (("image", "build"), 2, "slurm-24.11.7.tar.bz2 is not there"),
        (("image", "build", "--check-pins", "--os", "beos"), 2, "'beos' is not an operating system"),
        (("image", "build", "--without", "slurm"), 2, "none of ours"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_cannot_be_done_is_one_sentence_with_a_next_step(
    told: Told, words: tuple[str, ...], code: int, said: str
) -> None:
    found, _, err = told(*words)
    assert found == code
    assert said in err
    assert "next: " in err


def test_pins_without_files_are_a_no_and_say_where_each_file_is_from(told: Told) -> None:
    code, out, _ = told("image", "build", "--check-pins", "--output", "json")
    answer: dict[str, Any] = json.loads(out)
    assert (code, answer["ok"]) == (1, False)
    assert {row["name"]: row["state"] for row in answer["pins"]} == {
        "slurm-24.11": "missing", "lustre": "missing", "nvidia": "no-file", "efa": "missing",
    }  # fmt: skip
    assert "it is from SchedMD's download page" in told("image", "build", "--check-pins")[1]
