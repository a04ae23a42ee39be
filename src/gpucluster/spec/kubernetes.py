"""Kubernetes in a cluster's spec: the control plane, the teams, and how a pool's GPUs are shared."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.plan.model.values import Distribution
from gpucluster.spec.accounting import Share
from gpucluster.spec.aws_fields import PrincipalArn, Range, S3Url
from gpucluster.spec.fields import (
    Flag,
    PositiveCount,
    Text,
    UpdateClass,
    Version,
    Word,
    parse_text,
    refuse,
    spec_field,
)
from gpucluster.spec.part import Part
from gpucluster.spec.queueing import PriorityClass, QueuePreemption
from gpucluster.spec.resources import (
    Image,
    ObjectName,
    Profile,
    Quantity,
    Resource,
    ServiceAccountName,
    TeamName,
)
from gpucluster.text import Form, quoted


class Runs(StrEnum):
    """What schedules a pool's nodes."""

    SLURM = "slurm"
    KUBERNETES = "kubernetes"


# field -> what is built, and what else the spec's page names
CHOICES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "control_plane": ((Distribution.EKS.value,), ()),
    "queueing": (("kueue",), ("volcano", "kai")),
    "gpu_stack": (("device-plugin",), ("dra",)),
    "monitoring": (("prometheus-operator",), ()),
    "runs": (tuple(runs.value for runs in Runs), ("slinky",)),
}


def _one_of(field: str) -> BeforeValidator:
    built, later = CHOICES[field]

    def parse(value: object) -> str:
        text = parse_text(value)
        if text in later:
            raise refuse("not-supported", f"'{text}' is not supported yet; supported: {', '.join(built)}")
        if text not in built:
            raise refuse("bad-choice", f"{quoted(text)} is none of {', '.join(built)}")
        return text

    return BeforeValidator(parse)


def _schema(field: str) -> WithJsonSchema:
    return WithJsonSchema({"enum": list(CHOICES[field][0])})


ControlPlane = Annotated[str, _one_of("control_plane"), _schema("control_plane")]
Queueing = Annotated[str, _one_of("queueing"), _schema("queueing")]
GpuStack = Annotated[str, _one_of("gpu_stack"), _schema("gpu_stack")]
Monitoring = Annotated[str, _one_of("monitoring"), _schema("monitoring")]
RunsField = Annotated[str, _one_of("runs"), _schema("runs")]


_NODE_IMAGE = Form(r"v20[0-9]{6}|1\.[0-9]{2}\.[0-9]{1,3}-20[0-9]{6}")


def parse_node_image(value: object) -> str:
    text = parse_text(value)
    if not _NODE_IMAGE.fullmatch(text):
        raise refuse(
            "bad-release",
            f"{quoted(text)} is not a release of EKS's images such as v20260903 or 1.36.3-20260903",
        )
    return text


NodeImage = Annotated[
    str,
    BeforeValidator(parse_node_image),
    WithJsonSchema({"type": "string", "pattern": f"^({_NODE_IMAGE.pattern})$"}),
]


