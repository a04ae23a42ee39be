"""Gangs: pods that start together, with the variables that torch needs to connect them."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.k8s.manifest import scalar
from gpucluster.k8s.site import Site
from gpucluster.k8s.views import pods
from gpucluster.plan import names
from gpucluster.plan.model.values import GANG
from gpucluster.plan.model.workloads import Checkpoint
from gpucluster.plan.model.workloads import Gang as GangPlan

JOB = "node"  # name of the only replicated job; part of each pod's host name
RENDEZVOUS_PORT = 29500  # torch's default
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """templates/k8s/gang.yaml.j2"""

    name: str
    namespace: str
    queued: str  # labels of an object that Kueue queues
    labels: str
    annotations: str
    job: str
    nodes: str
    restarts: str
    priority: str
    account: str
    grace: str
    lifecycle: str
    tolerations: str
    affinity: str
    image: str
    pull_secrets: str
    command: str
    args: str
    env: tuple[pods.EnvLine, ...]
    secrets: tuple[pods.SecretLine, ...]
    port: str
    requests: str
    limits: str
    capabilities: str
    shm: str
    mounts: tuple[pods.MountLine, ...]
    volumes: tuple[pods.VolumeLine, ...]


def gangs(site: Site) -> Iterator[tuple[str, Gang]]:
    for one in site.workloads.gangs:
        yield f"gang-{names.of_team(one.team, one.name)}", _gang(site, one)


def nccl_tests(site: Site) -> Iterator[tuple[str, Gang]]:
    for one in site.workloads.nccl_tests:
        yield one.name, _gang(site, one)


def _gang(site: Site, one: GangPlan) -> Gang:
    return Gang(
        name=scalar(one.name),
        namespace=scalar(site.kubernetes.team(one.team).namespace),
        queued=pods.queued(site, one),
        labels=pods.labels(site, one),
        annotations=scalar(_annotations(one)),
        job=scalar(JOB),
        nodes=scalar(one.nodes),
        restarts=scalar(one.restarts),
        priority=scalar(site.name(GANG)),
        account=scalar(one.service_account),
        grace=scalar(one.grace_s),
        lifecycle=scalar(_lifecycle(one.checkpoint)),
        tolerations=pods.tolerated(site, one),
        affinity=pods.affinity(site, one),
        image=scalar(one.image),
        pull_secrets=pods.pull_secrets(one),
        command=scalar(list(one.command) or None),
        secrets=pods.secret_lines(one),
        args=scalar(list(one.args) or None),
        env=pods.env_lines({**one.fabric_env, **one.env, **_rendezvous(one)}),
        port=scalar(RENDEZVOUS_PORT),
        requests=pods.requests(one),
        limits=pods.limits(one),
        capabilities=scalar({"add": ["IPC_LOCK"]} if one.fabric else None),
        shm=pods.shm(one),
        mounts=pods.mount_lines(site),
        volumes=pods.volume_lines(site),
    )


def _lifecycle(checkpoint: Checkpoint | None) -> dict[str, object] | None:
    """Return the hook that sends the signal. The kubelet sends TERM itself when the hook has ended."""
    if checkpoint is None or checkpoint.signal == "TERM":
        return None
    send = f"kill -s {checkpoint.signal} 1 && sleep {checkpoint.takes_s}"
    return {"preStop": {"exec": {"command": ["/bin/sh", "-c", send]}}}


def _annotations(one: GangPlan) -> dict[str, str]:
    place = {REQUIRED: one.required_level, PREFERRED: one.preferred_level}
    asked = {key: label for key, label in place.items() if label is not None}
    return {"karpenter.sh/do-not-disrupt": "true", **asked, **pods.anywhere(one)}


def _rendezvous(one: GangPlan) -> dict[str, str]:
    first = f"{one.name}-{JOB}-0-0.{one.name}"  # JobSet's name of the first pod, in its headless service
    address = {"MASTER_ADDR": first, "MASTER_PORT": str(RENDEZVOUS_PORT)}
    sizes = {"PET_NNODES": str(one.nodes), "PET_NPROC_PER_NODE": str(one.gpus_per_node)}
    return {**sizes, **{f"PET_{name}": value for name, value in address.items()}, **address}
