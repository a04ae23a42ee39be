"""SLURM_RESTART_COUNT of a job under real slurmds, with our Prolog and TaskProlog and a stand-in of the agent (E10).

Recorded on both versions: the Prolog has Slurm's count as SLURM_JOB_RESTART_COUNT; the batch script has what TaskProlog
prints, and its steps inherit it.
"""

import dataclasses

import pytest
from real_slurm import USER, VERSIONS, RealSlurm, a_file_of_the_machine
from support.builders import a_lab_plan

from gpucluster.plan import names
from gpucluster.plan.model import SlurmLine

# It answers as the agent whose daemon knows that the first start of each job never began.
AGENT = """
import os, socket, sys
os.makedirs(os.path.dirname(sys.argv[1]), exist_ok=True)
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
    agent.bind(sys.argv[1])
    while True:
        request, caller = agent.recvfrom(65536)
        restarts = int(request.split(b"\\n")[2])
        agent.sendto(b"ok %d" % (restarts - 1) if restarts else b"ok", caller)
"""
JOB = """#!/bin/bash
runs=$(wc -l </lab/runs)
echo "batch ${SLURM_RESTART_COUNT-none} step $(srun -n1 sh -c 'echo ${SLURM_RESTART_COUNT-none}')" >>/lab/runs
[ "$runs" -lt 2 ] || exit 0
scontrol requeue $SLURM_JOB_ID
sleep 60
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_programs_of_a_job_see_the_runs_that_began(version: str) -> None:
    plan = a_lab_plan()
    lines = tuple(
        SlurmLine(file="slurm.conf", key=key, value=value)
        for key, value in (("Prolog", names.PROLOG), ("TaskProlog", names.TASK_PROLOG))
    )
    soon = dataclasses.replace(plan.times, cred_expire_s=5)  # a requeued job waits for it
    plan = dataclasses.replace(plan, times=soon, slurm=dataclasses.replace(plan.slurm, lines=lines))
    files = {path: a_file_of_the_machine(path) for path in (names.PROLOG, names.TASK_PROLOG)}
    with RealSlurm(version, plan, files=files) as slurm:
        slurm.folder(names.JOB_RESTARTS_DIR, "root")
        slurm.write("/lab/runs", "", mode=0o666)
        slurm.write("/lab/job", JOB, mode=0o755)
        slurm.start_controller()
        slurm.start_nodes("gpu01")
        slurm.wait(lambda: slurm.must("sinfo", "-h", "-n", "gpu01", "-o", "%t") == "idle\n", "an idle node")
        slurm.spawn("python3", "-c", AGENT, names.PROLOG_SOCKET, node="gpu01")
        slurm.wait(slurm.path(names.PROLOG_SOCKET).exists, "the agent's socket")
        slurm.must("sbatch", "-w", "gpu01", "-o", "/dev/null", "/lab/job", user=USER)
        slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "the job has ended")
        told = slurm.path("/lab/runs").read_text().splitlines()
        assert told == ["batch none step none", "batch none step none", "batch 1 step 1"]
        mode = slurm.must("stat", "-c", "%U %a", *(f"{names.JOB_RESTARTS_DIR}{one}" for one in ("", "/1")))
        assert mode.splitlines() == ["root 755", "root 644"], "users read it, and only root writes it"
