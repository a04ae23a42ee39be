"""`sandbox capacity` limits the machines that the cluster launches; `sandbox preview` shows what `pulumi up` would change."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from support.builders import a_kube_plan, a_plan
from typer.testing import CliRunner, Result

from gpucluster.cli.main import app_of
from gpucluster.engine.events import Change
from gpucluster.plan.model import ClusterPlan
from gpucluster.sandbox import host_checks, preview, state_dir, status

PLANS: dict[str, ClusterPlan] = {"kube": a_kube_plan(), "burst": a_plan()}


class Orders:
    """A stand-in of the operator's client that records the requests."""

    def __init__(self) -> None:
        self.given: list[dict[str, Any]] = []

    def set_capacity(self, **order: Any) -> None:
        self.given.append(order)


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> Orders:
    made = Orders()
    monkeypatch.setattr(status, "control", lambda _: made)
    monkeypatch.setattr(host_checks, "require_root", lambda: None)
    monkeypatch.setattr(state_dir, "living", lambda name: SimpleNamespace(read_plan=lambda: PLANS[str(name)]))
    return made


def typed(*words: str) -> Result:
    return CliRunner().invoke(app_of(list(words)), words)


@pytest.mark.parametrize(
    ("name", "machine", "zone"),
    [
        ("kube", "m7i.xlarge", "*"),  # of the add-ons' nodes, in no pool
        ("kube", "p4de.24xlarge", "us-west-2a"),
        ("burst", "p5en.48xlarge", "us-east-2a"),
    ],
)
def test_capacity_is_set_for_each_machine_that_the_cluster_launches(
    orders: Orders, name: str, machine: str, zone: str
) -> None:
    """Regression: the machine of the nodes of add-ons was refused, as if no one launched it."""
    done = typed("sandbox", "capacity", name, "--free", "0", "--machine", machine, "--zone", zone)
    assert done.exit_code == 0, done.output
    assert orders.given == [{"machine": machine, "zone": zone, "market": "*", "free": 0}]


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (("--machine", "p5.48xlarge"), "m7i.xlarge, p4de.24xlarge"),
        (("--zone", "us-west-2b"), "us-west-2a"),
        (("--market", "capacity-block"), "on-demand, spot"),
    ],
)
def test_setting_without_effect_is_refused(orders: Orders, words: tuple[str, ...], known: str) -> None:
    done = typed("sandbox", "capacity", "kube", "--free", "1", *words)
    assert done.exit_code == 2
    assert f"this cluster has {known}; `*` means every one" in re.sub(r"[\s│]+", " ", done.output)
    assert orders.given == []


def test_preview_of_a_stack_on_eks_names_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    urn = "urn:pulumi:kube::gpucluster::aws:eks/nodeGroup:NodeGroup::kube-system-m7i-xlarge"
    group = Change(op="update", urn=urn, properties=("version",))
    asked: list[tuple[str, bool]] = []

    def found(name: str, *, refresh: bool, **_: Any) -> list[Any]:
        asked.append((name, refresh))
        return [group] if refresh else []

    monkeypatch.setattr(preview, "preview", found)
    assert "kube: no change" in typed("sandbox", "preview", "kube").output
    said = typed("sandbox", "preview", "kube", "--refresh")
    assert "update   NodeGroup kube-system-m7i-xlarge: version" in said.output
    assert asked == [("kube", False), ("kube", True)]
