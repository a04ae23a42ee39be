"""Services: replicas, their address, and the autoscaler."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.k8s.manifest import scalar
from gpucluster.k8s.site import Site
from gpucluster.k8s.views import leader_workers, pods
from gpucluster.plan import names
from gpucluster.plan.model.values import SERVICE
from gpucluster.plan.model.workloads import Service as ServicePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """templates/k8s/service.yaml.j2"""

    name: str
    namespace: str
    queued: str  # labels of an object that Kueue queues
    labels: str
    selector: str
    replicas: str
    annotations: str
    surge: str
    unavailable: str
    priority: str
    account: str
    tolerations: str
    affinity: str
    image: str
    pull_secrets: str
    command: str
    args: str
    env: tuple[pods.EnvLine, ...]
    secrets: tuple[pods.SecretLine, ...]
    port: str
    http: str  # null: the probes connect to the port
    tcp: str
    requests: str
    limits: str
    shm: str
    mounts: tuple[pods.MountLine, ...]
    volumes: tuple[pods.VolumeLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """templates/k8s/endpoint.yaml.j2"""

    name: str
    namespace: str
    labels: str
    selector: str
    answering: str
    policy: str
    port: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaler:
    """templates/k8s/autoscaler.yaml.j2"""

    name: str
    namespace: str
    labels: str
    target: str
    least: str
    most: str
    depth: str


def services(site: Site) -> Iterator[tuple[str, Service]]:
    for one in (one for one in site.workloads.services if one.nodes == 1):
        yield (
            f"service-{names.of_team(one.team, one.name)}",
            Service(
                name=scalar(one.name),
                namespace=scalar(site.kubernetes.team(one.team).namespace),
                queued=pods.queued(site, one),
                labels=pods.labels(site, one),
                selector=scalar(pods.own(one)),
                replicas=scalar(one.replicas_min if one.queue_depth is None else None),
                annotations=scalar(pods.anywhere(one) or None),
                surge=scalar(int(one.surge)),
                unavailable=scalar(int(not one.surge)),
                priority=scalar(site.name(SERVICE)),
                account=scalar(one.service_account),
                tolerations=pods.tolerated(site, one),
                affinity=pods.affinity(site, one),
                image=scalar(one.image),
                pull_secrets=pods.pull_secrets(one.pull_secrets),
                command=scalar(list(one.command) or None),
                secrets=pods.secret_lines(one),
                args=scalar(list(one.args) or None),
                env=pods.env_lines(pods.env_of(one.fabric_env, one)),
                port=scalar(one.port),
                http=scalar({"path": one.health, "port": "http"} if one.health else None),
                tcp=scalar(None if one.health else {"port": "http"}),
                requests=pods.requests(one),
                limits=pods.limits(one),
                shm=pods.shm(one),
                mounts=pods.mount_lines(site),
                volumes=pods.volume_lines(site),
            ),
        )


def endpoints(site: Site) -> Iterator[tuple[str, Endpoint]]:
    for one in site.workloads.services:
        leaders = leader_workers.LEADER if one.nodes > 1 else {}
        yield (
            f"endpoint-{names.of_team(one.team, one.name)}",
            Endpoint(
                name=scalar(one.name),
                namespace=scalar(site.kubernetes.team(one.team).namespace),
                labels=pods.labels(site, one),
                selector=scalar(pods.own(one)),
                answering=scalar({**pods.own(one), **leaders}),
                policy=scalar(names.service_policy(one.name)),
                port=scalar(one.port),
            ),
        )


def _target(one: ServicePlan) -> dict[str, str]:
    if one.nodes > 1:
        return {**leader_workers.KIND, "name": names.group_name(one.name)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": one.name}


def autoscalers(site: Site) -> Iterator[tuple[str, Autoscaler]]:
    for one in site.workloads.services:
        if one.queue_depth is not None:
            yield (
                f"autoscaler-{names.of_team(one.team, one.name)}",
                Autoscaler(
                    name=scalar(one.name),
                    namespace=scalar(site.kubernetes.team(one.team).namespace),
                    labels=pods.labels(site, one),
                    target=scalar(_target(one)),
                    least=scalar(one.replicas_min),
                    most=scalar(one.replicas_max),
                    depth=scalar(str(one.queue_depth)),
                ),
            )
