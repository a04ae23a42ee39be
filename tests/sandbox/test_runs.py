"""What goes wrong on a real cluster, one thing at a time: ten runs here, all of them in `make soak`."""

import pytest
from fault_runs import RUNS, Run, Stage, judge

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(500)]

QUICK = [run for run in RUNS if run.quick]
MANY = 50
SWARM = f'for i in $(seq {MANY}); do echo "#!/bin/sh" | sbatch --parsable -n1 --mem=1G --gres=gpu:1 --output=/dev/null; done'


@pytest.mark.parametrize("run", QUICK, ids=[run.name for run in QUICK])
def test_nothing_is_leaked_lost_or_stuck_when(standing, run: Run):
    judge(standing, run).check()


def test_fifty_waiters_hold_through_a_cancelled_job_a_lost_node_and_a_restart(standing):
    """PrologSlurmctld is one process a starting job; what ends them is their nodes, and else Slurm's tick of 30 s."""
    judge(standing, Run("fifty waiters", "waiters", fifty_waiters)).check()


def fifty_waiters(s: Stage) -> list[int]:
    jobs = [int(line) for line in s.cluster.exec("head", "sh", "-c", SWARM, user="researcher").split()]
    assert len(jobs) == MANY
    s.until_launched(4)
    s.wait("the waiters wait", lambda: waiters(s) > MANY // 2)
    s.head("scancel", str(jobs[0]))
    s.end(s.new()[0])
    s.saved(jobs[-1])
    s.kill("slurmctld")
    return jobs[1:]


def waiters(s: Stage) -> int:
    return int(s.head("sh", "-c", "pgrep -fc '[p]rolog_slurmctld' || true").split()[0])
