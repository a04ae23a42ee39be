"""The control plane of EKS: who reaches it, who may use it, and the second zone that it needs. Pure."""

from collections import defaultdict

from gpucluster.catalog import Catalog
from gpucluster.plan import names
from gpucluster.plan.aws import subnet_of
from gpucluster.plan.eks import LEAST_ZONES, is_private, other_zone
from gpucluster.plan.model import Subnet
from gpucluster.plan.model.eks import AccessEntry, EksControlPlane
from gpucluster.spec.kubernetes import Kubernetes as KubernetesSpec
from gpucluster.spec.model import Aws as AwsSpec
from gpucluster.spec.part import require


def control_plane(requested: KubernetesSpec, site: AwsSpec, catalog: Catalog) -> EksControlPlane:
    """The cluster of EKS."""
    return EksControlPlane(
        private_from=tuple(one for one in requested.api_from if is_private(one)),
        public_from=tuple(one for one in requested.api_from if not is_private(one)),
        entries=_entries(requested),
        spare=_spare(site, catalog),
    )


def _entries(requested: KubernetesSpec) -> tuple[AccessEntry, ...]:
    """One entry for each principal, because EKS admits no second one."""
    groups = defaultdict[str, set[str]](set)
    for team in requested.teams:
        for principal in team.members:
            groups[principal].add(names.team_group(team.name))
    return tuple(
        AccessEntry(
            principal=principal,
            groups=tuple(sorted(groups.get(principal, ()))),
            admin=principal in requested.admins,
        )
        for principal in sorted({*groups, *requested.admins})
    )


def _spare(site: AwsSpec, catalog: Catalog) -> Subnet | None:
    """The part of the network in the first other zone of the region. Its addresses are the zone's own: the zone may join later."""
    used = site.network.places
    if len(used) >= LEAST_ZONES or site.network.vpc is not None:
        return None
    zone = other_zone(used, catalog.regions.get(site.region, ()))
    return None if zone is None else Subnet(zone=zone, cidr=subnet_of(require(site.network.cidr), zone))
