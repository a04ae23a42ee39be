"""What runs on Kubernetes, as a person wishes it: `workloads/NAME.yaml`, apart from the cluster's own review."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.spec.fields import (
    Name,
    PositiveCount,
    SchemaVersion,
    UpdateClass,
    count,
    parse_text,
    refuse,
    wish,
)
from gpucluster.spec.part import Part
from gpucluster.spec.problem import quoted
from gpucluster.spec.resources import Image, Line, Quantity, Resource, TeamName, Variable

_LATER = ("mpi", "jax")


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


Framework = Annotated[str, BeforeValidator(parse_framework), WithJsonSchema({"enum": ["torch"]})]
Port = Annotated[
    int,
    BeforeValidator(parse_port),
    WithJsonSchema({"type": "integer", "minimum": 1024, "maximum": 65535}),
]
Restarts = Annotated[
    int, BeforeValidator(count(0)), WithJsonSchema({"type": "integer", "minimum": 0, "maximum": 10_000})
]


class Replicas(Part):
    """How many of a service run."""

    min: PositiveCount = wish(UpdateClass.LIVE, "Always.")
    max: PositiveCount = wish(UpdateClass.LIVE, "At most.")


class ScaleOn(Part):
    """What asks for more replicas."""

    queue_depth: PositiveCount = wish(
        UpdateClass.LIVE,
        "Waiting requests of a replica, by its metric `queue_depth`, at which one more starts.",
    )


class Topology(Part):
    """How near to each other a gang's pods stand; exactly one."""

    required: Name | None = wish(UpdateClass.DRAIN, "All in one such domain, or not at all.", default=None)
    preferred: Name | None = wish(UpdateClass.DRAIN, "In one such domain if there is one.", default=None)


class Serve(Part):
    """A service."""

    name: Name = wish(UpdateClass.REPLACE, "Its name, and its Service's.")
    team: TeamName = wish(UpdateClass.REPLACE, "Whose quota it takes.")
    image: Image = wish(UpdateClass.LIVE, "The container's image.")
    args: tuple[Line, ...] = wish(UpdateClass.LIVE, "Arguments of its entry point.", default=(), min_length=1)
    env: Mapping[Variable, Line] = wish(
        UpdateClass.LIVE, "Its variables. Not for secrets: these stay in the cluster.", default={}
    )
    port: Port | None = wish(UpdateClass.LIVE, "Where it answers.", default=None)
    resources: Mapping[Resource, Quantity] = wish(UpdateClass.LIVE, "Of each replica.", min_length=1)
    replicas: Replicas = wish(UpdateClass.LIVE, "How many.")
    scale_on: ScaleOn | None = wish(UpdateClass.LIVE, "What asks for more.", default=None)


class Train(Part):
    """A gang: its pods start together or not at all."""

    name: Name = wish(UpdateClass.REPLACE, "Its name, and the beginning of its hosts'.")
    team: TeamName = wish(UpdateClass.REPLACE, "Whose quota it takes.")
    image: Image = wish(UpdateClass.REPLACE, "The container's image.")
    args: tuple[Line, ...] = wish(
        UpdateClass.REPLACE, "Arguments of its entry point.", default=(), min_length=1
    )
    env: Mapping[Variable, Line] = wish(
        UpdateClass.REPLACE, "Its variables. Not for secrets: these stay in the cluster.", default={}
    )
    nodes: PositiveCount = wish(UpdateClass.REPLACE, "How many pods, one a node.")
    gpus_per_node: PositiveCount = wish(UpdateClass.REPLACE, "GPUs of each pod.")
    framework: Framework = wish(
        UpdateClass.REPLACE, "Whose variables say where its peers are.", default="torch"
    )
    topology: Topology | None = wish(UpdateClass.REPLACE, "How near they stand.", default=None)
    restarts: Restarts | None = wish(
        UpdateClass.REPLACE, "How often the whole gang begins anew after a failure.", default=None
    )


class WorkloadsSpec(Part):
    """Everything that one file runs on one cluster."""

    format: SchemaVersion = wish(UpdateClass.NONE, "Version of this format.", alias="schema")
    cluster: Name = wish(UpdateClass.REPLACE, "Name of the cluster; its spec stands in stacks/NAME.yaml.")
    serve: tuple[Serve, ...] = wish(UpdateClass.LIVE, "Services.", default=(), min_length=1)
    train: tuple[Train, ...] = wish(UpdateClass.LIVE, "Gangs.", default=(), min_length=1)
