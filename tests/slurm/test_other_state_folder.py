"""What becomes of the jobs of a site whose slurmctld starts with another StateSaveLocation, as an imported one does."""

import dataclasses

import pytest
from real_slurm import USER, VERSIONS, RealSlurm
from support.builders import a_lab_plan

STATE = "/var/spool/slurmctld"


@pytest.mark.parametrize("version", VERSIONS)
def test_running_jobs_go_on_with_a_copy_of_the_state_and_are_ended_without(version: str) -> None:
    plan = a_lab_plan()
    plan = dataclasses.replace(plan, slurm=dataclasses.replace(plan.slurm, version=version))
    with RealSlurm(version, plan) as slurm:
        slurm.start_controller()
        slurm.start_nodes("gpu01")
        slurm.wait(
            lambda: slurm.run("sinfo", "-h", "-n", "gpu01", "-o", "%t").out.strip() == "idle", "an idle node"
        )
        script = "#!/bin/sh\ntouch /tmp/began\nexec sleep 997\n"
        for _ in range(2):  # one runs, one waits
            options = ("-o", "/dev/null", "-t", "10", "-w", "gpu01", "--exclusive")
            slurm.must("sbatch", "--parsable", *options, user=USER, stdin=script)
        slurm.wait(lambda: slurm.path("/tmp/began").exists(), "a job runs")
        assert slurm.run("pgrep", "-f", "sleep 997").code == 0
        slurm.stop_controller()
        slurm.must("mv", STATE, "/var/spool/of-the-site")
        slurm.must("cp", "--archive", "/var/spool/of-the-site", STATE)  # as docs/takeover.md says it
        slurm.start_controller()
        assert sorted(slurm.run("squeue", "-h", "-o", "%T").out.split()) == ["PENDING", "RUNNING"]
        slurm.stop_controller()
        slurm.must("mv", STATE, "/var/spool/copied")
        slurm.folder(STATE, "slurm")
        slurm.start_controller()
        assert slurm.run("squeue", "-h", "-t", "all").out == ""
        slurm.wait(lambda: slurm.run("pgrep", "-f", "sleep 997").code != 0, "the job that ran is ended")
