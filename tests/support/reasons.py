"""Situations in which the real slurmctld gives a reason, and the words of `why` for each. Used on real daemons and on recordings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.elastic.inspect.head import NO_CLOUD
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.memory import Memory
from gpucluster.elastic.model import CloudView, Observation
from gpucluster.plan.model import SlurmPlan
from gpucluster.slurm.parse import parse_job
from gpucluster.slurm.values import SlurmNode, SlurmView
from support.builders import a_lab_plan

Options = tuple[str, ...]
GPUS = ("-N1", "--mem=1G", "-c1")
WHOLE = ("-N2", "--exclusive", "-w", "gpu[01-02]")  # both nodes that run
QOS_USE = "scontrol show assoc_mgr flags=qos qos=$(squeue -h -j JOB -O qos:64)"
ACCOUNT_USE = "scontrol show assoc_mgr flags=assoc accounts=$(squeue -h -j JOB -O account:64)"


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Submit `before`, wait until `running` of them run, submit the job, then wait for its reason."""

    reason: str
    words: str
    options: Options = GPUS
    before: tuple[Options, ...] = ()
    running: int = 0
    commands: tuple[Options, ...] = ()  # before the job
    then: tuple[Options, ...] = ()  # after it
    after: tuple[Options, ...] = ()
    runs: tuple[str, ...] = ()  # commands of the screen that must work
    of_first: bool = False  # the reason is that of the first job


def _two(*more: str) -> Options:
    return (*GPUS, "--gres=gpu:2", *more)


SITUATIONS: Mapping[str, Situation] = {
    "QOS, all jobs": Situation(
        reason="QOSGrpGRES", words="all jobs of its QOS together have the GPUs or another GRES that it may have at a time (GrpTRES)",
        before=(_two("--qos=few"),), running=1, options=_two("--qos=few"), runs=(QOS_USE,)),
    "QOS, one user": Situation(
        reason="QOSMaxGRESPerUser", words="the jobs of its user have the GPUs or another GRES that its QOS allows one user (MaxTRESPU)",
        before=(_two("--qos=one"),), running=1, options=_two("--qos=one"), runs=(QOS_USE,)),
    "QOS, jobs of a user": Situation(
        reason="QOSMaxJobsPerUserLimit", words="the jobs of its user have the running jobs that its QOS allows one user (MaxJobsPU)",
        before=((*GPUS, "--qos=single"),), running=1, options=(*GPUS, "--qos=single"), runs=(QOS_USE,)),
    "QOS, run time of a job": Situation(
        reason="QOSMaxWallDurationPerJobLimit", words="it requests more run time than its QOS allows for one job (MaxWall)",
        options=(*GPUS, "--qos=short", "-t", "60")),
    "QOS, GPUs of a job": Situation(
        reason="QOSMaxGRESPerJob", words="it requests more GPUs or another GRES than its QOS allows for one job (MaxTRES)",
        options=(*GPUS, "--gres=gpu:4", "--qos=small")),
    "account, all jobs": Situation(
        reason="AssocGrpGRES", words="all jobs of its account together have the GPUs or another GRES that it may have at a time (GrpTRES)",
        before=(_two("--account=full"),), running=1, options=_two("--account=full"), runs=(ACCOUNT_USE,)),
    "account, jobs": Situation(
        reason="AssocMaxJobsLimit", words="the jobs of its user in this account have the running jobs that are allowed (MaxJobs)",
        before=((*GPUS, "--account=narrow"),), running=1, options=(*GPUS, "--account=narrow"), runs=(ACCOUNT_USE,)),
    "licence": Situation(
        reason="Licenses", words="it waits for a licence that other jobs use", before=((*GPUS, "-L", "matlab"),), running=1,
        options=(*GPUS, "-L", "matlab"), runs=("scontrol show licenses",)),
    "reservation": Situation(
        reason="Reservation", words="its reservation has not begun, or is full",
        commands=(("scontrol", "create", "reservationname=later", "starttime=now+2days", "duration=60", "nodes=gpu02", "users=researcher"),),
        options=(*GPUS, "--reservation=later"), after=(("scontrol", "delete", "reservationname=later"),),
        runs=("scontrol show reservation",)),
    "dependency": Situation(
        reason="Dependency", words="a job that it depends on has not ended yet", before=((*GPUS,),), running=1,
        then=(("scontrol", "update", "jobid=JOB", "dependency=afterok:FIRST"),), options=(*GPUS, "--begin=now+5")),
    "begin time": Situation(reason="BeginTime", words="its begin time is in the future", options=(*GPUS, "--begin=now+1hour")),
    "held by its user": Situation(reason="JobHeldUser", words="its user holds it", options=(*GPUS, "--hold")),
    "held by an operator": Situation(
        reason="JobHeldAdmin", words="an operator holds it, or Slurm 26.05", options=(*GPUS, "--begin=now+1hour"),
        then=(("scontrol", "hold", "JOB"),)),
    "partition down": Situation(
        reason="PartitionDown", words="its partition is down", options=GPUS,
        commands=(("scontrol", "update", "partitionname=gpu", "state=down"),),
        after=(("scontrol", "update", "partitionname=gpu", "state=up"),)),
    "resources": Situation(
        reason="Resources", words="the nodes that it can use are busy", options=WHOLE, before=(WHOLE,), running=1),
    "preempted": Situation(
        reason="BeginTime", words="a job of a higher QOS or tier preempted it", of_first=True, before=(WHOLE,), running=1,
        options=(*WHOLE, "--qos=urgent"), runs=("sacct --duplicates -j JOB -o jobid,state,start,end",)),
}  # fmt: skip


def moment_of(body: Mapping[str, Any], now: float | None = None) -> ClusterSnapshot:
    """The cluster of hosts with this job, two nodes up."""
    plan, job = a_lab_plan(), parse_job(body)
    now = now or max(job.submitted_at, job.begins_at - 60)
    names = [name for pool in plan.pools for span in pool.slots for name in span]
    nodes = {n: SlurmNode(name=n, states=frozenset({"ALLOCATED" if n < "gpu03" else "DOWN"})) for n in names}
    seen = Observation(
        slurm=SlurmView(at=now, nodes=nodes, jobs=(job,)), cloud=CloudView(at=now, instances={})
    )
    return ClusterSnapshot(plan=plan, bindings=NO_CLOUD, observation=seen, memory=Memory(epoch="e"), now=now)


def moment_of_world(plan: SlurmPlan, view: SlurmView) -> ClusterSnapshot:
    """The cluster of `plan` as slurmctld shows it, without an instance."""
    seen = Observation(slurm=view, cloud=CloudView(at=view.at, instances={}))
    return ClusterSnapshot(
        plan=plan, bindings=NO_CLOUD, observation=seen, memory=Memory(epoch="e"), now=view.at
    )
