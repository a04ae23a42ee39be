"""What a name means to `gpucluster down`: a sandbox, a stack on AWS, or both; then nothing is done until one says which."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpucluster.cli.down_world import Candidates, World, world_of
from gpucluster.cli.main import run
from gpucluster.errors import GpuclusterError, HostError, StateError

SANDBOX, AWS = World.SANDBOX, World.AWS


def not_asked() -> bool:
    raise AssertionError("Pulumi is asked although nothing depends on its answer")


def silent() -> bool:
    raise StateError("Pulumi cannot look: no login")


def has() -> bool:
    return True


def has_not() -> bool:
    return False


CLEAR = [
    ("only a sandbox", None, (True, False, "", not_asked), SANDBOX),
    ("a sandbox, and a project without the stack", None, (True, True, "", has_not), SANDBOX),
    ("only a project", None, (False, True, "", not_asked), AWS),
    ("both, and the sandbox is meant", SANDBOX, (True, True, "", not_asked), SANDBOX),
    ("both, and AWS is meant", AWS, (True, True, "", not_asked), AWS),
    ("not root, and AWS is meant", AWS, (None, True, "", not_asked), AWS),
    ("in the shell of the sandbox the stack is its own", None, (True, True, "burst", not_asked), SANDBOX),
    ("in the shell of another sandbox there is no AWS", None, (False, True, "lab", not_asked), SANDBOX),
]


@pytest.mark.parametrize(
    ("asked", "found", "world"), [row[1:] for row in CLEAR], ids=[row[0] for row in CLEAR]
)
def test_name_means_one_world(
    asked: World | None, found: tuple[bool | None, bool, str, Callable[[], bool]], world: World
) -> None:
    said: list[str] = []
    assert world_of("burst", asked, candidates(*found), said.append) is world
    assert said == []


def test_stack_that_cannot_be_looked_for_leaves_the_sandbox() -> None:
    said: list[str] = []
    assert world_of("burst", None, candidates(True, True, "", silent), said.append) is SANDBOX
    assert said == [
        "whether 'burst' is also a Pulumi stack of this folder is not known: Pulumi cannot look: no login; only the sandbox is meant"
    ]


UNCLEAR = [
    ("both", None, (True, True, "", has), StateError, "'burst' is a sandbox on this machine and also a Pulumi stack of this folder: nothing was changed",
     "gpucluster down burst --sandbox; or gpucluster down burst --aws"),
    ("only root sees the sandboxes", None, (None, True, "", not_asked), HostError, "only root can see whether 'burst' is also a sandbox of this machine: nothing was changed",
     "gpucluster down burst --aws; or sudo gpucluster down burst --sandbox"),
    ("not root, and no project", None, (None, False, "", not_asked), HostError, "only root can use the sandboxes of this machine",
     "sudo gpucluster down burst --sandbox"),
    ("not root, and the sandbox is meant", SANDBOX, (None, True, "", not_asked), HostError, "only root can use the sandboxes of this machine",
     "sudo gpucluster down burst --sandbox"),
    ("nothing", None, (False, False, "", not_asked), StateError, "there is no cluster 'burst' here: no sandbox of that name, and no Pulumi.yaml in this folder",
     "go to the folder with Pulumi.yaml, or run gpucluster sandbox status"),
    ("AWS is meant, and there is no project", AWS, (True, False, "", not_asked), StateError, "there is no cluster 'burst' here: no Pulumi.yaml in this folder",
     "go to the folder with Pulumi.yaml, or run gpucluster sandbox status"),
    ("AWS is meant in the shell of a sandbox", AWS, (True, True, "lab", not_asked), StateError, "this is the shell of the sandbox 'lab', which has no access to AWS: nothing was changed",
     "leave it with `exit`; then: gpucluster down burst --aws"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "found", "kind", "said", "step"), [row[1:] for row in UNCLEAR], ids=[row[0] for row in UNCLEAR]
)
def test_name_that_means_no_world_or_both_is_refused(
    asked: World | None, found: tuple[bool | None, bool, str, Callable[[], bool]], kind: type[GpuclusterError], said: str, step: str
) -> None:  # fmt: skip
    """A name that was a sandbox and a stack on AWS meant one of them without a word."""
    with pytest.raises(kind) as caught:
        world_of("burst", asked, candidates(*found), print)
    assert (caught.value.message, caught.value.next_step, caught.value.exit_code) == (said, step, 2)


def candidates(sandbox: bool | None, project: bool, shell: str, stack: Callable[[], bool]) -> Candidates:
    return Candidates(sandbox=sandbox, project=project, shell=shell, stack=stack)


# --- on this machine ----------------------------------------------------------------------------
@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, on a machine whose folder of sandboxes is in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUCLUSTER_SANDBOX", raising=False)
    monkeypatch.setattr(
        "gpucluster.sandbox.state_dir.SandboxDir.path",
        property(lambda self: tmp_path / "sandboxes" / self.name),
    )
    return tmp_path


def a_project(folder: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: int) -> Path:
    """A Pulumi.yaml, and a program `pulumi` that answers so and notes that it was asked."""
    (folder / "Pulumi.yaml").write_text("name: gpucluster\n")
    program, asked = folder / "pulumi", folder / "asked"
    program.write_text(f'#!/bin/sh\necho "$*" >> {asked}\necho "{said}" >&2\nexit {code}\n')
    program.chmod(0o755)
    monkeypatch.setattr("gpucluster.engine.find_or_build", lambda _: program)
    return asked


def test_unknown_name_has_a_message(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["down", "nobody"]) == 2
    assert (
        "there is no cluster 'nobody' here: no sandbox of that name, and no Pulumi.yaml"
        in capsys.readouterr().err
    )


def test_sandbox_that_is_not_there_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["down", "nobody", "--sandbox", "--yes"]) == 2
    assert "there is no sandbox 'nobody' on this machine" in capsys.readouterr().err


def test_sandbox_and_stack_of_one_name_are_refused_even_with_yes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = a_project(folder, monkeypatch, "", 0)
    (folder / "sandboxes/burst").mkdir(parents=True)
    assert run(["down", "burst", "--yes"]) == 2
    assert (
        "'burst' is a sandbox on this machine and also a Pulumi stack of this folder"
        in capsys.readouterr().err
    )
    assert asked.read_text() == "--non-interactive stack --show-name --stack burst\n", "no stack is selected"


LOOKS = [
    ("error: no stack named 'burst' found", 6, ""),
    ("error: PULUMI_ACCESS_TOKEN must be set", 3, "is not known: Pulumi cannot look: PULUMI_ACCESS_TOKEN must be set"),
]  # fmt: skip


@pytest.mark.parametrize("look", LOOKS, ids=["no such stack", "no login"])
def test_sandbox_alone_is_meant(
    look: tuple[str, int, str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its sandbox is not up, so the command ends there."""
    said, code, words = look
    a_project(folder, monkeypatch, said, code)
    (folder / "sandboxes/burst").mkdir(parents=True)
    (folder / "sandboxes/burst/lock").touch()
    assert run(["down", "burst", "--yes"]) == 2
    err = capsys.readouterr().err
    assert "the sandbox 'burst' is not up" in err
    assert words in err
    assert ("is not known" in err) == bool(words)


def test_name_on_aws_asks_pulumi_for_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = a_project(folder, monkeypatch, "error: no stack named 'burst' found", 6)
    (folder / "pulumi").write_text(
        (folder / "pulumi").read_text().replace("\n", "\n[ $1 = version ] && echo v3.259.0 && exit\n", 1)
    )
    assert run(["down", "burst", "--yes"]) == 2
    assert (
        "there is no cluster 'burst': neither a sandbox nor a Pulumi stack has that name"
        in capsys.readouterr().err
    )
    assert [line.split()[1:3] for line in asked.read_text().splitlines()] == [["stack", "export"]]
