"""What becomes of the jobs of a site whose daemons start with another StateSaveLocation or SlurmdSpoolDir, as imported ones do."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from real_slurm import USER, VERSIONS, RealSlurm
from support.builders import a_lab_plan

STATE, SPOOL = "/var/spool/slurmctld", "/var/spool/slurmd"


@pytest.mark.parametrize("version", VERSIONS)
def test_running_jobs_go_on_with_a_copy_of_the_state_and_are_ended_without(version: str) -> None:
    with _one_runs_one_waits(version) as slurm:
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


@pytest.mark.parametrize("version", VERSIONS)
def test_running_job_is_requeued_by_a_slurmd_with_another_spool_folder(version: str) -> None:
    """slurmd finds no step there. The processes of the job go on beside the next job."""
    with _one_runs_one_waits(version) as slurm:
        servers = f"{slurm.plan.head.addresses[0]}:{slurm.plan.head.controller_port}"
        script = (
            f"sleep 15; pkill --exact slurmd; while pgrep --exact slurmd; do sleep 0.1; done; "
            f"mkdir /tmp/other; mount --bind /tmp/other {SPOOL}; exec slurmd -D -N gpu01 --conf-server {servers}"
        )
        slurm.spawn("sh", "-e", "-c", script, node="gpu01", name="slurmd-again")
        missing = "Batch JobId=1 missing from batch node gpu01 (not found BatchStartTime after startup), Requeuing job"
        slurm.wait(lambda: missing in slurm.log("slurmctld"), "the job is requeued")
        slurm.wait(lambda: len(slurm.run("pgrep", "-f", "sleep 997").out.split()) == 2, "both jobs run")
        assert sorted(slurm.run("squeue", "-h", "-o", "%T").out.split()) == ["PENDING", "RUNNING"]


@contextmanager
def _one_runs_one_waits(version: str) -> Iterator[RealSlurm]:
    plan = a_lab_plan()
    plan = dataclasses.replace(plan, slurm=dataclasses.replace(plan.slurm, version=version))
    with RealSlurm(version, plan) as slurm:
        # so that a job is missing after 11 s: BatchStartTimeout, and 10 s for messages
        slurm.must(
            "sed", "--in-place", "s/^BatchStartTimeout=180/BatchStartTimeout=1/", "/etc/slurm/slurm.conf"
        )
        slurm.start_controller()
        slurm.start_nodes("gpu01")
        slurm.wait(
            lambda: slurm.run("sinfo", "-h", "-n", "gpu01", "-o", "%t").out.strip() == "idle", "an idle node"
        )
        script = "#!/bin/sh\ntouch /tmp/began\nexec sleep 997\n"
        for _ in range(2):
            options = ("-o", "/dev/null", "-t", "10", "-w", "gpu01", "--exclusive")
            slurm.must("sbatch", "--parsable", *options, user=USER, stdin=script)
        slurm.wait(lambda: slurm.path("/tmp/began").exists(), "a job runs")
        assert slurm.run("pgrep", "-f", "sleep 997").code == 0
        yield slurm
