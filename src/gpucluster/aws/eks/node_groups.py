"""Always-on nodes: a managed node group with a launch template of ours for each source of a pool.

A template has no profile, no subnet and no shutdown behaviour: EKS sets them, and refuses a template with one
(EKS user guide, "Customize managed nodes with launch templates").
"""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws import instances
from gpucluster.aws.eks.roles import EksRole
from gpucluster.aws.encryption import Key
from gpucluster.aws.launch_templates import interface, reservation_target, root_disk
from gpucluster.aws.network import Network
from gpucluster.plan.model import AwsPlan
from gpucluster.plan.model.eks import NodeGroup
from gpucluster.plan.model.values import Market
from gpucluster.plan.names import LABEL_MIG, ROLE_KUBERNETES, SYSTEM_NODES, TAG_POOL, TAG_ROLE
from gpucluster.plan.security_rules import CONTROL_PLANE
from gpucluster.plan.user_data import encoded

ROOT_DEVICE = "/dev/xvda"  # of EKS's AL2023 images
_CAPACITY: Mapping[Market, str] = {
    Market.SPOT: "SPOT",
    Market.ON_DEMAND: "ON_DEMAND",
    Market.RESERVATION: "ON_DEMAND",  # the launch template targets it
    Market.CAPACITY_BLOCK: "CAPACITY_BLOCK",
}
_EFFECTS: Mapping[str, str] = {
    "NoSchedule": "NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
}
# With room an update launches a new node first, else it ends an old one first (EKS user guide, "Understand each phase of
# node updates").
_STRATEGY: Mapping[bool, str] = {True: "DEFAULT", False: "MINIMAL"}
# The provider waits an hour for an update, and EKS replaces one node after another: it waits 15 minutes for its pods, then for the
# end of a machine and the start of another one. A group of 50 nodes took much longer (cloudposse/terraform-aws-eks-node-group#70).
NODE_M = 40
# EKS updates a group of a capacity block only while it has no nodes (EKS user guide, "Create a managed node group with
# Capacity Blocks for ML"), so a change of these replaces the group.
NO_UPDATE = ("launchTemplate", "releaseVersion", "version")
# AWS fixes the subnets of a group, and those of the system are in every zone. So a zone that is added later would replace the
# group, and delete it first: the cluster would be without DNS, drivers and controllers. A group that something else replaces
# is made in all zones, because the engine then takes the program's own value (pulumi, `step_generator.go`).
SYSTEM_SUBNETS = "subnetIds"
# EKS changes labels in place. The MIG manager then slices the GPUs of a node again, and fails if pods use them.
SLICES = f'labels["{LABEL_MIG}"]'
_BOUNDARY = "gpucluster"
# nodeadm joins the local disks to one RAID 0 for pods, as Karpenter does with `instanceStorePolicy: RAID0`. EKS merges this
# part with its own (awslabs/amazon-eks-ami, doc/usage/al2.md and nodeadm's NodeConfig).
RAID0 = f"""\
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="{_BOUNDARY}"

--{_BOUNDARY}
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  instance:
    localStorage:
      strategy: RAID0
--{_BOUNDARY}--
"""


