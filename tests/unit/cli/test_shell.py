"""`gpucluster sandbox shell`: the folder that it opens in, and errors before any change."""

from pathlib import Path

import pytest

from gpucluster.cli.main import run
from gpucluster.cli.shell import project_of
from gpucluster.engine.target import Target, typed_environment
from gpucluster.errors import StateError


def test_nearest_parent_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: gpucluster\nruntime: python\n")
    inner = tmp_path / "stacks" / "config"
    inner.mkdir(parents=True)
    (tmp_path / "stacks" / "burst.yaml").touch()
    found = project_of(inner)
    assert (found.folder, found.stacks) == (tmp_path.resolve(), ("burst",))


WRONG = [
    ("no project at all", None, "no Pulumi.yaml in"),
    ("another program's", "name: website\n", "belongs to another project: 'website', not 'gpucluster'"),
    ("one without a name", "runtime: python\n", "belongs to another project: no name"),
    ("one that is no text", "\0\xff", "belongs to another project: no name"),
]


@pytest.mark.parametrize(("text", "said"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_folder_of_another_project_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "Pulumi.yaml").write_text(text)
    with pytest.raises(StateError, match=said):
        project_of(tmp_path)


def test_two_commands_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sandbox", "shell", "burst", "-c", "true", "--", "false"]) == 2
    assert "cannot be combined" in capsys.readouterr().err


def test_users_own_credentials_are_not_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "PULUMI_ACCESS_TOKEN", "PULUMI_STACK"):
        monkeypatch.setenv(name, "theirs")
    monkeypatch.setenv("EDITOR", "ed")
    aim = Target(
        stack="b", state_dir=tmp_path, pulumi=tmp_path / "p", environment={"AWS_REGION": "us-east-1"}
    )
    found = typed_environment(aim)
    assert "theirs" not in found.values()
    assert (found["EDITOR"], found["AWS_DEFAULT_REGION"]) == ("ed", "us-east-1")
    assert found["PULUMI_OPTION_CONFIG_FILE"] == str(aim.settings)
    assert found["PATH"].startswith(f"{aim.plugin_dir}:{tmp_path}:")
