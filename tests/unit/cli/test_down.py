"""`gpucluster down`: scaling stops, nodes end, then the rest goes; twice and interrupted do no harm."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpucluster.cli.down import Place, empty
from gpucluster.cli.main import run
from gpucluster.cloud.port import CloudError, Fault
from gpucluster.engine.events import Change, Outcome
from gpucluster.engine.standing import Standing

BUCKET = Standing(type="aws:s3/bucket:Bucket", name="burst", id="burst-1")
VPC = Standing(
    type="aws:ec2/vpc:Vpc", name="burst", id="vpc-1", outputs={"arn": "arn:aws:ec2:us-west-2:1:vpc/vpc-1"}
)


@dataclass
class World:
    """A cluster that notes what is done to it."""

    standing: tuple[Standing, ...] = (BUCKET, VPC)
    stop_fails: CloudError | None = None
    calls: list[str] = field(default_factory=list[str])

    def place(self, region: str | None = None) -> Place:
        return Place(
            standing=lambda: self.standing,
            destroy=lambda _: self.destroy(),
            cloud=lambda name: self.note(f"cloud {name}"),
            control=lambda name, bucket: self.note(f"control {name} {bucket}"),
            region=region,
        )

    def note(self, text: str) -> Any:
        self.calls.append(text)
        return self

    def stop(self, _: str) -> None:
        if self.stop_fails:
            raise self.stop_fails
        self.calls.append("stop")

    def instances(self, cluster: str) -> tuple[()]:
        self.calls.append(f"instances {cluster}")
        return ()

    def destroy(self) -> Outcome:
        self.calls.append("destroy")
        gone = Change(
            op="delete", urn="urn:pulumi:b::g::gpucluster:aws:N$aws:ec2/vpc:Vpc::burst", properties=()
        )
        component = Change(op="delete", urn="urn:pulumi:b::g::gpucluster:aws:N::burst", properties=())
        return Outcome(counts={"delete": 2}, changes=(gone, component))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)


def test_the_order_is_stop_then_nodes_then_the_rest() -> None:
    world = World()
    done = empty(world.place(), "burst")
    assert world.calls == [
        "control us-west-2 burst-1", "stop", "cloud us-west-2", "instances burst", "instances burst", "destroy",
    ]  # fmt: skip
    assert done.sentence("burst") == "burst is empty: 0 nodes ended, 1 resources deleted"


def test_the_second_time_says_so_and_touches_nothing() -> None:
    world = World(standing=())
    assert empty(world.place(), "burst").sentence("burst") == "burst is already empty"
    assert world.calls == []


def test_a_down_that_was_interrupted_after_the_bucket_went_goes_on() -> None:
    world = World(standing=(VPC,))
    empty(world.place(), "burst")
    assert "destroy" in world.calls


def test_a_bucket_that_is_gone_does_not_stop_it() -> None:
    world = World(stop_fails=CloudError(Fault.GONE, "NoSuchBucket", "gone"))
    empty(world.place("us-east-1"), "burst")
    assert world.calls[-1] == "destroy"


def test_without_the_stop_nothing_is_destroyed() -> None:
    world = World(stop_fails=CloudError(Fault.LOST, "Timeout", "no answer"))
    with pytest.raises(CloudError):
        empty(world.place("us-east-1"), "burst")
    assert "destroy" not in world.calls


def test_no_cluster_of_that_name_is_a_clear_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpucluster.sandbox.ledger.Home.path", tmp_path / "none")
    assert run(["down", "nobody"]) == 2
    assert (
        "there is no cluster 'nobody' here: no sandbox of that name, and no Pulumi.yaml"
        in capsys.readouterr().err
    )


def test_a_refusal_of_the_cloud_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(stop_fails=CloudError(Fault.CONFIGURATION, "NoCredentialsError", "no keys"))
    monkeypatch.setattr("gpucluster.cli.down._place", lambda _: world.place("us-east-1"))
    assert run(["down", "burst"]) == 2
    said = capsys.readouterr().err
    assert "the cloud did not do it: NoCredentialsError: no keys" in said
    assert "gpucluster down burst" in said
