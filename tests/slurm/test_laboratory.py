"""The laboratory itself: daemons start, a job runs on started nodes, power saving works, and nothing is left."""

import os
from pathlib import Path

import pytest
from real_slurm import USER, VERSIONS, RealSlurm
from support.builders import a_lab_plan, a_plan

from gpucluster.slurm.config.render import render


@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_runs_on_hosts(version: str) -> None:
    """Two slurmds with the names and addresses of the plan; a job sees its GPUs."""
    with RealSlurm(version, a_lab_plan()) as slurm:
        slurm.start_controller()
        slurm.start_nodes("gpu01", "gpu02")
        slurm.wait(
            lambda: "idle" in slurm.run("sinfo", "-h", "-n", "gpu[01-02]", "-o", "%t").out.split(),
            "idle nodes",
        )
        out = slurm.must(
            "srun", "-N2", "--gpus-per-node=8", "sh", "-c", "hostname; echo $CUDA_VISIBLE_DEVICES", user=USER
        )
        assert sorted(out.split()) == sorted(["gpu01", "gpu02", *["0,1,2,3,4,5,6,7"] * 2])
        assert slurm.errors() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_power_saving_starts_and_ends_nodes(version: str) -> None:
    """A job on AWS's slots calls ResumeProgram; the slurmds of the laboratory register and the job runs."""
    with RealSlurm(version, a_plan()) as slurm:
        slurm.start_controller()
        slurm.serve_power()
        slurm.must(
            "sbatch", "-N2", "--gpus-per-node=8", "-o", "/tmp/out", "--wrap", "srun hostname", user=USER
        )
        slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "the job has ended")
        assert len(slurm.path("/tmp/out").read_text().split()) == 2
        assert [kind for kind, _ in slurm.calls()] == ["resume"]


def test_without_slurmds_the_rendered_files_are_unchanged() -> None:
    plan = a_lab_plan()
    with RealSlurm("24.11", plan, nodes=False) as slurm:
        for artifact in render(slurm.plan):
            if artifact.path.startswith("slurm/"):
                assert slurm.path(f"/etc/{artifact.path}").read_bytes() == artifact.content, artifact.path


def test_nothing_is_left() -> None:
    before = {p.name for p in Path("/sys/class/net").iterdir()}
    with RealSlurm("24.11", a_lab_plan()) as slurm:
        slurm.start_controller()
        leader = slurm._leader
    assert not Path(f"/proc/{leader}").exists()
    assert {p.name for p in Path("/sys/class/net").iterdir()} == before
    assert "/mnt/merged" not in Path(f"/proc/{os.getpid()}/mountinfo").read_text()
