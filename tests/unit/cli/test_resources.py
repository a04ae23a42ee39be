"""`gpucluster plan FILE --resources`: three forms of one answer, and what it says when there is none."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from builders import SPEC, a_plan

from gpucluster.cli import main as program
from gpucluster.cli.desk import resolve_file
from gpucluster.cli.output import ReviewOutput
from gpucluster.cli.resources import planned_of, show, why_not
from gpucluster.plan.model import ClusterPlan

BURST = str(Path(__file__).parents[3] / "stacks/burst.yaml")


@pytest.fixture
def good(tmp_path: Path) -> str:
    (tmp_path / "good.yaml").write_text(SPEC)
    return str(tmp_path / "good.yaml")


def test_resources_as_a_tree(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["plan", good, "--resources", "--properties"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("burst: 43 resources in the cloud, 8 components, 1 provider\n")
    assert '\n      cidrBlock = "10.42.0.0/16"\n' in told.out
    assert told.err == ""


def test_resources_as_json(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["plan", good, "--resources", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["why"], told["counts"]["made"]) == (True, None, 43)
    assert len(told["planned"]["resources"]) == 52


def test_resources_as_a_comment(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["plan", good, "--resources", "-o", "markdown"]) == 0
    told = capsys.readouterr().out
    head = "### burst: 43 resources in the cloud, 8 components, 1 provider"
    assert told.startswith(f"<!-- gpucluster:resources:burst -->\n\n{head}\n\n| component |")
    assert "`gpucluster plan " in told
    assert len(told) < 65_535


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--properties"], "--properties goes with --resources"),
        (["-o", "markdown"], "--output markdown goes with --resources"),
        (["--resources", "--explain"], "ask one by one"),
    ],
)
def test_options_that_say_nothing_together_are_refused(
    options: list[str], said: str, good: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run(["plan", good, *options]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


KUBERNETES_ALONE = replace(a_plan(), slurm=None, head=None, partitions=())
NO_CLOUD = replace(a_plan(), aws=None)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (KUBERNETES_ALONE, "it has no `slurm:`; what runs on Kubernetes is rendered, not made"),
        (NO_CLOUD, "it has no `aws:`; its machines are there already"),
    ],
    ids=["kubernetes alone", "no cloud"],
)
def test_a_spec_that_pulumi_makes_nothing_of_says_so(plan: ClusterPlan, said: str) -> None:
    assert planned_of(plan) is None, "and no program is run"
    assert (why_not(plan) or "").endswith(f"Pulumi makes nothing of this spec, for {said}")


def test_a_spec_of_hosts_is_told_apart_from_an_empty_program(capsys: pytest.CaptureFixture[str]) -> None:
    desk = replace(resolve_file(Path(BURST)), plan=NO_CLOUD)
    show(desk, Path(BURST), properties=False, output=ReviewOutput.MARKDOWN)
    assert "has no \\`aws:\\`" in capsys.readouterr().out
    show(desk, Path(BURST), properties=False, output=ReviewOutput.JSON)
    told = json.loads(capsys.readouterr().out)
    assert (told["planned"], told["counts"]) == (None, None), "not an empty list, not a zero"
    assert "has no `aws:`" in told["why"]


def test_the_process_that_asks_imports_no_pulumi() -> None:
    """The child does, beside it: a second copy would cost the verb a quarter of its time."""
    code = f"import sys; from gpucluster.cli.main import run; run({['plan', BURST, '--resources']!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert not imported & {"pulumi", "pulumi_aws", "grpc", "google", "boto3", "rich"}
