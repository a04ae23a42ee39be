"""The network of a cluster: its own or an existing VPC, security groups, interface endpoints."""

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions

from gpucluster.aws.security_groups import Groups, declare_groups
from gpucluster.aws.site_vpc import look_up_vpc
from gpucluster.aws.vpc import VpcContext, declare_vpc, retained_zones
from gpucluster.plan.model import AwsPlan, OwnNetwork, SiteNetwork
from gpucluster.plan.names import ROLE_HEAD, ROLE_KUBERNETES, ROLE_NODE
from gpucluster.plan.security_rules import ENDPOINTS, LUSTRE


class Network(pulumi.ComponentResource):
    """VPC, subnets by zone, security groups by role. All machines except login machines are in private subnets."""

    vpc_context: VpcContext
    groups: Groups

    def __init__(self, plan: AwsPlan, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:Network", plan.name, None, opts)
        child = ResourceOptions(parent=self)
        self.vpc_context = self._vpc(plan, child)
        retained = frozenset({LUSTRE}) if retained_zones(plan) else frozenset[str]()
        self.groups = declare_groups(plan, self.vpc_context.vpc_id, retained=retained, child=child)
        self._endpoints(plan, child)
        nodes = (ROLE_HEAD, ROLE_NODE, ROLE_KUBERNETES)
        named = {role: self.groups.ids[role] for role in nodes if role in self.groups.ids}
        self.register_outputs({"vpc": self.vpc_context.vpc_id, "groups": named})

    def _vpc(self, plan: AwsPlan, child: ResourceOptions) -> VpcContext:
        match plan.aws.network:
            case OwnNetwork() as network:
                return declare_vpc(plan, network, child)
            case SiteNetwork() as network:
                return look_up_vpc(plan, network, self)

    def _endpoints(self, plan: AwsPlan, child: ResourceOptions) -> None:
        """Declare the interface endpoints: one address in each zone, with private DNS, so that programs use the normal names."""
        site = plan.aws
        for service in site.network.endpoints:
            name = f"{plan.name}-endpoint-{service}"
            endpoint = aws.ec2.VpcEndpoint(
                name,
                vpc_id=self.vpc_context.vpc_id,
                service_name=f"com.amazonaws.{site.region}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=list(self.vpc_context.private.values()),
                security_group_ids=[self.groups.ids[ENDPOINTS]],
                tags={"Name": name},
                opts=child,
            )
            self.vpc_context.ready.append(endpoint)
