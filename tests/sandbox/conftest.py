"""One burst cluster for all tests of this folder; each test leaves it idle, with all capacity back."""

from collections.abc import Iterator

import pytest
from cluster import Cluster, gpucluster


@pytest.fixture(scope="session")
def standing() -> Iterator[Cluster]:
    """`gpucluster sandbox up stacks/burst.yaml`, once."""
    gpucluster("sandbox", "up", "stacks/burst.yaml", timeout=1500)
    try:
        yield Cluster("burst")
    finally:
        gpucluster("sandbox", "down", "burst")


@pytest.fixture
def burst(standing: Cluster) -> Iterator[Cluster]:
    """The cluster with no node, no job, no refusal."""
    yield standing
    standing.capacity(None)
    standing.exec("head", "scancel", "--user", "researcher", check=False)
    standing.power_down()
    standing.wait("every node is gone and no slot is blocked", standing.all_gone, within=120)
