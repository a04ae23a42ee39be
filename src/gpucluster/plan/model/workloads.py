"""Resolved workloads on Kubernetes: every amount of resources, every variable and every place is decided."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretVariable:
    """A variable from a key of a Secret."""

    variable: str
    secret: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The folder of a gang's checkpoints, and the time for one before its pods end."""

    folder: str  # on a file system that the pods mount
    takes_s: int
    signal: str  # TERM: what the kubelet sends anyway


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Replicas that answer requests."""

    name: str
    team: str
    priority: str  # name of a priority of the plan
    service_account: str | None  # of a pod identity of the plan; None: pods have no rights in AWS
    image: str
    pull_secrets: tuple[str, ...]
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: dict[str, str]  # in the order of the spec
    secrets: tuple[SecretVariable, ...]
    fabric_env: dict[str, str]  # what NCCL and the fabric need between nodes; `env` wins
    port: int
    health: str | None  # path of the probes; None: they connect to the port
    resources: dict[str, int]  # of a replica; requests equal limits, except for the CPU, which has no limit
    nodes: int  # pods of a replica; with more than one the first answers requests, and EFA is a resource
    worker_command: tuple[str, ...]  # of the other pods; empty: `command`
    fabric: bool  # has EFA interfaces, so it locks memory
    shm_mib: int
    pools: tuple[str, ...]  # the team's pools in which its pods may run; one for replicas of several nodes
    anywhere: bool  # these pools have a topology, and no level is requested
    surge: bool  # the team's share has room for one more replica during a rollout
    replicas_min: int
    replicas_max: int
    queue_depth: (
        int | None
    )  # waiting requests of a replica above which one more is started; None: no autoscaling


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """Pods that start together or not at all, with one group of ranks in each pod."""

    name: str
    team: str
    priority: str  # name of a priority of the plan
    service_account: str | None  # of a pod identity of the plan; None: pods have no rights in AWS
    image: str
    pull_secrets: tuple[str, ...]
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: dict[str, str]  # in the order of the spec
    secrets: tuple[SecretVariable, ...]
    fabric_env: dict[str, str]  # what NCCL and the fabric need; `env` wins
    kind: str  # JobSet or TrainJob
    nodes: int
    gpus_per_node: int
    resources: dict[str, int]  # of a pod; requests equal limits, except for the CPU, which has no limit
    shm_mib: int
    pools: tuple[str, ...]  # the team's pools in which it may run
    fabric: bool  # has EFA interfaces, so it locks memory
    required_level: str | None  # node label; the whole gang is in one domain of it
    preferred_level: str | None
    anywhere: bool  # its pools have a topology, and no level is requested
    restarts: int
    checkpoint: Checkpoint | None
    grace_s: int  # between the first sign that a pod must end and its end by force


@dataclass(frozen=True, slots=True, kw_only=True)
class Workloads:
    """All workloads of one file in `workloads/`."""

    services: tuple[Service, ...] = ()
    gangs: tuple[Gang, ...] = ()
    nccl_tests: tuple[Gang, ...] = ()  # one for each pool; rendered beside the waves
