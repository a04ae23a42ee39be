"""`gpucluster down`: scaling stops, nodes terminate, then the rest is destroyed. It can be repeated and interrupted."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gpucluster.catalog import prices
from gpucluster.cli.down import ClusterAccess, empty
from gpucluster.cli.main import run
from gpucluster.cli.retained import retained_of
from gpucluster.cloud.network_interfaces import Network, Occupant
from gpucluster.cloud.port import CloudError, Fault, Instance
from gpucluster.engine.deployment import DeployedResource
from gpucluster.engine.events import Change, Outcome

BUCKET = DeployedResource(type="aws:s3/bucket:Bucket", name="burst", id="burst-1")
VPC = DeployedResource(
    type="aws:ec2/vpc:Vpc", name="burst", id="vpc-1", outputs={"arn": "arn:aws:ec2:us-west-2:1:vpc/vpc-1"}
)
GROUND = replace(VPC, retained=True)
DISK = DeployedResource(
    type="aws:ebs/volume:Volume",
    name="burst-state",
    id="vol-1",
    protected=True,
    retained=True,
    outputs={"size": 100.0, "type": "gp3"},
)


@dataclass
class World:
    """A stand-in of a cluster that records the calls."""

    deployed: tuple[DeployedResource, ...] = (BUCKET, VPC)
    stop_fails: CloudError | None = None
    inside: tuple[Occupant, ...] = ()
    calls: list[str] = field(default_factory=list[str])

    def place(self, region: str | None = None) -> ClusterAccess:
        return ClusterAccess(
            resources=lambda: self.deployed,
            destroy=lambda _: self.destroy(),
            release=self.release,
            cloud=lambda name: self.note(f"cloud {name}"),
            occupants=lambda _: Inside(self),
            launched=lambda _: frozenset(),
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
        self.deployed = tuple(one for one in self.deployed if one.retained)
        gone = Change(
            op="delete", urn="urn:pulumi:b::g::gpucluster:aws:N$aws:ec2/vpc:Vpc::burst", properties=()
        )
        component = Change(op="delete", urn="urn:pulumi:b::g::gpucluster:aws:N::burst", properties=())
        return Outcome(counts={"delete": 2}, changes=(gone, component))

    def release(self) -> None:
        self.calls.append("release")
        self.deployed = tuple(replace(one, protected=False, retained=False) for one in self.deployed)


@dataclass
class Inside:
    """What is in the network of the cluster. No id of the journal is listed any more."""

    world: World

    def occupants(self, network: Network) -> tuple[Occupant, ...]:
        self.world.calls.append(f"occupants {' '.join(network.vpcs)}")
        return self.world.inside

    def instances(self, ids: Sequence[str]) -> tuple[Instance, ...]:
        assert not ids
        return ()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)


def test_order_is_stop_then_nodes_then_the_rest() -> None:
    world = World()
    done = empty(world.place(), "burst")
    assert world.calls == [
        "control us-west-2 burst-1", "stop", "occupants vpc-1", "cloud us-west-2", "instances burst", "instances burst",
        "occupants vpc-1", "destroy",
    ]  # fmt: skip
    assert done.sentence("burst") == "burst is empty: 0 nodes terminated, 1 resources deleted"


def test_second_down_reports_it_and_changes_nothing() -> None:
    world = World(deployed=())
    assert empty(world.place(), "burst").sentence("burst") == "burst is already empty"
    assert world.calls == []


def test_down_continues_after_an_interruption_without_the_bucket() -> None:
    world = World(deployed=(VPC,))
    empty(world.place(), "burst")
    assert "destroy" in world.calls


def test_missing_bucket_does_not_stop_down() -> None:
    world = World(stop_fails=CloudError(Fault.GONE, "NoSuchBucket", "gone"))
    empty(world.place("us-east-1"), "burst")
    assert world.calls[-1] == "destroy"


def test_nothing_is_destroyed_if_scaling_cannot_be_stopped() -> None:
    world = World(stop_fails=CloudError(Fault.LOST, "Timeout", "no answer"))
    with pytest.raises(CloudError):
        empty(world.place("us-east-1"), "burst")
    assert "destroy" not in world.calls


def test_unknown_cluster_name_has_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpucluster.sandbox.state_dir.SandboxDir.path", tmp_path / "none")
    assert run(["down", "nobody"]) == 2
    assert (
        "there is no cluster 'nobody' here: no sandbox of that name, and no Pulumi.yaml"
        in capsys.readouterr().err
    )


def test_error_of_the_cloud_has_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(stop_fails=CloudError(Fault.CONFIGURATION, "NoCredentialsError", "no keys"))
    monkeypatch.setattr("gpucluster.cli.down._access", lambda _: world.place("us-east-1"))
    assert run(["down", "burst"]) == 2
    said = capsys.readouterr().err
    assert "AWS refused: NoCredentialsError: no keys" in said
    assert "gpucluster down burst" in said


def test_resources_with_data_are_retained_and_listed_with_their_cost() -> None:
    world = World(deployed=(BUCKET, GROUND, DISK))
    done = empty(world.place("us-east-1"), "burst")
    assert "release" not in world.calls
    assert done.retained is not None
    assert [done.sentence("burst"), *done.retained.lines("burst")] == [
        "burst is down: 0 nodes terminated, 1 resources deleted; its data stays:",
        "  disk of 100 GiB vol-1 (burst-state): 8.00 USD a month",
        "  the network of the data, at no cost: vpc-1",
        "  next: `up` uses the data again; to delete it permanently: gpucluster down burst --delete-data --confirm burst",
    ]


def test_second_down_finds_only_retained_resources() -> None:
    done = empty(World(deployed=(GROUND, DISK)).place("us-east-1"), "burst")
    assert done.sentence("burst") == "burst is already empty, but for its data:"


def test_data_is_deleted_last_and_only_on_request() -> None:
    world = World(deployed=(BUCKET, GROUND, DISK))
    done = empty(world.place("us-east-1"), "burst", delete_data=True)
    assert [one for one in world.calls if one in ("destroy", "release")] == ["destroy", "release", "destroy"]
    assert (done.retained, world.deployed) == (None, ())


PRICES = [
    ("a disk, by its size", DISK, "us-east-1", "8.00 USD"),
    ("of another region nothing is known", DISK, "eu-west-1", "unknown: a disk of 100 GiB (no price for eu-west-1)"),
    ("a kind without a price", replace(DISK, outputs={"size": 10, "type": "io2"}), "us-east-1", "unknown: a disk of 10 GiB (no price of io2 for us-east-1)"),
    ("a disk whose state says no size", replace(DISK, outputs={}), "us-east-1", "unknown: a disk at 0.08 USD a GiB"),
    ("EFS, by what is in it", DeployedResource(type="aws:efs/fileSystem:FileSystem", name="e", id="fs-1"), "us-east-1", "unknown: what it holds at 0.30 USD a GiB"),
    ("Lustre, by size and throughput", DeployedResource(type="aws:fsx/lustreFileSystem:LustreFileSystem", name="l", id="fs-2", outputs={"storageCapacity": "1200", "perUnitStorageThroughput": 250.0}), "us-east-1", "252.00 USD"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "region", "said"), [row[1:] for row in PRICES], ids=[row[0] for row in PRICES]
)
def test_monthly_cost_of_a_retained_resource(one: DeployedResource, region: str, said: str) -> None:
    (kept,) = retained_of([one], region, prices()).data
    assert kept.cost.words("USD") == said


SURE = [
    ("nobody can be asked", ["--delete-data"], "there is no terminal"),
    ("another name", ["--delete-data", "--confirm", "lab"], "the confirmation is 'lab', the cluster's name is 'burst': nothing was deleted"),
    ("an empty name", ["--delete-data", "--confirm", ""], "the confirmation is ''"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "said"), [row[1:] for row in SURE], ids=[row[0] for row in SURE])
def test_deletion_of_data_requires_the_exact_name(
    options: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(deployed=(BUCKET, DISK))
    monkeypatch.setattr("gpucluster.cli.down._access", lambda _: world.place("us-east-1"))
    assert run(["down", "burst", *options]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "next: gpucluster down burst --delete-data --confirm burst" in told
    assert world.calls == []


def test_confirmed_deletion_reports_no_retained_resources(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(deployed=(BUCKET, DISK))
    monkeypatch.setattr("gpucluster.cli.down._access", lambda _: world.place("us-east-1"))
    assert run(["down", "burst", "--delete-data", "--confirm", "burst", "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["retained"], said["retained_network"], said["resources"]) == ([], [], 2)
