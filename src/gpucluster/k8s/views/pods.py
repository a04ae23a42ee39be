"""What the pods of services and gangs have in common."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpucluster.k8s.scalar import scalar
from gpucluster.k8s.site import Site, tolerations
from gpucluster.plan import names
from gpucluster.plan.kubernetes import CPU, MEMORY, quantity
from gpucluster.plan.workloads import Gang, Service

QUEUE_LABEL, PRIORITY_LABEL = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
ANYWHERE = "kueue.x-k8s.io/podset-unconstrained-topology"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvLine:
    """One variable."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MountLine:
    """Where a volume stands in the container."""

    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeLine:
    """Which claim a volume is."""

    name: str
    claim: str


def env_lines(variables: Mapping[str, str]) -> tuple[EnvLine, ...]:
    """In the order of their names."""
    return tuple(EnvLine(name=scalar(name), value=scalar(value)) for name, value in sorted(variables.items()))


def mount_lines(site: Site) -> tuple[MountLine, ...]:
    return tuple(MountLine(name=scalar(_volume(m.path)), path=scalar(m.path)) for m in site.mounts())


def volume_lines(site: Site) -> tuple[VolumeLine, ...]:
    return tuple(
        VolumeLine(name=scalar(_volume(m.path)), claim=scalar(names.volume_name(m.path)))
        for m in site.mounts()
    )


def requests(one: Service | Gang) -> str:
    return scalar({r: quantity(r, amount) for r, amount in sorted(one.resources.items())})


def limits(one: Service | Gang) -> str:
    """The same, but for the CPU: a limit there would slow a pod down beside idle CPUs."""
    return scalar({r: quantity(r, amount) for r, amount in sorted(one.resources.items()) if r != CPU})


def shm(one: Service | Gang) -> str:
    return scalar(quantity(MEMORY, one.shm_mib))


def queued(site: Site, one: Service | Gang, priority: str) -> str:
    """Labels of the object that Kueue queues."""
    queue = {QUEUE_LABEL: names.LOCAL_QUEUE, PRIORITY_LABEL: site.name(priority)}
    return scalar({**_labels(site, one), **queue})


def labels(site: Site, one: Service | Gang) -> str:
    """Of its pods, and of what stands beside them."""
    return scalar(_labels(site, one))


def own(one: Service | Gang) -> dict[str, str]:
    """Tells its pods from all others of the namespace."""
    return {names.LABEL_WORKLOAD: one.name}


def tolerated(site: Site, one: Service | Gang) -> str:
    """What keeps others off its pools; the flavor says the same to the queue."""
    pools = (site.kubernetes.pool(name) for name in one.pools)
    return scalar(tolerations(tuple(taint for pool in pools for taint in pool.taints)) or None)


def affinity(site: Site, one: Service | Gang) -> str:
    """Keeps it off the team's other pools: Kueue compares this with each flavor's labels. Nothing if there are none."""
    if len(one.pools) == len(site.kubernetes.team(one.team).shares):
        return scalar(None)
    term = {"key": names.LABEL_POOL, "operator": "In", "values": list(one.pools)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    return scalar({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})


def anywhere(one: Service | Gang) -> dict[str, str]:
    """Without it Kueue gives no pool that has a topology, if the team has others beside it."""
    return {ANYWHERE: "true"} if one.anywhere else {}


def _labels(site: Site, one: Service | Gang) -> dict[str, str]:
    return {**site.labels, names.LABEL_TEAM: one.team, **own(one)}


def _volume(path: str) -> str:
    return f"vol-{names.volume_name(path)}"  # apart from `shm`
