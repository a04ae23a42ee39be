"""`gpucluster down` retains stateful resources, and the next `up` adopts them. `--delete-data` deletes them, too."""

from dataclasses import replace

import pytest
from support.builders import a_plan
from support.downs import emptied
from support.engine_stack import REGION, Cluster, a_place

from gpucluster.cli.down_world import World
from gpucluster.engine import run
from gpucluster.engine.events import Progress
from gpucluster.plan.model import Efs, FsxLustre, Mount, SlurmOnAws, Volume

DATA = {"aws:ebs/volume:Volume", "aws:efs/fileSystem:FileSystem", "aws:fsx/lustreFileSystem:LustreFileSystem"}
ZONE = f"{REGION}a"
INSTANCE = "aws:ec2/instance:Instance"
UNIQUE = {  # by the output with the name
    "aws:s3/bucket:Bucket": "bucket",
    "aws:secretsmanager/secret:Secret": "name",
    "aws:sqs/queue:Queue": "name",
    "aws:iam/role:Role": "name",
    "aws:iam/instanceProfile:InstanceProfile": "name",
    "aws:ec2/launchTemplate:LaunchTemplate": "name",
    "aws:cloudwatch/eventRule:EventRule": "name",
}


def with_data() -> SlurmOnAws:
    plan = a_plan()
    volume = Volume(key="state", size_gib=100, path="/srv/state")
    mounts = (
        Mount(path="/home", source=Efs()),
        Mount(path="/data", source=FsxLustre(zone=ZONE, size_gib=1200, throughput=250)),
    )
    return replace(plan, head=replace(plan.head, volumes=(volume,)), storage=mounts)


@pytest.fixture
def holding(cluster: Cluster) -> Cluster:
    return replace(cluster, plan=with_data())


def ids(cluster: Cluster) -> dict[str, str]:
    """Return the stateful resources by name."""
    return {one.name: one.id for one in run.deployed_resources(cluster.target) if one.type in DATA}


def test_retained_data_is_listed_and_adopted_by_next_up(holding: Cluster) -> None:
    holding.up()
    before, names = ids(holding), drawn(holding)
    assert len(before) == 3
    done = emptied(a_place(holding))
    assert done.retained is not None
    assert {one.id for one in done.retained.data} == set(before.values())
    assert any(one.startswith("vpc-") for one in done.retained.network)
    text = "\n".join((done.sentence("burst"), *done.retained.lines("burst", World.AWS)))
    assert "burst is down: 0 nodes terminated, " in text
    assert "FSx for Lustre of 1200 GiB fs-" in text
    assert "disk of 100 GiB vol-" in text
    assert f"(no price for {REGION}) a month" in text, "unknown, not 0: the price list is of another region"
    assert text.endswith(
        "to delete it permanently: gpucluster down burst --aws --delete-data --confirm burst"
    )
    assert [one for one in run.deployed_resources(holding.target) if not one.retained] == []
    again = emptied(a_place(holding))
    assert (again.was_empty, again.resources) == (True, 0)
    holding.up()
    assert ids(holding) == before
    assert drawn(holding).keys() == names.keys()
    assert set(drawn(holding).values()) & set(names.values()) == set(), (
        "a name that was deleted may be taken yet"
    )
    assert [c for c in holding.preview().changes if not c.follows] == []
    gone = emptied(a_place(holding), delete_data=True)
    assert gone.retained is None
    assert run.deployed_resources(holding.target) == ()
    assert_no_data(holding)


def drawn(cluster: Cluster) -> dict[tuple[str, str], str]:
    """Return the names of deleted resources that are unique in the account, the region or the world."""
    found = ((one, one.outputs) for one in run.deployed_resources(cluster.target) if not one.retained)
    return {(one.type, one.name): out[key] for one, out in found if (key := UNIQUE.get(one.type))}


def assert_no_data(cluster: Cluster) -> None:
    assert cluster.client("efs").describe_file_systems()["FileSystems"] == []
    assert cluster.client("fsx").describe_file_systems()["FileSystems"] == []
    volumes = cluster.client("ec2").describe_volumes()["Volumes"]
    assert [one for one in volumes if one["State"] not in ("deleting", "deleted")] == []


def test_t42_up_waits_for_address_of_terminated_head(holding: Cluster) -> None:
    holding.up()
    before = ids(holding)
    model, ended, steps = holding.api.model, head_of(holding), list[str]()
    model.timing = replace(model.timing, ending_s=3600.0)
    holding.client("ec2").terminate_instances(InstanceIds=[ended])
    assert holding.refresh().counts["delete"] == 1, "its disk is on it until it has ended"

    def hear(step: Progress) -> None:
        steps.append(str(step))
        if "waiting for the address" in steps[-1]:
            model.timing = replace(model.timing, ending_s=0.1)

    done = run.up(holding.target, holding.program, report=hear).counts
    assert (done["create"], done["replace"]) == (1, 1)
    address = holding.plan.head.address
    assert f"Instance burst-head: waiting for the address {address}: {ended} is shutting-down" in steps
    assert head_of(holding) != ended
    assert ids(holding) == before


def head_of(cluster: Cluster) -> str:
    return next(one.id for one in run.deployed_resources(cluster.target) if one.type == INSTANCE)