class NodeGroups(pulumi.ComponentResource):
    """The groups in the order of the plan, those of the add-ons first."""

    system: Sequence[pulumi.Resource]  # those whose nodes run the add-ons

    def __init__(
        self,
        plan: AwsPlan,
        groups: Sequence[NodeGroup],
        version: str,
        *,
        cluster: Output[str],
        role: EksRole,
        network: Network,
        key: Key,
        after: Sequence[pulumi.Resource],
        opts: ResourceOptions,
    ) -> None:
        super().__init__("gpucluster:aws:EksNodeGroups", plan.name, None, opts)
        self._plan, self._version, self._eks_name = plan, version, cluster
        self._role, self._network, self._key = role, network, key
        # With the rules of both groups: at a deletion EKS drains the nodes first, which needs the API server and kubelets.
        rules = [one for word in (ROLE_KUBERNETES, CONTROL_PLANE) for one in network.groups.rules[word]]
        self._after = [*after, *role.ready, *network.vpc_context.ready, *rules]
        declared = {group.key: self._group(group) for group in groups}
        self.system = [declared[group.key] for group in groups if group.pool == SYSTEM_NODES]
        self.register_outputs({})

    def _group(self, group: NodeGroup) -> aws.eks.NodeGroup:
        template, block = self._template(group), group.market is Market.CAPACITY_BLOCK
        return aws.eks.NodeGroup(
            f"{self._plan.name}-{group.key}",
            cluster_name=self._eks_name,
            node_group_name=group.key,
            node_role_arn=self._role.arn,
            subnet_ids=[self._network.vpc_context.private[zone] for zone in group.zones],
            launch_template={"id": template.id, "version": template.latest_version.apply(_text)},
            # the template of a capacity block names its machine
            instance_types=None if block else list(group.machines),
            capacity_type=_CAPACITY[group.market],
            ami_type=group.ami,
            version=self._version,
            release_version=group.release,
            scaling_config={"min_size": group.nodes, "desired_size": group.nodes, "max_size": group.nodes},
            update_config={"max_unavailable": 1, "update_strategy": _STRATEGY[_has_room(group)]},
            node_repair_config={"enabled": True},
            labels=group.labels,
            taints=[
                {"key": one.key, "value": one.value, "effect": _EFFECTS[one.effect]} for one in group.taints
            ]
            or None,
            # Reserved capacity has no room for a second group, and the name is the group's own.
            opts=ResourceOptions(
                parent=self,
                depends_on=self._after,
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(update=f"{60 + NODE_M * group.nodes}m"),
                replace_on_changes=[SLICES, *(NO_UPDATE if block else ())],
                ignore_changes=[SYSTEM_SUBNETS] if group.pool == SYSTEM_NODES else [],
            ),
        )

    def _template(self, group: NodeGroup) -> aws.ec2.LaunchTemplate:
        security = self._network.groups.ids[ROLE_KUBERNETES]
        interfaces = [interface(one, security) for one in group.interfaces]
        block = group.market is Market.CAPACITY_BLOCK
        return aws.ec2.LaunchTemplate(
            f"{self._plan.name}-{group.key}",
            instance_type=group.machines[0] if block else None,
            instance_market_options={"market_type": "capacity-block"} if block else None,
            capacity_reservation_specification=reservation_target(group.reservation),
            placement={"group_name": self._placement(group)} if group.placement else None,
            # security groups belong to the instance or to its interfaces, never to both (T31)
            vpc_security_group_ids=None if interfaces else [security],
            network_interfaces=interfaces or None,
            metadata_options=instances.metadata(),
            block_device_mappings=[{"device_name": ROOT_DEVICE, "ebs": root_disk(group.root_gib, self._key)}],
            user_data=encoded(RAID0) if group.local_disks else None,
            tag_specifications=self._tags(group),
            tags={TAG_POOL: group.pool},
            opts=ResourceOptions(parent=self),
        )

    def _tags(self, group: NodeGroup) -> list[aws.ec2.LaunchTemplateTagSpecificationArgsDict]:
        """Return the tags of launched resources, which get no default tags (T17)."""
        tags = {**instances.cost_tags(self._plan), TAG_POOL: group.pool, TAG_ROLE: ROLE_KUBERNETES}
        kinds = ("instance", "network-interface", "volume")
        return [{"resource_type": kind, "tags": tags} for kind in kinds]

    def _placement(self, group: NodeGroup) -> Output[str]:
        """Declare the placement group; it is in one zone, as the nodes are (T27)."""
        return aws.ec2.PlacementGroup(
            f"{self._plan.name}-{group.key}",
            strategy="cluster",
            tags={TAG_POOL: group.pool},
            opts=ResourceOptions(parent=self),
        ).name


def _has_room(group: NodeGroup) -> bool:
    """Return whether EC2 likely has one more machine during an update. Reserved ones and those with GPUs are scarce."""
    return group.reservation is None and "NVIDIA" not in group.ami


def _text(version: float) -> str:
    """Return the number of a version. Pulumi may pass it as a float."""
    return str(int(version))
