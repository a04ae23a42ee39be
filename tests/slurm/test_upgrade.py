"""An upgrade of slurmctld from 24.11 to 26.05 with running and queued jobs: the real daemons, one state, no job lost.

The slurmds stay at 24.11, as those of nodes that boot from the old image do: slurmctld 26.05 serves them (its protocol goes back
to 24.11).
"""

import json
from typing import Any

from newer import Newer
from real_slurm import USER, RealSlurm, errors_of
from support.builders import a_lab_plan

from gpucluster.gitops.steps import MOVE_STATE, NEWER

OLD, NEW = "24.11", "26.05"
SCRIPT = """#!/bin/bash
echo $$ > /tmp/pid; echo start >> /tmp/starts
until [ -e /tmp/stop ]; do sleep 0.2; done
echo well > /tmp/end
"""


def test_running_and_queued_jobs_survive() -> None:
    with RealSlurm(OLD, a_lab_plan()) as slurm:
        slurm.start_controller()
        slurm.start_nodes("gpu01", "gpu02")
        slurm.wait(
            lambda: slurm.must("sinfo", "-h", "-n", "gpu[01-02]", "-t", "idle", "-o", "%D").strip() == "2",
            "two idle nodes",
        )
        runs = submit(
            slurm, "-N1", "-w", "gpu01", "--gpus-per-node=8", "--exclusive", "--comment=kept", script=SCRIPT
        )
        slurm.wait(lambda: slurm.path("/tmp/pid").exists(), "the job runs")
        queued = submit(
            slurm,
            "-N1",
            "-w",
            "gpu01",
            "--gpus-per-node=8",
            "-o",
            "/tmp/queued",
            script="#!/bin/sh\nhostname\n",
        )
        held = submit(slurm, "-N1", "--hold")
        later = submit(
            slurm, "-N1", f"--dependency=afterok:{runs}", "-o", "/tmp/later", script="#!/bin/sh\nhostname\n"
        )
        array = submit(slurm, "-N1", "--array=0-9%1", "--hold")
        slurm.must(
            "scontrol",
            "create",
            "reservationname=maintenance",
            "starttime=now+10days",
            "duration=60",
            "nodes=gpu02",
            "user=root",
        )
        before = jobs(slurm)
        slurm.stop_controller()

        Newer(slurm, NEW).start_controller()
        after = jobs(slurm)
        assert after == before
        assert set(after) == {runs, queued, held, later, array}
        assert "ReservationName=maintenance" in slurm.must("scontrol", "show", "reservation")
        assert f"version {NEW}" in slurm.log("slurmctld")
        assert slurm.path("/tmp/starts").read_text() == "start\n"

        slurm.path("/tmp/stop").touch()
        slurm.wait(lambda: (slurm.path("/tmp/end")).exists(), "the job of before ends")
        slurm.wait(
            lambda: slurm.path("/tmp/later").exists() and slurm.path("/tmp/queued").exists(),
            "queued jobs run",
        )
        slurm.wait(lambda: state(slurm, runs) == "COMPLETED", "it is complete")
        assert slurm.path("/tmp/starts").read_text() == "start\n", "it was not started again"
        slurm.must("scontrol", "release", str(held))
        slurm.wait(lambda: state(slurm, held) == "COMPLETED", "the held job runs")


def submit(slurm: RealSlurm, *options: str, script: str = "#!/bin/sh\ntrue\n") -> int:
    out = () if "-o" in options else ("-o", "/dev/null")
    return int(slurm.must("sbatch", "--parsable", *options, *out, user=USER, stdin=script).strip())


def jobs(slurm: RealSlurm) -> dict[int, dict[str, Any]]:
    """What a user sees of each job, and what must not change."""
    found = json.loads(slurm.must("scontrol", "show", "jobs", "--json"))["jobs"]
    keys = (
        "job_state",
        "name",
        "user_id",
        "partition",
        "comment",
        "submit_time",
        "start_time",
        "nodes",
        "dependency",
        "restart_cnt",
        "required_nodes",
    )
    kept = {job["job_id"]: {key: job.get(key) for key in keys} for job in found}
    for number, job in kept.items():
        if job["job_state"] == ["PENDING"]:
            kept[number] = {**job, "start_time": None}  # the backfill scheduler's guess
    return kept


def state(slurm: RealSlurm, job: int) -> str:
    return slurm.must("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T").strip()


def test_the_older_slurmctld_refuses_the_newer_state() -> None:
    """There is no way back: a copy of the state before the upgrade is needed. `diff` prints how to begin without a state."""
    with RealSlurm(OLD, a_lab_plan()) as slurm:
        slurm.start_controller()
        submit(slurm, "-N1", "--hold")
        slurm.stop_controller()
        newer = Newer(slurm, NEW)
        newer.start_controller()
        slurm.wait(lambda: jobs(slurm) != {}, "the newer one knows the job")
        newer.stop_controller()
        process = slurm.spawn("/usr/sbin/slurmctld", "-D", user="slurm", name="again")
        slurm.wait(lambda: process.poll() is not None, "the older one ends")
        told = slurm.path("/var/log/slurm/again.out.log").read_text() + slurm.log("slurmctld")
        assert any("incompatible version" in line for line in errors_of(told))
        slurm.must("sh", "-c", MOVE_STATE)
        assert any(slurm.path(NEWER).iterdir())
        slurm.start_controller()
        assert jobs(slurm) == {}
