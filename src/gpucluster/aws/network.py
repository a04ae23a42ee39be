"""The cluster's own VPC: a public subnet a zone (nodes have public addresses, there is no NAT), and two groups."""

from collections.abc import Mapping

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.plan.model import ClusterPlan, there
from gpucluster.plan.names import SLURMD_PORT, SRUN_PORTS

ANYWHERE = "0.0.0.0/0"
ALL = "-1"  # every protocol and port


class Network(pulumi.ComponentResource):
    """VPC, subnets by zone, and the groups of head and nodes."""

    vpc_arn: Output[str]
    subnet_ids: Mapping[str, Output[str]]  # by zone
    subnet_arns: Mapping[str, Output[str]]
    head_group: Output[str]
    node_group: Output[str]
    node_group_arn: Output[str]

    def __init__(self, plan: ClusterPlan, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:Network", plan.name, None, opts)
        self._name, self._child = plan.name, ResourceOptions(parent=self)
        vpc = aws.ec2.Vpc(
            plan.name,
            cidr_block=there(plan.aws).network.cidr,
            enable_dns_support=True,
            enable_dns_hostnames=True,  # names of endpoints resolve only with both (T32)
            tags={"Name": plan.name},
            opts=self._child,
        )
        self.vpc_arn = vpc.arn
        table = self._routes(vpc)
        self._subnets(plan, vpc, table)
        self._s3_endpoint(there(plan.aws).region, vpc, table)
        self._groups(plan, vpc)
        self.register_outputs({"vpc": vpc.id, "head_group": self.head_group, "node_group": self.node_group})

    def _routes(self, vpc: aws.ec2.Vpc) -> aws.ec2.RouteTable:
        gateway = aws.ec2.InternetGateway(
            self._name, vpc_id=vpc.id, tags={"Name": self._name}, opts=self._child
        )
        table = aws.ec2.RouteTable(self._name, vpc_id=vpc.id, tags={"Name": self._name}, opts=self._child)
        aws.ec2.Route(
            f"{self._name}-internet",
            route_table_id=table.id,
            destination_cidr_block=ANYWHERE,
            gateway_id=gateway.id,
            opts=self._child,
        )
        return table

    def _subnets(self, plan: ClusterPlan, vpc: aws.ec2.Vpc, table: aws.ec2.RouteTable) -> None:
        subnets: dict[str, aws.ec2.Subnet] = {}
        for span in there(plan.aws).network.subnets:
            name = f"{self._name}-{span.zone}"
            subnet = subnets[span.zone] = aws.ec2.Subnet(
                name,
                vpc_id=vpc.id,
                cidr_block=span.cidr,
                availability_zone=span.zone,
                map_public_ip_on_launch=True,
                tags={"Name": name},
                opts=self._child,
            )
            aws.ec2.RouteTableAssociation(
                name, route_table_id=table.id, subnet_id=subnet.id, opts=self._child
            )
        self.subnet_ids = {zone: subnet.id for zone, subnet in subnets.items()}
        self.subnet_arns = {zone: subnet.arn for zone, subnet in subnets.items()}

    def _s3_endpoint(self, region: str, vpc: aws.ec2.Vpc, table: aws.ec2.RouteTable) -> None:
        """A gateway endpoint costs nothing and keeps the bundle off the internet."""
        aws.ec2.VpcEndpoint(
            f"{self._name}-s3",
            vpc_id=vpc.id,
            service_name=f"com.amazonaws.{region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=[table.id],
            tags={"Name": f"{self._name}-s3"},
            opts=self._child,
        )

    def _groups(self, plan: ClusterPlan, vpc: aws.ec2.Vpc) -> None:
        """Nothing from outside: the head has no open port but for its nodes."""
        head = self._group("head", "The head of a gpucluster", vpc)
        node = self._group("node", "The nodes of a gpucluster", vpc)
        controller, registration = there(plan.head).controller_port, there(plan.head).registration_port
        rule = self._ingress
        rule("head-controller", head, node, "slurmctld from nodes", ports=(controller, controller))
        rule("head-registration", head, node, "registration of nodes", ports=(registration, registration))
        rule("head-srun", head, node, "srun's own ports from nodes", ports=SRUN_PORTS)
        rule("node-slurmd", node, head, "slurmd from the head", ports=(SLURMD_PORT, SLURMD_PORT))
        rule("node-node", node, node, "nodes among themselves")
        for role, group in (("head", head), ("node", node)):
            aws.vpc.SecurityGroupEgressRule(
                f"{self._name}-{role}-out",
                security_group_id=group.id,
                ip_protocol=ALL,
                cidr_ipv4=ANYWHERE,
                tags={"Name": f"{self._name}: {role} to anywhere"},
                opts=self._child,
            )
        self.head_group, self.node_group, self.node_group_arn = head.id, node.id, node.arn

    def _group(self, role: str, description: str, vpc: aws.ec2.Vpc) -> aws.ec2.SecurityGroup:
        """The description is frozen text: a changed one replaces the group, and every machine in it."""
        name = f"{self._name}-{role}"
        return aws.ec2.SecurityGroup(
            name, vpc_id=vpc.id, description=description, tags={"Name": name}, opts=self._child
        )

    def _ingress(
        self,
        name: str,
        group: aws.ec2.SecurityGroup,
        source: aws.ec2.SecurityGroup,
        why: str,
        *,
        ports: tuple[int, int] | None = None,
    ) -> None:
        """A rule is a resource of its own, so that a deleted one is seen."""
        aws.vpc.SecurityGroupIngressRule(
            f"{self._name}-{name}",
            security_group_id=group.id,
            referenced_security_group_id=source.id,
            ip_protocol="tcp" if ports else ALL,
            from_port=ports and ports[0],
            to_port=ports and ports[1],
            tags={"Name": f"{self._name}: {why}"},
            opts=self._child,
        )
