"""The job templates on real Slurm, with stand-in programs that check their environment strictly (tests/support/programs).

The lab stack has two nodes up, whose jobs see one home; each template is written by `gpucluster jobs` and submitted by a user.
"""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_slurm import USER, VERSIONS, RealSlurm
from support.builders import a_lab_plan

from gpucluster.plan import names
from gpucluster.plan.model import SlurmLine, SlurmOnHosts, Software
from gpucluster.slurm.config import jobs
from gpucluster.slurm.config.render import job_env, render

PROGRAMS = Path(__file__).parents[1] / "support/programs"
HOME = f"/home/{USER}"
SHORT_S = 5  # seconds of cred_expire, the least that Slurm takes: a requeued job starts that much later
TMP = "/lab/tmp"  # PMIx keeps files of a step in the node's TmpFS, and the slurmds of the laboratory share one /tmp
DATA = "".join(f"line {number}\n" for number in range(37))


def a_plan() -> SlurmOnHosts:
    plan = a_lab_plan()
    own_tmp = SlurmLine(file="slurm.conf", key="TmpFS", value=f"{TMP}/%n")
    return dataclasses.replace(
        plan,
        times=dataclasses.replace(plan.times, cred_expire_s=SHORT_S),
        slurm=dataclasses.replace(plan.slurm, lines=(own_tmp,)),
    )


@pytest.fixture(scope="module", params=VERSIONS)
def slurm(request: pytest.FixtureRequest) -> Iterator[RealSlurm]:
    """Two nodes of eight GPUs, with the templates and the programs in the user's home."""
    plan = a_plan()
    files = {
        names.JOB_ENV: job_env(plan.name, plan.pools[0]),
        "/usr/bin/torchrun": (PROGRAMS / "torchrun.py").read_text(),
    }
    with RealSlurm(request.param, plan, files=files) as cluster:
        place = jobs.partition_of(plan, None)
        for one in jobs.available(plan, place):
            made = jobs.render(plan, place, one.name)
            cluster.write(f"{HOME}/{made.path}", made.content.decode(), mode=made.mode, owner=USER)
        for program in ("train", "infer", "sweep", "pmix"):
            cluster.write(f"{HOME}/{program}.py", (PROGRAMS / f"{program}.py").read_text(), owner=USER)
        for node in ("gpu01", "gpu02"):
            cluster.folder(f"{TMP}/{node}", "root", 0o1777)
        cluster.start_controller()
        cluster.start_nodes("gpu01", "gpu02")
        cluster.wait(
            lambda: cluster.must("sinfo", "-h", "-n", "gpu[01-02]", "-o", "%t").split() == ["idle"],
            "idle nodes",
        )
        yield cluster


def submit(slurm: RealSlurm, *argv: str, **variables: str) -> str:
    """Submit as from a login shell in the home; return what sbatch or bash printed."""
    env = [f"{name}={value}" for name, value in {"HOME": HOME, "USER": USER, **variables}.items()]
    words = ("env", "--chdir", HOME, *env, *argv)
    return slurm.must(*words, user=USER).strip()


def ended(slurm: RealSlurm, job: str) -> str:
    """Wait for the end of the job, or of all its tasks; return their states."""

    def state() -> str:
        found = {one["JobState"] for one in slurm.show("job", job)}
        busy = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED"}
        return "" if found & busy else "+".join(sorted(found))

    return slurm.wait(state, f"job {job} has ended: {slurm.run('squeue').out}")


def output(slurm: RealSlurm, file: str) -> str:
    return slurm.path(f"{HOME}/{file}").read_text(errors="replace")


def completed(slurm: RealSlurm, name: str, *argv: str, options: tuple[str, ...] = ()) -> str:
    """Submit `NAME.sbatch`, wait until it has completed, and return its output."""
    job = submit(slurm, "sbatch", "--parsable", *options, f"{name}.sbatch", *argv)
    state = ended(slurm, job)
    told = output(slurm, f"{name}-{job}.out")
    assert state == "COMPLETED", told
    return told


def test_torchrun_starts_every_rank_at_one_address(slurm: RealSlurm) -> None:
    told = completed(slurm, "torchrun")
    assert "rendezvous of 16 ranks on gpu01,gpu02\n" in told
    assert output(slurm, "checkpoints/torchrun/step") == "1"


