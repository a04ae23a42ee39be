"""The network of a plan on AWS: subnets by zone, NAT gateways, endpoints; or the site's own VPC. Pure."""

from gpucluster.plan.aws import endpoints, nat_zones, public_of, subnet_of
from gpucluster.plan.model import Network, OwnNetwork, SiteNetwork, SiteSubnet, Subnet
from gpucluster.spec import ClusterSpec
from gpucluster.spec.aws import Aws as AwsSpec
from gpucluster.spec.kubernetes import on_eks
from gpucluster.spec.part import require


def network(spec: ClusterSpec, aws: AwsSpec) -> Network:
    """The cluster's own VPC, or the site's."""
    ssm = spec.access is not None and spec.access.ssm
    field = aws.network
    found = endpoints(field.endpoints or (), field.nat, ssm=ssm, jobs=aws.jobs is not None)
    if field.vpc is not None and field.subnets is not None:
        public = field.public or {}
        subnets = tuple(
            SiteSubnet(zone=zone, id=subnet, public_id=public.get(zone))
            for zone, subnet in field.subnets.items()
        )
        return SiteNetwork(vpc=field.vpc, subnets=subnets, endpoints=found)
    # With an existing control plane and without Slurm the network has no machine of ours; the owner of its nodes makes gateways.
    nat = (
        nat_zones(field.places, field.nat, field.vpc)
        if spec.slurm is not None or on_eks(spec.kubernetes)
        else ()
    )
    cidr = require(field.cidr)
    subnets = tuple(
        _subnet(cidr, zone, field.places[0], public=bool(nat) or spec.login is not None)
        for zone in field.places
    )
    return OwnNetwork(cidr=cidr, subnets=subnets, nat=nat, endpoints=found)


def _subnet(cidr: str, zone: str, first: str, *, public: bool) -> Subnet:
    return Subnet(
        zone=zone,
        cidr=subnet_of(cidr, zone),
        public_cidr=public_of(cidr, zone, first) if public else None,
    )
