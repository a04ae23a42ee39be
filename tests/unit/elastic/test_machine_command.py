"""The `gpucluster` command on the machines: what it runs on a head, and what it says elsewhere."""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

from gpucluster.cli import main as program
from gpucluster.elastic import machine_command, machine_verbs
from gpucluster.elastic.inspect import job_in_slurm, pools
from gpucluster.elastic.inspect import overview as overviews
from gpucluster.errors import StateError
from gpucluster.shell import Result


class Programs:
    """The programs of the head: they record their arguments and print fixed words."""

    def __init__(self, out: str = "", code: int = 0) -> None:
        self.out, self.code, self.asked = out, code, list[tuple[str, ...]]()

    def load(self, module: str) -> machine_command.Program:
        def run(argv: Sequence[str]) -> int:
            self.asked.append((module, *argv))
            sys.stdout.write(self.out)
            return self.code

        return run


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    return on_role(tmp_path, "head")


def on_role(folder: Path, role: str) -> Path:
    path = folder / "machine.json"
    path.write_text(json.dumps({"cluster": "burst", "role": role, "region": "us-east-2", "bucket": "b"}))
    return path


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("status", ("inspect.status",)),
        ("status burst", ("inspect.status",)),
        ("why 7 -c burst", ("inspect.why.__main__", "--", "7")),
        ("why h200-1a-1", ("inspect.why.__main__", "--", "h200-1a-1")),
        ("timeline 7 --cluster burst", ("inspect.timeline", "--", "7")),
        ("reconcile", ("inspect.reconcile",)),
        ("reconcile --dry-run", ("inspect.reconcile", "--dry-run")),
        ("pool list -c burst", ("inspect.pools",)),
        ("pool pause h200 --because driver", ("order", "--because=driver", "--", "pool-pause", "h200")),
        ("pool drain h200", ("order", "--because=", "--", "pool-drain", "h200")),
        ("pool resume h200 -c burst", ("order", "--because=", "--", "pool-resume", "h200")),
        ("node replace a-1 --now", ("order", "--now", "--because=", "--", "node-replace", "a-1")),
        ("node keep a-1 --for 3d", ("order", "--for=259200", "--because=", "--", "node-keep", "a-1")),
        ("node keep a-1", ("order", "--for=7200", "--because=", "--", "node-keep", "a-1")),
        ("node release a-1 -c burst", ("order", "--because=", "--", "node-release", "a-1")),
        ("bundle show -c burst", ("bundle_order", "--", "show")),
        ("bundle apply 0123 --now -c burst", ("bundle_order", "--now", "--", "apply", "0123")),
        ("accounts diff burst", ("accounts", "--", "diff")),
        ("accounts apply", ("accounts", "--", "apply")),
        ("pool pause -- --json", ("order", "--because=", "--", "pool-pause", "--json")),
    ],
)
def test_command_runs_its_program_on_the_head(line: str, asked: tuple[str, ...], machine: Path) -> None:
    programs = Programs("words\n", code=1)
    assert machine_command.main(line.split(), machine, programs.load) == 1
    assert programs.asked == [asked]


@pytest.mark.parametrize(
    "line", ["status", "pool list", "reconcile --dry-run", "why 7", "bundle show", "accounts diff"]
)
def test_every_program_takes_these_arguments(line: str, machine: Path, tmp_path: Path) -> None:
    """The real programs parse them; without a bundle each says what it cannot read, and none its usage."""
    options = machine_verbs.parser().parse_args(line.split())
    verb = machine_verbs.VERBS[options.words]
    where = "--plan" if verb.module == "accounts" else "--bundle"
    more = [f"--machine={tmp_path / 'none'}"] if verb.module == "inspect.status" else []

    def load(module: str) -> machine_command.Program:
        main = machine_command.load_program(module)
        return lambda argv: main([f"{where}={tmp_path / 'none'}", *more, *argv])

    assert machine_command.main(line.split(), machine, load) == 2


