"""The spec of a JobSet, alone or inside a runtime of Kubeflow Trainer: templates/k8s/jobset-spec.yaml.j2."""

from dataclasses import dataclass, replace

from gpucluster.k8s.manifest import scalar
from gpucluster.k8s.site import Site
from gpucluster.k8s.views import pods
from gpucluster.plan import kubernetes as kube
from gpucluster.plan import names
from gpucluster.plan.model.kubernetes import Trainer, TrainingRuntime
from gpucluster.plan.model.values import GANG
from gpucluster.plan.model.workloads import Checkpoint
from gpucluster.plan.model.workloads import Gang as GangPlan

JOB = "node"  # name of the only replicated job, which Trainer requires; part of each pod's host name
TEMPLATE = "jobset-spec.yaml.j2"  # goes into others as one line of JSON
NODES = 1  # of a TrainJob that says nothing
RENDEZVOUS_PORT = 29500  # torch's default, and Trainer's
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
_OF_TRAINER = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSetSpec:
    """templates/k8s/jobset-spec.yaml.j2"""

    subdomain: str
    job: str
    job_metadata: str
    container: str
    nodes: str
    restarts: str
    labels: str
    annotations: str
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


def of_gang(site: Site, one: GangPlan, *, trained: bool = False) -> JobSetSpec:
    """Return the spec of a gang. `trained`: for its runtime, to which Trainer adds the addresses of torchrun."""
    return replace(
        _whole(site, one, one.image, one.pull_secrets),
        subdomain=scalar(one.name),
        job_metadata=scalar(_OF_TRAINER if trained else None),
        container=scalar(JOB if trained else one.name),
        nodes=scalar(one.nodes),
        restarts=scalar(one.restarts),
        labels=pods.labels(site, one),
        annotations=scalar(_annotations(one) or None),
        account=scalar(one.service_account),
        grace=scalar(one.grace_s),
        lifecycle=scalar(_lifecycle(one.checkpoint)),
        affinity=pods.affinity(site, one),
        command=scalar(list(one.command) or None),
        args=scalar(list(one.args) or None),
        env=pods.env_lines(pods.env_of(_ours(one), one)),
        secrets=pods.secret_lines(one),
    )


def of_runtime(site: Site, trainer: Trainer, one: TrainingRuntime) -> JobSetSpec:
    """Return the spec of a pool's runtime. A TrainJob says what runs, on how many nodes."""
    return _whole(site, one, trainer.image, trainer.pull_secrets)


def _whole(
    site: Site, one: GangPlan | TrainingRuntime, image: str, pull_secrets: tuple[str, ...]
) -> JobSetSpec:
    """Return what the pods get in their pools, with the defaults of all that a gang may say otherwise."""
    return JobSetSpec(
        subdomain=scalar(None),
        job=scalar(JOB),
        job_metadata=scalar(_OF_TRAINER),
        container=scalar(JOB),
        nodes=scalar(NODES),
        restarts=scalar(int(kube.RESTARTS.value)),
        labels=scalar(site.labels),
        annotations=scalar(pods.anywhere(one) or None),
        priority=scalar(site.name(GANG)),
        account=scalar(None),
        grace=scalar(int(kube.GRACE_S.value)),
        lifecycle=scalar(None),
        tolerations=pods.tolerated(site, one),
        affinity=pods.only(one.pools),
        image=scalar(image),
        pull_secrets=pods.pull_secrets(pull_secrets),
        command=scalar(None),
        args=scalar(None),
        env=pods.env_lines(dict(sorted(one.fabric_env.items()))),
        secrets=(),
        port=scalar(RENDEZVOUS_PORT),
        requests=pods.requests(one),
        limits=pods.limits(one),
        capabilities=scalar({"add": ["IPC_LOCK"]} if one.fabric else None),
        shm=pods.shm(one),
        mounts=pods.mount_lines(site),
        volumes=pods.volume_lines(site),
    )


def _annotations(one: GangPlan) -> dict[str, str]:
    place = {REQUIRED: one.required_level, PREFERRED: one.preferred_level}
    asked = {key: label for key, label in place.items() if label is not None}
    return {**asked, **pods.anywhere(one)}


def _lifecycle(checkpoint: Checkpoint | None) -> dict[str, object] | None:
    """Return the hook that sends the signal. The kubelet sends TERM itself when the hook has ended."""
    if checkpoint is None or checkpoint.signal == "TERM":
        return None
    send = f"kill -s {checkpoint.signal} 1 && sleep {checkpoint.takes_s}"
    return {"preStop": {"exec": {"command": ["/bin/sh", "-c", send]}}}


def _ours(one: GangPlan) -> dict[str, str]:
    folder = {} if one.checkpoint is None else {names.CHECKPOINT_VARIABLE: one.checkpoint.folder}
    return {**one.fabric_env, **folder, **_rendezvous(one)}


def _rendezvous(one: GangPlan) -> dict[str, str]:
    first = f"{one.name}-{JOB}-0-0.{one.name}"  # JobSet's name of the first pod, in its headless service
    address = {"MASTER_ADDR": first, "MASTER_PORT": str(RENDEZVOUS_PORT)}
    sizes = {"PET_NNODES": str(one.nodes), "PET_NPROC_PER_NODE": str(one.gpus_per_node)}
    return {**sizes, **{f"PET_{name}": value for name, value in address.items()}, **address}
