"""The jobs of squeue's rows: recorded answers of 24.11 and 26.05, rows that say too little, and unreadable answers."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from support.slurm_programs import programs

from gpucluster import shell
from gpucluster.slurm import client, parse
from gpucluster.slurm.client import Scontrol
from gpucluster.slurm.values import SlurmJob

RECORDED = Path(__file__).parents[2] / "recorded" / "scontrol"
MARK = "~mark-of-the-test"
ROW = parse.QueueRow(
    job="7", array="7", task="N/A", het="N/A", state="PENDING", nodes="2", max_nodes="2", tres="cpu=2,node=2",
    partitions="gpu,any", batch="1", requeue="1", priority="5", submitted="1795000000", eligible="1795000060",
    time_limit="1-02:30:00", time_min="0:00", user="2000", restarts="0", exit_code="0:0", node_list="", required="a-[1-2]", excluded="",
    features="(null)", reservation="(null)", reason="Resources", account="(null)", admin_comment="(null)", started="N/A",
)  # fmt: skip
JOB = SlurmJob(
    id=7, states=frozenset({"PENDING"}), nodes=(), node_count=2, partitions=("gpu", "any"), requeueable=True, batch=True,
    priority=5, reason="Resources", submitted_at=1795000000.0, begins_at=1795000060.0, user_id=2000,
    time_limit_s=95400.0, required_nodes=("a-1", "a-2"),
)  # fmt: skip


def text_of(*rows: parse.QueueRow, mark: str = MARK) -> str:
    return "".join("".join(f"{field}{mark}" for field in row.fields) + "\n" for row in rows)


def shape(job: SlurmJob) -> SlurmJob:
    """Without what the rows do not have or order otherwise."""
    return replace(
        job,
        states=job.states - {"POWER_UP_NODE"},
        started_at=0.0 if job.pending else job.started_at,
        required_nodes=tuple(sorted(job.required_nodes)),
        excluded_nodes=tuple(sorted(job.excluded_nodes)),
    )


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_recorded_rows_are_the_recorded_json(version: str) -> None:
    """Running, suspended, ended, waiting and held jobs, arrays and het jobs, with hostile names, accounts and comments."""
    rows = parse.parse_queue((RECORDED / version / "queue.txt").read_text(), MARK)
    expected = {
        job.id: shape(job) for job in parse.parse_jobs((RECORDED / version / "queue.json").read_text())
    }
    found = {int(row.job): parse.job_of_row(row) for row in rows}
    assert found.keys() == expected.keys()
    said = {number: shape(job) for number, job in found.items() if job is not None}
    assert said == {number: expected[number] for number in said}
    states = {word for job in expected.values() for word in job.states}
    assert states >= {"PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "FAILED", "CANCELLED"}
    unsaid = [expected[number] for number, job in found.items() if job is None]
    assert len(said) > len(unsaid)
    assert any("\n1\t1\tn/a" in job.account for job in said.values())


def test_row_becomes_a_job() -> None:
    assert parse.job_of_row(ROW) == JOB


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"state": "RUNNING", "node_list": "a-[1-2]", "started": "9"}, {"nodes": ("a-1", "a-2"), "started_at": 9.0}),
        ({"state": "CONFIGURING"}, {"states": frozenset({"RUNNING", "CONFIGURING"})}),
        ({"state": "FAILED", "exit_code": "0:9"}, {"exit_signal": 9, "exit_code": 0}),
        ({"state": "FAILED", "exit_code": "2:0"}, {"exit_signal": 0, "exit_code": 2}),
        ({"state": "FAILED", "exit_code": ""}, {"exit_signal": 0}),
        ({"het": "5"}, {"het_id": 5}),
        ({"array": "4", "task": "3"}, {"task": "4_3"}),
        ({"requeue": "0", "batch": "0"}, {"requeueable": False, "batch": False}),
        ({"batch": "2"}, {"batch": True}),  # slurmctld counts failed launches there
        ({"priority": "4294967294"}, {"priority": 0}),  # not yet computed
        ({"nodes": "4", "max_nodes": "6", "tres": "node=2"}, {"node_count": 4}),
        ({"tres": "N/A"}, {"node_count": 2}),
        ({"time_limit": "UNLIMITED"}, {"time_limit_s": None}),
        ({"time_limit": "NOT_SET"}, {"time_limit_s": None}),
        ({"time_limit": "30:00"}, {"time_limit_s": 1800.0}),
        ({"time_limit": "2:00:05"}, {"time_limit_s": 7205.0}),
        ({"reason": "ReqNodeNotAvail, UnavailableNodes:a-[1-3]"}, {"reason": "ReqNodeNotAvail"}),
        ({"reason": "Nodes required for job are DOWN, DRAINED or reserved for jobs in"}, {"reason": "Resources"}),
        ({"reason": "Job is at or exceeds QOS big's group"}, {"reason": "Job is at or exceeds QOS big's group"}),
        ({"account": "x\n~mark\t7", "admin_comment": "gpucluster: no"}, {"account": "x\n~mark\t7"}),
    ],
)  # fmt: skip
def test_field_of_a_row(changes: dict[str, str], expected: dict[str, object]) -> None:
    job = parse.job_of_row(ROW._replace(**changes))
    assert {name: getattr(job, name) for name in expected} == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "COMPLETING"},  # which state comes after it is not said
        {"state": "REQUEUE_HOLD"},
        {"state": "A_NEW_STATE"},
        {"nodes": "4", "max_nodes": "4", "tres": "node=2"},  # -N 2-4, or four by its tasks
        {
            "nodes": "4",
            "max_nodes": "4",
            "tres": "node=4",
            "restarts": "1",
        },  # after a requeue these are of the last run
        {"time_limit": "INVALID"},  # over a year
    ],
)
def test_row_that_does_not_say_all(changes: dict[str, str]) -> None:
    assert parse.job_of_row(ROW._replace(**changes)) is None


@pytest.mark.parametrize(
    "changes",
    [{"nodes": "(null)"}, {"time_limit": "1 day"}, {"submitted": "2026-11-22T10:00:00"}, {"user": ""}, {"node_list": "a-[1"}],
)  # fmt: skip
def test_unreadable_field(changes: dict[str, str]) -> None:
    with pytest.raises(parse.SlurmAnswerError):
        parse.job_of_row(ROW._replace(**changes))


@pytest.mark.parametrize(
    "text",
    [
        text_of(ROW)[:-1],
        text_of(ROW)[:40],
        text_of(ROW).replace(MARK, "", 1),
        text_of(ROW).replace("7", "x", 1),
        "slurm_load_jobs error: no\n",
        text_of(ROW, mark="~other"),
    ],
)
def test_unreadable_answer(text: str) -> None:
    with pytest.raises(parse.SlurmAnswerError):
        parse.parse_queue(text, MARK)


def test_waiting_tasks_of_an_array_are_one_job_and_a_task_apart_is_another() -> None:
    """squeue without --array joins a requeued task with the others, and its reason and comment are lost."""
    waits = [ROW._replace(job="7", array="7", task=str(n)) for n in range(1, 400)]
    apart = ROW._replace(job="8", array="7", task="0", admin_comment="gpucluster:[evacuation] back")
    first, second = parse.parse_queue(text_of(apart, *waits), MARK)
    assert first == apart
    assert second == waits[0]._replace(task="", tasks=399)


# --- the client: programs that answer from files ------------------------------------------------------------
def test_rows_are_enough(tmp_path: Path) -> None:
    slurm = programs(tmp_path, rows=[ROW])
    assert slurm.client.read_jobs() == (JOB,)
    assert slurm.calls() == ["squeue --noheader --all --array --states=all --sort=i"]


def test_jobs_whose_rows_say_too_little_are_asked_for(tmp_path: Path) -> None:
    rows = [ROW._replace(job=str(n), state="COMPLETING") for n in (5, 6)]
    slurm = programs(tmp_path, rows=[ROW, *rows], jobs=[{"job_id": 5}, {"job_id": 6}])
    assert [job.id for job in slurm.client.read_jobs()] == [5, 6, 7]
    assert slurm.calls()[1:] == ["squeue --all --states=all --json --jobs 5,6"]


def test_job_that_is_over_meanwhile_is_missing(tmp_path: Path) -> None:
    """`squeue --jobs ID --json` of one unknown id fails; scontrol answers with an empty list."""
    slurm = programs(tmp_path, rows=[ROW, ROW._replace(job="5", state="COMPLETING")], jobs=[])
    assert [job.id for job in slurm.client.read_jobs()] == [7]
    assert slurm.calls()[1:] == ["scontrol show job 5 --json"]


def test_waiting_job_is_asked_for_once(tmp_path: Path) -> None:
    """Until its row changes. The estimate of its start changes often, and does not count."""
    row = ROW._replace(job="5", nodes="4", max_nodes="4", started="1795000090")
    slurm = programs(tmp_path, rows=[row], jobs=[{"job_id": 5, "job_state": ["PENDING"]}])
    first = slurm.client.read_jobs()
    slurm.rows([row._replace(started="1795000099")])
    assert slurm.client.read_jobs() == first
    slurm.rows([row._replace(reason="Priority")])
    slurm.client.read_jobs()
    assert [call.split()[0] for call in slurm.calls()] == [
        "squeue",
        "scontrol",
        "squeue",
        "squeue",
        "scontrol",
    ]


def test_waiting_tasks_are_counted_anew_each_time(tmp_path: Path) -> None:
    """Also those of an array that was asked for as JSON, and is not asked for again."""
    row = ROW._replace(job="5", array="5", nodes="4", max_nodes="4")
    tasks = [row._replace(task=str(n)) for n in range(9)]
    body = {"job_id": 5, "job_state": ["PENDING"], "array_job_id": 5, "array_task_string": "0-6:3,7-12%2"}
    slurm = programs(tmp_path, rows=tasks, jobs=[body])
    assert [job.tasks for job in slurm.client.read_jobs()] == [9]
    slurm.rows(tasks[1:])
    assert [(job.id, job.tasks) for job in slurm.client.read_jobs()] == [(5, 8)]
    assert [call.split()[0] for call in slurm.calls()] == ["squeue", "scontrol", "squeue"]


@pytest.mark.parametrize(
    ("text", "tasks"),
    [("", 1), ("3", 1), ("0-1999", 2000), ("0-149%3", 150), ("0-9:3,12", 5), ("0,4,8-9...", 4)],
)
def test_list_of_tasks_is_counted(text: str, tasks: int) -> None:
    body = {"job_id": 5, "job_state": ["PENDING"], "node_count": 1, "requeue": True, "batch_flag": True}
    assert parse.parse_job({**body, "array_task_string": text}).tasks == tasks


@pytest.mark.parametrize("state", ["COMPLETING", "PENDING"])
def test_job_that_is_not_waiting_is_asked_for_each_time(tmp_path: Path, state: str) -> None:
    """A row of COMPLETING stays equal while the job changes; so may one of a job that has started meanwhile."""
    row = ROW._replace(job="5", nodes="4", max_nodes="4", state=state)
    slurm = programs(tmp_path, rows=[row], jobs=[{"job_id": 5, "job_state": ["RUNNING"]}])
    slurm.client.read_jobs()
    slurm.client.read_jobs()
    assert [call.split()[0] for call in slurm.calls()] == ["squeue", "scontrol"] * 2


def test_unreadable_row_means_the_json_of_all_jobs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    slurm = programs(tmp_path, rows=[ROW, ROW._replace(job="8", nodes="many")], jobs=[{"job_id": 5}])
    with caplog.at_level(logging.WARNING):
        assert [job.id for job in slurm.client.read_jobs()] == [5]
    assert slurm.calls()[1:] == ["scontrol show jobs --json"]
    assert "all jobs are read as JSON" in caplog.text


def test_too_many_jobs_to_ask_for_mean_the_json_of_all_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MOST_BY_ID", 2)
    rows = [ROW._replace(job=str(n), state="COMPLETING") for n in (4, 5, 6)]
    slurm = programs(tmp_path, rows=rows, jobs=[{"job_id": 5}])
    assert [job.id for job in slurm.client.read_jobs()] == [5]
    assert slurm.calls()[1:] == ["scontrol show jobs --json"]


def test_no_answer_of_squeue_is_an_error(tmp_path: Path) -> None:
    """An empty queue would be a wrong conclusion."""
    slurm = programs(tmp_path, rows=[])
    slurm.fail("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    with pytest.raises(shell.CommandError, match="Unable to contact"):
        slurm.client.read_jobs()


def test_mark_is_new_in_each_call_and_in_no_argument(tmp_path: Path) -> None:
    """Other users can read the arguments of a process, and could write the mark into a job's account."""
    slurm = programs(tmp_path, rows=[ROW])
    for _ in range(3):
        slurm.client.read_jobs()
    marks = slurm.marks()
    assert len(set(marks)) == 3
    assert all(len(mark) >= 12 and mark[0] == "~" for mark in marks)
    assert not [call for call in slurm.calls() if any(mark in call for mark in marks)]


def test_variables_of_a_person_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "%A")
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    slurm = programs(tmp_path, rows=[ROW])
    assert slurm.client.read_jobs() == (JOB,)
    assert {name for name in slurm.variables() if name.startswith(("SQUEUE", "SLURM"))} == {
        "SQUEUE_FORMAT2",
        "SLURM_TIME_FORMAT",
    }


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_start_of_slurmctld_is_read_in_any_time_zone(
    zone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    assert programs(tmp_path, []).client.started_at() == 1795405697.0
    assert Scontrol("/bin/false").started_at() is None
