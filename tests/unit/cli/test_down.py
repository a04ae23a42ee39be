"""`gpucluster down`: scaling stops, nodes terminate, then the rest is destroyed. It can be repeated and interrupted."""

import json
from dataclasses import replace

import pytest
from support.downs import BUCKET, DISK, GROUND, VPC, Cluster, emptied

from gpucluster.catalog import prices
from gpucluster.cli.down_world import World
from gpucluster.cli.main import run
from gpucluster.cli.retained import retained_of
from gpucluster.cloud.port import CloudError, Fault
from gpucluster.engine.deployment import DeployedResource


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)


def test_order_is_stop_then_nodes_then_the_rest() -> None:
    cluster = Cluster()
    done = emptied(cluster.place())
    assert cluster.calls == [
        "instances burst", "control us-west-2 burst-1", "stop", "occupants vpc-1", "instances burst", "instances burst",
        "occupants vpc-1", "destroy",
    ]  # fmt: skip
    assert done.sentence("burst") == "burst is empty: 0 nodes terminated, 1 resources deleted"


def test_second_down_reports_it_and_changes_nothing() -> None:
    cluster = Cluster(deployed=())
    assert emptied(cluster.place()).sentence("burst") == "burst is already empty"
    assert cluster.calls == []


def test_down_continues_after_an_interruption_without_the_bucket() -> None:
    cluster = Cluster(deployed=(VPC,))
    emptied(cluster.place())
    assert "destroy" in cluster.calls


def test_missing_bucket_does_not_stop_down() -> None:
    cluster = Cluster(stop_fails=CloudError(Fault.GONE, "NoSuchBucket", "gone"))
    emptied(cluster.place("us-east-1"))
    assert cluster.calls[-1] == "destroy"


def test_nothing_is_destroyed_if_scaling_cannot_be_stopped() -> None:
    cluster = Cluster(stop_fails=CloudError(Fault.LOST, "Timeout", "no answer"))
    with pytest.raises(CloudError):
        emptied(cluster.place("us-east-1"))
    assert "destroy" not in cluster.calls


def test_error_of_the_cloud_has_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(stop_fails=CloudError(Fault.CONFIGURATION, "NoCredentialsError", "no keys"))
    monkeypatch.setattr("gpucluster.cli.down.access_of", lambda *_: cluster.place("us-east-1"))
    assert run(["down", "burst", "--yes"]) == 2
    said = capsys.readouterr().err
    assert "AWS refused: NoCredentialsError: no keys" in said
    assert "gpucluster down burst" in said


def test_resources_with_data_are_retained_and_listed_with_their_cost() -> None:
    cluster = Cluster(deployed=(BUCKET, GROUND, DISK))
    done = emptied(cluster.place("us-east-1"))
    assert "release" not in cluster.calls
    assert done.retained is not None
    assert [done.sentence("burst"), *done.retained.lines("burst", World.SANDBOX)] == [
        "burst is down: 0 nodes terminated, 1 resources deleted; its data stays:",
        "  disk of 100 GiB vol-1 (burst-state): 8.00 USD a month",
        "  the network of the data, at no cost: vpc-1",
        "  next: `up` uses the data again; to delete it permanently: gpucluster down burst --sandbox --delete-data --confirm burst",
    ]


def test_second_down_finds_only_retained_resources() -> None:
    done = emptied(Cluster(deployed=(GROUND, DISK)).place("us-east-1"))
    assert done.sentence("burst") == "burst is already empty, but for its data:"


def test_data_is_deleted_last_and_only_on_request() -> None:
    cluster = Cluster(deployed=(BUCKET, GROUND, DISK))
    done = emptied(cluster.place("us-east-1"), delete_data=True)
    assert [one for one in cluster.calls if one in ("destroy", "release")] == [
        "destroy",
        "release",
        "destroy",
    ]
    assert (done.retained, cluster.deployed) == (None, ())


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
    cluster = Cluster(deployed=(BUCKET, DISK))
    monkeypatch.setattr("gpucluster.cli.down.access_of", lambda *_: cluster.place("us-east-1"))
    assert run(["down", "burst", *options]) == 2
    told = capsys.readouterr().err
    assert said in told
    world = "" if "--confirm" in options else " --aws"  # what was typed is repeated as it was typed
    assert f"next: gpucluster down burst{world} --delete-data --confirm burst" in told
    assert cluster.changes == []


def test_confirmed_deletion_reports_no_retained_resources(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(deployed=(BUCKET, DISK))
    monkeypatch.setattr("gpucluster.cli.down.access_of", lambda *_: cluster.place("us-east-1"))
    assert run(["down", "burst", "--delete-data", "--confirm", "burst", "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["retained"], said["retained_network"], said["resources"]) == ([], [], 2)
