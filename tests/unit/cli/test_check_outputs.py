"""`check` output for code scanning and pull requests; `render --check`."""

import json
from pathlib import Path

import pytest
from support.builders import a_spec_text

from gpucluster.artifacts import Artifact
from gpucluster.cli import main as program
from gpucluster.cli.render import OWN, artifacts_of
from gpucluster.plan import names
from gpucluster.plan.resolve import resolve
from gpucluster.spec import load

Said = pytest.CaptureFixture[str]
STACKS = sorted((Path(__file__).parents[3] / "stacks").glob("*.yaml"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()  # all that makes a repository's top for us
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks/bad.yaml").write_text(
        a_spec_text(("idle: 5m", "idle: 5"), ("name: burst", "name: bad"))
    )
    (tmp_path / "stacks/good.yaml").write_text(a_spec_text(("name: burst", "name: good")))
    return tmp_path


def test_sarif_names_files_from_the_repositorys_top_wherever_it_is_called(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    told: list[str] = []
    for folder, file in ((repository, "stacks/bad.yaml"), (repository / "stacks", "bad.yaml")):
        monkeypatch.chdir(folder)
        assert program.run(["check", file, "--output", "sarif"]) == 1
        told.append(capsys.readouterr().out)
    (result,) = json.loads(told[0])["runs"][0]["results"]
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": "stacks/bad.yaml", "uriBaseId": "%SRCROOT%"}
    assert told[0] == told[1]


def test_sarif_of_a_missing_file_ends_with_two(repository: Path, capsys: Said) -> None:
    files = [str(repository / name) for name in ("none.yaml", "stacks/bad.yaml")]
    assert program.run(["check", *files, "-o", "sarif"]) == 2
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["invocations"][0]["executionSuccessful"] is False
    assert len(run["results"]) == 1


def test_annotations_stand_on_the_lines(repository: Path, capsys: Said) -> None:
    files = [str(repository / "stacks" / name) for name in ("bad.yaml", "good.yaml")]
    assert program.run(["check", *files, "-o", "github"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "::error file=stacks/bad.yaml,line=15,col=11,title=no-unit::"
        "pools[h200].idle: 5 has no unit; write 30s, 5m, 2h or 7d"
    ]


def test_unknown_output_is_refused(repository: Path, capsys: Said) -> None:
    assert program.run(["check", str(repository / "stacks/good.yaml"), "-o", "markdown"]) == 2
    assert "sarif" in capsys.readouterr().err


@pytest.fixture
def rendered(repository: Path, capsys: Said) -> tuple[str, Path]:
    spec, to = str(repository / "stacks/good.yaml"), repository / "out"
    assert program.run(["render", spec, "--to", str(to)]) == 0
    capsys.readouterr()
    return spec, to


def test_rendered_folder_passes(rendered: tuple[str, Path], capsys: Said) -> None:
    spec, to = rendered
    assert program.run(["render", spec, "--to", str(to), "--check"]) == 0
    assert capsys.readouterr() == ("", f"{to}: up to date\n")


def test_missing_stale_and_changed_files_are_shown_and_not_written(
    rendered: tuple[str, Path], capsys: Said
) -> None:
    spec, to = rendered
    (to / "slurm/gres.conf").write_text("by hand\x1b[31m\n")
    (to / "slurm/old.conf").write_text("")
    (to / "slurm/cgroup.conf").unlink()
    (to / "README.md").write_text("mine")
    (to / "slurm/empty").mkdir()
    assert program.run(["render", spec, "--to", str(to), "--check"]) == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert f"--- {to}/slurm/gres.conf" in lines
    assert "-by hand" in lines, "without what steers a terminal"
    assert "+++ rendered/slurm/cgroup.conf" in lines
    assert lines[-2:] == [f"--- {to}/slurm/old.conf", "+++ /dev/null"]
    assert "README" not in out, "it stands beside what is ours"
    assert f"{to}: 3 files differ" in err
    assert not (to / "slurm/cgroup.conf").exists()


@pytest.mark.parametrize(("link", "target"), [("slurm/extra", "secret"), ("slurm", "elsewhere")])
def test_link_shows_no_file_outside_of_the_folder(
    link: str, target: str, rendered: tuple[str, Path], tmp_path: Path, capsys: Said
) -> None:
    """Regression: with `slurm/x -> /etc/shadow` in a pull request, the log showed that file."""
    spec, to = rendered
    (tmp_path / "secret").write_text("hidden")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/slurm.conf").write_text("hidden")
    if link == "slurm":
        (to / "slurm").rename(to / "gone")
    (to / link).symlink_to(tmp_path / target)
    assert program.run(["render", spec, "--to", str(to), "--check"]) == 2
    out, err = capsys.readouterr()
    assert "hidden" not in out
    assert "the link points outside of the compared folder" in err


def test_missing_folder_lacks_every_file(rendered: tuple[str, Path], tmp_path: Path, capsys: Said) -> None:
    assert program.run(["render", rendered[0], "--to", str(tmp_path / "none"), "--check"]) == 1
    assert not (tmp_path / "none").exists()


def test_difference_as_json(rendered: tuple[str, Path], capsys: Said) -> None:
    spec, to = rendered
    (to / "slurm/gres.conf").unlink()
    assert program.run(["render", spec, "--to", str(to), "--check", "-o", "json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], [change["path"] for change in said["changes"]]) == (False, ["slurm/gres.conf"])


def test_check_needs_a_folder(rendered: tuple[str, Path], capsys: Said) -> None:
    assert program.run(["render", rendered[0], "--check"]) == 2
    assert "--to DIR" in capsys.readouterr().err


@pytest.mark.parametrize("stack", STACKS, ids=lambda path: path.stem)
def test_every_rendered_file_is_in_one_of_our_folders(stack: Path) -> None:
    from gpucluster import catalog

    def ours(artifact: Artifact) -> bool:
        return artifact.path == names.PLAN_FILE or artifact.path.split("/")[0] in OWN

    made = artifacts_of(resolve(load(stack), catalog.load()))
    assert [artifact.path for artifact in made if not ours(artifact)] == []
