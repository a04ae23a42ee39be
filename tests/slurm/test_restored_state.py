"""What becomes of jobs when a copy of slurmctld's state is put back: why `diff` gives no command that does it."""

import dataclasses

import pytest
from real_slurm import USER, VERSIONS, RealSlurm
from support.builders import a_lab_plan

STATE, COPY = "/var/spool/slurmctld", "/var/spool/a-copy"


@pytest.mark.parametrize("version", VERSIONS)
def test_job_that_has_ended_since_the_copy_runs_again(version: str) -> None:
    plan = a_lab_plan()
    plan = dataclasses.replace(plan, slurm=dataclasses.replace(plan.slurm, version=version))
    with RealSlurm(version, plan) as slurm:
        slurm.start_controller()
        script = "#!/bin/sh\necho ran >> /tmp/ran\n"
        slurm.must("sbatch", "-o", "/dev/null", "-t", "10", "-w", "gpu01", user=USER, stdin=script)
        slurm.stop_controller()  # it saves its state
        slurm.must("cp", "--archive", STATE, COPY)
        slurm.start_controller()
        slurm.start_nodes("gpu01")
        ran = slurm.path("/tmp/ran")
        slurm.wait(lambda: ran.exists() and ran.read_text() == "ran\n", "the job has run")
        slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "the job has ended")
        slurm.stop_controller()
        slurm.must("rm", "-r", STATE)
        slurm.must("mv", COPY, STATE)
        slurm.start_controller()
        slurm.wait(lambda: ran.read_text() == "ran\nran\n", "the job runs again")
