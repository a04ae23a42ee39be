"""The launch templates of the elastic daemon, one for each pool, source and machine type; and placement groups."""

from collections.abc import Mapping

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws import instances
from gpucluster.aws.iam_roles import Identity
from gpucluster.aws.instances import Images
from gpucluster.aws.launch_templates import interface, reservation_target, root_disk
from gpucluster.aws.network import Network
from gpucluster.aws.storage import Stores
from gpucluster.plan.model import AwsPool, LaunchTemplate, Market, SlurmOnAws
from gpucluster.plan.names import ROLE_NODE, TAG_POOL, TAG_ROLE, placement_key


class Pools(pulumi.ComponentResource):
    """The templates by key. Bindings name a version, never `$Latest` (T15).

    A template has no market: each launch sets it, and the templates of a fleet must not.
    A template has no placement group: it serves all zones, and a placement group is in one zone.
    """

    ids: Mapping[str, Output[str]]
    versions: Mapping[str, Output[int]]
    placement_groups: Mapping[str, Output[str]]  # `POOL/ZONE` -> name

    def __init__(
        self,
        plan: SlurmOnAws,
        *,
        images: Images,
        network: Network,
        node: Identity,
        stores: Stores,
        opts: ResourceOptions,
    ) -> None:
        super().__init__("gpucluster:aws:Pools", plan.name, None, opts)
        self._plan, self._images, self._node, self._key = plan, images, node, stores.key
        self._group = network.groups.ids[ROLE_NODE]
        self._user_data = instances.encoded_user_data(plan, stores.bucket.name, ROLE_NODE)
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

    def _template(self, pool: AwsPool, template: LaunchTemplate) -> aws.ec2.LaunchTemplate:
        image = self._images.of(pool)
        interfaces = [interface(one, self._group) for one in template.interfaces]
        return aws.ec2.LaunchTemplate(
            f"{self._plan.name}-{template.key}",
            image_id=image.image_id,
            instance_type=template.machine,
            user_data=self._user_data,
            # security groups belong to the instance or to its interfaces, never to both (T31)
            vpc_security_group_ids=None if interfaces else [self._group],
            network_interfaces=interfaces or None,
            iam_instance_profile={"arn": self._node.profile_arn},
            # A node that powers off terminates, so it needs no permission to terminate itself.
            instance_initiated_shutdown_behavior="terminate",
            metadata_options=instances.metadata(),
            block_device_mappings=[
                {"device_name": image.root_device_name, "ebs": root_disk(template.root_gib, self._key)}
            ],
            capacity_reservation_specification=reservation_target(pool.sources[template.source].reservation),
            tag_specifications=self._tag_specifications(pool, template),
            tags={TAG_POOL: pool.name},
            update_default_version=True,  # for launches by hand; the daemon names a version
            opts=ResourceOptions(parent=self),
        )

    def _tag_specifications(
        self, pool: AwsPool, template: LaunchTemplate
    ) -> list[aws.ec2.LaunchTemplateTagSpecificationArgsDict]:
        """Return the tags of launched resources, which get no default tags (T17)."""
        kinds = ["instance", "network-interface", "volume"]
        if template.market is Market.SPOT:  # an on-demand launch refuses it
            kinds.append("spot-instances-request")
        tags = {**instances.cost_tags(self._plan), TAG_POOL: pool.name, TAG_ROLE: ROLE_NODE}
        return [{"resource_type": kind, "tags": tags} for kind in kinds]

    def _placement_group(self, pool: AwsPool, zone: str) -> Output[str]:
        """Declare one placement group; it is in one zone (T27)."""
        name = f"{self._plan.name}-{pool.name}-{zone}"
        group = aws.ec2.PlacementGroup(
            name, strategy="cluster", tags={TAG_POOL: pool.name}, opts=ResourceOptions(parent=self)
        )
        return group.name


def placement_zones(pool: AwsPool) -> list[str]:
    """Return the zones with a placement group: those of spot and on-demand. Reserved capacity has its own placement (T27)."""
    if not pool.placement:
        return []
    bought = (Market.SPOT, Market.ON_DEMAND)
    used = {zone for source in pool.sources if source.market in bought for zone in source.zones}
    return [span.zone for span in pool.slots if span.zone in used]
