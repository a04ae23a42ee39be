"""The workloads on Kubernetes: `workloads/NAME.yaml`, reviewed separately from the cluster."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.plan.model.values import JOBSET, TRAINJOB
from gpucluster.spec.fields import (
    DURATION_SCHEMA,
    AbsolutePath,
    Name,
    PositiveCount,
    SchemaVersion,
    UpdateClass,
    count,
    duration,
    parse_text,
    refuse,
    spec_field,
)
from gpucluster.spec.operations import Signal
from gpucluster.spec.part import Part
from gpucluster.spec.resources import (
    HttpPath,
    Image,
    Line,
    ObjectName,
    Quantity,
    Resource,
    SecretKeyName,
    TeamName,
    Variable,
)
from gpucluster.text import quoted

_LATER = ("mpi", "jax")
KINDS = (JOBSET, TRAINJOB)


def parse_framework(value: object) -> str:
    text = parse_text(value)
    if text in _LATER:
        raise refuse("not-supported", f"'{text}' is not supported yet; supported: torch")
    if text != "torch":
        raise refuse("bad-choice", f"{quoted(text)} is none of torch")
    return text


def parse_port(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1024 <= value <= 65535:
        raise refuse("bad-port", f"{quoted(value)} is not a port from 1024 to 65535")
    return value


def parse_kind(value: object) -> str:
    text = parse_text(value)
    if text not in KINDS:
        raise refuse("bad-choice", f"{quoted(text)} is none of {', '.join(KINDS)}")
    return text


Framework = Annotated[str, BeforeValidator(parse_framework), WithJsonSchema({"enum": ["torch"]})]
GangKind = Annotated[str, BeforeValidator(parse_kind), WithJsonSchema({"enum": list(KINDS)})]
Port = Annotated[
    int,
    BeforeValidator(parse_port),
    WithJsonSchema({"type": "integer", "minimum": 1024, "maximum": 65535}),
]
Restarts = Annotated[
    int, BeforeValidator(count(0)), WithJsonSchema({"type": "integer", "minimum": 0, "maximum": 10_000})
]


CheckpointTime = Annotated[int, BeforeValidator(duration(1, 6 * 3600)), WithJsonSchema(DURATION_SCHEMA)]


class Replicas(Part):
    """Number of replicas."""

    min: PositiveCount = spec_field(UpdateClass.LIVE, "Least replicas.")
    max: PositiveCount = spec_field(UpdateClass.LIVE, "Most replicas.")


class ScaleOn(Part):
    """The metric that adds replicas."""

    queue_depth: PositiveCount = spec_field(
        UpdateClass.LIVE,
        "One more replica starts at this many waiting requests of a replica (metric `queue_depth`).",
    )


class Topology(Part):
    """How near to each other the pods are. Exactly one key."""

    required: Name | None = spec_field(
        UpdateClass.DRAIN, "All pods in one domain of this level, or none starts.", default=None
    )
    preferred: Name | None = spec_field(
        UpdateClass.DRAIN, "All pods in one domain of this level, if one is free.", default=None
    )


class SecretKey(Part):
    """A key of a Secret in the team's namespace. The team creates it; no file here has its value."""

    name: ObjectName = spec_field(UpdateClass.LIVE, "Name of the Secret.")
    key: SecretKeyName = spec_field(UpdateClass.LIVE, "Its key.")


class Checkpoint(Part):
    """What the pods of a gang get before they end: a signal, and time for a checkpoint on a file system."""

    mount: AbsolutePath = spec_field(
        UpdateClass.REPLACE,
        "A file system of the cluster. `CHECKPOINT_DIR` names the gang's folder there.",
    )
    takes: CheckpointTime = spec_field(
        UpdateClass.REPLACE, "The longest time that a checkpoint takes. The pods end later."
    )
    signal: Signal = spec_field(
        UpdateClass.REPLACE,
        "Signal to the container's first process when its pod must end.",
        default="TERM",
    )


class Serve(Part):
    """A service with replicas."""

    name: Name = spec_field(UpdateClass.REPLACE, "Name of the service and of its Service object.")
    team: TeamName = spec_field(UpdateClass.REPLACE, "Team whose quota it uses.")
    priority: Name | None = spec_field(
        UpdateClass.LIVE,
        "Its priority in the queue: a name of the cluster's `kubernetes.priorities`.",
        default=None,
    )
    service_account: Name | None = spec_field(
        UpdateClass.LIVE,
        "Service account of its pods, with rights in S3: a name of the team's `service_accounts`.",
        default=None,
    )
    image: Image = spec_field(UpdateClass.LIVE, "Container image.")
    command: tuple[Line, ...] = spec_field(
        UpdateClass.LIVE, "Entry point, instead of the image's.", default=(), min_length=1
    )
    args: tuple[Line, ...] = spec_field(
        UpdateClass.LIVE, "Arguments of the entry point.", default=(), min_length=1
    )
    env: Mapping[Variable, Line] = spec_field(
        UpdateClass.LIVE,
        "Environment variables, in their order: `$(NAME)` becomes the value of one before it, or of one of `secrets`. `check` refuses secrets here: use `secrets`.",
        default={},
    )
    secrets: Mapping[Variable, SecretKey] = spec_field(
        UpdateClass.LIVE, "Environment variables from Secrets of the team's namespace.", default={}
    )
    pull_secrets: tuple[ObjectName, ...] = spec_field(
        UpdateClass.LIVE,
        "Secrets of the team's namespace with the credentials of the image's registry.",
        default=(),
        min_length=1,
    )
    health: HttpPath | None = spec_field(
        UpdateClass.LIVE,
        "Path that answers 200 when the replica can serve. Without it the port counts.",
        default=None,
    )
    port: Port | None = spec_field(UpdateClass.LIVE, "Port of the service.", default=None)
    resources: Mapping[Resource, Quantity] = spec_field(
        UpdateClass.LIVE, "Resources of each replica; with `nodes`, of each of its pods.", min_length=1
    )
    shm: Quantity | None = spec_field(
        UpdateClass.LIVE,
        "Size of /dev/shm, a part of the pod's memory: `32Gi`. An eighth of the memory if it is not set.",
        default=None,
    )
    nodes: PositiveCount = spec_field(
        UpdateClass.REPLACE,
        "Number of pods of each replica. A pod with all GPUs of a node has it alone, smaller ones may share one. More than one pod make a LeaderWorkerSet.",
        default=1,
    )
    worker_command: tuple[Line, ...] = spec_field(
        UpdateClass.LIVE,
        "Entry point of the other pods of a replica, instead of `command`.",
        default=(),
        min_length=1,
    )
    replicas: Replicas = spec_field(UpdateClass.LIVE, "Number of them.")
    scale_on: ScaleOn | None = spec_field(UpdateClass.LIVE, "The metric that adds replicas.", default=None)


