"""Validation's own jobs: how long validation waits for them, and which verdict a wait gives."""

import json
from dataclasses import replace

import pytest
from support import builders

from gpucluster.checks.check import CheckStatus, QueryOutput
from gpucluster.validate.pool_jobs import pool_jobs
from gpucluster.validate.validation_jobs import NoJobError, ValidationJobs


class Slurm:
    """A head that shows one job in the given states, what `why` says of it, and a clock that only pauses advance.

    `queue`: the rows of squeue.
    """

    def __init__(
        self,
        *states: dict,
        nodes: dict[str, tuple[str, ...]] | None = None,
        why: str = "",
        queue: str = "",
    ) -> None:
        self.states, self.seconds, self.calls = list(states), 0.0, []
        self.nodes, self.why, self.queue = nodes or {"h200-2a-1": UP}, why, queue

    def head(self, argv, as_user, _limit_s):
        self.calls.append((argv, as_user))
        if argv[0] == "sbatch":
            return QueryOutput(code=0, stdout="7;lab\n")
        if argv[0] == "squeue":
            return QueryOutput(code=0, stdout=self.queue)
        if "gpucluster.elastic.inspect.why" in argv:
            return QueryOutput(code=0 if self.why else 1, stdout=self.why, stderr="no plan")
        shown = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        job = {
            "job_id": 7,
            "nodes": "gpu[01-02]",
            "node_count": 2,
            "requeue": True,
            "batch_flag": True,
            "admin_comment": "",
            "state_reason": "None",
            "partition": "gpu",
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


def screen(cause: str, headline: str, **lines: str) -> str:
    """What `why --json` prints; `lines`: the sentence of a part."""
    shown = [{"part": part, "words": words, "at": None, "needs": None} for part, words in lines.items()]
    return json.dumps({"cause": cause, "headline": headline, "lines": shown})


WAITS = {"job_state": ["PENDING"], "state_reason": "Resources"}
REFUSED = screen(
    "refused", "waits: no h200 in us-east-2a: InsufficientInstanceCapacity", remedy="another zone"
)
BUSY = screen("resources", "waits: the nodes that it can use are busy", state="h100: 4 of 4 busy")
HOSTS = {f"gpu0{n}": ("ALLOCATED",) for n in range(1, 5)}
ROW = "{}|RUNNING|gpu|gpu[01-04]|\n"


@pytest.mark.parametrize(
    ("slurm", "verdict", "words"),
    [
        (Slurm(WAITS, why=REFUSED), CheckStatus.FAIL, "waits: no h200 in us-east-2a: InsufficientInstanceCapacity"),
        (Slurm({"job_state": ["RUNNING", "CONFIGURING"], "state_reason": "Prolog"}, why=screen("launching", "starts: Slurm gave it h200-2a-1")), CheckStatus.FAIL, "starts: Slurm gave it h200-2a-1"),
        (Slurm(WAITS, why=BUSY, nodes=HOSTS, queue=ROW.format(3)), CheckStatus.UNKNOWN, "PENDING after 60 s (Resources): others use the nodes: job 3"),
        (Slurm(WAITS, why=BUSY, nodes=HOSTS, queue=ROW.format(7)), CheckStatus.FAIL, "no other job uses its nodes; h100: 4 of 4 busy"),
        (Slurm(WAITS, why=BUSY, nodes=HOSTS, queue="nonsense"), CheckStatus.UNKNOWN, "who uses the nodes is not known: a row of squeue cannot be read"),
        (Slurm(WAITS), CheckStatus.UNKNOWN, "(Resources); `why` of the head gives no cause: exit 1: no plan"),
        (Slurm({"job_state": ["PENDING"], "state_reason": "PartitionDown"}), CheckStatus.FAIL, "(PartitionDown); `why` of the head"),
        (Slurm({**WAITS, "admin_comment": "gpucluster: no capacity"}), CheckStatus.UNKNOWN, "gpucluster: no capacity"),
    ],
)  # fmt: skip
def test_job_that_does_not_start_has_the_verdict_of_its_cause(slurm, verdict, words):
    """V2: a refusal of the cloud was `others use the nodes`."""
    ours = slurm.jobs()
    ours.submit([LAB])
    with pytest.raises(NoJobError) as raised:
        ours.running("h100")
    assert raised.value.verdict is verdict
    assert words in raised.value.message
    assert LAB.start_s < slurm.seconds < LAB.start_s + 1
    assert slurm.calls[-1] == (("scancel", "7"), True)  # or our own next job would wait behind it
    before = len(slurm.calls)
    with pytest.raises(NoJobError):
        ours.running("h100")  # fails at once
    assert len(slurm.calls) == before


def test_remedy_is_that_of_the_cause():
    ours = Slurm(WAITS, why=REFUSED).jobs()
    with pytest.raises(NoJobError) as raised:
        ours.run_to_end(("--partition=gpu",), 5.0)
    assert (raised.value.verdict, raised.value.next_step) == (CheckStatus.FAIL, "another zone")


def test_job_that_ended_has_no_cause_of_the_daemon():
    slurm = Slurm({"job_state": ["FAILED"], "state_reason": "NonZeroExitCode"}, why=REFUSED)
    ours = slurm.jobs()
    ours.submit([LAB])
    with pytest.raises(NoJobError, match=r"FAILED after 0 s \(NonZeroExitCode\)") as raised:
        ours.running("h100")
    assert raised.value.verdict is CheckStatus.FAIL


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


def test_elastic_job_excludes_no_node_if_max_leaves_no_room_beside_them():
    """Else the job waits for `max`, and the idle nodes that it excludes keep it there."""
    nodes = {"h200-2a-1": UP, "h200-2a-2": UP, "h200-2a-3": OFF, "h200-2a-4": OFF}
    excluded = []
    for most in (4, 3):
        slurm = Slurm({"job_state": ["RUNNING"]}, nodes=nodes)
        slurm.jobs().submit([replace(BURST, max=most)])
        excluded.append(any("--exclude" in word for argv, _ in slurm.calls for word in argv))
    assert excluded == [True, False]


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
    slurm = Slurm({"job_state": ["PENDING"]}, why=REFUSED)
    with pytest.raises(NoJobError, match="PENDING after 5 s: waits: no h200"):
        slurm.jobs().run_to_end(("--partition=gpu",), 5.0)
    assert slurm.calls[-1] == (("scancel", "7"), True)
    assert 5 <= slurm.seconds < 6
