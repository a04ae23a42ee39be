"""`gpucluster scaling`: the control object is written once, names who wrote it, and a `down` is not disturbed."""

import json
from pathlib import Path

import pytest
from support.builders import a_lab_plan, a_plan

from gpucluster.cloud.control import DOWN, DOWN_ENDED
from gpucluster.cloud.port import Control, Scaling
from gpucluster.elastic import scaling
from gpucluster.plan import codec, names
from gpucluster.plan.model import Bindings, ClusterPlan
from gpucluster.sandbox.aws.ec2.state.client import ModelControl

BINDINGS = Bindings(schema=1, region="us-west-2", bucket="burst-1", secret="", subnets={}, templates={})
DESTROYS = Control(scaling=Scaling.STOP, by=f"{DOWN}, ada@desk")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    (tmp_path / names.BINDINGS_FILE).write_text(codec.dumps(BINDINGS))
    return tmp_path


def typed(bundle: Path, control: ModelControl, *argv: str, plan: ClusterPlan | None = None) -> int:
    (bundle / names.PLAN_FILE).write_text(codec.dumps(plan or a_plan()))
    asked: list[tuple[str, str]] = []

    def connect(region: str, bucket: str) -> ModelControl:
        asked.append((region, bucket))
        return control

    code = scaling.main([*argv, f"--bundle={bundle}", "--by=ada"], connect)
    assert asked in ([("us-west-2", "burst-1")], []) or plan is None
    return code


def test_stop_names_its_reason_and_start_ends_it(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    control = ModelControl()
    assert typed(bundle, control, "stop", "--because", "an audit") == 0
    assert (control.read().scaling, control.read().by) == (Scaling.STOP, "ada: an audit")
    assert typed(bundle, control, "show") == 0
    assert typed(bundle, control, "start") == 0
    assert (control.read().scaling, control.read().by) == (Scaling.RUN, "ada")
    assert capsys.readouterr().out.splitlines() == [
        "burst: launches are stopped (by ada: an audit); running nodes and jobs continue",
        "burst: launches are stopped (by ada: an audit); running nodes and jobs continue",
        "burst: launches are allowed (by ada)",
    ]


def test_second_stop_keeps_who_stopped_it_first(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    control = ModelControl(Control(scaling=Scaling.STOP, by="bob"))
    assert typed(bundle, control, "stop", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1, "ok": True, "scaling": "stop", "by": "bob", "changed": False
    }  # fmt: skip


def test_start_is_refused_while_down_destroys_the_cluster(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    control = ModelControl(DESTROYS)
    assert typed(bundle, control, "start") == 1
    assert control.read() == DESTROYS
    assert "gpucluster down, ada@desk destroys this cluster" in capsys.readouterr().err
    assert typed(bundle, control, "start", "--after-killed-down") == 0
    assert control.read().scaling is Scaling.RUN


def test_start_is_allowed_after_a_down_that_did_not_finish(bundle: Path) -> None:
    control = ModelControl(Control(scaling=Scaling.STOP, by=f"{DESTROYS.by}{DOWN_ENDED}"))
    assert typed(bundle, control, "start") == 0
    assert control.read().scaling is Scaling.RUN


def test_holder_keeps_its_lease(bundle: Path) -> None:
    control = ModelControl(Control(holder="head/boot/7.1/n", epoch=3, beat=5))
    assert typed(bundle, control, "stop") == 0
    assert (control.read().holder, control.read().epoch, control.read().beat) == ("head/boot/7.1/n", 3, 5)


def test_control_object_that_cannot_be_read_is_an_error(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    control = ModelControl()
    control.readable = False
    assert typed(bundle, control, "start") == 2
    assert "the control object cannot be used" in capsys.readouterr().err


def test_hosts_have_no_launches(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(bundle, ModelControl(), "stop", plan=a_lab_plan()) == 2
    assert "no daemon launches machines" in capsys.readouterr().err


def test_stop_of_an_operator_takes_over_that_of_a_down(bundle: Path) -> None:
    """The `down` may be refused, and then leaves what it does not know as its own."""
    control = ModelControl(DESTROYS)
    assert typed(bundle, control, "stop", "--because", "an audit") == 0
    assert control.read().by == "ada: an audit"


def test_write_of_another_is_read_again(bundle: Path) -> None:
    """A `down` begins between the look and the write: the start is refused, and its stop stays."""
    control = ModelControl(Control(scaling=Scaling.STOP, by="bob"))
    write = control.write

    def late(wanted: Control, etag: str | None) -> str | None:
        control.write = write  # type: ignore[method-assign]
        control.scale(DESTROYS.scaling, DESTROYS.by)
        return write(wanted, etag)

    control.write = late  # type: ignore[method-assign]
    assert typed(bundle, control, "start") == 1
    assert control.read() == DESTROYS
