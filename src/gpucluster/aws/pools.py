"""What the elastic daemon launches nodes from: a launch template for each (pool, source, machine), placement groups."""

from collections.abc import Mapping

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws import machines
from gpucluster.aws.identity import Identity
from gpucluster.aws.images import Images
from gpucluster.aws.network import Network
from gpucluster.plan.model import ClusterPlan, Interface, LaunchTemplate, Market, Pool, Source
from gpucluster.plan.names import ROLE_NODE, TAG_POOL, TAG_ROLE, placement_key


class Pools(pulumi.ComponentResource):
    """The templates by their key. Bindings name a version, never `$Latest` (T15).

    None names a market: each launch does, and a fleet's templates should not (its target says spot or on-demand).
    None names a placement group: a template serves all zones, a group stands in one.
    """

    ids: Mapping[str, Output[str]]
    versions: Mapping[str, Output[int]]
    placement_groups: Mapping[str, Output[str]]  # `POOL/ZONE` -> name

    def __init__(
        self,
        plan: ClusterPlan,
        *,
        images: Images,
        network: Network,
        node: Identity,
        bucket: Output[str],
        opts: ResourceOptions,
    ) -> None:
        super().__init__("gpucluster:aws:Pools", plan.name, None, opts)
        self._plan, self._images, self._node = plan, images, node
        self._group = network.groups.ids[ROLE_NODE]
        self._user_data = machines.boot_text(plan, bucket, ROLE_NODE)
        wanted = {t.key: (pool, t) for pool in plan.pools for t in pool.templates}
        templates = {key: self._template(*one) for key, one in wanted.items()}
        self.ids = {key: template.id for key, template in templates.items()}
        self.versions = {key: template.latest_version for key, template in templates.items()}
        self.placement_groups = {
            placement_key(pool.name, zone): self._placement_group(pool, zone)
            for pool in plan.pools
            for zone in placement_zones(pool)
        }
        self.register_outputs({"templates": dict(self.ids), "placement_groups": dict(self.placement_groups)})

    def _template(self, pool: Pool, template: LaunchTemplate) -> aws.ec2.LaunchTemplate:
        image = self._images.of(pool)
        root: aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgsDict = {
            "encrypted": "true",
            "delete_on_termination": "true",
            "volume_type": "gp3",
            "volume_size": template.root_gib,
        }
        interfaces = [self._interface(one) for one in template.interfaces]
        return aws.ec2.LaunchTemplate(
            f"{self._plan.name}-{template.key}",
            image_id=image.image_id,
            instance_type=template.machine,
            user_data=self._user_data,
            # groups stand at the machine or at its interfaces, never at both (T31)
            vpc_security_group_ids=None if interfaces else [self._group],
            network_interfaces=interfaces or None,
            iam_instance_profile={"arn": self._node.profile_arn},
            # A node that powers off is gone: so it needs no right to end itself.
            instance_initiated_shutdown_behavior="terminate",
            metadata_options=machines.metadata(),
            block_device_mappings=[{"device_name": image.root_device_name, "ebs": root}],
            capacity_reservation_specification=_held(pool.sources[template.source]),
            tag_specifications=self._tag_specifications(pool, template),
            tags={TAG_POOL: pool.name},
            update_default_version=True,  # for people who launch by hand; the daemon names a version
            opts=ResourceOptions(parent=self),
        )

    def _interface(self, one: Interface) -> aws.ec2.LaunchTemplateNetworkInterfaceArgsDict:
        """The launch adds its zone's subnet."""
        return {
            "network_card_index": one.card,
            "device_index": one.device,
            "interface_type": one.kind.value,
            "security_groups": [self._group],
            "delete_on_termination": "true",
        }

    def _tag_specifications(
        self, pool: Pool, template: LaunchTemplate
    ) -> list[aws.ec2.LaunchTemplateTagSpecificationArgsDict]:
        """Default tags reach no instance that a template starts, nor its volumes (T17)."""
        kinds = ["instance", "network-interface", "volume"]
        if template.market is Market.SPOT:  # refused on an on-demand launch
            kinds.append("spot-instances-request")
        tags = {**machines.cost_tags(self._plan), TAG_POOL: pool.name, TAG_ROLE: ROLE_NODE}
        return [{"resource_type": kind, "tags": tags} for kind in kinds]

    def _placement_group(self, pool: Pool, zone: str) -> Output[str]:
        """One a zone, for it stands in one (T27)."""
        name = f"{self._plan.name}-{pool.name}-{zone}"
        group = aws.ec2.PlacementGroup(
            name, strategy="cluster", tags={TAG_POOL: pool.name}, opts=ResourceOptions(parent=self)
        )
        return group.name


def placement_zones(pool: Pool) -> list[str]:
    """Where the pool launches into a placement group: what was bought ahead stands where it was bought (T27)."""
    if not pool.placement:
        return []
    bought = (Market.SPOT, Market.ON_DEMAND)
    used = {zone for source in pool.sources if source.market in bought for zone in source.zones}
    return [span.zone for span in pool.slots if span.zone in used]


def _held(source: Source) -> aws.ec2.LaunchTemplateCapacityReservationSpecificationArgsDict | None:
    """By its id: a full reservation then refuses, where an open one would silently be ordinary on-demand (T25)."""
    if source.reservation is None:
        return None
    return {"capacity_reservation_target": {"capacity_reservation_id": source.reservation}}
