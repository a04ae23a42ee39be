"""One cluster for each file of this folder, with the file's name. Files run in parallel, the tests of a file in order."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import ROOT, Cluster, gpucluster


@pytest.fixture(scope="module")
def shared_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """`gpucluster sandbox up` of stacks/burst.yaml under another name; the cluster of `validate` has health checks."""
    name = request.path.stem.removeprefix("test_")
    spec = tmp_path_factory.mktemp("stack") / f"{name}.yaml"
    text = (ROOT / "stacks/burst.yaml").read_text().replace("name: burst\n", f"name: {name}\n", 1)
    spec.write_text(f"{text}health: {{every: 12h}}\n" if name == "validate" else text)
    gpucluster("sandbox", "up", str(spec), timeout=1500)
    try:
        yield Cluster(name, spec)
    finally:
        gpucluster("sandbox", "down", name)
        assert not Path("/var/lib/gpucluster-sandbox", name).exists()


@pytest.fixture
def burst(shared_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster. After each test it has no node, no job and no limit of capacity."""
    yield shared_cluster
    shared_cluster.capacity(None)
    shared_cluster.exec("head", "scancel", "--user", "researcher")
    shared_cluster.power_down()
    shared_cluster.wait("every node is gone and no slot is blocked", shared_cluster.all_gone)
