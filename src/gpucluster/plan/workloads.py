"""What runs on Kubernetes, resolved: every amount of resources, every variable and every place decided."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Replicas that answer requests."""

    name: str
    team: str
    image: str
    args: tuple[str, ...]
    env: dict[str, str]
    port: int
    resources: dict[str, int]  # of a replica; requests and limits alike, but for the CPU, which has no limit
    shm_mib: int
    pools: tuple[str, ...]  # where its pods may stand, of the team's
    anywhere: bool  # these pools have a topology, and no place in it is asked for
    surge: bool  # the team has room for one replica more while a new version comes
    replicas_min: int
    replicas_max: int
    queue_depth: int | None  # waiting requests a replica at which one more is wanted; None: never scaled


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """Pods that start together or not at all, one rank group a pod."""

    name: str
    team: str
    image: str
    args: tuple[str, ...]
    env: dict[str, str]
    nodes: int
    gpus_per_node: int
    resources: dict[str, int]  # of a pod; requests and limits alike
    shm_mib: int
    pools: tuple[str, ...]  # where it may stand, of the team's
    fabric: bool  # has EFA interfaces, so it locks memory
    required_level: str | None  # node label; the whole gang in one domain of it
    preferred_level: str | None
    anywhere: bool  # its pools have a topology, and no place in it is asked for
    restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workloads:
    """Everything of one file in `workloads/`."""

    services: tuple[Service, ...] = ()
    gangs: tuple[Gang, ...] = ()
