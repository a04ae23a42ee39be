"""Validation's own jobs: how long validation waits for them, and which verdict a wait gives."""

import json

import pytest
from support import builders

from gpucluster.checks.check import CheckStatus, QueryOutput
from gpucluster.validate.pool_jobs import pool_jobs
from gpucluster.validate.validation_jobs import NoJobError, ValidationJobs


class Slurm:
    """A head that shows one job in the given states, and a clock that only pauses advance."""

    def __init__(self, *states: dict, nodes: dict[str, tuple[str, ...]] | None = None) -> None:
        self.states, self.seconds, self.calls = list(states), 0.0, []
        self.nodes = nodes or {"h200-2a-1": UP}

    def head(self, argv, as_user, _limit_s):
        self.calls.append((argv, as_user))
        if argv[0] == "sbatch":
            return QueryOutput(code=0, stdout="7;lab\n")
        shown = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        job = {
            "job_id": 7,
            "nodes": "gpu[01-02]",
            "node_count": 2,
            "requeue": True,
            "batch_flag": True,
            "admin_comment": "",
            "state_reason": "None",
            **shown,
        }
        nodes = [{**NODE, "name": name, "state": list(words)} for name, words in self.nodes.items()]
        return QueryOutput(code=0, stdout=json.dumps({"jobs": [job], "nodes": nodes, "errors": []}))

    def pause(self, seconds):
        self.seconds += seconds

    def jobs(self) -> ValidationJobs:
        return ValidationJobs(self.head, now=lambda: self.seconds, pause=self.pause)


UP, OFF, BLOCKED = ("IDLE",), ("IDLE", "POWERED_DOWN"), ("IDLE", "DRAIN", "POWERED_DOWN")
NODE = {
    "state": ["IDLE"], "reason": "", "address": "a", "partitions": ["gpu"], "cpus": 1, "sockets": 1, "cores": 1,
    "threads": 1, "real_memory": 1, "gres": "",
}  # fmt: skip
(LAB,) = pool_jobs(builders.a_lab_plan())
(BURST,) = pool_jobs(builders.a_plan())


def test_job_nodes_are_known_when_the_job_runs():
    slurm = Slurm(
        {"job_state": ["PENDING"]}, {"job_state": ["RUNNING", "CONFIGURING"]}, {"job_state": ["RUNNING"]}
    )
    ours = slurm.jobs()
    ours.submit([LAB])
    assert (ours.node_now("h100/1"), ours.node("h100/1"), ours.node("h100/2")) == ("", "gpu01", "gpu02")
    assert ours.node_now("h100/2") == "gpu02"
    ours.cancel_all()
    (name,) = {word for argv, _ in slurm.calls if argv[0] == "sbatch" for word in argv if "-name=" in word}
    assert slurm.calls[-1] == (("scancel", name.replace("--job-name", "--name")), True)
    ours.cancel_all()
    assert [argv[0] for argv, _ in slurm.calls].count("scancel") == 1


@pytest.mark.parametrize(
    ("shown", "verdict"),
    [
        ({"job_state": ["PENDING"], "state_reason": "PartitionDown"}, CheckStatus.FAIL),
        ({"job_state": ["PENDING"], "state_reason": "Resources"}, CheckStatus.UNKNOWN),
        ({"job_state": ["RUNNING", "CONFIGURING"], "state_reason": "Prolog"}, CheckStatus.FAIL),
        (
            {"job_state": ["PENDING"], "state_reason": "x", "admin_comment": "gpucluster: no capacity"},
            CheckStatus.FAIL,
        ),
    ],
)
def test_job_that_does_not_start_fails_unless_it_waits_for_other_jobs(shown, verdict):
    slurm = Slurm(shown)
    ours = slurm.jobs()
    ours.submit([LAB])
    with pytest.raises(NoJobError) as raised:
        ours.running("h100")
    assert raised.value.verdict is verdict
    assert shown.get("admin_comment", shown["state_reason"]) in raised.value.message
    assert LAB.start_s < slurm.seconds < LAB.start_s + 1
    assert slurm.calls[-1] == (("scancel", "7"), True)  # or our own next job would wait behind it
    before = len(slurm.calls)
    with pytest.raises(NoJobError):
        ours.running("h100")  # fails at once
    assert len(slurm.calls) == before


@pytest.mark.parametrize(
    ("nodes", "excluded"),
    [
        ({"h200-2a-1": UP, "h200-2a-2": OFF, "h200-2a-3": OFF}, "--exclude=h200-2a-1"),
        # with an exclusion sbatch would refuse the job, and a full cluster would look broken
        ({"h200-2a-1": UP, "h200-2a-2": OFF}, ""),
        ({"h200-2a-1": UP, "h200-2a-2": OFF, "h200-2a-3": BLOCKED}, ""),
        ({"h200-2a-1": UP, "h200-2a-2": OFF, "h200-2b-3": OFF}, ""),  # no leaf switch has both
    ],
)
def test_elastic_job_excludes_nodes_that_are_up_if_enough_others_are_off(nodes, excluded):
    slurm = Slurm({"job_state": ["RUNNING"]}, nodes=nodes)
    slurm.jobs().submit([BURST])
    (argv,) = [argv for argv, _ in slurm.calls if argv[0] == "sbatch"]
    assert "".join(word for word in argv if word.startswith("--exclude")) == excluded
    assert "--gres=gpu:8" in argv


def test_job_is_cancelled_when_the_answer_to_its_submission_is_lost():
    slurm = Slurm({"job_state": ["RUNNING"]})

    def interrupted(argv, as_user, limit_s):
        answer = slurm.head(argv, as_user, limit_s)
        if argv[0] == "sbatch":
            raise KeyboardInterrupt
        return answer

    ours = ValidationJobs(interrupted)
    with pytest.raises(KeyboardInterrupt):
        ours.submit([LAB])
    ours.cancel_all()
    (name,) = [word for word in slurm.calls[0][0] if "-name=" in word]
    assert slurm.calls[-1][0] == ("scancel", name.replace("--job-name", "--name"))


def test_run_cancels_only_its_own_jobs():
    one, two = Slurm({"job_state": ["RUNNING"]}), Slurm({"job_state": ["RUNNING"]})
    for slurm in (one, two):
        ours = slurm.jobs()
        ours.submit([LAB])
        ours.cancel_all()
    assert one.calls[-1] != two.calls[-1]


@pytest.mark.parametrize(
    ("stderr", "verdict"),
    [
        ("sbatch: error: Batch job submission failed: Invalid account", CheckStatus.FAIL),
        ("runuser: user nobody-here does not exist", CheckStatus.UNKNOWN),
    ],
)
def test_only_a_refusal_of_sbatch_is_a_fault_of_the_cluster(stderr, verdict):
    ours = ValidationJobs(lambda _argv, _as_user, _limit_s: QueryOutput(code=1, stdout="", stderr=stderr))
    with pytest.raises(NoJobError) as raised:
        ours.run_to_end((), 1)
    assert raised.value.verdict is verdict


def test_job_is_cancelled_when_it_does_not_end_in_time():
    slurm = Slurm({"job_state": ["PENDING"]})
    slurm.jobs().run_to_end(("--partition=gpu",), 5.0)
    assert slurm.calls[-1] == (("scancel", "7"), True)
    assert 5 <= slurm.seconds < 6
