"""Where the cluster stands: its own VPC or the site's, the groups of its machines, and the endpoints that it asked for."""

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions

from gpucluster.aws.ground import Ground, kept_zones
from gpucluster.aws.groups import ENDPOINTS, LUSTRE, Groups, declare_groups
from gpucluster.aws.site_vpc import look_up_vpc
from gpucluster.aws.vpc import declare_vpc
from gpucluster.plan.model import ClusterPlan, there
from gpucluster.plan.names import ROLE_HEAD, ROLE_NODE


class Network(pulumi.ComponentResource):
    """VPC, subnets by zone, groups by role. Machines but for login stand in private subnets."""

    ground: Ground
    groups: Groups

    def __init__(self, plan: ClusterPlan, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:Network", plan.name, None, opts)
        child = ResourceOptions(parent=self)
        own = there(plan.aws).network.vpc is None
        self.ground = declare_vpc(plan, child) if own else look_up_vpc(plan, self)
        kept = frozenset({LUSTRE}) if kept_zones(plan) else frozenset[str]()
        self.groups = declare_groups(plan, self.ground.vpc_id, kept=kept, child=child)
        self._endpoints(plan, child)
        named = {role: self.groups.ids[role] for role in (ROLE_HEAD, ROLE_NODE)}
        self.register_outputs({"vpc": self.ground.vpc_id, "groups": named})

    def _endpoints(self, plan: ClusterPlan, child: ResourceOptions) -> None:
        """One address a zone and service; with private DNS, so that programs need no other name."""
        site = there(plan.aws)
        for service in site.network.endpoints:
            name = f"{plan.name}-endpoint-{service}"
            endpoint = aws.ec2.VpcEndpoint(
                name,
                vpc_id=self.ground.vpc_id,
                service_name=f"com.amazonaws.{site.region}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=list(self.ground.private.values()),
                security_group_ids=[self.groups.ids[ENDPOINTS]],
                tags={"Name": name},
                opts=child,
            )
            self.ground.ready.append(endpoint)
