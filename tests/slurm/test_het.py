"""Het jobs on real daemons: a leader that lost its node (S20), and components that share no node (S41)."""

import pytest
from real_slurm import USER, VERSIONS, RealSlurm
from support.builders import a_lab_plan, a_plan

LEADER, OTHERS = "h200-2a-1", "h200-2a-[2-3]"


def _states(slurm: RealSlurm, job: str) -> list[str]:
    """`STATE NODES` of each component, in order."""
    lines = slurm.run("squeue", "-h", "-j", job, "-o", "%i %T %N").out.splitlines()
    return [line.split(" ", 1)[1].strip() for line in sorted(lines)]


@pytest.mark.parametrize("version", VERSIONS)
def test_requeue_of_a_waiting_leader_frees_the_nodes_of_the_others(version: str) -> None:
    with RealSlurm(version, a_plan()) as slurm:
        slurm.start_controller()
        slurm.serve_power()
        first, second = ("-N1", "-w", LEADER, "--gpus-per-node=8"), ("-N2", "-w", OTHERS, "--gpus-per-node=8")
        argv = ("sbatch", "--parsable", "-o", "/dev/null", *first, ":", *second, "--wrap", "sleep 600")
        job = slurm.must(*argv, user=USER).strip()
        both = [f"RUNNING {LEADER}", f"RUNNING {OTHERS}"]
        slurm.wait(lambda: _states(slurm, job) == both, "both components run")
        slurm.stop_nodes(LEADER)
        slurm.must("scontrol", "update", f"nodename={LEADER}", "state=drain", "reason=broken")
        slurm.must("scontrol", "update", f"nodename={LEADER}", "state=down", "reason=broken")
        slurm.wait(lambda: _states(slurm, job) == ["PENDING", both[1]], "only the leader waits")
        answer = slurm.run("scontrol", "requeue", job)
        assert "Job is pending execution" in answer.out + answer.err
        slurm.wait(lambda: _states(slurm, job) == ["PENDING", "PENDING"], "all components wait")
        slurm.start_nodes(LEADER)
        slurm.must("scontrol", "update", f"nodename={LEADER}", "state=resume")
        slurm.wait(lambda: _states(slurm, job) == both, "both components run again")


@pytest.mark.parametrize("version", VERSIONS)
def test_components_share_no_node_also_if_one_has_room_for_both(version: str) -> None:
    """Two plain jobs of one CPU share the last node. The components of a het job do not (S41)."""
    with RealSlurm(version, a_lab_plan()) as slurm:
        slurm.start_controller()
        slurm.start_nodes("gpu01", "gpu02")
        small, argv = ("-N1", "-n1", "--mem=10"), ("sbatch", "--parsable", "-o", "/dev/null")
        plain = [slurm.must(*argv, *small, "--wrap", "sleep 600", user=USER).strip() for _ in range(2)]
        for job in plain:
            slurm.wait(lambda job=job: _states(slurm, job) == ["RUNNING gpu02"], f"{job} runs")
        job = slurm.must(*argv, *small, ":", *small, "--wrap", "sleep 600", user=USER).strip()
        both = ["RUNNING gpu01", "RUNNING gpu02"]
        slurm.wait(lambda: sorted(_states(slurm, job)) == both, "the components run on two nodes")
