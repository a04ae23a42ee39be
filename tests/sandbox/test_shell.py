"""An empty cloud and typed commands: `pulumi up`, a job, an interrupted change, `gpucluster down`."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import ROOT, Cluster, gpucluster

pytestmark = [pytest.mark.sandbox, pytest.mark.in_order, pytest.mark.timeout(3000)]

NAME = "shell"
CHECKOUT = ("Pulumi.yaml", "__main__.py")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "stacks").mkdir()
    for name in CHECKOUT:
        (folder / name).write_text((ROOT / name).read_text())
    text = (ROOT / "stacks/burst.yaml").read_text().replace("name: burst\n", f"name: {NAME}\n", 1)
    (folder / "stacks" / f"{NAME}.yaml").write_text(text)
    return folder


@pytest.fixture(scope="module")
def cloud(checkout: Path) -> Iterator[Cluster]:
    done = gpucluster(
        "sandbox", "up", str(checkout / "stacks" / f"{NAME}.yaml"), "--cloud-only", timeout=1500
    )
    try:
        assert f"gpucluster sandbox shell {NAME}" in done.stdout
        yield Cluster(NAME)
    finally:
        gpucluster("sandbox", "down", NAME)


def argv(*typed: str) -> list[str]:
    return [sys.executable, "-m", "gpucluster.cli", "sandbox", "shell", NAME, *typed]


def typed(checkout: Path, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """Run a command in the sandbox's shell, from the checkout."""
    done = subprocess.run(
        argv(*words), cwd=checkout, capture_output=True, text=True, timeout=1000, check=False
    )
    assert done.returncode == 0 or not check, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def test_typed_pulumi_up_makes_a_cluster_that_runs_a_job(cloud: Cluster, checkout: Path) -> None:
    done = typed(checkout, "-c", "pulumi up --yes --skip-preview && pulumi stack output head")
    assert "pulumi-language-python: runs __main__.py" in done.stderr, "the banner names the stand-ins"
    head = done.stdout.split()[-1]
    assert [one["id"] for one in cloud.everything() if one["role"] == "head"] == [head]
    gpucluster("sandbox", "status", NAME, "--wait")
    job = cloud.sbatch("-N1", "--gres=gpu:8", script="srun hostname")
    cloud.wait("the job is done", lambda: cloud.state(job) == "COMPLETED")


def test_typed_pulumi_and_gpucluster_use_one_stack(cloud: Cluster, checkout: Path) -> None:
    assert "no change" in gpucluster("sandbox", "preview", NAME).stdout
    done = typed(checkout, "--", "pulumi", "preview", "--json")
    assert set(json.loads(done.stdout)["changeSummary"]) == {"same"}


def test_next_up_completes_an_interrupted_change(cloud: Cluster, checkout: Path) -> None:
    spec = checkout / "stacks" / f"{NAME}.yaml"
    spec.write_text(spec.read_text().replace("max: 16", "max: 12"))
    child = subprocess.Popen(
        argv("--", "pulumi", "up", "--yes", "--skip-preview"),
        cwd=checkout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    assert child.stdout is not None
    for line in child.stdout:
        if "Updating" in line:
            break
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=900)
    typed(checkout, "--", "pulumi", "up", "--yes", "--skip-preview")
    assert "no change" in gpucluster("sandbox", "preview", NAME).stdout, "gpucluster reads the new plan"
    cloud.wait("slurmctld has the new size", lambda: "h200-1a-13" not in cloud.nodes())


def test_typed_down_deletes_everything_and_up_makes_it_again(cloud: Cluster, checkout: Path) -> None:
    typed(checkout, "--", "gpucluster", "down", NAME)
    assert {one["state"] for one in cloud.everything()} == {"terminated"}
    typed(checkout, "--", "pulumi", "up", "--yes", "--skip-preview")
    gpucluster("sandbox", "status", NAME, "--wait")
    typed(checkout, "--", "pulumi", "destroy", "--exclude-protected", "--yes", "--skip-preview")
