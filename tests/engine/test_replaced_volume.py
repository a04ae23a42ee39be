"""A protected volume that an edit replaces: `up` refuses, and changes nothing. Without protection an empty one takes its place."""

from dataclasses import replace

import pytest
from support.builders import a_plan
from support.engine_stack import Cluster

from gpucluster.engine import run
from gpucluster.engine.run import EngineError
from gpucluster.plan.model import SlurmOnAws, Volume

pytestmark = [
    pytest.mark.timeout(900),
    # a refused run leaves an event loop and sockets of the SDK behind
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def with_volume(plan: SlurmOnAws, size: int = 100) -> SlurmOnAws:
    volume = Volume(key="state", size_gib=size, path="/srv/state")
    return replace(plan, head=replace(plan.head, volumes=(volume,)))


def volumes(cluster: Cluster) -> list[str]:
    found = cluster.client("ec2").describe_volumes(Filters=[{"Name": "tag:Name", "Values": ["burst-state"]}])
    return [one["VolumeId"] for one in found["Volumes"]]


def test_up_refuses_to_replace_a_protected_volume(cluster: Cluster) -> None:
    holding = replace(cluster, plan=with_volume(a_plan()))
    holding.up()
    before = volumes(holding)
    moved = replace(
        holding, plan=with_volume(a_plan(("[us-east-2a, us-east-2b]", "[us-east-2b, us-east-2a]")))
    )
    with pytest.raises(EngineError, match="burst-state"):
        moved.up()
    assert volumes(holding) == before
    assert holding.preview().changes == (), "nothing at all was changed"

    run.release(holding.target)
    moved.up()
    (after,) = volumes(holding)
    assert after not in before


def test_up_fails_for_a_smaller_volume(cluster: Cluster) -> None:
    """`diff` says that AWS refuses it, and that the data stays."""
    holding = replace(cluster, plan=with_volume(a_plan()))
    holding.up()
    before = volumes(holding)
    with pytest.raises(EngineError):
        replace(holding, plan=with_volume(a_plan(), size=50)).up()
    assert volumes(holding) == before
