"""Machines that people log in to: with a fixed public address where ssh is open, else reached by Session Manager."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws import machines
from gpucluster.aws.network import Network
from gpucluster.plan.model import ClusterPlan, there
from gpucluster.plan.model import Login as LoginPlan
from gpucluster.plan.names import ROLE_LOGIN


class Login(pulumi.ComponentResource):
    """The machines by name."""

    addresses: Mapping[str, Output[str]]

    def __init__(
        self,
        plan: ClusterPlan,
        *,
        image: Output[str],
        network: Network,
        profile: Output[str],
        bucket: Output[str],
        after: Sequence[pulumi.Resource],
        opts: ResourceOptions,
    ) -> None:
        super().__init__("gpucluster:aws:Login", plan.name, None, opts)
        self._plan, self._image, self._network = plan, image, network
        self._profile, self._bucket, self._after = profile, bucket, after
        self._wish = there(plan.login)
        self.addresses = {name: self._machine(name, self._wish) for name in self._wish.names}
        self.register_outputs({"addresses": dict(self.addresses)})

    def _machine(self, name: str, wish: LoginPlan) -> Output[str]:
        """The address at which people find it."""
        ground, public = self._network.ground, is_public(self._plan, self._network)
        instance = aws.ec2.Instance(
            name,
            ami=self._image,
            instance_type=wish.machine,
            subnet_id=(ground.public if public else ground.private)[wish.zone],
            vpc_security_group_ids=[self._network.groups.ids[ROLE_LOGIN]],
            iam_instance_profile=self._profile,
            user_data_base64=machines.boot_text(self._plan, self._bucket, ROLE_LOGIN, name),
            metadata_options=machines.metadata(),
            root_block_device=machines.root(),
            tags=machines.tags(name, ROLE_LOGIN),
            volume_tags=machines.volume_tags(self._plan, name, ROLE_LOGIN),
            opts=ResourceOptions(parent=self, depends_on=list(self._after)),
        )
        if not public:
            return instance.private_ip
        # Its own, so that people's known_hosts and the site's firewall outlive the machine. One is mapped only where
        # the VPC has a gateway.
        address = aws.ec2.Eip(
            name,
            domain="vpc",
            instance=instance.id,
            tags={"Name": name},
            opts=ResourceOptions(parent=self, depends_on=list(ground.ready)),
        )
        return address.public_ip


def is_public(plan: ClusterPlan, network: Network) -> bool:
    """Where ssh is open to somebody and there is a public subnet; a site's own network may have another way in."""
    return bool(plan.access.ssh_from) and there(plan.login).zone in network.ground.public