def test_deepspeed_starts_a_rank_on_each_gpu(slurm: RealSlurm) -> None:
    slurm.write(f"{HOME}/ds_config.json", '{"zero_optimization": {"stage": 3}}', owner=USER)
    assert "rendezvous of 16 ranks on gpu01,gpu02\n" in completed(slurm, "deepspeed")


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("RANK=$SLURM_PROCID", "RANK=0", "WRONG: "),
        ("MASTER_ADDR=${hosts[0]}", "MASTER_ADDR=${hosts[1]}", "WRONG: rank 0 runs on gpu01, and MASTER_ADDR is gpu02"),
        ("LOCAL_RANK=$SLURM_LOCALID", "LOCAL_RANK=0", "WRONG: local ranks on gpu0"),
    ],
    ids=["rank", "address", "local-rank"],
)  # fmt: skip
def test_stand_in_refuses_a_wrong_template(slurm: RealSlurm, right: str, wrong: str, said: str) -> None:
    """The tests above can fail: a rank, an address or a local rank that is wrong ends the job."""
    text = output(slurm, "deepspeed.sbatch")
    assert right in text
    slurm.write(f"{HOME}/ds_config.json", '{"zero_optimization": {"stage": 3}}', owner=USER)
    slurm.write(f"{HOME}/wrong.sbatch", text.replace(right, wrong), owner=USER)
    job = submit(slurm, "sbatch", "--parsable", "wrong.sbatch")
    assert ended(slurm, job) == "FAILED"
    assert said in output(slurm, f"deepspeed-{job}.out")


def test_mpi_ranks_meet_by_pmix(slurm: RealSlurm) -> None:
    """libpmix itself: every rank of both nodes passes a fence. Debian testing's Slurm has no plugin for PMIx, and no package of it."""
    if "pmix" not in slurm.run("srun", "--mpi=list").err + slurm.run("srun", "--mpi=list").out:
        assert slurm.version != "24.11", "Debian 13 has the plugin"
        pytest.skip(f"Debian's packages of Slurm {slurm.version} have no mpi/pmix")
    told = completed(slurm, "mpi", "python3", "pmix.py")
    found = re.findall(r"^rank (\d+) of 16 in (\S+)$", told, re.M)
    assert sorted(int(rank) for rank, _ in found) == list(range(16)), told
    assert len({space for _, space in found}) == 1


def test_array_answers_each_line_once_and_continues(slurm: RealSlurm) -> None:
    slurm.write(f"{HOME}/prompts.jsonl", DATA, owner=USER)
    slurm.folder(f"{HOME}/array", USER)
    job = submit(slurm, "sbatch", "--parsable", "array.sbatch")
    assert ended(slurm, job) == "COMPLETED"
    parts = sorted(slurm.path(f"{HOME}/array").iterdir())
    assert [one.name for one in parts] == [f"part-{number:05}" for number in range(1, 17)]
    answers = sorted(line for one in parts for line in one.read_text().splitlines())
    assert answers == sorted(f"answer to {line}" for line in DATA.splitlines())
    parts[2].unlink()
    again = submit(slurm, "sbatch", "--parsable", "--array=3-4", "array.sbatch")
    assert ended(slurm, again) == "COMPLETED"
    assert parts[2].exists(), "a part that is missing is computed again, also alone"
    assert output(slurm, f"array-{again}_4.out") == "part 4 is done\n"


def test_sweep_gives_each_line_to_a_run(slurm: RealSlurm) -> None:
    slurm.write(f"{HOME}/runs.txt", "--lr 1e-4 --seed 1\n--lr 3e-4 --seed 2\n", owner=USER)
    job = submit(slurm, "sbatch", "--parsable", "--array=1-3", "sweep.sbatch", PROGRAM="sweep.py")
    assert ended(slurm, job) == "COMPLETED+FAILED"
    assert [output(slurm, f"sweep/run-{n}/result") for n in (1, 2)] == ["1e-4 1\n", "3e-4 2\n"]
    assert "runs.txt has no line 3" in output(slurm, f"sweep-{job}_3.out")


def test_chain_runs_in_order_and_ends_with_the_first_failure(slurm: RealSlurm) -> None:
    body = "#!/bin/bash\n#SBATCH --output=/dev/null\n"
    for name in ("a", "b", "c"):
        slurm.write(f"{HOME}/{name}.sbatch", f"{body}echo {name} >> order\n", owner=USER)
    slurm.write(f"{HOME}/bad.sbatch", f"{body}exit 3\n", owner=USER)
    steps = {"PREPARE": "a.sbatch", "TRAIN": "b.sbatch", "EVALUATE": "c.sbatch"}
    good = submit(slurm, "bash", "chain.sh", **steps).split()
    assert [ended(slurm, job) for job in good] == ["COMPLETED"] * 3
    assert output(slurm, "order") == "a\nb\nc\n"
    bad = submit(slurm, "bash", "chain.sh", **{**steps, "PREPARE": "bad.sbatch"}).split()
    assert [ended(slurm, job) for job in bad] == ["FAILED", "CANCELLED", "CANCELLED"]
    assert output(slurm, "order") == "a\nb\nc\n"