_EKS_NAME = Form(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")  # EKS API reference, CreateCluster


def parse_eks_name(value: object) -> str:
    text = parse_text(value)
    if not _EKS_NAME.fullmatch(text):
        raise refuse("bad-name", f"{quoted(text)} is no name of an EKS cluster: letters, digits, '-' and '_'")
    return text


EksName = Annotated[
    str,
    BeforeValidator(parse_eks_name),
    WithJsonSchema({"type": "string", "pattern": f"^({_EKS_NAME.pattern})$"}),
]


class Existing(Part):
    """A Kubernetes cluster that exists already."""

    context: Word = spec_field(UpdateClass.REPLACE, "Its name in the operator's kubeconfig.")
    eks_name: EksName | None = spec_field(
        UpdateClass.LIVE,
        "Its name in EKS, for Karpenter. A cluster with an elastic pool needs it.",
        default=None,
    )


class ServiceAccount(Part):
    """A service account of a team's namespace, with rights in S3 by EKS Pod Identity. Any pod of the team may use it."""

    name: ServiceAccountName = spec_field(UpdateClass.LIVE, "Its name, for `service_account` of workloads.")
    read: tuple[S3Url, ...] = spec_field(
        UpdateClass.LIVE, "Buckets or prefixes that its pods may read.", default=(), min_length=1
    )
    write: tuple[S3Url, ...] = spec_field(
        UpdateClass.LIVE,
        "Buckets or prefixes where its pods may read, write and delete.",
        default=(),
        min_length=1,
    )


class Team(Part):
    """A team has a namespace, a queue and a quota."""

    name: TeamName = spec_field(UpdateClass.DATA_LOSS, "Name of the team and of its namespace.")
    quota: Mapping[Resource, Quantity] = spec_field(
        UpdateClass.LIVE, "Guaranteed amount of each resource: `nvidia.com/gpu: 32`.", min_length=1
    )
    may_borrow: Flag = spec_field(
        UpdateClass.LIVE, "The team may use what other teams leave idle.", default=False
    )
    borrowing_limit: Mapping[Resource, Quantity] | None = spec_field(
        UpdateClass.LIVE,
        "The most that the team may use beyond its quota, of each resource: `nvidia.com/gpu: 16`. A resource that is not here has no limit.",
        default=None,
        min_length=1,
    )
    share: Share | None = spec_field(
        UpdateClass.LIVE,
        "Its part of what teams may borrow, in proportion to the other teams. 1 if it is not set.",
        default=None,
    )
    service_accounts: tuple[ServiceAccount, ...] = spec_field(
        UpdateClass.LIVE, "Service accounts of its namespace with rights in S3.", default=(), min_length=1
    )
    members: tuple[PrincipalArn, ...] = spec_field(
        UpdateClass.LIVE,
        "IAM roles and users whose owners are people of the team. EKS puts them into the team's group.",
        default=(),
        min_length=1,
    )


class System(Part):
    """Nodes for add-ons and controllers of EKS. They have no GPUs, and pods of teams do not need them."""

    machine: Text | None = spec_field(
        UpdateClass.LIVE,
        "Their machine type. New nodes start before `pulumi up` ends those of the old type.",
        default=None,
    )
    nodes: PositiveCount | None = spec_field(UpdateClass.LIVE, "How many there are.", default=None)


class Trainer(Part):
    """Kubeflow Trainer, with a ClusterTrainingRuntime for each pool with whole GPUs. A TrainJob names one, and what it runs."""

    image: Image = spec_field(
        UpdateClass.LIVE, "Container image with torch, for TrainJobs that name none: a training image."
    )
    pull_secrets: tuple[ObjectName, ...] = spec_field(
        UpdateClass.LIVE,
        "Secrets of the teams' namespaces with the credentials of the image's registry.",
        default=(),
        min_length=1,
    )


class Kubernetes(Part):
    """Kubernetes, for pools with `runs: kubernetes`."""

    version: Version = spec_field(UpdateClass.RESTART, 'Kubernetes release, quoted: "1.36".')
    control_plane: ControlPlane | None = spec_field(
        UpdateClass.REPLACE, "Who runs the control plane: `eks`.", default=None
    )
    existing: Existing | None = spec_field(
        UpdateClass.REPLACE, "An existing cluster, instead of `control_plane`.", default=None
    )
    queueing: Queueing = spec_field(UpdateClass.STOP_FLEET, "The queueing system of gangs.", default="kueue")
    gpu_stack: GpuStack = spec_field(
        UpdateClass.DRAIN, "The component that gives GPUs to pods.", default="device-plugin"
    )
    node_image: NodeImage | None = spec_field(
        UpdateClass.LIVE,
        "Release of EKS's AL2023 image: `v20260903`, or with its patch version `1.36.3-20260903`, which node groups need if the catalog does not know it. `pulumi up` updates the nodes of node groups; Karpenter's nodes keep theirs until they are empty.",
        default=None,
    )
    fair_sharing: Flag = spec_field(
        UpdateClass.LIVE,
        "Kueue divides what teams may borrow by their `share`. `false`: the first workload takes it.",
        default=True,
    )
    preemption: QueuePreemption | None = spec_field(
        UpdateClass.LIVE, "Which running workloads a waiting one may preempt.", default=None
    )
    priorities: tuple[PriorityClass, ...] = spec_field(
        UpdateClass.LIVE, "Priorities that workloads may name.", default=(), min_length=1
    )
    monitoring: Monitoring | None = spec_field(
        UpdateClass.LIVE,
        "What collects metrics: `prometheus-operator`, whose kinds the cluster must have. Kueue, the GPUs and Karpenter are scraped, and there are alerts, GPU hours and cost of each team, and a dashboard.",
        default=None,
    )
    trainer: Trainer | None = spec_field(
        UpdateClass.LIVE, "Kubeflow Trainer, for gangs of the kind TrainJob.", default=None
    )
    validation_image: Image | None = spec_field(
        UpdateClass.LIVE,
        "Container image with Kubernetes' `agnhost`, for the pods of `validate`: a copy, if nodes cannot pull from registry.k8s.io.",
        default=None,
    )
    system: System | None = spec_field(
        UpdateClass.LIVE, "The nodes of add-ons and controllers.", default=None
    )
    admins: tuple[PrincipalArn, ...] = spec_field(
        UpdateClass.LIVE,
        "IAM roles and users that may do everything in the cluster, besides who creates it.",
        default=(),
        min_length=1,
    )
    api_from: tuple[Range, ...] = spec_field(
        UpdateClass.LIVE,
        "Address ranges that reach the API server: a private range through the VPC, a public range over the internet. Without a private range: the VPC's own. Without a public range the API server has no public address.",
        default=(),
        min_length=1,
    )
    teams: tuple[Team, ...] = spec_field(UpdateClass.LIVE, "Teams that share the pools.", min_length=1)


def image_of(release: str) -> str:
    """The name of an image's release without the patch version: `1.36.3-20260903` is `v20260903`."""
    return release if release.startswith("v") else f"v{release.rpartition('-')[2]}"


def distribution(part: Kubernetes) -> Distribution:
    """Whose control plane it is."""
    return Distribution.EKS if part.existing is None else Distribution.EXISTING


def on_eks(part: Kubernetes | None) -> bool:
    """Whether gpucluster creates the control plane."""
    return part is not None and part.existing is None


class Sharing(Part):
    """How jobs or pods share a GPU: by one of its keys."""

    mig: Mapping[Profile, PositiveCount] | None = spec_field(
        UpdateClass.DRAIN, "MIG slices of each GPU, by profile: `1g.10gb: 7`.", default=None, min_length=1
    )
    shards: PositiveCount | None = spec_field(
        UpdateClass.DRAIN,
        "Slurm only: this many jobs share each GPU. Nothing limits the memory that one of them takes.",
        default=None,
    )
    mps: PositiveCount | None = spec_field(
        UpdateClass.DRAIN,
        "Slurm only: NVIDIA's MPS divides each GPU into this many parts, at most 100. A job asks for some of them and gets that share of the GPU's threads. Nothing limits its memory. All jobs on a node are of one user.",
        default=None,
    )
