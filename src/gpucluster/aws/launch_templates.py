"""Parts of launch templates that Slurm's pools and the node groups of EKS share."""

import pulumi_aws as aws
from pulumi import Output

from gpucluster.aws.encryption import Key
from gpucluster.plan.model import Interface


def interface(one: Interface, group: Output[str]) -> aws.ec2.LaunchTemplateNetworkInterfaceArgsDict:
    """Return one interface; the launch adds the subnet of its zone."""
    return {
        "network_card_index": one.card,
        "device_index": one.device,
        "interface_type": one.kind.value,
        "security_groups": [group],
        "delete_on_termination": "true",
    }


def root_disk(gib: int, key: Key) -> aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgsDict:
    """Return the root volume. It is encrypted, with the key of the site if it has one."""
    root: aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgsDict = {
        "encrypted": "true",
        "delete_on_termination": "true",
        "volume_type": "gp3",
        "volume_size": gib,
    }
    if key is not None:
        root["kms_key_id"] = key
    return root


def reservation_target(
    reservation: str | None,
) -> aws.ec2.LaunchTemplateCapacityReservationSpecificationArgsDict | None:
    """Target a reservation by its id: if it is full, the launch fails instead of using on-demand capacity (T25)."""
    if reservation is None:
        return None
    return {"capacity_reservation_target": {"capacity_reservation_id": reservation}}
