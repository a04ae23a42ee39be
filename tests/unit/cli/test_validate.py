"""`gpucluster validate`: messages and exit codes, until the first machine is reached."""

import io
import json
from dataclasses import replace

import pytest
from support import builders
from support.waiting import eventually
from typer.testing import CliRunner

from gpucluster.checks.check import CheckStatus
from gpucluster.cli.main import app_of
from gpucluster.cli.validate_table import Live, final
from gpucluster.validate import expectations
from gpucluster.validate.results import Result, Run

RESULT = Result(
    check="nodes.state",
    target="head",
    machine="head",
    tier=0,
    title="every node is there",
    verdict=CheckStatus.FAIL,
    found="e1 DOWN ([bold]not markup[/bold] <b>)",
    expected="1 nodes",
    remedy="on head: sinfo -R",
    seconds=0.5,
)


@pytest.fixture
def lab(tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text(builders.a_lab_text())
    return file


def ran(*argv: object):
    words = ["validate", *map(str, argv)]
    return CliRunner().invoke(app_of(words), words)


def test_run_that_cannot_start_reports_the_next_step(lab):
    options, words = (
        ("--known-hosts", "/nowhere/known"),
        "/nowhere/known does not exist; validation needs a file of known host keys",
    )
    done = ran(lab, *options)
    assert done.exit_code == 2
    assert words in done.stderr
    assert "next: " in done.stderr
    as_json = ran(lab, *options, "--output", "json")
    assert (as_json.exit_code, json.loads(as_json.stdout)["ok"]) == (2, False)


def test_machines_that_cannot_be_reached_are_unknown_and_the_run_is_not_green(lab, tmp_path):
    known = tmp_path / "known"
    known.write_text("")
    (tmp_path / "config").write_text("Host *\n  ProxyCommand false\n")
    where = (
        "--known-hosts",
        known,
        "--ssh-config",
        tmp_path / "config",
        "--only",
        "ctl.ping,disk",
        "--tier",
        "0",
    )
    done = ran(lab, *where, "--output", "json")
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["ok"]) == (1, False)
    assert answer["counts"] == {"pass": 0, "warn": 0, "fail": 0, "unknown": 6}
    assert all("cannot be reached" in r["found"] or r["blocked_by"] for r in answer["results"])


def test_machines_that_are_away_are_tried_once_each(lab, tmp_path):
    known, tried = tmp_path / "known", tmp_path / "tried"
    known.write_text("")
    (tmp_path / "config").write_text(f"Host *\n  ProxyCommand sh -c 'echo %h >>{tried}; false'\n")
    done = ran(lab, "--known-hosts", known, "--ssh-config", tmp_path / "config", "--output", "json")
    assert sorted(tried.read_text().split()) == ["192.0.2.10", *(f"192.0.2.1{n}" for n in range(1, 5))]
    causes = [r for r in json.loads(done.stdout)["results"] if not r["blocked_by"]]
    assert [r["id"] for r in causes] == [f"disk[{m}]" for m in ("head", "gpu01", "gpu02", "gpu03", "gpu04")]
    assert all("ssh there by hand" in r["remedy"] for r in causes)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--ssh-user", "-oProxyCommand=touch x"), "--ssh-user: '-oProxyCommand=touch x' is not a user name"),
        (("--user", "-c"), "--user: '-c' is not a user name"),
        (("--user", "a b"), "is not a user name"),
        (("--html", "/proc/nowhere/x.html"), "/proc/nowhere/x.html cannot be written"),
        (("--junit", "/proc"), "/proc is a folder"),
        (("--only", "gpu.cuont"), "did you mean gpu.count?"),
    ],
)
def test_invalid_options_are_refused_before_any_query(lab, tmp_path, options, words):
    known = tmp_path / "known"
    known.write_text("")
    done = ran(lab, "--known-hosts", known, *options)
    assert (done.exit_code, words in " ".join(done.stderr.split())) == (2, True), done.stderr


def test_cluster_on_a_cloud_is_not_validated_by_its_spec(tmp_path):
    file = tmp_path / "burst.yaml"
    file.write_text(builders.SPEC)
    done = ran(file)
    assert (done.exit_code, "sandbox up" in done.stderr) == (2, True)


def test_name_is_a_sandbox_and_ssh_needs_a_file():
    done = ran("nolab", "--backend", "ssh")
    assert (done.exit_code, "nolab is not a spec file" in done.stderr) == (2, True)