def test_chain_without_its_end_cancels_its_beginning(slurm: RealSlurm) -> None:
    """A third script that sbatch refuses must not leave two jobs without a purpose."""
    before = set(slurm.must("squeue", "-h", "-o", "%i").split())
    env = [f"HOME={HOME}", f"USER={USER}", "PREPARE=a.sbatch", "TRAIN=b.sbatch", "EVALUATE=missing.sbatch"]
    done = slurm.run("env", "--chdir", HOME, *env, "bash", "chain.sh", user=USER)
    assert done.code != 0
    slurm.wait(
        lambda: set(slurm.must("squeue", "-h", "-o", "%i").split()) <= before, "the queue is as before"
    )


def test_data_set_is_on_each_node_and_removed_at_the_end(slurm: RealSlurm) -> None:
    for part in ("part-0", "part-1"):
        slurm.write(f"{HOME}/dataset/{part}", part, owner=USER)
    # The slurmds of the laboratory share one /tmp, which are two disks on real nodes: one node is enough here.
    told = completed(slurm, "stage-in", options=("--nodes=1",))
    assert "rendezvous of 8 ranks on gpu0" in told
    assert list(slurm.path("/tmp").glob(f"{USER}-*")) == []


def test_signal_saves_a_checkpoint_and_the_requeued_job_continues(slurm: RealSlurm) -> None:
    """The signal is sent as the elastic daemon sends it: to the batch script."""
    job = submit(slurm, "sbatch", "--parsable", "checkpoint.sbatch", "--steps=60")
    out = f"checkpoint-{job}.out"
    slurm.wait(
        lambda: slurm.path(f"{HOME}/{out}").exists() and "starts at step 0" in output(slurm, out), "it runs"
    )
    slurm.must("scancel", "--batch", "--signal=USR1", job)
    slurm.wait(lambda: "checkpoint saved, the job is requeued" in output(slurm, out), "it has saved")
    assert ended(slurm, job) == "COMPLETED"
    told = output(slurm, out)
    first, second = (int(step) for step in re.findall(r"^starts at step (\d+)$", told, re.M))
    stopped = int(re.findall(r"^stopped at step (\d+)$", told, re.M)[0])
    assert (first, second) == (0, stopped), told
    assert 0 < stopped < 60
    assert "done at step 60\n" in told
    assert slurm.show("job", job)[0]["Restarts"] == "1"


def test_checkpoint_job_that_fails_is_not_requeued(slurm: RealSlurm) -> None:
    """Without a signal the exit code of the program is that of the job: no endless requeue of a broken program."""
    job = submit(slurm, "sbatch", "--parsable", "checkpoint.sbatch", "--no-such-option")
    assert ended(slurm, job) == "FAILED"
    assert slurm.show("job", job)[0]["Restarts"] == "0"


@pytest.mark.parametrize(
    "submitted_from",
    ["", "MODULEPATH_ROOT=/usr/share/modulefiles MODULEPATH=/etc/lmod/modules"],
    ids=["a plain shell", "a login shell without the folder"],
)
def test_login_shell_has_the_modules_of_the_spec(slurm: RealSlurm, submitted_from: str) -> None:
    """Lmod itself. A job inherits the variables of the shell that submits it, and Lmod then reads no folder of the site."""
    plan = a_plan()
    software = dataclasses.replace(
        plan.slurm, software=Software(modules="/apps/modulefiles", conda="/apps/conda")
    )
    made = {one.path: one.content.decode() for one in render(dataclasses.replace(plan, slurm=software))}
    slurm.write(names.PROFILE, made[names.PROFILE_FILE])
    slurm.write("/apps/modulefiles/cuda/12.4.lua", 'setenv("CUDA_HOME", "/apps/cuda/12.4")\n')
    slurm.write("/apps/conda/etc/profile.d/conda.sh", "conda() { echo conda of /apps; }\n")
    body = "#!/bin/bash -l\nmodule --terse avail 2>&1\nmodule load cuda\necho $CUDA_HOME\nconda\n"
    slurm.write(f"{HOME}/modules.sbatch", body, owner=USER)
    job = submit(slurm, *submitted_from.split(), "sbatch", "--parsable", "--output=%j.out", "modules.sbatch")
    assert ended(slurm, job) == "COMPLETED"
    told = output(slurm, f"{job}.out")
    assert "/apps/modulefiles:\n" in told
    assert told.endswith("/apps/cuda/12.4\nconda of /apps\n"), told


def test_slurmctld_logs_no_error(slurm: RealSlurm) -> None:
    assert slurm.errors() == []
