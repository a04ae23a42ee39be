"""Kubernetes in a cluster's spec: the control plane, the teams, and how a pool's GPUs are shared."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.plan.kubernetes import Distribution
from gpucluster.spec.fields import Flag, PositiveCount, UpdateClass, Version, Word, parse_text, refuse, wish
from gpucluster.spec.part import Part
from gpucluster.spec.problem import quoted
from gpucluster.spec.resources import Profile, Quantity, Resource, TeamName


class Runs(StrEnum):
    """What schedules a pool's nodes."""

    SLURM = "slurm"
    KUBERNETES = "kubernetes"


# field -> what is built, and what else the spec's page names
CHOICES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "control_plane": ((Distribution.EKS.value,), ()),
    "queueing": (("kueue",), ("volcano", "kai")),
    "gpu_stack": (("device-plugin",), ("dra",)),
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
RunsField = Annotated[str, _one_of("runs"), _schema("runs")]


class Existing(Part):
    """A cluster that stands already."""

    context: Word = wish(UpdateClass.REPLACE, "Its name in the operator's kubeconfig.")


class Team(Part):
    """People with a namespace, a queue and a quota."""

    name: TeamName = wish(UpdateClass.DATA_LOSS, "Name of the team and of its namespace.")
    quota: Mapping[Resource, Quantity] = wish(
        UpdateClass.LIVE, "What it is promised, by resource: `nvidia.com/gpu: 32`.", min_length=1
    )
    may_borrow: Flag = wish(UpdateClass.LIVE, "Takes what others leave idle.", default=False)


class Kubernetes(Part):
    """The orchestrator of pools that `runs: kubernetes`."""

    version: Version = wish(UpdateClass.RESTART, 'Kubernetes release, quoted: "1.36".')
    control_plane: ControlPlane | None = wish(
        UpdateClass.REPLACE, "Who runs the control plane: `eks`.", default=None
    )
    existing: Existing | None = wish(UpdateClass.REPLACE, "Instead: a cluster that stands.", default=None)
    queueing: Queueing = wish(UpdateClass.STOP_FLEET, "Who queues gangs.", default="kueue")
    gpu_stack: GpuStack = wish(UpdateClass.DRAIN, "Who gives GPUs to pods.", default="device-plugin")
    teams: tuple[Team, ...] = wish(UpdateClass.LIVE, "Who shares the pools.", min_length=1)


def distribution(wish: Kubernetes) -> Distribution:
    """Whose control plane it is."""
    return Distribution.EKS if wish.existing is None else Distribution.EXISTING


class Sharing(Part):
    """How one GPU serves several pods."""

    mig: Mapping[Profile, PositiveCount] = wish(
        UpdateClass.DRAIN, "Slices of each GPU, by profile: `1g.10gb: 7`.", min_length=1
    )