def test_json_has_the_form_of_an_operators_machine(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    programs = Programs('{"schema": 1, "cause": "refused"}')
    assert machine_command.main(["why", "7", "-o", "json"], machine, programs.load) == 0
    assert programs.asked == [("inspect.why.__main__", "--json", "--", "7")]
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "ok": True,
        "cluster": "burst",
        "cause": "refused",
    }
    assert machine_command.main(["timeline", "7", "-o", "json"], machine, Programs("[]").load) == 1
    assert json.loads(capsys.readouterr().out)["moments"] == []
    assert machine_command.main(["why", "7", "-o", "json"], machine, Programs(code=2).load) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("why 7 -c other", "this machine is of the cluster burst, not of 'other'"),
        ("status other", "this machine is of the cluster burst, not of 'other'"),
        ("validate burst", "the machines of a cluster have no `gpucluster validate`"),
        ("image build", "type it on your own machine, where the spec is"),
    ],
)
def test_what_the_machine_cannot_do_is_said(
    line: str, message: str, machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = Programs()
    assert machine_command.main(line.split(), machine, programs.load) == 2
    assert message in capsys.readouterr().err
    assert programs.asked == []


@pytest.mark.parametrize("line", ["", "pool", "halt", "why", "why 7 --never", "node keep a-1 --for 2"])
def test_wrong_command_line_exits_2(line: str, machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        machine_command.main(line.split(), machine, Programs().load)
    assert left.value.code == 2
    assert "usage: gpucluster" in capsys.readouterr().err


def test_machine_of_no_cluster_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert machine_command.main(["status"], tmp_path / "machine.json", Programs().load) == 2
    assert "this machine belongs to no cluster" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("role", "runs"), [("head", True), ("standby", True), ("login", False), ("node", False)]
)
def test_only_heads_run_the_programs(
    role: str, runs: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs, place = Programs(), on_role(tmp_path, role)
    assert machine_command.main(["status"], place, programs.load) == (0 if runs else 2)
    assert bool(programs.asked) is runs
    shown = capsys.readouterr().err
    assert (f"`gpucluster status` needs the head: this is a {role} machine of burst" in shown) is not runs


JOB = {
    "job_id": 12, "job_state": ["PENDING"], "node_count": {"number": 1, "set": True}, "partition": "gpu", "requeue": True, "batch_flag": True,
    "state_reason": "Resources", "admin_comment": "gpucluster: no p5 in us-east-1a\x1b[2J",
}  # fmt: skip


def test_any_user_of_a_login_machine_sees_what_slurm_has_of_a_job(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def answers(*rows: object, code: int = 0, err: str = "") -> job_in_slurm.Ask:
        return lambda argv: Result(tuple(argv), code, json.dumps({"jobs": rows, "errors": []}), err)

    assert job_in_slurm.show(12, as_json=False, ask=answers(JOB)) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "job 12 is PENDING: Resources"
    assert shown[1].startswith("  gpucluster: no p5 in us-east-1a")
    assert "\x1b" not in shown[1]
    assert job_in_slurm.show(12, as_json=True, ask=answers(JOB)) == 0
    assert json.loads(capsys.readouterr().out)["jobs"][0]["state"] == "PENDING"
    assert job_in_slurm.show(13, as_json=False, ask=answers()) == 1
    assert "slurmctld has no job 13" in capsys.readouterr().err
    with pytest.raises(StateError, match="slurmctld does not answer: refused"):
        job_in_slurm.show(13, as_json=False, ask=answers(code=1, err="refused"))


def test_pools_have_one_line_each() -> None:
    one = overviews.PoolOverview(name="a", size=4, nodes={"off": 6, "up": 2}, stopped="paused by ada")
    two = overviews.PoolOverview(name="b", size=1, nodes={"off": 2})
    assert pools.line(one) == "a: at most 4 nodes; 2 up; launches stop: paused by ada"
    assert pools.line(two) == "b: at most 1 nodes; all off"


def test_table_has_the_commands_of_an_operators_machine_with_their_options() -> None:
    """What a message of the head suggests is parsed in both places."""
    here = {words[0] for words in machine_verbs.VERBS}
    assert here | machine_verbs.DESK_ONLY == program.VERBS.keys()
    assert not here & machine_verbs.DESK_ONLY
    for words, verb in machine_verbs.VERBS.items():
        found = typer.main.get_command(program.app_of(list(words)))
        for word in words:
            found = found.commands[word]  # type: ignore[attr-defined]
        flags = {flag for one in found.params for flag in one.opts}
        assert set(verb.options) <= flags, words
        assert {"--cluster", "-c", "--output", "-o"} <= flags | (
            {"--cluster", "-c"} if verb.subject == "cluster" else set()
        )


def test_option_with_a_wrong_duration_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a duration"):
        machine_verbs.seconds("2")


@pytest.mark.parametrize(
    "module", sorted({verb.module.removesuffix(".__main__") for verb in machine_verbs.VERBS.values()})
)
def test_program_of_a_verb_also_runs_by_its_module(module: str) -> None:
    """Regression: the desk runs `python -m`, and `inspect.pools` printed nothing then, with exit code 0."""
    argv = [sys.executable, "-m", f"gpucluster.elastic.{module}", "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "usage: " in done.stdout
