"""`gpucluster plan FILE --resources`: three output formats, and the message without resources."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import SPEC, a_kube_plan, a_lab_plan

from gpucluster.cli import main as program
from gpucluster.cli.context import resolve_file
from gpucluster.cli.output import ReviewOutput
from gpucluster.cli.resources import planned_of, show, why_not
from gpucluster.plan.model import ClusterPlan

BURST = str(Path(__file__).parents[3] / "stacks/burst.yaml")
OPEN = Path(BURST).parent / "lookups" / "burst.yaml"
HEAD = r"burst: \d+ resources in the cloud, \d+ components, 2 providers"


@pytest.fixture
def good(tmp_path: Path) -> str:
    (tmp_path / "good.yaml").write_text(SPEC)
    (tmp_path / "lookups").mkdir()
    (tmp_path / "lookups" / "burst.yaml").write_text(OPEN.read_text())
    return str(tmp_path / "good.yaml")


def test_resources_as_a_tree(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["plan", good, "--resources", "--properties"]) == 0
    told = capsys.readouterr()
    assert re.match(f"{HEAD}\n", told.out)
    assert '\n      cidrBlock = "10.42.0.0/16"\n' in told.out
    assert told.err == ""


def test_resources_as_json(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["plan", good, "--resources", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["why"]) == (True, None)
    made, components = told["counts"]["made"], told["counts"]["components"]
    assert len(told["planned"]["resources"]) == made + components + told["counts"]["providers"]


def test_resources_as_a_comment(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["plan", good, "--resources", "-o", "markdown"]) == 0
    told = capsys.readouterr().out
    assert re.match(f"<!-- gpucluster:resources:burst -->\n\n### {HEAD}\n\n\\| component \\|", told)
    assert "`gpucluster plan " in told
    assert len(told) < 65_535


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--properties"], "--properties needs --resources"),
        (["-o", "markdown"], "--output markdown needs --resources"),
        (["--resources", "--explain"], "cannot be combined"),
        (["--live"], "--live needs --resources"),
        (["--resources", "--record"], "--record needs --live"),
    ],
)
def test_options_without_effect_together_are_refused(
    options: list[str], said: str, good: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run(["plan", good, *options]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


KUBERNETES_EXISTS = a_kube_plan(("control_plane: eks", "existing: {context: prod, eks_name: prod}"))
NO_CLOUD = a_lab_plan()


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (
            KUBERNETES_EXISTS,
            "its Kubernetes exists; `gpucluster render NAME --to FOLDER` writes the manifests",
        ),
        (NO_CLOUD, "it has no `aws:`, and its hosts exist"),
    ],
    ids=["kubernetes exists", "no cloud"],
)
def test_spec_without_pulumi_resources_gives_the_reason(plan: ClusterPlan, said: str) -> None:
    assert planned_of(plan) is None, "and no program is run"
    assert (why_not(plan) or "").endswith(f"Pulumi creates nothing for this spec: {said}")


def test_spec_of_hosts_differs_from_an_empty_program(capsys: pytest.CaptureFixture[str]) -> None:
    desk = replace(resolve_file(Path(BURST)), plan=NO_CLOUD)
    show(desk, Path(BURST), properties=False, output=ReviewOutput.MARKDOWN)
    assert "has no \\`aws:\\`" in capsys.readouterr().out
    show(desk, Path(BURST), properties=False, output=ReviewOutput.JSON)
    told = json.loads(capsys.readouterr().out)
    assert (told["planned"], told["counts"]) == (None, None), "not an empty list, not a zero"
    assert "has no `aws:`" in told["why"]


def test_calling_process_imports_no_pulumi() -> None:
    """The child process imports it. A second import would take a quarter of the command's time."""
    code = f"import sys; from gpucluster.cli.main import run; run({['plan', BURST, '--resources']!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert not imported & {"pulumi", "pulumi_aws", "grpc", "google", "boto3", "rich"}


def test_look_up_without_an_answer_stays_open_with_the_lines_to_add(
    good: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: `plan` refused what `diff` compared. The printed lines are a valid answer without changes."""
    file = Path(good).parent / "lookups" / "burst.yaml"
    file.unlink()
    assert program.run(["plan", good, "--resources"]) == 0
    told = capsys.readouterr()
    assert "\nlooked up at `pulumi up`: the machine image (aws:ec2/getAmi:getAmi" in told.out
    assert (
        f"warning[open-look-up] burst: the program looks up the machine image, and {file} has no answer"
        in (told.err)
    )
    _, _, lines = told.err.partition("leaves it open):\n")
    file.write_text(lines)
    assert program.run(["plan", good, "--resources"]) == 0
    assert capsys.readouterr().err == "", "null is an answer: a person left it open"


def test_answered_lookups_are_known_in_the_plan(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(good).parent / "lookups" / "burst.yaml"
    found = json.dumps({"id": "ami-1", "imageId": "ami-1", "rootDeviceName": "/dev/sda1"})
    file.write_text(file.read_text().replace("answer: null", f"answer: {found}"))
    assert program.run(["plan", good, "--resources", "--properties"]) == 0
    told = capsys.readouterr().out
    assert told.count('imageId = "ami-1"') == 3
    assert "known from a recorded answer: the machine image" in told


def test_examples_have_an_entry_for_each_lookup() -> None:
    stacks = Path(BURST).parent
    named = {path.stem for path in (stacks / "lookups").glob("*.yaml")}
    planned = {path.stem: planned_of(resolve_file(path).plan) for path in stacks.glob("*.yaml")}
    assert named == {name for name, found in planned.items() if found is not None and found.lookups}
