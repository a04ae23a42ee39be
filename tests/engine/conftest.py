"""One empty cloud and one stack for each test."""

import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from stacked import Cluster, a_cluster

from gpucluster import collector
from gpucluster.engine import find_or_build


def pytest_collection_finish() -> None:
    """The cloud is in our own process, and stays."""
    collector.settle()


@pytest.fixture(scope="session")
def pulumi() -> Path:
    return find_or_build(lambda line: print(line, file=sys.stderr))  # noqa: T201  four minutes once


@pytest.fixture
def cluster(tmp_path: Path, pulumi: Path) -> Generator[Cluster]:
    with a_cluster(tmp_path / "state", pulumi) as made:
        yield made
