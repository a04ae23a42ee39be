"""Run the steps of the GitHub Action and the job of GitLab by bash, as their runners do, over a git history.

Sources: docs.github.com, "Metadata syntax for GitHub Actions" (`runs.steps[*]`), "Workflow syntax" (`shell: bash`),
"Evaluate expressions"; docs.gitlab.com, "Predefined CI/CD variables reference".
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpucluster.spec.tree import plain
from gpucluster.spec.yaml import parse
from support import forked_launcher
from support.builders import SPEC

ROOT = Path(__file__).parents[2]
GIT = shutil.which("git") or "git"
ACTION: Any = plain(parse((ROOT / "ci/github/action.yml").read_text()).root)
GITLAB: Any = plain(parse((ROOT / "ci/gitlab.yml").read_text()).root)
STEPS: Mapping[str, Any] = {step["id"]: step for step in ACTION["runs"]["steps"]}
TODAY = "2026-11-23"
QUICK = '[ "$4" != review ] || set -- "$@" --no-resources'  # after `-I -m gpucluster.cli`
_EXPRESSION = re.compile(r"\$\{\{ (.*?) \}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a job did: green or red, its log, the outcome of each step."""

    ok: bool
    log: str
    outcomes: Mapping[str, str]


def git(*argv: str) -> str:
    """Run git with a fixed date: the names of commits stand in the comments."""
    dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-11-23T00:00:00Z")
    names = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(
        [GIT, *names, *argv], check=True, capture_output=True, text=True, env=os.environ | dates
    )
    return done.stdout.strip()


def commit(subject: str) -> str:
    """Commit everything, and return the id."""
    git("add", "-A")
    git("commit", "-qm", subject)
    return git("rev-parse", "HEAD")


def a_spec_of(name: str, most: int = 16) -> str:
    return SPEC.replace("name: burst", f"name: {name}", 1).replace("max: 16", f"max: {most}")


def three_changed_stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a clone on a branch that changes one stack, adds one and deletes one; its base has gone on since."""
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):  # a hook that runs us sets them
        monkeypatch.delenv(name, raising=False)
    top = tmp_path / "clone"
    (top / "stacks").mkdir(parents=True)
    monkeypatch.chdir(top)
    git("init", "-q", "-b", "main")
    for name in ("changed", "gone", "same", "base"):
        (top / f"stacks/{name}.yaml").write_text(a_spec_of(name))
    commit("first")
    git("checkout", "-q", "-b", "branch")
    (top / "stacks/changed.yaml").write_text(a_spec_of("changed", 32))
    (top / "stacks/gone.yaml").unlink()
    (top / "stacks/fresh.yaml").write_text(a_spec_of("fresh"))
    (top / "README.md").write_text("not a stack\n")
    commit("change")
    git("checkout", "-q", "main")
    (top / "stacks/base.yaml").write_text(a_spec_of("base", 20))
    commit("main goes on")
    git("checkout", "-q", "branch")
    return top


def bash(
    script: str, top: Path, variables: Mapping[str, str], begin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a script as a runner does: `bash -eo pipefail`, with our Python on PATH and where the Action installs it.

    It is always the same day, TODAY: `date` stands in `tools`.

    Our programs run `begin` first. With `QUICK` they are forked.
    """
    temp = Path(variables.get("RUNNER_TEMP", top.parent))
    tools = top.parent / "tools"
    programs = {
        tools / "python3": "",
        temp / "gpucluster/bin/python": "",
        tools / "gpucluster": "-I -m gpucluster.cli",
    }
    python = sys.executable
    tools.mkdir(exist_ok=True)
    if begin == QUICK:
        python = str(tools / "forked")
        forked_launcher.install(Path(python))
    for launcher, words in programs.items():
        launcher.parent.mkdir(parents=True, exist_ok=True)
        launcher.write_text(f'#!/bin/sh\n{begin}\nexec {python} {words} "$@"\n')
        launcher.chmod(0o755)
    (tools / "date").write_text(f'#!/bin/sh\n[ "$*" = "-u +%F" ] && echo {TODAY}\n')
    (tools / "date").chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(top)}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],  # noqa: S607  whichever bash there is
        cwd=top,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def run_action(
    top: Path, context: Mapping[str, str], variables: Mapping[str, str], begin: str = QUICK
) -> Ran:
    """Run the steps after `install`, each if its `if` is true. `context` has the values of GitHub's expressions."""
    inputs = {
        f"inputs.{name}": _filled(one.get("default", ""), context) for name, one in ACTION["inputs"].items()
    }
    known, outcomes, log = {**context, **inputs}, {"install": "success"}, ""
    for name, step in STEPS.items():
        if name == "install":  # test_action.py runs it
            continue
        if not _holds(step.get("if", "success()"), outcomes):
            outcomes[name] = "skipped"
            continue
        own = {key: _filled(value, known) for key, value in step.get("env", {}).items()}
        done = bash(step["run"], top, {**variables, **own}, begin)
        outcomes[name] = "failure" if done.returncode else "success"
        log += done.stdout + done.stderr
    return Ran(ok="failure" not in outcomes.values(), log=log, outcomes=outcomes)


def run_gitlab_job(top: Path, variables: Mapping[str, str], begin: str = QUICK) -> Ran:
    """Run the script of the job with the variables of a merge request's pipeline."""
    done = bash("\n".join(GITLAB["gpucluster-review"]["script"]), top, variables, begin)
    return Ran(ok=done.returncode == 0, log=done.stdout + done.stderr, outcomes={})


def _filled(text: str, known: Mapping[str, str]) -> str:
    """Fill in GitHub's expressions. One that the test does not know is a KeyError."""
    return _EXPRESSION.sub(lambda found: known[found[1]], text)


def _holds(condition: str, outcomes: Mapping[str, str]) -> bool:
    """Evaluate the few conditions that the Action uses. Nothing is cancelled here."""
    found = _EXPRESSION.fullmatch(condition)
    terms = (found[1] if found else condition).split(" && ")
    return all(_term(one, outcomes) for one in terms)


def _term(term: str, outcomes: Mapping[str, str]) -> bool:
    if term == "!cancelled()":
        return True
    if term == "success()":
        return "failure" not in outcomes.values()
    match = re.fullmatch(r"steps\.([a-z]+)\.outcome (==|!=) '([a-z]+)'", term)
    if match is None:
        raise NotImplementedError(term)
    return (outcomes[match[1]] == match[3]) is (match[2] == "==")
