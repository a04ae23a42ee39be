"""Inputs of a review that somebody else named: no file, link, branch or configuration of a change takes the place of a revision."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from support.builders import SPEC, a_spec_text

from gpucluster.cli import main as program
from gpucluster.cli.revisions import opened, source_of

GIT = shutil.which("git") or "git"
QUICK = "--no-resources"
OPEN = a_spec_text(("max: 16", "max: 64"))  # the edit that a spoofed comment hides
BURST = "stacks/burst.yaml"
Said = pytest.CaptureFixture[str]


def git(*argv: str) -> str:
    return subprocess.run([GIT, *argv], check=True, capture_output=True, text=True).stdout.strip()


def commit(subject: str) -> str:
    """Commit everything, and return the id."""
    git("add", "-A")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", subject)
    return git("rev-parse", "HEAD")


def write(file: str, text: str) -> None:
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(text)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A clone whose branch `change` opens the spec of `main`. Return the commit of `main`."""
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):  # a hook that runs us sets them
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "clone").mkdir()
    monkeypatch.chdir(tmp_path / "clone")
    git("init", "-q", "-b", "main")
    write(BURST, SPEC)
    first = commit("first")
    git("checkout", "-q", "-b", "change")
    write(BURST, OPEN)
    return first


def reviewed(to: Path) -> str:
    """Run `review` of the branch, and return its comment on the stack."""
    assert program.run(["review", "--base", "main", "--to", str(to), QUICK]) == 0
    return (to / "burst.md").read_text()


def test_planted_folder_is_not_the_revision_of_a_review(base: str, tmp_path: Path) -> None:
    """X1: the folder `HEAD:stacks` of a change held the old spec, and the comment said `no change`."""
    write(f"HEAD:{BURST}", SPEC)
    write(f"{base}:{BURST}", OPEN)
    write("HEAD:stacks/lookups/burst.yaml", "schema: 2\n")
    head = commit("change")
    found = reviewed(tmp_path / "out")
    assert "`pools[h200].nodes.max`: `16 -> 64`" in found
    assert f"`gpucluster diff {base}:{BURST} {head}:{BURST} {QUICK}`" in found


