"""Common parts of the pods of services and gangs."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpucluster.k8s.manifest import scalar
from gpucluster.k8s.site import Site, tolerations
from gpucluster.plan import names
from gpucluster.plan.model.kubernetes import TrainingRuntime
from gpucluster.plan.model.values import CPU, MEMORY, quantity
from gpucluster.plan.model.workloads import Gang, Service

Pods = Service | Gang | TrainingRuntime
QUEUE_LABEL, PRIORITY_LABEL = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
ANYWHERE = "kueue.x-k8s.io/podset-unconstrained-topology"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvLine:
    """One environment variable."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretLine:
    """A variable from a key of a Secret."""

    name: str
    secret: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MountLine:
    """The path of a volume in the container."""

    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeLine:
    """The claim of a volume."""

    name: str
    claim: str


def env_lines(variables: Mapping[str, str]) -> tuple[EnvLine, ...]:
    """Return the variables in their order: Kubernetes expands `$(NAME)` only for a name before it."""
    return tuple(EnvLine(name=scalar(name), value=scalar(value)) for name, value in variables.items())


def env_of(ours: Mapping[str, str], one: Service | Gang) -> dict[str, str]:
    """Return our variables by name, then those of the workload as in the spec. The workload's win."""
    taken = {*one.env, *(secret.variable for secret in one.secrets)}
    return {**{name: value for name, value in sorted(ours.items()) if name not in taken}, **one.env}


def secret_lines(one: Service | Gang) -> tuple[SecretLine, ...]:
    return tuple(
        SecretLine(name=scalar(v.variable), secret=scalar(v.secret), key=scalar(v.key)) for v in one.secrets
    )


def pull_secrets(found: tuple[str, ...]) -> str:
    return scalar([{"name": name} for name in found] or None)


def mount_lines(site: Site) -> tuple[MountLine, ...]:
    return tuple(MountLine(name=scalar(_volume(m.path)), path=scalar(m.path)) for m in site.mounts())


def volume_lines(site: Site) -> tuple[VolumeLine, ...]:
    return tuple(
        VolumeLine(name=scalar(_volume(m.path)), claim=scalar(names.volume_name(m.path)))
        for m in site.mounts()
    )


def requests(one: Pods) -> str:
    return scalar({r: quantity(r, amount) for r, amount in sorted(one.resources.items())})


def limits(one: Pods) -> str:
    """Return the limits: the requests without the CPU, because a CPU limit slows a pod down while CPUs are idle."""
    return scalar({r: quantity(r, amount) for r, amount in sorted(one.resources.items()) if r != CPU})


def shm(one: Pods) -> str:
    return scalar(quantity(MEMORY, one.shm_mib))


def queued(site: Site, one: Service | Gang) -> str:
    """Return the labels of the object that Kueue queues."""
    queue = {QUEUE_LABEL: names.LOCAL_QUEUE, PRIORITY_LABEL: site.name(one.priority)}
    return scalar({**_labels(site, one), **queue})


def labels(site: Site, one: Service | Gang, **more: str) -> str:
    """Return the labels of its pods and of related objects."""
    return scalar({**_labels(site, one), **more})


def own(one: Service | Gang) -> dict[str, str]:
    """Return the labels that select its pods in the namespace."""
    return {names.LABEL_WORKLOAD: one.name}


def tolerated(site: Site, one: Pods) -> str:
    """Return tolerations of the taints of its pools. The queue's flavor has the same ones."""
    pools = (site.kubernetes.pool(name) for name in one.pools)
    return scalar(tolerations(tuple(taint for pool in pools for taint in pool.taints)) or None)


def affinity(site: Site, one: Service | Gang) -> str:
    """Return an affinity that excludes the team's other pools. Kueue compares it with each flavor's labels. Empty without others."""
    if len(one.pools) == len(site.kubernetes.team(one.team).shares):
        return scalar(None)
    return only(one.pools)


def only(pools: tuple[str, ...]) -> str:
    """Return an affinity to the nodes of these pools."""
    term = {"key": names.LABEL_POOL, "operator": "In", "values": list(pools)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    return scalar({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})


def anywhere(one: Pods) -> dict[str, str]:
    """Return the topology annotation. Without it Kueue assigns no pool with a topology if the team also has other pools."""
    return {ANYWHERE: "true"} if one.anywhere else {}


def _labels(site: Site, one: Service | Gang) -> dict[str, str]:
    account = {names.LABEL_SERVICE_ACCOUNT: one.service_account} if one.service_account else {}
    return {**site.labels, names.LABEL_TEAM: one.team, **account, **own(one)}


def _volume(path: str) -> str:
    return f"vol-{names.volume_name(path)}"  # without the volume `shm`