def test_spec_that_is_wrong_is_exit_one(tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text(builders.a_lab_text().replace("192.0.2.[11-14]", "192.0.2.[11-12]"))
    assert ran(file).exit_code == 1


def accepting(tmp_path, until):
    """The lab on a version whose support has ended, which is accepted."""
    file = tmp_path / "lab.yaml"
    accept = f"accept: [{{id: slurm-support, because: we move in May, until: {until}}}]\n"
    file.write_text(builders.a_lab_text(('"26.05"', '"24.11"'), ("partitions:\n", f"{accept}partitions:\n")))
    known = tmp_path / "known"
    known.write_text("")
    (tmp_path / "config").write_text("Host *\n  ProxyCommand false\n")
    where = ("--known-hosts", known, "--ssh-config", tmp_path / "config")
    done = ran(file, *where, "--only", "cfg.accept", "--output", "json")
    (result,) = json.loads(done.stdout)["results"]
    return done.exit_code, result, file


def test_acceptance_that_has_ended_is_a_warning_also_if_the_head_is_away(tmp_path):
    code, result, file = accepting(tmp_path, "2026-01-01")
    assert (code, result["id"], result["verdict"]) == (0, "cfg.accept[head]", "warn")
    assert result["found"].startswith(
        "slurm-support slurm.version: SchedMD's support of Slurm 24.11 ended in 2026-05: "
    )
    assert result["found"].endswith("; accepted until 2026-01-01, by accept[0]: we move in May")
    assert result["remedy"] == (
        f"on your computer: change what the warning names, or write a later `until` in {file}, and have it reviewed"
    )


def test_acceptance_that_has_not_ended_passes(tmp_path):
    code, result, file = accepting(tmp_path, "2099-12-31")
    assert (code, result["verdict"]) == (0, "pass")
    assert result["found"] == f"{file} accepts 1 warning, until 2099-12-31 at the earliest"


def test_final_table_is_plain_text_and_ends_with_next_steps():
    text = final(Run(name="lab", results=(RESULT,), seconds=1.0), io.StringIO())
    assert "\x1b" not in text
    assert "[bold]not markup[/bold] <b>" in text
    assert text.endswith("lab: not proven healthy: 1 fail of 1 checks, in 1.0 s")
    assert "  remedy: on head: sinfo -R" in text


def test_failures_come_first_and_each_group_of_passes_is_one_line():
    passed = [
        replace(RESULT, check=check, machine=f"n{n}", verdict=CheckStatus.PASS, found="fine", remedy="")
        for check in ("auth.rt", "cfg.same", "cfg.bundle", "disk")
        for n in range(20)
    ]
    run = Run(name="lab", results=(*passed, RESULT), seconds=1.0)
    lines = final(run, io.StringIO()).split("\n")
    assert lines[0].startswith("fail: nodes.state[head]")
    assert lines[-3:-1] == ["pass: cfg: 40 (same, bundle)", "pass: disk: 20"]
    assert not any("fine" in line for line in lines)
    every = final(run, io.StringIO(), every=True)
    assert every.count("fine") == 80
    assert every.index("remedy") < every.index("fine")


def test_warning_has_a_next_step():
    warned = replace(RESULT, verdict=CheckStatus.WARN)
    text = final(Run(name="lab", results=(warned,), seconds=1.0), io.StringIO())
    assert "  remedy: on head: sinfo -R" in text
    assert "healthy, 1 checks, 1 with a warning" in text


def test_results_hidden_by_one_fault_are_one_line():
    hidden = [
        replace(RESULT, check=f"c{n}", verdict=CheckStatus.UNKNOWN, blocked_by=RESULT.id) for n in range(50)
    ]
    text = final(Run(name="lab", results=(RESULT, *hidden), seconds=1.0), io.StringIO())
    assert text.count("remedy") == 1
    assert "unknown: 50 more, until nodes.state[head] is repaired" in text


def test_without_a_terminal_progress_lines_replace_the_live_table():
    one, stream = expectations(builders.a_lab_plan())[0], io.StringIO()
    with Live(2, stream) as live:
        live.update(one, RESULT)
    assert stream.getvalue() == ""
    with Live(2, stream, every_s=0.001) as live:
        live.update(one, RESULT)
        eventually(
            "another thread prints it",
            lambda: f"1 of 2 checks answered, {one.id} runs\n" in stream.getvalue(),
            poll=0.001,
        )
    assert f"1 of 2 checks answered, {one.id} runs\n" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
