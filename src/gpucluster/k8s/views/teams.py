"""A team's namespace, roles, limits and network policies."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.k8s.manifest import scalar
from gpucluster.k8s.site import Site, team_labels
from gpucluster.plan import kubernetes as kube
from gpucluster.plan import names
from gpucluster.plan.model import OwnNetwork
from gpucluster.plan.model.kubernetes import PodSecurity
from gpucluster.plan.model.values import CPU, GANG, MEMORY, SERVICE, quantity

_ENFORCE = "pod-security.kubernetes.io/enforce"
# The volumes that a pod of a team may have: those of Pod Security's level "restricted" without `csi`, whose driver can mount an
# address that the pod names, as csi-driver-nfs does. `lint` evaluates the policy itself.
_MOUNTED = ("configMap", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret")  # fmt: skip
# Variables by which NVIDIA's runtime gives devices to a container: internal/config/image/envvars.go and internal/modifier/cdi.go of
# NVIDIA/nvidia-container-toolkit, read on 2026-11-30 at d34b3046.
_DEVICES = (
    "NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_IMEX_CHANNELS", "NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES", "NVIDIA_MOFED",
    "NVIDIA_NVSWITCH", "NVIDIA_VISIBLE_DEVICES",
)  # fmt: skip
_LINK_LOCAL = "169.254.0.0/16"  # the metadata service and similar addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """templates/k8s/namespace.yaml.j2"""

    name: str
    labels: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """templates/k8s/role.yaml.j2"""

    namespace: str
    labels: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """templates/k8s/limits.yaml.j2"""

    namespace: str
    labels: str
    claims: str
    cpu: str
    memory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """templates/k8s/network.yaml.j2"""

    namespace: str
    labels: str
    inside: str
    teams: str  # labels of the teams' namespaces
    workload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccount:
    """templates/k8s/service-account.yaml.j2"""

    name: str
    namespace: str
    labels: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityNetwork:
    """templates/k8s/identity-network.yaml.j2"""

    namespace: str
    labels: str
    key: str
    accounts: str
    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """templates/k8s/guard.yaml.j2"""

    name: str
    labels: str
    guarded: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamRules:
    """templates/k8s/team-rules.yaml.j2"""

    pods: str
    workloads: str
    services: str
    labels: str
    groups: str  # a list in CEL
    namespaces: str
    classes: str  # a list in CEL
    service: str
    mounted: str  # a condition in CEL on the volume `v`
    devices: str  # a list in CEL


def namespaces(site: Site) -> Iterator[tuple[str, Namespace]]:
    for team in site.kubernetes.teams:
        levels = {"enforce": team.pod_security.value, "warn": "restricted"}
        security = {f"pod-security.kubernetes.io/{key}": level for key, level in levels.items()}
        versions = {f"{key}-version": f"v{site.kubernetes.version}" for key in security}
        labels = {**site.labels, names.LABEL_TEAM: team.name, **security, **versions}
        yield team.name, Namespace(name=scalar(team.namespace), labels=scalar(labels))


def roles(site: Site) -> Iterator[tuple[str, Role]]:
    for team in site.kubernetes.teams:
        yield (
            f"role-{team.name}",
            Role(namespace=scalar(team.namespace), labels=team_labels(site, team), group=scalar(team.group)),
        )


def limits(site: Site) -> Iterator[tuple[str, Limits]]:
    for team in site.kubernetes.teams:
        yield (
            f"limits-{team.name}",
            Limits(
                namespace=scalar(team.namespace),
                labels=team_labels(site, team),
                claims=scalar(str(len(site.mounts()))),
                cpu=scalar(quantity(CPU, int(kube.REQUEST_CPU_MILLI.value))),
                memory=scalar(quantity(MEMORY, int(kube.REQUEST_MEMORY_MIB.value))),
            ),
        )


def networks(site: Site) -> Iterator[tuple[str, Network]]:
    network = site.plan.aws.network
    inside = [_LINK_LOCAL, *([network.cidr] if isinstance(network, OwnNetwork) else [])]
    for team in site.kubernetes.teams:
        yield (
            f"network-{team.name}",
            Network(
                namespace=scalar(team.namespace),
                labels=team_labels(site, team),
                inside=scalar(inside),
                teams=scalar({names.LABEL_CLUSTER: site.plan.name}),
                workload=scalar(names.LABEL_WORKLOAD),
            ),
        )


def service_accounts(site: Site) -> Iterator[tuple[str, ServiceAccount]]:
    for one in site.kubernetes.pod_identities:
        yield (
            f"service-account-{names.of_team(one.team, one.service_account)}",
            ServiceAccount(
                name=scalar(one.service_account),
                namespace=scalar(one.namespace),
                labels=team_labels(site, site.kubernetes.team(one.team)),
            ),
        )


def identity_networks(site: Site) -> Iterator[tuple[str, IdentityNetwork]]:
    """Return the way to EKS's agent, only for teams with service accounts."""
    for team in site.kubernetes.teams:
        accounts = [one.service_account for one in site.kubernetes.identities(team.name)]
        if accounts:
            yield (
                f"network-identity-{team.name}",
                IdentityNetwork(
                    namespace=scalar(team.namespace),
                    labels=team_labels(site, team),
                    key=scalar(names.LABEL_SERVICE_ACCOUNT),
                    accounts=scalar(accounts),
                    agent=scalar(names.POD_IDENTITY_AGENT),
                ),
            )


def guards(site: Site) -> Iterator[tuple[str, Guard]]:
    """Return the guard policy, only if a team's namespace is privileged."""
    if any(team.pod_security is PodSecurity.PRIVILEGED for team in site.kubernetes.teams):
        guarded = {names.LABEL_CLUSTER: site.plan.name, _ENFORCE: PodSecurity.PRIVILEGED.value}
        yield (
            "guard",
            Guard(name=scalar(site.name("pod-guard")), labels=scalar(site.labels), guarded=scalar(guarded)),
        )


def team_rules(site: Site) -> Iterator[tuple[str, TeamRules]]:
    yield (
        "team-rules",
        TeamRules(
            pods=scalar(site.name("team-pods")),
            workloads=scalar(site.name("team-workloads")),
            services=scalar(site.name("team-services")),
            labels=scalar(site.labels),
            groups=scalar([team.group for team in site.kubernetes.teams]),
            namespaces=scalar({names.LABEL_CLUSTER: site.plan.name}),
            classes=scalar([site.name(GANG), site.name(SERVICE)]),
            service=scalar(site.name(SERVICE)),
            devices=scalar(list(_DEVICES)),
            mounted=" || ".join(f"has(v.{kind})" for kind in _MOUNTED),
        ),
    )
