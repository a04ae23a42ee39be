"""The steps of the Action and the job of GitLab in a checkout that a change has filled: none of its files runs."""

import hashlib
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gpucluster.spec.tree import plain
from gpucluster.spec.yaml import parse

ROOT = Path(__file__).parents[3]
ACTION: Any = plain(parse((ROOT / "ci/github/action.yml").read_text()).root)
GITLAB: Any = plain(parse((ROOT / "ci/gitlab.yml").read_text()).root)
STEPS: dict[str, Any] = {step["id"]: step for step in ACTION["runs"]["steps"]}
PLANTED = ("gpucluster", "pip", "venv", "ensurepip", "typer", "sitecustomize", "usercustomize", "shellingham")
# Builds a wheel of one module without another package, so that the installation needs no index.
BACKEND = """\
import zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "gpucluster-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("gpucluster/__init__.py", "")
        wheel.writestr("gpucluster/cli.py", "print('the one of the action')")
        wheel.writestr("gpucluster-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: gpucluster\\nVersion: 1\\n")
        wheel.writestr("gpucluster-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("gpucluster-1.dist-info/RECORD", "")
    return name
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with modules that leave a file when they run."""
    top = tmp_path / "checkout"
    (top / "stacks").mkdir(parents=True)
    for name in PLANTED:
        (top / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r} + ' ')\n")
    return top


@pytest.fixture
def action(tmp_path: Path) -> Path:
    """A small copy of the action's repository, whose pins are one wheel in the folder `wheels`."""
    top = tmp_path / "action"
    (top / "ci/github").mkdir(parents=True)
    (top / "requirements").mkdir()
    (top / "backend.py").write_text(BACKEND)
    (top / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    wheel = tmp_path / "wheels/pinned-1-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("pinned.py", "")
        file.writestr("pinned-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: pinned\nVersion: 1\n")
        file.writestr(
            "pinned-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr("pinned-1.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (top / "requirements/review.txt").write_text(f"pinned==1 --hash=sha256:{digest}\n")
    return top


def run(step: dict[str, Any], checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step as the runner does, in its folder. Python's own variables name the checkout."""
    temp = checkout.parent / "temp"
    temp.mkdir(exist_ok=True)
    folder = {None: checkout, "${{ runner.temp }}": temp}[step.get("working-directory")]
    given = {
        "GITHUB_ACTION_PATH": str(checkout.parent / "action/ci/github"),
        "HOME": str(checkout.parent),
        "PATH": os.environ["PATH"],
        "PIP_FIND_LINKS": str(checkout.parent / "wheels"),
        "PIP_NO_INDEX": "1",
        "PYTHONPATH": f"{checkout}:",
        "RUNNER_TEMP": str(temp),
    }
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],  # noqa: S607  whichever bash there is
        cwd=folder,
        env=given | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.usefixtures("action")
def test_no_module_of_the_checkout_runs_in_the_action(checkout: Path, tmp_path: Path) -> None:
    """X7: `python3 -m pip` in the checkout ran a planted pip.py."""
    done = run(STEPS["install"], checkout)
    assert not (tmp_path / "ran").exists(), done.stderr
    assert done.returncode == 0, done.stderr
    for name in ("check", "review", "comment"):
        (tmp_path / "temp/gpucluster-review").mkdir(exist_ok=True)
        (tmp_path / "temp/gpucluster-review/a.md").write_text("")
        summary = str(tmp_path / "summary")
        done = run(STEPS[name], checkout, BASE="main", PULL_REQUEST="7", GITHUB_STEP_SUMMARY=summary)
        assert (done.returncode, done.stdout) == (0, "the one of the action\n"), done.stderr
    assert not (tmp_path / "ran").exists()


def test_action_installs_only_what_has_the_pinned_hash(action: Path, checkout: Path) -> None:
    pins = action / "requirements/review.txt"
    pins.write_text(re.sub("sha256:.{8}", "sha256:00000000", pins.read_text()))
    done = run(STEPS["install"], checkout)
    assert done.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr


def test_no_module_of_the_checkout_runs_in_the_job_of_gitlab(checkout: Path, tmp_path: Path) -> None:
    """Python's variables may name the checkout."""
    script = "\n".join(GITLAB["gpucluster-review"]["script"])
    commands = re.findall(r"^\s*(\S.*\.cli|gpucluster) (check|review|comment) ", script, re.MULTILINE)
    assert commands == [("python3 -I -m gpucluster.cli", verb) for verb in ("check", "review", "comment")]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = run({"run": f"{commands[0][0]} check --help"}, checkout, PATH=path)
    assert "stacks/" in done.stdout, done.stderr
    assert not (tmp_path / "ran").exists()


def test_planted_comment_of_a_change_is_not_posted(checkout: Path) -> None:
    """A change could hold `gpucluster-review/other.md`, and the job of GitLab posted it as its own."""
    planted = checkout / "gpucluster-review"
    planted.mkdir()
    (planted / "other.md").write_text("<!-- gpucluster:diff:other -->\n\nno change\n")
    tools = checkout.parent / "tools"
    tools.mkdir()
    (tools / "python3").write_text(f'#!/bin/sh\necho "$@" >> {checkout.parent}/called\n')
    (tools / "python3").chmod(0o755)
    script = "\n".join(GITLAB["gpucluster-review"]["script"])
    done = run({"run": script}, checkout, PATH=f"{tools}:{os.environ['PATH']}", GITLAB_TOKEN="x")
    assert done.returncode == 0, done.stderr
    assert " comment " in (checkout.parent / "called").read_text()
    assert not planted.exists(), "deleted before `review` writes its own"


def test_pins_of_the_action_are_those_of_the_tests() -> None:
    """Each dependency is pinned with hashes, in the version that the tests have."""
    pins = {name: _pins(ROOT / f"requirements/{name}.txt") for name in ("dev", "review")}
    project: Any = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = (
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["aws"],
        *project["build-system"]["requires"],
    )
    assert {re.split("[<>=]", word)[0].replace(".", "-") for word in needed} <= pins["review"].keys()
    only = {name: pin for name, pin in pins["review"].items() if pins["dev"].get(name) != pin}
    assert only.keys() <= {"colorama"}, "colorama is for Windows"


def _pins(file: Path) -> dict[str, str]:
    text = re.sub(r"^\s*#.*\n", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line]
    assert all(" --hash=sha256:" in line for line in lines)
    return {line.partition("==")[0]: line.partition("==")[2].split()[0] for line in lines}


def test_pipelines_of_one_merge_request_do_not_post_at_the_same_time() -> None:
    """Two jobs find no note of theirs, and both make one. On GitHub the workflow of docs/review.md has `concurrency`."""
    job = GITLAB["gpucluster-review"]
    assert job["resource_group"] == "gpucluster-review-$CI_MERGE_REQUEST_IID"
    assert job["interruptible"] is True
