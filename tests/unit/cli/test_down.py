"""`gpucluster down`: scaling stops, nodes end, then the rest goes; twice and interrupted do no harm."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gpucluster.catalog import prices
from gpucluster.cli.down import Place, empty
from gpucluster.cli.kept import left_of
from gpucluster.cli.main import run
from gpucluster.cloud.port import CloudError, Fault
from gpucluster.engine.events import Change, Outcome
from gpucluster.engine.standing import Standing

BUCKET = Standing(type="aws:s3/bucket:Bucket", name="burst", id="burst-1")
VPC = Standing(
    type="aws:ec2/vpc:Vpc", name="burst", id="vpc-1", outputs={"arn": "arn:aws:ec2:us-west-2:1:vpc/vpc-1"}
)
GROUND = replace(VPC, kept=True)
DISK = Standing(
    type="aws:ebs/volume:Volume",
    name="burst-state",
    id="vol-1",
    protected=True,
    kept=True,
    outputs={"size": 100.0, "type": "gp3"},
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
            release=self.release,
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
        self.standing = tuple(one for one in self.standing if one.kept)
        gone = Change(
            op="delete", urn="urn:pulumi:b::g::gpucluster:aws:N$aws:ec2/vpc:Vpc::burst", properties=()
        )
        component = Change(op="delete", urn="urn:pulumi:b::g::gpucluster:aws:N::burst", properties=())
        return Outcome(counts={"delete": 2}, changes=(gone, component))

    def release(self) -> None:
        self.calls.append("release")
        self.standing = tuple(replace(one, protected=False, kept=False) for one in self.standing)


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


def test_what_holds_data_stays_and_is_told_with_what_it_costs() -> None:
    world = World(standing=(BUCKET, GROUND, DISK))
    done = empty(world.place("us-east-1"), "burst")
    assert "release" not in world.calls
    assert done.left is not None
    assert [done.sentence("burst"), *done.left.lines("burst")] == [
        "burst is down: 0 nodes ended, 1 resources deleted; its data stays:",
        "  disk of 100 GiB vol-1 (burst-state): 8.00 USD a month",
        "  the network it hangs on, at no cost: vpc-1",
        "  next: `up` finds the data again; to delete it for ever: gpucluster down burst --delete-data --confirm burst",
    ]


def test_the_second_time_only_its_data_is_there() -> None:
    done = empty(World(standing=(GROUND, DISK)).place("us-east-1"), "burst")
    assert done.sentence("burst") == "burst is already empty, but for its data:"


def test_the_data_goes_last_and_only_when_it_is_asked_for() -> None:
    world = World(standing=(BUCKET, GROUND, DISK))
    done = empty(world.place("us-east-1"), "burst", delete_data=True)
    assert [one for one in world.calls if one in ("destroy", "release")] == ["destroy", "release", "destroy"]
    assert (done.left, world.standing) == (None, ())


PRICES = [
    ("a disk, by its size", DISK, "us-east-1", "8.00 USD"),
    ("of another region nothing is known", DISK, "eu-west-1", "unknown: a disk of 100 GiB (no price for eu-west-1)"),
    ("a kind without a price", replace(DISK, outputs={"size": 10, "type": "io2"}), "us-east-1", "unknown: a disk of 10 GiB (no price of io2 for us-east-1)"),
    ("a disk whose state says no size", replace(DISK, outputs={}), "us-east-1", "unknown: a disk at 0.08 USD a GiB"),
    ("EFS, by what is in it", Standing(type="aws:efs/fileSystem:FileSystem", name="e", id="fs-1"), "us-east-1", "unknown: what it holds at 0.30 USD a GiB"),
    ("Lustre, by size and throughput", Standing(type="aws:fsx/lustreFileSystem:LustreFileSystem", name="l", id="fs-2", outputs={"storageCapacity": "1200", "perUnitStorageThroughput": 250.0}), "us-east-1", "252.00 USD"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "region", "said"), [row[1:] for row in PRICES], ids=[row[0] for row in PRICES]
)
def test_what_it_costs_a_month(one: Standing, region: str, said: str) -> None:
    (kept,) = left_of([one], region, prices()).data
    assert kept.cost.words("USD") == said


SURE = [
    ("nobody can be asked", ["--delete-data"], "there is no terminal to ask at"),
    ("another name", ["--delete-data", "--confirm", "lab"], "the name given was 'lab', the cluster's is 'burst': nothing was done"),
    ("an empty name", ["--delete-data", "--confirm", ""], "the name given was ''"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "said"), [row[1:] for row in SURE], ids=[row[0] for row in SURE])
def test_data_is_deleted_for_its_name_alone(
    options: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(standing=(BUCKET, DISK))
    monkeypatch.setattr("gpucluster.cli.down._place", lambda _: world.place("us-east-1"))
    assert run(["down", "burst", *options]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "next: gpucluster down burst --delete-data --confirm burst" in told
    assert world.calls == []


def test_confirmed_the_answer_says_that_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(standing=(BUCKET, DISK))
    monkeypatch.setattr("gpucluster.cli.down._place", lambda _: world.place("us-east-1"))
    assert run(["down", "burst", "--delete-data", "--confirm", "burst", "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["kept"], said["kept_network"], said["resources"]) == ([], [], 2)
