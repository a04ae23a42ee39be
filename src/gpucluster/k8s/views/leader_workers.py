"""Services whose replicas have several nodes: a LeaderWorkerSet (kubernetes-sigs/lws)."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.k8s.manifest import scalar
from gpucluster.k8s.site import Site
from gpucluster.k8s.views import pods
from gpucluster.plan import names
from gpucluster.plan.model.values import SERVICE
from gpucluster.plan.model.workloads import Service

LEADER = {names.LABEL_ANSWERS: "true"}  # label of the pods that answer requests
KIND = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleLine:
    """A pod template: of the first pod of a replica, or of the others."""

    key: str
    labels: str
    command: str
    args: str
    port: str
    http: str
    probes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderWorkerSet:
    """templates/k8s/leaderworkerset.yaml.j2"""

    name: str
    namespace: str
    queued: str
    annotations: str
    replicas: str
    nodes: str
    surge: str
    unavailable: str
    priority: str
    account: str
    tolerations: str
    affinity: str
    container: str
    image: str
    pull_secrets: str
    roles: tuple[RoleLine, ...]
    env: tuple[pods.EnvLine, ...]
    secrets: tuple[pods.SecretLine, ...]
    requests: str
    limits: str
    capabilities: str
    shm: str
    mounts: tuple[pods.MountLine, ...]
    volumes: tuple[pods.VolumeLine, ...]


def leader_worker_sets(site: Site) -> Iterator[tuple[str, LeaderWorkerSet]]:
    for one in (one for one in site.workloads.services if one.nodes > 1):
        yield (
            f"service-{names.of_team(one.team, one.name)}",
            LeaderWorkerSet(
                name=scalar(names.group_name(one.name)),
                namespace=scalar(site.kubernetes.team(one.team).namespace),
                queued=pods.queued(site, one),
                annotations=scalar(pods.anywhere(one) or None),
                replicas=scalar(one.replicas_min if one.queue_depth is None else None),
                nodes=scalar(one.nodes),
                surge=scalar(int(one.surge)),
                unavailable=scalar(int(not one.surge)),
                priority=scalar(site.name(SERVICE)),
                account=scalar(one.service_account),
                tolerations=pods.tolerated(site, one),
                affinity=pods.affinity(site, one),
                container=scalar(one.name),
                image=scalar(one.image),
                pull_secrets=pods.pull_secrets(one.pull_secrets),
                roles=(_leader(site, one), _worker(site, one)),
                env=pods.env_lines(pods.env_of(one.fabric_env, one)),
                secrets=pods.secret_lines(one),
                requests=pods.requests(one),
                limits=pods.limits(one),
                capabilities=scalar({"add": ["IPC_LOCK"]} if one.fabric else {"drop": ["ALL"]}),
                shm=pods.shm(one),
                mounts=pods.mount_lines(site),
                volumes=pods.volume_lines(site),
            ),
        )


def _leader(site: Site, one: Service) -> RoleLine:
    http = (
        {"httpGet": {"path": one.health, "port": "http"}} if one.health else {"tcpSocket": {"port": "http"}}
    )
    return RoleLine(
        key="leaderTemplate",
        labels=pods.labels(site, one, **LEADER),
        command=scalar(list(one.command) or None),
        args=scalar(list(one.args) or None),
        port=scalar([{"name": "http", "containerPort": one.port, "protocol": "TCP"}]),
        http=scalar({**http, "periodSeconds": 10, "failureThreshold": 120}),
        probes=scalar({**http, "periodSeconds": 5}),
    )


def _worker(site: Site, one: Service) -> RoleLine:
    """The other pods answer no requests, so nothing asks them."""
    own = list(one.worker_command)
    nothing = scalar(None)
    return RoleLine(
        key="workerTemplate",
        labels=pods.labels(site, one),
        command=scalar(own or list(one.command) or None),
        args=scalar(None if own else list(one.args) or None),
        port=nothing,
        http=nothing,
        probes=nothing,
    )
