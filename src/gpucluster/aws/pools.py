"""One launch template for each (pool, source, machine): what the elastic daemon launches nodes from."""

from collections.abc import Mapping

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws.identity import NodeIdentity
from gpucluster.aws.network import Network
from gpucluster.aws.userdata import encoded, user_data
from gpucluster.plan.model import ClusterPlan, LaunchTemplate, Market, Pool, Source, there
from gpucluster.plan.names import ROLE_NODE, TAG_CLUSTER, TAG_POOL, TAG_ROLE


class Pools(pulumi.ComponentResource):
    """The templates by their key. Bindings name a version, never `$Latest` (T15).

    None names a market: each launch does, and a fleet's templates should not (its target says spot or on-demand).
    """

    ids: Mapping[str, Output[str]]
    versions: Mapping[str, Output[int]]
    arns: Mapping[str, Output[str]]

    def __init__(
        self,
        plan: ClusterPlan,
        *,
        image: Output[aws.ec2.GetAmiResult],
        network: Network,
        node: NodeIdentity,
        bucket: Output[str],
        opts: ResourceOptions,
    ) -> None:
        super().__init__("gpucluster:aws:Pools", plan.name, None, opts)
        self._plan, self._image, self._network, self._node = plan, image, network, node
        self._user_data = bucket.apply(
            lambda name: encoded(
                user_data(cluster=plan.name, region=there(plan.aws).region, bucket=name, role=ROLE_NODE)
            )
        )
        templates = {t.key: self._template(pool, t) for pool in plan.pools for t in pool.templates}
        self.ids = {key: template.id for key, template in templates.items()}
        self.versions = {key: template.latest_version for key, template in templates.items()}
        self.arns = {key: template.arn for key, template in templates.items()}
        self.register_outputs({"templates": dict(self.ids)})

    def _template(self, pool: Pool, template: LaunchTemplate) -> aws.ec2.LaunchTemplate:
        root: aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgsDict = {
            "encrypted": "true",
            "delete_on_termination": "true",
            "volume_type": "gp3",
        }
        return aws.ec2.LaunchTemplate(
            f"{self._plan.name}-{template.key}",
            image_id=self._image.image_id,
            instance_type=template.machine,
            user_data=self._user_data,
            vpc_security_group_ids=[self._network.node_group],
            iam_instance_profile={"arn": self._node.profile_arn},
            # A node that powers off is gone: so it needs no right to end itself.
            instance_initiated_shutdown_behavior="terminate",
            # Hop limit 1: a container behind a bridge does not reach the role.
            metadata_options={
                "http_endpoint": "enabled",
                "http_tokens": "required",
                "http_put_response_hop_limit": 1,
            },
            block_device_mappings=[{"device_name": self._image.root_device_name, "ebs": root}],
            capacity_reservation_specification=_held(pool.sources[template.source]),
            tag_specifications=self._tags(pool, template),
            update_default_version=True,  # for people who launch by hand; the daemon names a version
            opts=ResourceOptions(parent=self),
        )

    def _tags(
        self, pool: Pool, template: LaunchTemplate
    ) -> list[aws.ec2.LaunchTemplateTagSpecificationArgsDict]:
        """Default tags reach no instance that a template starts, nor its volumes (T17)."""
        tags = {TAG_CLUSTER: self._plan.name, TAG_POOL: pool.name, TAG_ROLE: ROLE_NODE}
        kinds = ["instance", "network-interface", "volume"]
        if template.market is Market.SPOT:  # refused on an on-demand launch
            kinds.append("spot-instances-request")
        return [{"resource_type": kind, "tags": tags} for kind in kinds]


def _held(source: Source) -> aws.ec2.LaunchTemplateCapacityReservationSpecificationArgsDict | None:
    """By its id: a full reservation then refuses, where an open one would silently be ordinary on-demand (T25)."""
    if source.reservation is None:
        return None
    return {"capacity_reservation_target": {"capacity_reservation_id": source.reservation}}
