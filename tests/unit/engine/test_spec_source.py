"""What a bundle records of its spec, in real git repositories."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.builders import SPEC, a_plan

from gpucluster.engine.git_objects import is_ancestor
from gpucluster.engine.spec_source import source_of
from gpucluster.plan.spec_source import SpecSource, artifact, plan_digest, read

Git = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "site" / "stacks"
    made.mkdir(parents=True)
    (made / "burst.yaml").write_text(SPEC)
    return made


@pytest.fixture
def git(folder: Path) -> Git:
    who = {
        f"GIT_{role}_{what}": "a@example.org"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    environment = {**os.environ, **who, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}

    def run(*words: str) -> str:
        done = subprocess.run(
            [str(shutil.which("git")), *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        return done.stdout.strip()

    run("init", "--quiet")
    return run


def committed(git: Git, message: str) -> str:
    git("add", ".")
    git("commit", "--quiet", "--message", message)
    return git("rev-parse", "HEAD")


def source(folder: Path) -> SpecSource:
    return source_of(folder / "burst.yaml", a_plan())


def test_spec_outside_of_git_has_no_commit(folder: Path) -> None:
    found = source(folder)
    assert (found.commit, found.dirty) == ("", False)
    assert found.spec == hashlib.sha256(SPEC.encode()).hexdigest()
    assert found.plan == plan_digest(a_plan()) != plan_digest(a_plan(("max: 16", "max: 12")))
    assert found.name == f"no commit, spec {found.spec[:12]}"


def test_spec_names_the_last_commit_that_changed_it(folder: Path, git: Git) -> None:
    """Another commit must not change the bundle of a spec that it does not touch."""
    first = committed(git, "add the spec")
    before = source(folder)
    (folder / "other.yaml").write_text("name: other\n")
    second = committed(git, "add another one")
    assert before == source(folder)
    assert (before.commit, before.dirty) == (first, False)
    assert is_ancestor(first, second, folder)
    assert not is_ancestor(second, first, folder)
    assert not is_ancestor("0" * 40, second, folder)
    assert not is_ancestor("--help", second, folder)


@pytest.mark.parametrize("name", ["burst.yaml", "[b]urst.yaml", "bürst.yaml"])
def test_name_of_a_spec_is_no_pattern(folder: Path, git: Git, name: str) -> None:
    (folder / "burst.yaml").rename(folder / name)
    first = committed(git, "add the spec")
    (folder / "b").write_text("")
    committed(git, "add another file")
    found = source_of(folder / name, a_plan())
    assert (found.commit, found.dirty) == (first, False)


def test_uncommitted_spec_is_dirty(folder: Path, git: Git) -> None:
    assert (source(folder).commit, source(folder).dirty) == ("", True)
    commit = committed(git, "add the spec")
    (folder / "burst.yaml").write_text(f"{SPEC}\n# a comment\n")
    found = source(folder)
    assert (found.commit, found.dirty) == (commit, True)
    assert found.name == f"commit {commit[:12]}, with uncommitted changes"
    git("add", ".")
    assert source(folder).dirty, "it is in no commit yet"


def test_of_a_link_the_file_counts_that_it_leads_to(folder: Path, git: Git) -> None:
    """Regression: git has the link's target as its content, so a link always had uncommitted changes."""
    (folder / "link.yaml").symlink_to("burst.yaml")
    commit = committed(git, "add the spec")
    found = source_of(folder / "link.yaml", a_plan())
    assert (found.commit, found.dirty) == (commit, False)
    (folder / "burst.yaml").write_text(f"{SPEC}\n# a comment\n")
    assert source_of(folder / "link.yaml", a_plan()).dirty


def test_link_out_of_the_repository_is_dirty(
    folder: Path, git: Git, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nobody reviews the file that it leads to."""
    outside = tmp_path_factory.mktemp("outside") / "burst.yaml"
    outside.write_text(SPEC)
    (folder / "link.yaml").symlink_to(outside)
    committed(git, "add a link")
    assert source_of(folder / "link.yaml", a_plan()).dirty


def test_record_of_a_bundle_is_read_again_and_another_file_is_refused(folder: Path) -> None:
    found = source(folder)
    assert read(artifact(found).content) == found
    for wrong in (b"{}", b"[]", b"{", artifact(found).content.ljust(5000)):
        with pytest.raises(ValueError, match=r".+"):
            read(wrong)
