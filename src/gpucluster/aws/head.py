"""The head: the one machine that Pulumi owns and Slurm's controller runs on; its disks, and a second head that waits."""

import string
import zlib
from collections.abc import Iterable, Mapping, Sequence

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws import machines
from gpucluster.aws.network import Network
from gpucluster.aws.storage import Storage
from gpucluster.plan.model import ClusterPlan, Standby, there
from gpucluster.plan.names import ROLE_HEAD, ROLE_STANDBY

# EC2 takes /dev/xvd[b-d][a-z] for disks that are attached; which one the machine sees is its own matter (NVMe).
DEVICES = tuple(f"/dev/xvd{first}{second}" for first in "bcd" for second in string.ascii_lowercase)


class Head(pulumi.ComponentResource):
    """Instances with fixed private addresses; they boot when all that they ask for is there."""

    id: Output[str]

    def __init__(
        self,
        plan: ClusterPlan,
        *,
        image: Output[str],
        network: Network,
        storage: Storage,
        profiles: Mapping[str, Output[str]],
        bucket: Output[str],
        after: Sequence[pulumi.Resource],
        opts: ResourceOptions,
    ) -> None:
        super().__init__("gpucluster:aws:Head", plan.name, None, opts)
        self._plan, self._image, self._network = plan, image, network
        self._bucket, self._after, self._profiles = bucket, after, profiles
        head = there(plan.head)
        instance = self._machine(ROLE_HEAD, there(head.machine), there(head.zone), head.address)
        self._attach(instance, storage)
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
            subnet_id=self._network.ground.private[zone],
            private_ip=address,
            vpc_security_group_ids=[self._network.groups.ids[ROLE_HEAD]],
            iam_instance_profile=self._profiles[role],
            user_data_base64=machines.boot_text(self._plan, self._bucket, role),
            metadata_options=machines.metadata(),
            root_block_device=machines.root(),
            tags=machines.tags(name, role),
            volume_tags=machines.volume_tags(self._plan, name, role),
            # the address is exclusive, so a new head cannot stand beside the old one
            opts=ResourceOptions(parent=self, depends_on=list(self._after), delete_before_replace=True),
        )

    def _standby(self, standby: Standby) -> None:
        self._machine(ROLE_STANDBY, standby.machine, standby.zone, standby.address)

    def _attach(self, instance: aws.ec2.Instance, storage: Storage) -> None:
        """A disk is on one machine at a time; the head stops before it is taken, so that nothing is half written."""
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
    """A device for each disk by its key alone, so that another disk moves none; two that meet go to the next free one."""
    taken: dict[str, str] = {}
    for key in sorted(keys):
        start = zlib.crc32(key.encode())
        turns = (DEVICES[(start + step) % len(DEVICES)] for step in range(len(DEVICES)))
        taken[key] = next(device for device in turns if device not in taken.values())
    return taken
