"""Faults on a real cluster, one in each run: the quick runs here, all of them in `make soak`."""

import pytest
from fault_runs import RUNS, Run, Stage, judge

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(3000)]

QUICK = [run for run in RUNS if run.quick]
MANY = 50
SWARM = f'for i in $(seq {MANY}); do echo "#!/bin/sh" | sbatch --parsable -n1 --mem=1G --gres=gpu:1 --output=/dev/null; done'


@pytest.mark.parametrize("run", QUICK, ids=[run.name for run in QUICK])
def test_run_leaves_nothing_leaked_lost_or_stuck(shared_cluster, run: Run):
    judge(shared_cluster, run).check()


def test_fifty_waiting_jobs_survive_a_cancelled_job_a_lost_node_and_a_restart(shared_cluster):
    """Each starting job has one process of PrologSlurmctld. It ends when its nodes are up, or at Slurm's check each 30 s."""
    judge(shared_cluster, Run("fifty waiting jobs", "waiters", fifty_waiting_jobs)).check()


def fifty_waiting_jobs(s: Stage) -> list[int]:
    jobs = [int(line) for line in s.cluster.exec("head", "sh", "-c", SWARM, user="researcher").split()]
    assert len(jobs) == MANY
    s.until_launched(4)
    s.wait("the waiters wait", lambda: waiters(s) > MANY // 2)
    s.head("scancel", str(jobs[0]))
    s.end(s.new()[0])
    s.cluster.saved(jobs[-1])
    s.kill("slurmctld")
    return jobs[1:]


def waiters(s: Stage) -> int:
    return int(s.head("sh", "-c", "pgrep -fc '[p]rolog_slurmctld' || true").split()[0])
