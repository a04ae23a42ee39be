"""Login machines: with a fixed public address if ssh is open, else for Session Manager."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws import instances
from gpucluster.aws.network import Network
from gpucluster.aws.storage import Stores
from gpucluster.plan.model import Access, SlurmOnAws
from gpucluster.plan.model import Login as LoginPlan
from gpucluster.plan.names import ROLE_LOGIN


class Login(pulumi.ComponentResource):
    """The login machines, by name."""

    addresses: Mapping[str, Output[str]]

    def __init__(
        self,
        plan: SlurmOnAws,
        login: LoginPlan,
        *,
        image: Output[str],
        stores: Stores,
        network: Network,
        profile: Output[str],
        after: Sequence[pulumi.Resource],
        opts: ResourceOptions,
    ) -> None:
        super().__init__("gpucluster:aws:Login", plan.name, None, opts)
        self._plan, self._image, self._network, self._stores = plan, image, network, stores
        self._profile, self._after = profile, after
        self.addresses = {name: self._machine(name, login) for name in login.names}
        self.register_outputs({"addresses": dict(self.addresses)})

    def _machine(self, name: str, login: LoginPlan) -> Output[str]:
        """Declare one machine. Return its public address, or its private one."""
        vpc_context, public = self._network.vpc_context, is_public(self._plan.access, login, self._network)
        instance = aws.ec2.Instance(
            name,
            ami=self._image,
            instance_type=login.machine,
            subnet_id=(vpc_context.public if public else vpc_context.private)[login.zone],
            vpc_security_group_ids=[self._network.groups.ids[ROLE_LOGIN]],
            iam_instance_profile=self._profile,
            user_data_base64=instances.encoded_user_data(
                self._plan, self._stores.bucket.name, ROLE_LOGIN, name
            ),
            metadata_options=instances.metadata(),
            root_block_device=instances.root(name, ROLE_LOGIN, self._stores.key),
            tags=instances.tags(name, ROLE_LOGIN),
            opts=ResourceOptions(parent=self, depends_on=list(self._after)),
        )
        if not public:
            return instance.private_ip
        # A fixed address stays valid in known_hosts and in firewalls when the machine is replaced. EC2 associates it only
        # if the VPC has an internet gateway.
        address = aws.ec2.Eip(
            name,
            domain="vpc",
            instance=instance.id,
            tags={"Name": name},
            opts=ResourceOptions(parent=self, depends_on=list(vpc_context.ready)),
        )
        return address.public_ip


def is_public(access: Access, login: LoginPlan, network: Network) -> bool:
    """Return whether ssh is open to some range and the zone has a public subnet."""
    return bool(access.ssh_from) and login.zone in network.vpc_context.public
