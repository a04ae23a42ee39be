"""The transport by Systems Manager looks up each machine once, also for `validate`, which first reads the bundle."""

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from support.fake_machine import a_bundle, a_small_plan

from gpucluster import artifacts
from gpucluster.cli import transport_ssm, validate_on_aws
from gpucluster.cloud.run_command import ManagedMachine
from gpucluster.shell import Result

HEAD = ManagedMachine(cluster="trial", role="head", instance="i-1", region="us-east-1", bucket="trial-0")


def test_head_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: `validate` looked up the head for the bundle, and again for the first command."""
    looked: list[str] = []
    bundle = a_bundle(a_small_plan())

    class Machines:
        def __init__(self, *_: object) -> None:
            pass

        def find(self, word: str) -> ManagedMachine:
            looked.append(word)
            return HEAD

    class Command:
        def __init__(self, machine: ManagedMachine, *_: object) -> None:
            self.machine = machine

        def run(self, argv: Sequence[str], *, limit_s: float) -> Result:
            assert limit_s > 0
            return Result(tuple(argv), 0, self.machine.instance, "")

    class Bucket:
        def get_object(self, **place: str) -> dict[str, Any]:
            assert place == {"Bucket": "trial-0", "Key": "bundle.tar.gz"}
            return {"Body": io.BytesIO(bundle), "LastModified": datetime(2026, 11, 30, 2, 5, tzinfo=UTC)}

    monkeypatch.setattr(transport_ssm, "ManagedMachines", Machines)
    monkeypatch.setattr(transport_ssm, "RunCommand", Command)
    machines = transport_ssm.SsmMachines("trial", "us-east-1")
    machines.clients = lambda service: Bucket()
    found = validate_on_aws._published(machines)
    assert (found.plan.name, found.digest) == ("trial", artifacts.digest(bundle))
    assert found.place == "s3://trial-0/bundle.tar.gz, published 2026-11-30 02:05 UTC,"
    assert machines.run("head", ("true",), 1.0).stdout == "i-1"
    assert machines.run("head", ("true",), 1.0).stdout == "i-1"
    assert looked == ["head"]
