"""Shared GPUs under real daemons: slurmctld and slurmd accept MIG slices and shards, and jobs get what they requested."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from real_slurm import USER, VERSIONS, RealSlurm, a_file_of_the_machine
from support.builders import a_lab_plan

from gpucluster.agent.boot import mig, mps
from gpucluster.agent.boot.boot_state import BootState, Bundle
from gpucluster.agent.machine import Machine
from gpucluster.checks.check import QueryOutput
from gpucluster.files import shipped
from gpucluster.plan import gres, names
from gpucluster.plan.messages import NodeAnswer
from gpucluster.plan.model import SlurmOnHosts
from gpucluster.shell import CommandError, Result
from gpucluster.validate.pool_jobs import pool_jobs
from gpucluster.validate.validation_jobs import ValidationJobs

CONTROL = (shipped("playbooks") / "stand-ins/nvidia-cuda-mps-control").read_text()
CLIENT = """
import os, socket
client = socket.socket(socket.AF_UNIX)
client.connect(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control")
client.sendall(b"client")
print(client.recv(4096).decode())
"""
SMI = (shipped("playbooks") / "stand-ins/nvidia-smi").read_text()
PREP = (  # jobs without GPUs have a partition, so the other one refuses them
    "partitions:\n", "partitions:\n  - {name: prep, pools: [h100], max_cpus_per_node: 16}\n",
)  # fmt: skip
A100 = {  # most on one GPU, sevenths of compute, eighths of memory
    "name": "NVIDIA H100",
    "memory_mib": 81920,
    "mig": {"1g.10gb": (7, 1, 1), "2g.20gb": (3, 2, 2), "3g.40gb": (2, 3, 4)},
}


def a_shared_plan(sharing: str, *more: tuple[str, str]) -> SlurmOnHosts:
    return a_lab_plan(
        *more,
        ("gpus: {model: h100, count: 8}", "gpus: {model: h100, count: 8, memory: 80GiB}"),
        ('addresses: "192.0.2.[11-14]"}', f'addresses: "192.0.2.[11-14]", sharing: {sharing}}}'),
    )


def slice_gpus(slurm: RealSlurm) -> None:
    """Run the agent's step in the laboratory, against the stand-in of nvidia-smi."""
    slurm.write("/usr/bin/nvidia-smi", SMI, mode=0o755)
    slurm.write("/etc/sandbox-gpus.json", json.dumps(A100))

    def run(
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Result:
        done = slurm.run(*argv, timeout=timeout_s)
        result = Result(tuple(argv), done.code, done.out, done.err)
        if check and done.code:
            raise CommandError(result)
        return result

    refuse: Any = pytest.fail
    machine = Machine(
        root=slurm.path("/"), run=run, metadata=refuse, services=refuse, post=refuse, listening=refuse,
        chown=refuse, now=lambda: 0.0, pause=refuse,
    )  # fmt: skip
    answer = NodeAnswer(node="gpu01", incarnation=0, controller="", heartbeat_s=0.0)
    bundle = Bundle(digest="", etag="", tree=Path("/"), plan=slurm.plan, bindings=None)
    for _ in range(2):  # the second run finds all slices and changes nothing
        mig.slice_gpus(machine, BootState(bundle=bundle, answer=answer))


def assert_job_of_validation_runs(slurm: RealSlurm, plan: SlurmOnHosts) -> None:
    """The job of `gpucluster validate`, on one node. The submission script refuses jobs without GPUs here."""

    def head(argv: Sequence[str], of_user: bool, limit_s: float) -> QueryOutput:
        done = slurm.run(*argv, user=USER if of_user else "root", timeout=limit_s)
        return QueryOutput(code=done.code, stdout=done.out, stderr=done.err)

    (wanted,) = pool_jobs(plan)
    jobs = ValidationJobs(head)
    jobs.submit([replace(wanted, nodes=1)])
    assert jobs.running(wanted.pool).nodes == ("gpu01",)
    jobs.cancel_all()


def details(slurm: RealSlurm, job: str) -> list[str]:
    """What a job got on each of its nodes: `gpu:3g.40gb:2(IDX:0,5)`."""
    found = json.loads(slurm.must("scontrol", "-d", "show", "job", job, "--json"))["jobs"][0]
    assert found["job_state"] == ["RUNNING"], found["state_reason"]
    return list(found["gres_detail"])


def start(slurm: RealSlurm, *options: str) -> str:
    argv = (
        "sbatch",
        "--parsable",
        "-n1",
        "--mem=100",
        "-w",
        "gpu01",
        "-o",
        "/dev/null",
        *options,
        "--wrap",
        "sleep 300",
    )
    job = slurm.must(*argv, user=USER).strip()
    slurm.wait(
        lambda: slurm.run("squeue", "-h", "-j", job, "-o", "%T").out.strip() == "RUNNING", f"{options} runs"
    )
    return job


@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_get_the_mig_slices_that_they_request(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(names.MIG_VARIABLE, "/run/sandbox-mig-minors")
    plan = a_shared_plan("{mig: {1g.10gb: 4, 3g.40gb: 1}}", PREP)
    assert [one.requires_gpus for one in plan.partitions] == [False, True]
    with RealSlurm(version, plan, gpus=8) as slurm:
        slice_gpus(slurm)
        devices = [slurm.path(file) for one in gres.slices(plan.pools[0].shape) for file in one.files[1:]]
        assert len({file.stat().st_rdev for file in devices}) == len(devices) == 8 * 5 * 2
        slurm.start_controller()
        slurm.start_nodes("gpu01")
        slurm.wait(
            lambda: slurm.run("sinfo", "-h", "-n", "gpu01", "-o", "%t").out.strip() == "idle", "gpu01 is idle"
        )
        assert slurm.errors() == []
        assert slurm.errors("slurmd-gpu01") == []
        large = start(slurm, "--gres=gpu:3g.40gb:2")
        assert [d.partition("(")[0] for d in details(slurm, large)] == ["gpu:3g.40gb:2"]
        small = start(slurm, "--gres=gpu:1g.10gb:32")
        assert [d.partition("(")[0] for d in details(slurm, small)] == ["gpu:1g.10gb:32"]
        assert_job_of_validation_runs(slurm, plan)
        refused = slurm.run("sbatch", "--gres=gpu:1g.10gb:33", "--wrap", "true", user=USER)
        assert "Requested node configuration is not available" in refused.err


@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_share_a_gpu_by_shards(version: str) -> None:
    """Four shards of each GPU: 32 of a node. A job of whole GPUs gets only GPUs without shards in use: two jobs of shards use at most two GPUs."""
    plan = a_shared_plan("{shards: 4}")
    with RealSlurm(version, plan, gpus=8) as slurm:
        slurm.start_controller()
        slurm.start_nodes("gpu01")
        slurm.wait(
            lambda: slurm.run("sinfo", "-h", "-n", "gpu01", "-o", "%t").out.strip() == "idle", "gpu01 is idle"
        )
        assert slurm.errors() == []
        jobs = [start(slurm, "--gres=shard:2") for _ in range(2)]
        assert [details(slurm, job)[0].partition("(")[0] for job in jobs] == ["shard:2"] * 2
        whole = start(slurm, "--gres=gpu:6")
        assert details(slurm, whole)[0].startswith("gpu:h100:6(")
        refused = slurm.run("sbatch", "-N1", "--gres=shard:5", "--wrap", "true", user=USER)
        assert "shard:5 is more than the 4 of one GPU" in refused.err, (
            "Slurm alone takes it and never starts it"
        )


OTHER = "other"
SHARE, PIPES, STEP, JOB = (
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PIPE_DIRECTORY", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"
)  # fmt: skip


def environment(text: str) -> dict[str, str]:
    """What Slurm and our TaskProlog say of MPS and GPUs in the output of `env`."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name in (SHARE, PIPES, STEP, JOB):
            found[name] = value
    return found


def of_task(slurm: RealSlurm, *options: str) -> dict[str, str]:
    return environment(slurm.must("srun", "-n1", "--mem=100", "-w", "gpu01", *options, "env", user=USER))


def of_script(slurm: RealSlurm, *options: str) -> dict[str, str]:
    out = slurm.path("/tmp/env")
    argv = ("sbatch", "-n1", "--mem=100", "-w", "gpu01", "-o", "/tmp/env", *options)
    slurm.must(*argv, "--wrap", "env; echo done", user=USER)
    slurm.wait(lambda: out.exists() and out.read_text().endswith("\ndone\n"), "the script has ended")
    return environment(out.read_text())


def why_waits(slurm: RealSlurm, user: str, *options: str) -> str:
    argv = ("sbatch", "--parsable", "-n1", "--mem=100", "-w", "gpu01", "-o", "/dev/null", *options)
    job = slurm.must(*argv, "--wrap", "true", user=user).strip()

    def reason() -> str:
        found = slurm.must("squeue", "-h", "-j", job, "-t", "PENDING", "-o", "%r").strip()
        return "" if found in ("None", "Priority") else found

    return slurm.wait(reason, f"{options} of {user} waits")


@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_share_the_threads_of_a_gpu_by_mps(version: str) -> None:
    """Fifty parts of each GPU. A job has parts of one GPU, other jobs use other GPUs, and another user waits."""
    plan = a_shared_plan("{mps: 50}")
    files = {names.TASK_PROLOG: a_file_of_the_machine(names.TASK_PROLOG)}
    with RealSlurm(version, plan, gpus=8, files=files) as slurm:
        slurm.must("useradd", "--create-home", "--uid", "2001", OTHER)
        for gpu in range(8):
            slurm.folder(f"{names.MPS_DIR}/{gpu}", "root")
        pipes = f"{names.MPS_DIR}/0"
        slurm.write(mps.CONTROL, CONTROL, mode=0o755)
        slurm.spawn("env", "CUDA_VISIBLE_DEVICES=0", f"{PIPES}={pipes}", mps.CONTROL, "-f", name="mps")
        slurm.start_controller()
        slurm.start_nodes("gpu01")
        slurm.wait(
            lambda: slurm.run("sinfo", "-h", "-n", "gpu01", "-o", "%t").out.strip() == "idle", "gpu01 is idle"
        )
        assert slurm.errors() == []
        assert slurm.errors("slurmd-gpu01") == []
        assert of_task(slurm, "--gres=mps:25") == {SHARE: "50", PIPES: pipes, STEP: "0"}
        assert of_script(slurm, "--gres=mps:10") == {SHARE: "20", PIPES: pipes, JOB: "0"}
        # a job that completes still has its GPU, and then the next one gets a GPU without a daemon
        slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "both jobs are gone")
        client = ("srun", "-n1", "--mem=100", "-w", "gpu01", "--gres=mps:1", "python3", "-c", CLIENT)
        assert "connected as user 2000 (stand-in" in slurm.must(*client, user=USER)
        inherited = f"--export=ALL,{SHARE}=7,{PIPES}={names.MPS_DIR}/3"
        assert of_task(slurm, "--gres=gpu:1", inherited) == {STEP: "0"}
        own = f"--export=ALL,{PIPES}=/tmp/mine"
        assert of_task(slurm, "--gres=gpu:1", own) == {STEP: "0", PIPES: "/tmp/mine"}
        jobs = [start(slurm, "--gres=mps:50") for _ in range(2)]
        taken = [
            [int(one.partition("/")[0]) for one in re.findall(r"[0-9]+/50", details(slurm, job)[0])]
            for job in jobs
        ]
        assert sorted(map(sorted, taken)) == [[0] * 7 + [50]] * 2, taken
        assert taken[0] != taken[1], "two GPUs of a node at a time"
        assert details(slurm, start(slurm, "--gres=gpu:6"))[0].startswith("gpu:h100:6(IDX:")
        refused = slurm.run("sbatch", "--gres=mps:51", "--wrap", "true", user=USER)
        assert "mps:51 is more than the 50 of one GPU" in refused.err, (
            "Slurm alone takes it and never starts it"
        )
        assert why_waits(slurm, USER, "--gres=mps:1") == "Resources", (
            "six whole GPUs and twice fifty parts are in use"
        )
        assert why_waits(slurm, OTHER) == "Resources", "the node has free cores, and is of one user"
