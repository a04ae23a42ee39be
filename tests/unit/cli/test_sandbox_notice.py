"""`sandbox notice` sends a machine only notices that EC2 would send."""

import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from gpucluster.cli import sandbox as verb
from gpucluster.cli.main import app_of
from gpucluster.sandbox import status
from gpucluster.sandbox.machines.inside import RunningMachine

MARKETS = {"i-head": "on-demand", "i-held": "reservation", "i-spot": "spot"}


class Orders:
    """A stand-in of the operator's client that records the requests."""

    def __init__(self):
        self.given = []

    def instances(self):
        return [{"id": one, "market": market} for one, market in MARKETS.items()]

    def interrupt(self, instance, after_s, silent):
        self.given.append(("spot", instance))

    def rebalance(self, instance, silent):
        self.given.append(("rebalance", instance))

    def maintain(self, instance, **_):
        self.given.append(("maintenance", instance))


@pytest.fixture
def orders(monkeypatch):
    made = Orders()
    monkeypatch.setattr(status, "control", lambda _: made)

    def found(name, machine):
        role = "head" if machine == "i-head" else "node"
        node = "" if role == "head" else f"node-{machine}"
        return SimpleNamespace(), RunningMachine(instance=machine, leader=1, role=role, node=node)

    monkeypatch.setattr(verb, "_running_machine", found)
    return made


def typed(*words):
    return CliRunner().invoke(app_of(list(words)), words)


@pytest.mark.parametrize("kind", ["spot", "rebalance"])
@pytest.mark.parametrize(("machine", "word"), [("i-head", "head is on-demand"), ("i-held", "reservation")])
def test_notice_is_refused_for_machines_that_are_not_spot(orders, kind, machine, word):
    """Regression: `notice NAME head` terminated the head."""
    done = typed("sandbox", "notice", "burst", machine, "--kind", kind, "--output", "json")
    assert done.exit_code == 2
    assert word in json.loads(done.stdout)["error"]["message"]
    assert orders.given == []


@pytest.mark.parametrize(
    ("kind", "machine"), [("spot", "i-spot"), ("rebalance", "i-spot"), ("maintenance", "i-head")]
)
def test_notice_is_sent_where_ec2_sends_one(orders, kind, machine):
    done = typed("sandbox", "notice", "burst", machine, "--kind", kind)
    assert done.exit_code == 0
    assert orders.given == [(kind, machine)]