@pytest.mark.parametrize("verb", [("diff", "main:stacks/burst.yaml"), ("cost",)], ids=["diff", "cost"])
def test_name_of_a_file_and_of_a_revision_is_refused(verb: tuple[str, ...], base: str, capsys: Said) -> None:
    """X1: `diff` and `cost` read the planted file."""
    write(f"HEAD:{BURST}", SPEC)
    head = commit("change")
    assert program.run([*verb, f"HEAD:{BURST}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"HEAD:{BURST} is a file and a revision of git\n" in err
    assert f"  next: write ./HEAD:{BURST} for the file, or {head}:{BURST} for the revision" in err


@pytest.mark.parametrize("spelling", ["./{}", "{folder}/{}"], ids=["beside", "absolute"])
def test_file_whose_name_holds_a_colon_is_spelled_as_a_path(
    spelling: str, base: str, tmp_path: Path, capsys: Said
) -> None:
    write(f"main:{BURST}", OPEN)
    given = spelling.format(f"main:{BURST}", folder=Path.cwd())
    assert program.run(["diff", f"{base}:{BURST}", given, QUICK, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["diff"]
    assert (found["new"], found["changes"][0]["after"]) == (given, "64")
    assert found["compared"]["new"][0]["commit"] is None


def test_full_id_is_a_revision_also_where_there_is_such_a_file(base: str, capsys: Said) -> None:
    """The next step of an ambiguous name must end the ambiguity."""
    write(f"{base}:{BURST}", OPEN)
    assert program.run(["diff", f"{base}:{BURST}", f"{base.upper()}:{BURST}", QUICK, "--exit-code"]) == 0
    assert "no change" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["check", "plan", "render", "doctor"])
def test_verb_without_revisions_reads_no_file_with_the_name_of_one(
    verb: str, base: str, capsys: Said
) -> None:
    """These verbs read the planted file."""
    write(f"main:{BURST}", SPEC)
    assert program.run([verb, f"main:{BURST}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"main:{BURST} is a file, and is written as a revision of git, expected one meaning\n" in err
    assert f"  next: write ./main:{BURST}\n" in err
    assert program.run(["check", f"./main:{BURST}"]) == 0


def test_name_of_a_file_alone_is_not_called_a_revision(base: str, capsys: Said) -> None:
    """It said that `a:b.yaml` is a revision of git."""
    write("a:b.yaml", SPEC)
    assert program.run(["check", "a:b.yaml"]) == 2
    err = capsys.readouterr().err
    assert "a:b.yaml is a file, and is written as a revision of git, expected one meaning\n" in err
    assert "  next: write ./a:b.yaml\n" in err
    assert program.run(["check", "./a:b.yaml"]) == 0


def test_revision_is_refused_by_a_verb_that_reads_only_files(base: str, capsys: Said) -> None:
    assert program.run(["check", f"main:{BURST}"]) == 2
    err = capsys.readouterr().err
    assert f"main:{BURST} is written as a revision of git, expected a file\n" in err
    assert "  next: check that commit out, and name the file without it\n" in err


@pytest.mark.parametrize("argv", [("check",), ("plan",), ("cost",), ("diff", "main:stacks/burst.yaml")])
def test_name_of_a_file_and_of_a_stack_is_refused(argv: tuple[str, ...], base: str, capsys: Said) -> None:
    """A file `burst` at the top of a change took the place of stacks/burst.yaml."""
    write("burst", SPEC)
    assert program.run([*argv, "burst"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert (
        "burst is a file, and a stack in stacks/burst.yaml\n  next: write ./burst or stacks/burst.yaml" in err
    )
    for spelled in ("./burst", BURST):
        assert program.run(["check", spelled]) == 0


def test_name_that_git_has_twice_is_refused(base: str, tmp_path: Path, capsys: Said) -> None:
    """A tag with the name of a branch, or a branch with the name of an object, was read without a word."""
    git("tag", "main", commit("change"))
    short = base[:7]
    git("branch", short, "change")
    for name in ("main", short):
        assert program.run(["diff", f"{name}:{BURST}", BURST, QUICK]) == 2
        assert f"old: {name}:{BURST}: git has more than one '{name}', for example a branch and a tag" in (
            capsys.readouterr().err
        )
        assert program.run(["review", "--base", name, "--to", str(tmp_path / "out"), QUICK]) == 2
        assert f"--base: git has more than one '{name}'" in capsys.readouterr().err
    assert program.run(["diff", f"heads/main:{BURST}", BURST, QUICK]) == 0


def test_object_in_place_of_another_one_is_not_read(base: str, tmp_path: Path) -> None:
    """`git replace` gives an id the content of another object."""
    head = commit("change")
    git("replace", git("rev-parse", f"{base}:{BURST}"), git("rev-parse", f"{head}:{BURST}"))
    assert "`16 -> 64`" in reviewed(tmp_path / "out")


@pytest.mark.parametrize("beside", ["stacks/burst.yaml", "stacks/lookups/burst.yaml"])
def test_link_in_a_commit_is_not_followed(beside: str, base: str, tmp_path: Path, capsys: Said) -> None:
    """The text of a link, a path, was read as a spec, and as look-ups."""
    Path(beside).parent.mkdir(exist_ok=True)
    Path(beside).unlink(missing_ok=True)
    Path(beside).symlink_to("../elsewhere.yaml")
    head = commit("link")
    assert program.run(["review", "--base", "main", "--to", str(tmp_path / "out")]) == 2
    assert (
        f"{head}:{beside}: it is a symbolic link in commit {head}, expected a file" in capsys.readouterr().err
    )


def test_repository_inside_a_change_is_not_asked(
    base: str, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    """A change may hold the files of a bare repository: in its folder git took them, with their configuration."""
    commit("change")
    git("clone", "-q", "--bare", ".", "stacks/.copy")
    for part in Path("stacks/.copy").iterdir():
        part.rename(Path("stacks") / part.name)
    monkeypatch.chdir("stacks")
    assert program.run(["diff", f"main:{BURST}", "burst.yaml", QUICK]) == 2
    assert "old: main:stacks/burst.yaml: git reports: fatal: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["x:burst", "Burst", "a\n\n## burst: no change", "--> <b>", "-rf"])
def test_file_with_the_name_of_no_cluster_writes_no_comment(
    name: str, base: str, tmp_path: Path, capsys: Said
) -> None:
    """The file `stacks/x:burst.yaml` passed as the spec of burst: its comment replaced the one of burst."""
    write(f"stacks/{name}.yaml", SPEC)
    commit("change")
    out = tmp_path / "out"
    code = program.run(["review", "--base", "main", "--to", str(out), QUICK])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("burst: ")]
    assert (code, lines) == (2, [f"burst: live: {out}/burst.md"])
    assert "`16 -> 64`" in (out / "burst.md").read_text()
    others = [one.read_text() for one in out.glob("*.md") if one.name != "burst.md"]
    assert not [one for one in others if not one.startswith("<!-- gpucluster:diff:-rf -->\n\n## -rf: ")]


def test_comment_names_commits_and_digests(base: str, tmp_path: Path, capsys: Said) -> None:
    """A reader could not tell which bytes a comment is about."""
    head = commit("change")
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in (SPEC, OPEN)]
    shown = "\n".join(
        f"- {side}: `{BURST}` of commit `{one}`, SHA-256 `{digest[:16]}`"
        for side, one, digest in zip(("old", "new"), (base, head), digests, strict=True)
    )
    assert f"\n\nRead:\n{shown}\n\n" in reviewed(tmp_path / "out")
    write(BURST, "{")
    broken = commit("broken")
    assert program.run(["review", "--base", "main", "--to", str(tmp_path / "out"), QUICK]) == 2
    last = hashlib.sha256(b"{").hexdigest()[:16]
    assert (
        f"- new: `{BURST}` of commit `{broken}`, SHA-256 `{last}`" in (tmp_path / "out/burst.md").read_text()
    )
    capsys.readouterr()
    assert program.run(["diff", f"main:{BURST}", f"{head}:{BURST}", QUICK, "-o", "json"]) == 0
    sides = json.loads(capsys.readouterr().out)["diff"]["compared"]
    assert [sides[side] for side in ("old", "new")] == [
        [{"file": BURST, "commit": one, "sha256": digest}]
        for one, digest in zip((base, head), digests, strict=True)
    ]


@pytest.mark.usefixtures("base")
def test_digest_is_that_of_the_bytes() -> None:
    """A byte that is no text was replaced before anything could be computed of it."""
    raw = b"\xef\xbb\xbf" + SPEC.encode() + b"# \xff\n"
    Path(BURST).write_bytes(raw)
    commit("bytes")
    digest = hashlib.sha256(raw).hexdigest()
    assert [opened(source_of(one)).origin.sha256 for one in (f"HEAD:{BURST}", BURST)] == [digest, digest]


def test_review_below_the_top_finds_the_stacks(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another folder, or with `diff.relative`, the review said that no stack differs."""
    commit("change")
    git("config", "diff.relative", "true")
    monkeypatch.chdir("stacks")
    assert "`16 -> 64`" in reviewed(tmp_path / "out")


def test_prices_of_a_revision_are_read_there(base: str, tmp_path: Path, capsys: Said) -> None:
    """`--prices main:prices.yaml` read a planted file of that name."""
    prices = "date: 2026-11-01\nregion: us-east-2\nmachines: {p5en.48xlarge: %s}\n"
    git("checkout", "-q", "main", "--force")
    write("prices.yaml", prices % "70.10")
    commit("prices")
    git("checkout", "-q", "-b", "cheap")
    write("prices.yaml", prices % "0.01")
    argv = ["cost", BURST, "-o", "json", "--prices", "main:prices.yaml"]
    assert program.run(argv) == 0
    (line,) = [one for one in json.loads(capsys.readouterr().out)["cost"]["lines"] if one["name"] == "h200"]
    assert line["max"]["known"] == "818768.00"
    write("main:prices.yaml", prices % "0.01")
    assert program.run(argv) == 2
    assert "main:prices.yaml is a file and a revision of git" in capsys.readouterr().out


def test_workloads_beside_a_revision_are_those_of_its_commit(base: str, capsys: Said) -> None:
    """A planted folder `HEAD:workloads` took the place of the workloads."""
    root = Path(__file__).parents[3]
    for folder in ("stacks", "workloads"):
        Path(folder).mkdir(exist_ok=True)
        shutil.copy(root / folder / "kube.yaml", folder)
    commit("kube")
    text = Path("workloads/kube.yaml").read_text()
    write("workloads/kube.yaml", text.replace("chat:1.4", "chat:1.5"))
    write("HEAD:workloads/kube.yaml", text.replace("chat:1.4", "chat:1.5"))
    argv = ["diff", "HEAD:stacks/kube.yaml", "stacks/kube.yaml", QUICK, "-o", "json"]
    assert program.run(argv) == 0
    found = json.loads(capsys.readouterr().out)["diff"]
    assert [one["path"] for one in found["changes"]] == ["workloads.serve[chat].image"]
    assert [one["file"] for one in found["compared"]["old"]] == ["stacks/kube.yaml", "workloads/kube.yaml"]