class Train(Part):
    """A training job is a gang: its pods start together or not at all."""

    name: Name = spec_field(UpdateClass.REPLACE, "Name of the job. Host names begin with it.")
    team: TeamName = spec_field(UpdateClass.REPLACE, "Team whose quota it uses.")
    priority: Name | None = spec_field(
        UpdateClass.LIVE,
        "Its priority in the queue: a name of the cluster's `kubernetes.priorities`.",
        default=None,
    )
    service_account: Name | None = spec_field(
        UpdateClass.REPLACE,
        "Service account of its pods, with rights in S3: a name of the team's `service_accounts`.",
        default=None,
    )
    image: Image = spec_field(UpdateClass.REPLACE, "Container image.")
    command: tuple[Line, ...] = spec_field(
        UpdateClass.REPLACE, "Entry point, instead of the image's.", default=(), min_length=1
    )
    args: tuple[Line, ...] = spec_field(
        UpdateClass.REPLACE, "Arguments of the entry point.", default=(), min_length=1
    )
    env: Mapping[Variable, Line] = spec_field(
        UpdateClass.REPLACE,
        "Environment variables, in their order: `$(NAME)` becomes the value of one before it, or of one of `secrets`. `check` refuses secrets here: use `secrets`.",
        default={},
    )
    secrets: Mapping[Variable, SecretKey] = spec_field(
        UpdateClass.REPLACE, "Environment variables from Secrets of the team's namespace.", default={}
    )
    pull_secrets: tuple[ObjectName, ...] = spec_field(
        UpdateClass.REPLACE,
        "Secrets of the team's namespace with the credentials of the image's registry.",
        default=(),
        min_length=1,
    )
    nodes: PositiveCount = spec_field(
        UpdateClass.REPLACE,
        "Number of pods. A pod with all GPUs of a node has it alone, smaller ones may share one.",
    )
    gpus_per_node: PositiveCount = spec_field(UpdateClass.REPLACE, "GPUs of each pod.")
    shm: Quantity | None = spec_field(
        UpdateClass.REPLACE,
        "Size of /dev/shm, a part of the pod's memory: `32Gi`. An eighth of the memory if it is not set.",
        default=None,
    )
    checkpoint: Checkpoint | None = spec_field(
        UpdateClass.REPLACE,
        "Where its checkpoint goes, and the time for it before its pods end.",
        default=None,
    )
    framework: Framework = spec_field(
        UpdateClass.REPLACE, "Framework whose variables name the other pods.", default="torch"
    )
    kind: GangKind = spec_field(
        UpdateClass.REPLACE,
        "Kind of its object: `JobSet`, or `TrainJob` of Kubeflow Trainer, for clusters with `kubernetes.trainer`.",
        default=JOBSET,
    )
    topology: Topology | None = spec_field(
        UpdateClass.REPLACE, "How near to each other the pods are.", default=None
    )
    restarts: Restarts | None = spec_field(
        UpdateClass.REPLACE, "How often the whole gang restarts after a failure.", default=None
    )


class NcclTest(Part):
    """A job for each pool of a team with whole GPUs: all-reduce over two nodes. Nothing starts it by itself."""

    team: TeamName = spec_field(UpdateClass.NONE, "Team whose quota it uses.")
    image: Image = spec_field(
        UpdateClass.NONE, "Container image with torch and, for EFA, the plugin of NCCL: a training image."
    )
    pull_secrets: tuple[ObjectName, ...] = spec_field(
        UpdateClass.NONE,
        "Secrets of the team's namespace with the credentials of the image's registry.",
        default=(),
        min_length=1,
    )


class WorkloadsSpec(Part):
    """Workloads for one cluster."""

    format: SchemaVersion = spec_field(UpdateClass.NONE, "Version of this format.", alias="schema")
    cluster: Name = spec_field(UpdateClass.REPLACE, "Name of the cluster. Its spec is stacks/NAME.yaml.")
    serve: tuple[Serve, ...] = spec_field(UpdateClass.LIVE, "Services.", default=(), min_length=1)
    train: tuple[Train, ...] = spec_field(UpdateClass.LIVE, "Training jobs.", default=(), min_length=1)
    nccl_test: NcclTest | None = spec_field(
        UpdateClass.NONE, "A test of NCCL for each pool of a team.", default=None
    )
