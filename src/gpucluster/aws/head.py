"""The head: the instance of slurmctld, the attachments of its volumes, and the standby head."""

import string
import zlib
from collections.abc import Iterable, Mapping, Sequence

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws import instances
from gpucluster.aws.network import Network
from gpucluster.aws.storage import Storage, Stores
from gpucluster.plan.model import SlurmOnAws, Standby
from gpucluster.plan.names import ROLE_HEAD, ROLE_STANDBY

# EC2 accepts /dev/xvd[b-d][a-z] for attached volumes. The machine shows other device names (NVMe).
DEVICES = tuple(f"/dev/xvd{first}{second}" for first in "bcd" for second in string.ascii_lowercase)


class Head(pulumi.ComponentResource):
    """Instances with fixed private addresses. They boot after the resources that their agents use."""

    id: Output[str]

    def __init__(
        self,
        plan: SlurmOnAws,
        *,
        image: Output[str],
        stores: Stores,
        network: Network,
        profiles: Mapping[str, Output[str]],
        after: Sequence[pulumi.Resource],
        opts: ResourceOptions,
    ) -> None:
        super().__init__("gpucluster:aws:Head", plan.name, None, opts)
        self._plan, self._image, self._network, self._stores = plan, image, network, stores
        self._after, self._profiles = after, profiles
        head = plan.head
        instance = self._machine(ROLE_HEAD, head.machine, head.zone, head.address)
        self._attach(instance, stores.storage)
        if head.standby is not None:
            self._standby(head.standby)
        self.id = instance.id
        self.register_outputs({"id": instance.id})

    def _machine(self, role: str, machine: str, zone: str, address: str) -> aws.ec2.Instance:
        name = f"{self._plan.name}-{role}"
        return aws.ec2.Instance(
            name,
            ami=self._image,
            instance_type=machine,
            subnet_id=self._network.vpc_context.private[zone],
            private_ip=address,
            vpc_security_group_ids=[self._network.groups.ids[ROLE_HEAD]],
            iam_instance_profile=self._profiles[role],
            user_data_base64=instances.encoded_user_data(self._plan, self._stores.bucket.name, role),
            metadata_options=instances.metadata(),
            root_block_device=instances.root(name, role, self._stores.key),
            tags=instances.tags(name, role),
            # the address is exclusive, so a new head cannot exist beside the old one
            opts=ResourceOptions(parent=self, depends_on=list(self._after), delete_before_replace=True),
        )

    def _standby(self, standby: Standby) -> None:
        self._machine(ROLE_STANDBY, standby.machine, standby.zone, standby.address)

    def _attach(self, instance: aws.ec2.Instance, storage: Storage) -> None:
        """Attach the volumes. Before a detachment the head stops, so that all writes are complete."""
        for key, device in device_names(storage.volumes).items():
            aws.ec2.VolumeAttachment(
                f"{self._plan.name}-{key}",
                instance_id=instance.id,
                volume_id=storage.volumes[key],
                device_name=device,
                stop_instance_before_detaching=True,
                opts=ResourceOptions(parent=self, delete_before_replace=True),
            )


def device_names(keys: Iterable[str]) -> dict[str, str]:
    """Return a device for each volume, from a hash of its key: so a new volume moves no other. A taken device: the next free."""
    taken: dict[str, str] = {}
    for key in sorted(keys):
        start = zlib.crc32(key.encode())
        turns = (DEVICES[(start + step) % len(DEVICES)] for step in range(len(DEVICES)))
        taken[key] = next(device for device in turns if device not in taken.values())
    return taken
