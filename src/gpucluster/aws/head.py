"""The head: the one machine that Pulumi owns and Slurm's controller runs on."""

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws.identity import HeadIdentity
from gpucluster.aws.network import Network
from gpucluster.aws.userdata import encoded, user_data
from gpucluster.plan.model import ClusterPlan, there
from gpucluster.plan.names import ROLE_HEAD, TAG_CLUSTER, TAG_ROLE


class Head(pulumi.ComponentResource):
    """An instance with a fixed private address; it boots when all that it asks for is there."""

    id: Output[str]

    def __init__(
        self,
        plan: ClusterPlan,
        *,
        image: Output[str],
        network: Network,
        identity: HeadIdentity,
        bucket: Output[str],
        after: Sequence[pulumi.Resource],
        opts: ResourceOptions,
    ) -> None:
        super().__init__("gpucluster:aws:Head", plan.name, None, opts)
        text = bucket.apply(
            lambda name: encoded(
                user_data(cluster=plan.name, region=there(plan.aws).region, bucket=name, role=ROLE_HEAD)
            )
        )
        name, head = f"{plan.name}-head", there(plan.head)
        instance = aws.ec2.Instance(
            name,
            ami=image,
            instance_type=head.machine,
            subnet_id=network.subnet_ids[there(head.zone)],
            private_ip=head.address,
            vpc_security_group_ids=[network.head_group],
            iam_instance_profile=identity.profile,
            user_data_base64=text,
            metadata_options={
                "http_endpoint": "enabled",
                "http_tokens": "required",
                "http_put_response_hop_limit": 1,
            },
            root_block_device={"encrypted": True, "volume_type": "gp3", "delete_on_termination": True},
            tags={"Name": name, TAG_ROLE: ROLE_HEAD},
            volume_tags={"Name": name, TAG_CLUSTER: plan.name, TAG_ROLE: ROLE_HEAD},
            # the address is exclusive, so a new head cannot stand beside the old one
            opts=ResourceOptions(parent=self, depends_on=list(after), delete_before_replace=True),
        )
        self.id = instance.id
        self.register_outputs({"id": instance.id})
