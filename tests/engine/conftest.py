"""One empty cloud and one stack for each test."""

import gc
import sys
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from support.engine_stack import Cluster, a_cluster

from gpucluster.engine import find_or_build


@pytest.fixture(autouse=True, scope="module")
def _collected() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Collect what a file left, because its warning would fail a test of another file: Pulumi leaves event loops behind."""
    yield
    _collect()


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Collect what is unreachable only now, or pytest ends with exit code 1 although every test passed."""
    _collect()


def _collect() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(3):  # a finalizer leaves garbage of its own
            gc.collect()


@pytest.fixture(scope="session")
def pulumi() -> Path:
    return find_or_build(lambda line: print(line, file=sys.stderr))  # noqa: T201  four minutes once


@pytest.fixture
def cluster(tmp_path: Path, pulumi: Path) -> Generator[Cluster]:
    with a_cluster(tmp_path / "state", pulumi) as made:
        yield made
