"""The network of a plan on AWS: subnets by zone, NAT gateways, endpoints; or the site's own VPC. Pure."""

from gpucluster.plan.addresses import public_of, subnet_of
from gpucluster.plan.model import Network, Subnet, there
from gpucluster.plan.outward import endpoints, nat_zones
from gpucluster.spec import ClusterSpec
from gpucluster.spec.aws import Network as NetworkSpec


def network(spec: ClusterSpec) -> Network:
    """The cluster's own VPC, or the site's."""
    wish = there(spec.aws).network
    # A network for Kubernetes alone is whoever's who makes its nodes: it has no machine of ours that calls out.
    nat = nat_zones(wish.places, wish.nat, wish.vpc) if spec.slurm is not None else ()
    ssm = spec.access is not None and spec.access.ssm
    return Network(
        cidr=wish.cidr or "",
        subnets=_subnets(wish, public=bool(nat) or spec.login is not None),
        vpc=wish.vpc,
        nat=nat,
        endpoints=endpoints(wish.endpoints or (), wish.nat, ssm=ssm, jobs=there(spec.aws).jobs is not None),
    )


def _subnets(wish: NetworkSpec, *, public: bool) -> tuple[Subnet, ...]:
    if wish.subnets is not None:
        outside = wish.public or {}
        return tuple(
            Subnet(zone=zone, cidr="", id=subnet, public_id=outside.get(zone))
            for zone, subnet in wish.subnets.items()
        )
    cidr, zones = there(wish.cidr), wish.places
    return tuple(
        Subnet(
            zone=zone,
            cidr=subnet_of(cidr, zone),
            public_cidr=public_of(cidr, zone, zones[0]) if public else None,
        )
        for zone in zones
    )
