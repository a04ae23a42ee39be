"""A protected volume that leaves the program: `up` refuses before the head stops. Without protection it stops the head and deletes it."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import a_plan
from support.engine_stack import Cluster
from support.pulumi_shell import a_shell

from gpucluster.engine import run
from gpucluster.engine.run import EngineError
from gpucluster.plan.model import Volume

pytestmark = [
    pytest.mark.timeout(900),
    # a refused run leaves an event loop and sockets of the SDK behind
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def holding(cluster: Cluster) -> Cluster:
    """A deployed cluster whose head has a volume."""
    plan = a_plan()
    volume = Volume(key="state", size_gib=100, path="/srv/state")
    made = replace(cluster, plan=replace(plan, head=replace(plan.head, volumes=(volume,))))
    made.up()
    return made


def without(cluster: Cluster) -> Cluster:
    return replace(cluster, plan=replace(cluster.plan, head=replace(cluster.plan.head, volumes=())))


def head_and_volume(cluster: Cluster) -> tuple[str, dict[str, list[str]]]:
    """Return the state of the head, and of each volume of the program with the devices that it is attached as."""
    ec2 = cluster.client("ec2")
    (head,) = (
        one
        for found in ec2.describe_instances()["Reservations"]
        for one in found["Instances"]
        if one["State"]["Name"] != "terminated"
    )
    volumes = ec2.describe_volumes(Filters=[{"Name": "tag:Name", "Values": ["burst-state"]}])["Volumes"]
    attached = {v["VolumeId"]: [a["State"] for a in v["Attachments"]] for v in volumes}
    return head["State"]["Name"], attached


def test_up_refuses_to_delete_a_protected_volume_before_the_head_stops(holding: Cluster) -> None:
    """Regression: `up` stopped the head to detach the volume, refused to delete it, and left the head stopped."""
    before = head_and_volume(holding)
    assert before[0] == "running"
    with pytest.raises(EngineError, match="cannot be deleted") as refused:
        without(holding).up()
    assert "burst-state" in str(refused.value)
    assert "pulumi state unprotect" in str(refused.value)
    assert head_and_volume(holding) == before
    assert holding.preview().changes == (), "nothing at all was changed"

    run.release(holding.target)
    without(holding).up()
    assert head_and_volume(holding) == ("stopped", {})


def test_typed_up_refuses_it_in_its_preview(holding: Cluster, tmp_path: Path) -> None:
    """What `diff` says, also of `--skip-preview`: the head stops first and stays stopped."""
    (before, volumes) = head_and_volume(holding)
    shell = a_shell(holding, tmp_path / "checkout")  # its spec has no volume
    seen: list[str] = []
    for options in ((), ("--skip-preview",)):
        done = shell("pulumi", "up", "--yes", *options, check=False)
        assert done.returncode != 0
        assert "cannot be deleted" in done.stdout + done.stderr
        seen.append(head_and_volume(holding)[0])
    assert (before, seen) == ("running", ["running", "stopped"])
    assert head_and_volume(holding)[1] == {volume: [] for volume in volumes}
