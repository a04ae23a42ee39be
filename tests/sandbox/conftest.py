"""One cluster for each file of this folder, with the file's name. Files run in parallel, the tests of a file in order."""

from collections.abc import Iterator
from pathlib import Path

import cluster
import pytest
from cluster import ROOT, Cluster, gpucluster
from support.machine_locks import Ledger, one_of, room

from gpucluster.sandbox import state_dir

HERE = Path(__file__).parent
SLOWEST = ("hosts", "validate", "research", "runs", "topology", "faults", "losses", "takeover", "site_rules")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest files begin first: with one left at the end, the other workers have nothing to do."""
    rank = {f"test_{name}": place for place, name in enumerate(SLOWEST)}
    items.sort(
        key=lambda item: rank.get(item.path.stem, len(rank)) if item.path.parent == HERE else len(rank)
    )


@pytest.fixture(scope="module", autouse=True)
def _alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """No other run on this machine has this file's names, and the machine has room for its cluster.

    What a killed run of this file left is taken down first, by the names in its ledger.
    """
    name = request.path.stem
    with one_of([name], f"the sandboxes of {name}"), room(f"the cluster of {name}"):
        ledger = Ledger(name)
        there = {home.name for home in state_dir.homes()}
        for left in ledger.names():
            if left in there:
                gpucluster("sandbox", "down", left)
        ledger.clear()
        cluster.ledgers.append(ledger)
        yield
        cluster.ledgers.remove(ledger)
        if not {home.name for home in state_dir.homes()} & set(ledger.names()):
            ledger.clear()


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
