"""Preemption and packing on real daemons: an urgent job on cloud nodes, and small jobs beside a gang."""

from dataclasses import replace

import pytest
from real_slurm import USER, VERSIONS, RealSlurm
from support.builders import a_lab_plan, a_plan

TIERS = (
    ("slurm:\n", "slurm:\n  preemption: {by: partition, mode: requeue}\n"),
    ("zones: [us-east-2a, us-east-2b]", "zones: [us-east-2a]"),
    ("    nodes: {min: 0, max: 16}", "    nodes: {min: 0, max: 2}"),
    ("max: 4}", "max: 2}"),
    ("partitions:\n", "partitions:\n  - {name: urgent, pools: [h200], tier: 10}\n"),
)


def submit(slurm: RealSlurm, script: str, *options: str) -> str:
    argv = ("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", script)
    return slurm.must(*argv, user=USER).strip()


def field(slurm: RealSlurm, job: str, what: str) -> str:
    return slurm.must("squeue", "-h", "-t", "all", "-j", job, "-o", what).strip()


@pytest.mark.parametrize("version", VERSIONS)
def test_urgent_job_takes_a_cloud_node_that_is_up_and_its_victim_runs_again(version: str) -> None:
    """Slurm asks for no node a second time: neither for the urgent job, nor for the requeued one."""
    plan = a_plan(*TIERS)
    plan = replace(plan, times=replace(plan.times, cred_expire_s=5))
    with RealSlurm(version, plan) as slurm:
        slurm.start_controller()
        assert slurm.errors() == []  # later 24.11 sometimes cannot read its own node_reg_mem_percent
        slurm.serve_power()
        once = "[ -e /tmp/ran-$SLURM_JOB_ID ] && exit 0; touch /tmp/ran-$SLURM_JOB_ID; sleep 600"
        jobs = [submit(slurm, once, "-N1", "--exclusive", "--gpus-per-node=8", "-p", "gpu") for _ in range(2)]
        for job in jobs:
            slurm.wait(lambda job=job: field(slurm, job, "%T") == "RUNNING", f"{job} runs")
            slurm.wait(lambda job=job: slurm.path(f"/tmp/ran-{job}").exists(), f"the script of {job} runs")
        woken = slurm.calls()
        assert sorted(node for kind, nodes in woken for node in nodes) == ["h200-2a-1", "h200-2a-2"]
        urgent = submit(slurm, "sleep 3", "-N1", "--exclusive", "--gpus-per-node=8", "-p", "urgent")
        slurm.wait(lambda: field(slurm, urgent, "%T") == "COMPLETED", "the urgent job has ended")
        assert field(slurm, urgent, "%r") != "Resources"
        victims = [job for job in jobs if "Restarts=1" in slurm.must("scontrol", "show", "job", job)]
        assert len(victims) == 1
        slurm.wait(lambda: field(slurm, victims[0], "%T") == "COMPLETED", "the victim ran again")
        (other,) = set(jobs) - set(victims)
        assert field(slurm, other, "%T") == "RUNNING"
        assert slurm.calls() == woken


@pytest.mark.parametrize("version", VERSIONS)
def test_young_job_is_preempted_at_once_when_its_exemption_leaves(version: str) -> None:
    """`diff` said that running jobs go on."""
    exempt = ("{by: partition, mode: requeue}", "{by: partition, mode: requeue, exempt: 10m}")
    plan = a_plan(*((old, new.replace(*exempt)) for old, new in TIERS))
    with RealSlurm(version, plan) as slurm:
        slurm.start_controller()
        slurm.serve_power()
        young = submit(slurm, "sleep 600", "-N2", "--exclusive", "--gpus-per-node=8", "-p", "gpu")
        slurm.wait(lambda: field(slurm, young, "%T") == "RUNNING", "the job runs")
        urgent = submit(slurm, "sleep 600", "-N1", "--exclusive", "--gpus-per-node=8", "-p", "urgent")
        slurm.wait(lambda: field(slurm, urgent, "%r") == "Resources", "the urgent job was considered")
        assert field(slurm, young, "%T") == "RUNNING"
        conf = slurm.path("/etc/slurm/slurm.conf")
        lines = conf.read_text().splitlines(keepends=True)
        assert [line for line in lines if line.startswith("PreemptExemptTime=")]
        conf.write_text("".join(line for line in lines if not line.startswith("PreemptExemptTime=")))
        slurm.must("scontrol", "reconfigure")
        slurm.wait(lambda: field(slurm, urgent, "%T") == "RUNNING", "the urgent job runs")
        assert "Restarts=1" in slurm.must("scontrol", "show", "job", young)


NODES = ("gpu01", "gpu02", "gpu03", "gpu04")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("leaves", ["two leaves", "no topology"])
def test_small_jobs_stay_together_and_the_next_gang_finds_whole_nodes(version: str, leaves: str) -> None:
    """Regression: small jobs went to a node that a gang had left, beside those that ran elsewhere, and the next gang waited."""
    tree = '  topology: {tree: {spine: {leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}}}\n'
    plan = a_lab_plan() if leaves == "two leaves" else a_lab_plan((tree, ""))
    with RealSlurm(version, plan) as slurm:
        slurm.start_controller()
        assert slurm.errors() == []  # later 24.11 sometimes cannot read its own node_reg_mem_percent
        slurm.start_nodes(*NODES)
        slurm.wait(lambda: _idle(slurm) == 4, "four idle nodes")
        gang = ("--gpus-per-node=8", "--exclusive")
        first = _running(slurm, "-N2", *gang)
        assert field(slurm, first, "%N") == "gpu[01-02]"
        small = [_running(slurm, "--gpus=1") for _ in range(2)]
        slurm.must("scancel", first)
        slurm.wait(lambda: _idle(slurm) == 3, "the gang has left its nodes")
        small += [_running(slurm, *options) for options in (("--gpus=1",), ("--gres=gpu:2",), ("-n1",))]
        assert {field(slurm, job, "%N") for job in small} == {"gpu04"}
        assert field(slurm, _running(slurm, "-N3", *gang), "%N") == "gpu[01-03]"


def _idle(slurm: RealSlurm) -> int:
    return int(slurm.must("sinfo", "-h", "-n", ",".join(NODES), "-t", "idle", "-o", "%D").strip() or 0)


def _running(slurm: RealSlurm, *options: str) -> str:
    job = submit(slurm, "sleep 600", *options)
    slurm.wait(lambda: field(slurm, job, "%T") == "RUNNING", f"{job} runs")
    return job
