"""The jobs that the daemon reads from squeue's rows are those of scontrol's JSON, on real daemons, whatever users write."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from real_slurm import USER, VERSIONS, RealSlurm
from support.builders import a_lab_plan

from gpucluster.slurm import client, parse
from gpucluster.slurm.states import JOB_ENDED
from gpucluster.slurm.values import ActiveJob, SlurmJob

# What a job's name, account and comment may hold: ends of lines, tabs, JSON, what looks like a row, control characters.
HOSTILE = 'x\n1\t1\tN/A\tRUNNING\n{"jobs": [{"job_id": 1}]}\\"~mark~mark\x01\x1b[31m\x7f%A,JobId:0'
LONG = "n" * 900


def a_client(slurm: RealSlurm, folder: Path) -> client.Scontrol:
    """The daemon's client. It runs the programs of the laboratory, and writes each call to `folder/calls`."""
    folder.mkdir()
    for name in ("scontrol", "squeue"):
        inside = shlex.join(slurm._argv([name]))
        (folder / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{folder}/calls\nexec {inside} "$@"\n')
        (folder / name).chmod(0o755)
    return client.Scontrol(str(folder / "scontrol"), "/bin/false", str(folder / "squeue"), near=folder / "no")


def submit(slurm: RealSlurm, *options: str, script: str = "sleep 600", user: str = USER) -> int:
    argv = ("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", script)
    return int(slurm.must(*argv, user=user).split(";")[0])


def by_id(jobs: tuple[SlurmJob, ...]) -> Mapping[int, SlurmJob]:
    found = {job.id: job for job in jobs}
    assert len(found) == len(jobs)
    return found


def shape(job: SlurmJob) -> SlurmJob:
    """Without what the rows do not have, or order otherwise: POWER_UP_NODE, the estimated start, the order of nodes."""
    return replace(
        job,
        states=job.states - {"POWER_UP_NODE"},
        started_at=0.0 if job.pending else job.started_at,
        required_nodes=tuple(sorted(job.required_nodes)),
        excluded_nodes=tuple(sorted(job.excluded_nodes)),
    )


def place(job: SlurmJob | ActiveJob) -> tuple[object, ...]:
    """A requeued job that still leaves its nodes is pending in the JSON, and COMPLETING in the rows of active jobs."""
    leaves = isinstance(job, SlurmJob) and "COMPLETING" in job.states
    return job.id, job.pending and not leaves, job.partitions, job.nodes, tuple(sorted(job.required_nodes))


def compare(slurm: RealSlurm, reader: client.Scontrol) -> Mapping[int, SlurmJob]:
    """Read until nothing changes meanwhile; the rows, the active jobs and the JSON are equal then."""

    variables = [f"{name}={value}" for name, value in client.WHOLE_ARRAYS.items()]

    def unchanged() -> tuple[Mapping[int, SlurmJob], Mapping[int, SlurmJob], tuple[ActiveJob, ...]] | None:
        before = parse.parse_jobs(slurm.must("env", *variables, *client.SHOW_JOBS))
        rows = reader.read_jobs()
        active = parse.parse_active(slurm.must(*client.ACTIVE_JOBS))
        after = parse.parse_jobs(slurm.must("env", *variables, *client.SHOW_JOBS))
        return (by_id(rows), by_id(before), active) if before == after else None

    rows, expected, active = slurm.wait(unchanged, "two equal answers") or ({}, {}, ())
    alive = (job for job in expected.values() if not job.states & JOB_ENDED or "COMPLETING" in job.states)
    assert sorted(map(place, active)) == sorted(map(place, alive))
    assert rows.keys() == expected.keys()
    assert [shape(rows[n]) for n in rows] == [shape(expected[n]) for n in rows]
    return rows


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_are_the_json_whatever_users_write(version: str, tmp_path: Path) -> None:
    plan = a_lab_plan()
    with RealSlurm(version, plan) as slurm:
        slurm.start_controller()
        reader = a_client(slurm, tmp_path / "bin")
        assert reader.read_jobs() == ()
        slurm.start_nodes("gpu01", "gpu02")
        slurm.wait(
            lambda: slurm.run("sinfo", "-h", "-n", "gpu[01-02]", "-o", "%t").out.split() == ["idle"],
            "idle nodes",
        )
        done = submit(slurm, "-n1", script="exit 0")
        failed = submit(slurm, "-n1", "-J", HOSTILE, script="kill -9 $$")
        slurm.wait(lambda: not slurm.run("squeue", "-h").out, "both have ended")
        running = submit(slurm, "-n1", "--gpus=1", "-t", "90", "-J", HOSTILE)
        suspended = submit(slurm, "-n1", "--gpus=1", "-t", "2-00:00:00")
        array = submit(slurm, "--array=0-5%2", "-n1", "--gpus=1", "-J", HOSTILE, "--comment", HOSTILE)
        slurm.wait(
            lambda: slurm.run("squeue", "-h", "-o", "%T").out.split().count("RUNNING") == 4, "four jobs run"
        )
        slurm.must("scontrol", "suspend", str(suspended))
        slurm.must("scontrol", "requeue", f"{array}_0")  # an array's task that waits alone beside the others
        slurm.wait(  # the next task takes its place: three have a record of their own
            lambda: (
                len(slurm.run("squeue", "-h", "-j", str(array), "-t", "RUNNING", "-o", "%i").out.split()) == 2
            ),
            "two tasks of the array run again",
        )
        held = submit(slurm, "-N1", "--hold", "-J", LONG, "--comment", HOSTILE, "-A", HOSTILE)
        wide = submit(slurm, "-N1-2", "--exclusive", "-J", HOSTILE, "-A", HOSTILE)
        submit(slurm, "-N2", "--exclusive", "-w", "gpu02,gpu01")
        submit(slurm, "-N1", "-x", "gpu02", "--exclusive", "-t", "1-00:00:00")
        shorter = submit(slurm, "-N1", "--begin=now+1hour", "-t", "30", "--time-min=10")
        sparse = submit(
            slurm, f"--array={','.join(str(3 * n + n % 3) for n in range(60))}", "--hold"
        )  # a long list
        submit(slurm, "-N1", f"--dependency=afterok:{running}", "-A", HOSTILE)
        slurm.must("sbatch", "-n1", ":", "-n1", "--exclusive", "--wrap", "sleep 600", user=USER)
        cancelled = submit(slurm, "-N1", "--exclusive")
        slurm.must("scancel", str(cancelled))
        slurm.must("scontrol", "update", f"jobid={held}", f"admincomment=gpucluster: {HOSTILE}")
        jobs = compare(slurm, reader)
        assert jobs[done].states == {"COMPLETED"}
        assert (jobs[failed].states, jobs[failed].exit_signal) == ({"FAILED"}, 9)
        assert jobs[suspended].suspended
        assert jobs[running].time_limit_s == 5400.0
        assert jobs[wide].node_count == 1
        assert (jobs[shorter].time_limit_s, jobs[shorter].time_min_s) == (1800.0, 600.0)
        assert jobs[sparse].tasks == 60
        assert jobs[held].account == HOSTILE.lower()  # slurmctld writes accounts so
        assert jobs[held].admin_comment == f"gpucluster: {HOSTILE}"
        assert len([j for j in jobs.values() if j.task]) >= 3
        assert (
            "show jobs" not in (tmp_path / "bin/calls").read_text()
        )  # no answer needed the JSON of all jobs


@pytest.mark.parametrize("version", VERSIONS)
def test_requeued_job_has_the_least_nodes_of_its_request(version: str, tmp_path: Path) -> None:
    """Regression: a job of one to two nodes that ran on two was taken for a job of two, so slots for one did not help it."""
    with RealSlurm(version, a_lab_plan()) as slurm:
        slurm.start_controller()
        reader = a_client(slurm, tmp_path / "bin")
        slurm.start_nodes("gpu01", "gpu02")
        slurm.wait(
            lambda: slurm.run("sinfo", "-h", "-n", "gpu[01-02]", "-o", "%t").out.split() == ["idle"],
            "idle nodes",
        )
        wide = submit(slurm, "-N1-2", "--exclusive")
        slurm.wait(
            lambda: slurm.run("squeue", "-h", "-o", "%T %D").out.split() == ["RUNNING", "2"], "it has both"
        )
        slurm.must("scontrol", "requeue", str(wide))
        slurm.wait(lambda: slurm.run("squeue", "-h", "-o", "%T").out.split() == ["PENDING"], "it waits again")
        assert compare(slurm, reader)[wide].node_count == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_one_call_reads_a_queue_that_only_waits(version: str, tmp_path: Path) -> None:
    """Also with ranges of nodes: such a job is asked for once, and again when its row has changed."""
    with RealSlurm(version, a_lab_plan(), nodes=False) as slurm:
        slurm.start_controller()
        reader = a_client(slurm, tmp_path / "bin")
        wide = submit(slurm, "-N1-2", "--exclusive")
        submit(slurm, "-N1", "--hold")
        slurm.wait(
            lambda: slurm.must("squeue", "-h", "-j", str(wide), "-o", "%D").strip() == "2",
            "a pass of the scheduler",
        )
        calls = tmp_path / "bin/calls"
        for expected in (2, 1, 1):
            calls.write_text("")
            compare(slurm, reader)
            assert len(calls.read_text().splitlines()) == expected
        slurm.must("scontrol", "update", f"jobid={wide}", "nice=7", "admincomment=new")
        calls.write_text("")
        assert compare(slurm, reader)[wide].admin_comment == "new"
        assert len(calls.read_text().splitlines()) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_environment_of_a_person_changes_no_answer(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gpucluster why` runs with the variables of the person who asks."""
    with RealSlurm(version, a_lab_plan(), nodes=False) as slurm:
        slurm.start_controller()
        reader = a_client(slurm, tmp_path / "bin")
        number = submit(slurm, "-N1", "--hold")
        for name, value in (
            ("SQUEUE_FORMAT", "%A"), ("SQUEUE_USERS", "nobody"), ("SQUEUE_STATES", "R"), ("SQUEUE_PARTITION", "x"),
            ("SQUEUE_SORT", "-i"), ("SLURM_TIME_FORMAT", "relative"), ("SLURM_CLUSTERS", "other"),
        ):  # fmt: skip
            monkeypatch.setenv(name, value)
        assert [job.id for job in reader.read_jobs()] == [number]
        assert reader.read_jobs()[0].submitted_at > 1e9
        assert json.loads(slurm.must("scontrol", "show", "jobs", "--json"))["jobs"]
