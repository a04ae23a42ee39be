"""A cluster for each file of this folder, named after the file: files run side by side, tests of one file in turn."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import ROOT, Cluster, gpucluster


@pytest.fixture(scope="module")
def standing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """`gpucluster sandbox up` of stacks/burst.yaml under another name."""
    name = request.path.stem.removeprefix("test_")
    spec = tmp_path_factory.mktemp("stack") / f"{name}.yaml"
    spec.write_text((ROOT / "stacks/burst.yaml").read_text().replace("name: burst\n", f"name: {name}\n", 1))
    gpucluster("sandbox", "up", str(spec), timeout=1500)
    try:
        yield Cluster(name)
    finally:
        gpucluster("sandbox", "down", name)
        assert not Path("/var/lib/gpucluster-sandbox", name).exists()


@pytest.fixture
def burst(standing: Cluster) -> Iterator[Cluster]:
    """The cluster with no node, no job, no refusal."""
    yield standing
    standing.capacity(None)
    standing.exec("head", "scancel", "--user", "researcher")
    standing.power_down()
    standing.wait("every node is gone and no slot is blocked", standing.all_gone, within=120)
