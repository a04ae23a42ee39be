"""An imported site comes up as a twin on plain machines, scaled down, and runs a job in each of its partitions."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import ROOT, Cluster, gpucluster

from gpucluster.sandbox import state_dir

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(3000)]

NAME, FIXTURE = "twin", ROOT / "tests/support/sites/campus"
PARTITIONS = {"cpu": (), "gpu": ("--gpus=1",)}  # of the fixture, with what a job of each asks for


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The twin after the playbook, with one host of each pool."""
    spec = tmp_path_factory.mktemp("imported") / f"{NAME}.yaml"
    gpucluster(
        "import", str(FIXTURE), "--name", NAME, "--to", str(spec), check=False
    )  # 1: it counts no memory, and gpucluster does
    gpucluster("sandbox", "up", str(spec), "--scale", "1", timeout=900)
    try:
        inventory = state_dir.living(NAME).site / "inventory.yml"
        play = ("ansible-playbook", "-i", str(inventory), "playbooks/site.yml")
        path = f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"
        whole = ["gpucluster", "sandbox", "run", NAME, "--", *play]
        done = subprocess.run(
            whole,
            env={**os.environ, "PATH": path, "ANSIBLE_NOCOLOR": "1"},
            capture_output=True, text=True, timeout=1000, check=False, cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        yield Cluster(NAME)
    finally:
        gpucluster("sandbox", "down", NAME)
        assert not Path("/var/lib/gpucluster-sandbox", NAME).exists()


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_job_runs_in_each_partition_of_the_imported_site(twin: Cluster, partition: str) -> None:
    """No test started an imported site: the twin shows that its slurmctld and its slurmds take the rendered files."""
    asked = ("srun", "-p", partition, *PARTITIONS[partition], "hostname")
    ran_on = twin.exec("head", *asked, user="admin").strip()
    shown = twin.exec("head", "sinfo", "-h", "-p", partition, "-N", "-o", "%n").split()
    assert ran_on in shown


def test_the_twin_has_the_partitions_and_gpus_of_the_site(twin: Cluster) -> None:
    assert set(twin.exec("head", "sinfo", "-h", "-o", "%R").split()) == set(PARTITIONS)
    gres = {node["name"]: node["gres"] for node in twin.nodes().values()}
    assert {one.partition("(")[0] for one in gres.values()} == {"", "gpu:gpu:1", "gpu:a100:8"}
