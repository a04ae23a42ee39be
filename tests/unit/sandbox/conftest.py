"""A running cloud for each module. A module with other times or another template defines its own `running`."""

from collections.abc import Generator
from typing import Any

import pytest
from support.clouds import Network, RunningCloud, a_network, running_cloud


@pytest.fixture(scope="module")
def running() -> Generator[tuple[RunningCloud, Network], None, None]:
    with running_cloud() as cloud:
        yield cloud, a_network(cloud)


@pytest.fixture
def cloud(running: tuple[RunningCloud, Network]) -> RunningCloud:
    """Reset the cloud for each test."""
    return running[0].fresh()


@pytest.fixture
def network(running: tuple[RunningCloud, Network]) -> Network:
    return running[1]


@pytest.fixture
def ec2(cloud: RunningCloud) -> Any:
    return cloud.client("ec2")
