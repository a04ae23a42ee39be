"""`check`, `plan` and `render`: text, JSON and exit codes."""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.builders import SPEC, a_spec_text

from gpucluster.cli import main as program
from gpucluster.errors import HostError

ROOT = Path(__file__).parents[3]
BURST = str(ROOT / "stacks/burst.yaml")


@pytest.fixture
def good(tmp_path: Path) -> str:
    (tmp_path / "good.yaml").write_text(SPEC)
    return str(tmp_path / "good.yaml")


@pytest.fixture
def bad(tmp_path: Path) -> str:
    (tmp_path / "bad.yaml").write_text(a_spec_text(("idle: 5m", "idle: 5"), ("schema: 1", "schema: 2")))
    return str(tmp_path / "bad.yaml")


def test_check_of_a_good_spec_says_ok(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["check", good]) == 0
    assert capsys.readouterr() == (f"{good}: ok\n", "")


def test_check_of_the_first_stack_warns_and_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["check", BURST]) == 0
    out = capsys.readouterr().out
    assert "warning[machine-not-sold]" in out
    assert out.endswith("burst.yaml: ok, 1 warning, 1 advice\n")


def test_check_reports_every_problem_of_every_file(
    good: str, bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run(["check", bad, good]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        f"{bad}:1:9: error[schema-version] schema: this gpucluster reads schema 1, found 2",
        f"{bad}:15:11: error[no-unit] pools[h200].idle: 5 has no unit; write 30s, 5m, 2h or 7d",
        f"{bad}: 2 errors",
        f"{good}: ok",
    ]


def test_missing_file_does_not_stop_the_check_of_other_files(
    bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run(["check", str(tmp_path / "none.yaml"), bad]) == 2
    out, err = capsys.readouterr()
    assert "2 errors" in out
    assert err.splitlines() == [
        f"error: {tmp_path}/none.yaml: cannot be read: No such file or directory",
        "  next: name the file of a spec, or write a first one: gpucluster init",
    ]


def test_check_as_json(bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["check", bad, str(tmp_path / "none.yaml"), "-o", "json"]) == 2
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert err == ""
    assert (said["schema"], said["ok"], len(said["problems"]), len(said["errors"])) == (1, False, 2, 1)
    first = said["problems"][0]
    assert (first["mark"], first["level"], first["id"], first["path"]) == (
        {"line": 1, "column": 9},
        "error",
        "schema-version",
        "schema",
    )


@pytest.mark.parametrize("verb", ["check", "plan", "render", "doctor", "inventory"])
def test_spec_is_found_by_name_and_an_unknown_name_reports_the_searched_places(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks/burst.yaml").write_text(a_spec_text(("idle: 5m", "idle: 5")))
    (tmp_path / "burst").mkdir()  # a folder is no spec
    monkeypatch.chdir(tmp_path)
    assert program.run([verb, "burst"]) == 1
    assert "stacks/burst.yaml:15:11: error[no-unit]" in "".join(capsys.readouterr())
    for wrong in ("brust", "b" * 300):
        assert program.run([verb, wrong]) == 2
        assert capsys.readouterr().err.splitlines() == [
            f"error: {wrong}: no such file, and no such cluster: there is no stacks/{wrong}.yaml in {tmp_path}",
            "  next: name a file, or one of burst",
        ]
    (tmp_path / "stacks/burst.yaml").unlink()
    assert program.run([verb, "brust"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "  next: name the file of a spec, or write a first one: gpucluster init"
    )


@pytest.mark.parametrize("verb", ["plan", "render"])
def test_bad_spec_ends_plan_and_render_with_its_problems(
    verb: str, bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run([verb, bad]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "error[schema-version]" in err
    assert "error[no-unit]" in err


@pytest.mark.parametrize("verb", ["plan", "render"])
def test_bad_spec_as_json_is_problems_as_objects(
    verb: str, bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run([verb, bad, "--output", "json"]) == 1
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert (err, said["ok"], said["error"]["exit_code"]) == ("", False, 1)
    assert [problem["id"] for problem in said["problems"]] == ["schema-version", "no-unit"]


def test_plan_prints_the_summary(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["plan", good]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines() == [
        "cluster burst: Slurm 24.11",
        "aws     us-east-2, image gpucluster-ubuntu-24.04-slurm-24.11",
        "network 10.42.0.0/16: us-east-2a 10.42.0.0/19, us-east-2b 10.42.32.0/19",
        "  NAT in us-east-2a",
        "head    burst-head: m7i.2xlarge in us-east-2a, 10.42.0.10",
        "pool h200: 0 to 16 nodes; idle 5m, boot at most 20m",
        "  each 8 x h200, 192 CPUs, 1992294 MiB",
        "  slots h200-2a-[1-16],h200-2b-[1-16]",
        "  1. spot p5en.48xlarge or p5e.48xlarge in us-east-2a, us-east-2b",
        "  2. on-demand p5en.48xlarge in us-east-2a, us-east-2b, at most 4",
        "partition gpu: h200; at most 1d, the default",
        "a month costs an unknown amount (idle to full, at prices of 2026-02-09); unknown: NAT gateway (no price for us-east-2), "
        "m7i.2xlarge (no price for us-east-2), p5e.48xlarge (no price for us-east-2), p5en.48xlarge (no price for us-east-2), "
        "public address (no price for us-east-2)",
    ]


def test_plan_prints_the_cost_of_a_month(capsys: pytest.CaptureFixture[str]) -> None:
    """From idle pools to full ones, as `diff` counts it."""
    assert program.run(["plan", str(ROOT / "stacks/first.yaml")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "a month costs 338.84 USD to 739,636.12 USD (idle to full, at prices of 2026-02-09)"
    )


def test_plan_explain_prints_reasons(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["plan", good, "--explain"]) == 0
    out = capsys.readouterr().out
    assert "  pools[h200].boot_timeout = 20m\n" in out
    assert "95 % of the type's 2097152 MiB" in out


def test_plan_as_json_is_the_plan(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["plan", good, "--explain", "--output", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["plan"]["head"]["address"] == "10.42.0.10"
    assert {"path", "value", "reason"} == said["explain"][0].keys()


def test_render_writes_the_tree_and_names_its_files(
    good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "out"
    assert program.run(["render", good, "--to", str(to)]) == 0
    named = capsys.readouterr().out.splitlines()
    files = ["env.d/h200.sh", "head/hosts", "plan.json"] + [
        f"slurm/{n}.conf" for n in ("cgroup", "gres", "job_container", "slurm", "topology")
    ]
    assert named == [str(to / file) for file in files]
    assert all(Path(file).is_file() for file in named)


def test_render_shows_the_files_without_a_folder(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["render", good]) == 0
    out = capsys.readouterr().out
    assert out.startswith("==> env.d/h200.sh <==\n")
    assert "\nSlurmctldHost=burst-head(10.42.0.10)\n" in out


def test_render_as_json_carries_the_files(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["render", good, "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [file["path"] for file in said["files"]][:3] == ["env.d/h200.sh", "head/hosts", "plan.json"]
    assert said["files"][0]["mode"] == "0644"


def test_render_to_a_file_is_an_error_with_a_next_step(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["render", good, "--to", good]) == 2
    assert (
        capsys.readouterr().err
        == f"error: {good}: cannot be written: Not a directory\n  next: name a writable folder\n"
    )


def test_version_and_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("gpucluster 0.")
    assert program.run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {verb} " in out for verb in ("check", "plan", "render"))


@pytest.mark.parametrize("argv", [["chekc"], ["check"], ["plan", BURST, "--output", "xml"], []])
def test_wrong_command_line_is_exit_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(argv) == 2
    assert "Usage:" in "".join(capsys.readouterr())


def test_misspelt_verb_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    program.run(["chekc"])
    assert "Did you mean 'check'?" in capsys.readouterr().err


def _verb_that(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    module = type(sys)("verb_that_fails")

    def fails() -> None:
        raise error

    module.fails = fails  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "verb_that_fails", module)
    monkeypatch.setitem(program.VERBS, "fails", "verb_that_fails")


def test_error_has_a_message_and_a_next_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _verb_that(monkeypatch, HostError("this needs root", next_step="sudo gpucluster sandbox up"))
    assert program.run(["fails"]) == 2
    assert capsys.readouterr().err == "error: this needs root\n  next: sudo gpucluster sandbox up\n"


def test_ctrl_c_ends_with_130_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _verb_that(monkeypatch, KeyboardInterrupt())
    assert program.run(["fails"]) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_signal_while_modules_load_is_a_sentence(number: signal.Signals, tmp_path: Path) -> None:
    """Regression: Ctrl-C in the first tenth of a second, while Python imports modules, printed a traceback."""
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "typer.py").write_text("import os, time\nos.write(2, b'loading\\n')\ntime.sleep(60)\n")
    with subprocess.Popen(
        # a job of a script's background has SIGINT ignored, and hands that on
        [
            "/usr/bin/env",
            "--default-signal=INT",
            sys.executable,
            "-m",
            "gpucluster.cli",
            "plan",
            BURST,
        ],
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(slow)},
    ) as child:
        assert child.stderr is not None
        assert child.stderr.readline() == b"loading\n"
        child.send_signal(number)
        assert (
            child.stderr.read() == b"interrupted\n  next: repeat the command; it starts from the beginning\n"
        )
    assert child.returncode == 128 + number


@pytest.mark.parametrize(
    ("missing", "extra"),
    [("botocore.auth", "aws"), ("grpc", "aws"), ("moto", "sandbox"), ("kubernetes_validate", "kubernetes")],
)
def test_missing_optional_package_names_what_to_install(
    missing: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: after `pip install .`, `sandbox status` printed a traceback about botocore."""
    _verb_that(monkeypatch, ModuleNotFoundError(f"No module named '{missing}'", name=missing))
    assert program.run(["fails"]) == 2
    assert capsys.readouterr().err == (
        f"error: this command needs {missing}, which is not installed\n"
        f"  next: in the clone: pip install '.[{extra}]', or `make install` for everything\n"
    )


@pytest.mark.parametrize("words", [["-o", "json"], ["-ojson"], ["--output", "json"], ["--output=json"]])
def test_missing_optional_package_is_json_on_request(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: a program that asked for JSON got a text on stderr and an empty result."""
    monkeypatch.setitem(sys.modules, "grpc", None)  # as Python marks a module that is not there
    assert program.run(["plan", str(ROOT / "stacks/burst.yaml"), "--resources", *words]) == 2
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["error"]["exit_code"]) == (False, 2)
    assert said["error"]["message"] == "this command needs grpc, which is not installed"


def test_each_optional_package_is_in_an_extra_of_the_project() -> None:
    """Regression: the next step named an index that does not have gpucluster."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert {extra for row in program.EXTRAS.values() for extra in row} <= set(extras)
    for package in ("boto3", "moto", "paramiko", "pulumi", "pytest", "jsonschema", "ansible"):
        having = {
            extra for extra, lines in extras.items() if any(re.match(rf"{package}\W", one) for one in lines)
        }
        assert set(program.EXTRAS[package]) <= having


def test_missing_module_of_gpucluster_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    _verb_that(monkeypatch, ModuleNotFoundError("No module named 'gpucluster.x'", name="gpucluster.x"))
    with pytest.raises(ModuleNotFoundError):
        program.run(["fails"])


def test_closed_pipe_ends_quietly() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "gpucluster.cli", "render", BURST],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert done.returncode == 141


def test_work_goes_on_without_a_reader_of_its_progress() -> None:
    """Regression: `gpucluster down NAME --yes 2>&1 | head` stopped in the middle, with exit code 1."""
    read, write = os.pipe()
    os.close(read)
    works = "from gpucluster.cli.output import progress; progress('a'); progress('b'); print('done')"
    done = subprocess.run([sys.executable, "-c", works], stdout=subprocess.PIPE, stderr=write, check=False)
    os.close(write)
    assert (done.stdout, done.returncode) == (b"done\n", 0)


def test_exit_code_needs_no_reader_of_the_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "gpucluster.cli", "check", "/nonexistent.yaml"], stderr=write, check=False
    )
    os.close(write)
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("argv", "redirect", "code"),
    [("check", ">/dev/full", 2), ("--help", ">/dev/full", 2), ("check", ">&-", 0), ("check", "2>&-", 0)],
)
def test_stream_that_refuses_writes_gives_no_traceback(argv: str, redirect: str, code: int) -> None:
    words = [argv, *([BURST] if argv == "check" else [])]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {redirect}', "sh", sys.executable, "-m", "gpucluster.cli", *words],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert ("cannot be written: No space left" in done.stderr) == (code == 2)


def _imported_by(*argv: str) -> set[str]:
    code = f"import sys; from gpucluster.cli.main import run; run({list(argv)!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize(
    ("argv", "kept_out"),
    [
        (["--help"], {"pydantic", "ruamel", "jinja2", "boto3", "pulumi", "moto", "rich"}),
        (["check", BURST], {"jinja2", "boto3", "pulumi", "moto", "rich"}),
        (["plan", BURST], {"jinja2", "boto3", "pulumi", "moto", "rich"}),
        (["render", BURST], {"boto3", "pulumi", "moto", "rich"}),
        (["diff", BURST, BURST, "--no-resources"], {"boto3", "pulumi", "grpc", "moto", "rich"}),
    ],
    ids=["help", "check", "plan", "render", "diff"],
)
def test_verb_imports_only_what_it_needs(argv: list[str], kept_out: set[str]) -> None:
    assert not _imported_by(*argv) & kept_out
