"""`gpucluster down` keeps what holds data, and the next `up` finds it; `--delete-data` takes it too."""

from dataclasses import replace

import pytest
from builders import a_plan
from stacked import REGION, Cluster, a_place

from gpucluster.cli.down import empty
from gpucluster.engine import run
from gpucluster.engine.events import Progress
from gpucluster.plan.model import ClusterPlan, Efs, Lustre, Mount, Volume, there

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


def with_data() -> ClusterPlan:
    plan = a_plan()
    volume = Volume(key="state", size_gib=100, path="/srv/state")
    mounts = (
        Mount(path="/home", efs=Efs()),
        Mount(path="/data", lustre=Lustre(zone=ZONE, size_gib=1200, throughput=250)),
    )
    return replace(plan, head=replace(there(plan.head), volumes=(volume,)), storage=mounts)


@pytest.fixture
def holding(cluster: Cluster) -> Cluster:
    return replace(cluster, plan=with_data())


def ids(cluster: Cluster) -> dict[str, str]:
    """What holds data, by name."""
    return {one.name: one.id for one in run.standing(cluster.target) if one.type in DATA}


def test_the_data_outlives_the_cluster_and_the_next_up_finds_it(holding: Cluster) -> None:
    holding.up()
    before, names = ids(holding), drawn(holding)
    assert len(before) == 3
    done = empty(a_place(holding), "burst")
    assert done.left is not None
    assert {one.id for one in done.left.data} == set(before.values())
    assert any(one.startswith("vpc-") for one in done.left.ground)
    assert [one for one in run.standing(holding.target) if not one.kept] == []
    again = empty(a_place(holding), "burst")
    assert (again.was_empty, again.resources) == (True, 0)
    holding.up()
    assert ids(holding) == before
    assert drawn(holding).keys() == names.keys()
    assert set(drawn(holding).values()) & set(names.values()) == set(), (
        "a name that was deleted may be taken yet"
    )
    assert [c for c in holding.preview().changes if not c.follows] == []
    gone = empty(a_place(holding), "burst", delete_data=True)
    assert gone.left is None
    assert run.standing(holding.target) == ()
    assert_no_data(holding)


def drawn(cluster: Cluster) -> dict[tuple[str, str], str]:
    """Names that the account, the region or the whole world has once, of what `down` deletes."""
    found = ((one, one.outputs) for one in run.standing(cluster.target) if not one.kept)
    return {(one.type, one.name): out[key] for one, out in found if (key := UNIQUE.get(one.type))}


def assert_no_data(cluster: Cluster) -> None:
    assert cluster.client("efs").describe_file_systems()["FileSystems"] == []
    assert cluster.client("fsx").describe_file_systems()["FileSystems"] == []
    volumes = cluster.client("ec2").describe_volumes()["Volumes"]
    assert [one for one in volumes if one["State"] not in ("deleting", "deleted")] == []


def test_what_stays_is_told_with_its_price_and_the_line_to_type(holding: Cluster) -> None:
    holding.up()
    done = empty(a_place(holding), "burst")
    assert done.left is not None
    said = "\n".join((done.sentence("burst"), *done.left.lines("burst")))
    assert "burst is down: 0 nodes ended, " in said
    assert "FSx for Lustre of 1200 GiB fs-" in said
    assert "disk of 100 GiB vol-" in said
    assert f"(no price for {REGION}) a month" in said, (
        "the price list is of another region: unknown, not nothing"
    )
    assert said.endswith("to delete it for ever: gpucluster down burst --delete-data --confirm burst")


def test_t42_up_right_after_the_head_was_ended_outside_waits_for_its_address(holding: Cluster) -> None:
    holding.up()
    before = ids(holding)
    model, ended, said = holding.api.model, head_of(holding), list[str]()
    model.timing = replace(model.timing, ending_s=3600.0)
    holding.client("ec2").terminate_instances(InstanceIds=[ended])
    assert holding.refresh().counts["delete"] == 1, "its disk is on it until it has ended"

    def hear(step: Progress) -> None:
        said.append(str(step))
        if "waiting for the address" in said[-1]:
            model.timing = replace(model.timing, ending_s=0.1)

    done = run.up(holding.target, holding.program, report=hear).counts
    assert (done["create"], done["replace"]) == (1, 1)
    address = there(holding.plan.head).address
    assert f"Instance burst-head: waiting for the address {address}: {ended} is shutting-down" in said
    assert head_of(holding) != ended
    assert ids(holding) == before


def head_of(cluster: Cluster) -> str:
    return next(one.id for one in run.standing(cluster.target) if one.type == INSTANCE)
