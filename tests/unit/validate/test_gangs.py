"""Our own jobs: how long they are waited for, and what their wait means."""

import json

import builders
import pytest

from gpucluster.checks.model import Answer, Verdict
from gpucluster.validate.expect import gangs
from gpucluster.validate.gangs import Gangs, NoJobError


class Slurm:
    """A head that shows one job as told, and a clock that only pauses move."""

    def __init__(self, *states: dict, nodes: dict[str, tuple[str, ...]] | None = None) -> None:
        self.states, self.seconds, self.said = list(states), 0.0, []
        self.nodes = nodes or {"h200-2a-1": UP}

    def head(self, argv, as_user, _limit_s):
        self.said.append((argv, as_user))
        if argv[0] == "sbatch":
            return Answer(code=0, stdout="7;lab\n")
        shown = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        job = {"job_id": 7, "nodes": "gpu[01-02]", "admin_comment": "", "state_reason": "None", **shown}
        nodes = [{**NODE, "name": name, "state": list(words)} for name, words in self.nodes.items()]
        return Answer(code=0, stdout=json.dumps({"jobs": [job], "nodes": nodes, "errors": []}))

    def pause(self, seconds):
        self.seconds += seconds

    def gangs(self) -> Gangs:
        return Gangs(self.head, now=lambda: self.seconds, pause=self.pause)


UP, OFF, BLOCKED = ("IDLE",), ("IDLE", "POWERED_DOWN"), ("IDLE", "DRAIN", "POWERED_DOWN")
NODE = {
    "state": ["IDLE"], "reason": "", "address": "a", "partitions": ["gpu"], "cpus": 1, "sockets": 1, "cores": 1,
    "threads": 1, "real_memory": 1, "gres": "",
}  # fmt: skip
(LAB,) = gangs(builders.a_lab_plan())
(BURST,) = gangs(builders.a_plan())


def test_a_gang_is_waited_for_and_its_nodes_take_their_seats():
    slurm = Slurm(
        {"job_state": ["PENDING"]}, {"job_state": ["RUNNING", "CONFIGURING"]}, {"job_state": ["RUNNING"]}
    )
    ours = slurm.gangs()
    ours.submit([LAB])
    assert (ours.sitting("h100/1"), ours.node("h100/1"), ours.node("h100/2")) == ("", "gpu01", "gpu02")
    assert ours.sitting("h100/2") == "gpu02"
    ours.leave()
    (name,) = {word for argv, _ in slurm.said if argv[0] == "sbatch" for word in argv if "-name=" in word}
    assert slurm.said[-1] == (("scancel", name.replace("--job-name", "--name")), True)
    ours.leave()
    assert [argv[0] for argv, _ in slurm.said].count("scancel") == 1


@pytest.mark.parametrize(
    ("shown", "verdict"),
    [
        ({"job_state": ["PENDING"], "state_reason": "PartitionDown"}, Verdict.FAIL),
        ({"job_state": ["PENDING"], "state_reason": "Resources"}, Verdict.UNKNOWN),
        ({"job_state": ["RUNNING", "CONFIGURING"], "state_reason": "Prolog"}, Verdict.FAIL),
        (
            {"job_state": ["PENDING"], "state_reason": "x", "admin_comment": "gpucluster: no capacity"},
            Verdict.FAIL,
        ),
    ],
)
def test_patience_ends_and_a_wait_for_others_is_not_the_clusters_fault(shown, verdict):
    slurm = Slurm(shown)
    ours = slurm.gangs()
    ours.submit([LAB])
    with pytest.raises(NoJobError) as raised:
        ours.held("h100")
    assert raised.value.verdict is verdict
    assert shown.get("admin_comment", shown["state_reason"]) in raised.value.message
    assert LAB.start_s < slurm.seconds < LAB.start_s + 1
    assert slurm.said[-1] == (("scancel", "7"), True)  # or our own next job would wait behind it
    before = len(slurm.said)
    with pytest.raises(NoJobError):
        ours.held("h100")  # is not waited for twice
    assert len(slurm.said) == before


@pytest.mark.parametrize(
    ("nodes", "excluded"),
    [
        ({"h200-2a-1": UP, "h200-2a-2": OFF, "h200-2a-3": OFF}, "--exclude=h200-2a-1"),
        # otherwise sbatch would refuse what cannot be, and a full cluster would look broken
        ({"h200-2a-1": UP, "h200-2a-2": OFF}, ""),
        ({"h200-2a-1": UP, "h200-2a-2": OFF, "h200-2a-3": BLOCKED}, ""),
        ({"h200-2a-1": UP, "h200-2a-2": OFF, "h200-2b-3": OFF}, ""),  # no switch has both
    ],
)
def test_an_elastic_gang_keeps_off_the_nodes_that_are_up_if_enough_others_are_left(nodes, excluded):
    slurm = Slurm({"job_state": ["RUNNING"]}, nodes=nodes)
    slurm.gangs().submit([BURST])
    (argv,) = [argv for argv, _ in slurm.said if argv[0] == "sbatch"]
    assert "".join(word for word in argv if word.startswith("--exclude")) == excluded
    assert "--gres=gpu:8" in argv


def test_a_submission_whose_answer_is_lost_is_cancelled_all_the_same():
    slurm = Slurm({"job_state": ["RUNNING"]})

    def interrupted(argv, as_user, limit_s):
        answer = slurm.head(argv, as_user, limit_s)
        if argv[0] == "sbatch":
            raise KeyboardInterrupt
        return answer

    ours = Gangs(interrupted)
    with pytest.raises(KeyboardInterrupt):
        ours.submit([LAB])
    ours.leave()
    (name,) = [word for word in slurm.said[0][0] if "-name=" in word]
    assert slurm.said[-1][0] == ("scancel", name.replace("--job-name", "--name"))


def test_a_run_never_cancels_the_jobs_of_another():
    one, two = Slurm({"job_state": ["RUNNING"]}), Slurm({"job_state": ["RUNNING"]})
    for slurm in (one, two):
        ours = slurm.gangs()
        ours.submit([LAB])
        ours.leave()
    assert one.said[-1] != two.said[-1]


@pytest.mark.parametrize(
    ("stderr", "verdict"),
    [
        ("sbatch: error: Batch job submission failed: Invalid account", Verdict.FAIL),
        ("runuser: user nobody-here does not exist", Verdict.UNKNOWN),
    ],
)
def test_only_slurms_own_no_is_the_clusters_fault(stderr, verdict):
    ours = Gangs(lambda _argv, _as_user, _limit_s: Answer(code=1, stdout="", stderr=stderr))
    with pytest.raises(NoJobError) as raised:
        ours.to_its_end((), 1)
    assert raised.value.verdict is verdict


def test_a_job_of_its_own_is_cancelled_when_it_does_not_end():
    slurm = Slurm({"job_state": ["PENDING"]})
    slurm.gangs().to_its_end(("--partition=gpu",), 5.0)
    assert slurm.said[-1] == (("scancel", "7"), True)
    assert 5 <= slurm.seconds < 6
