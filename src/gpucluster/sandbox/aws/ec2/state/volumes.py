"""EBS volumes that outlive instances. A volume is in one zone and on one instance at a time. Root volumes belong to their instances."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpucluster.cloud.port import LIVING, InstanceState
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance, Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """One volume; `instance` and `device` say where it is attached."""

    id: str
    zone: str
    size_gib: int
    created_at: float
    kind: str = "gp3"
    iops: int = 3000
    throughput: int = 125
    encrypted: bool = False
    kms_key: str | None = None
    failed: bool = False  # EBS cannot use its KMS key: CreateVolume answered before the check (T51)
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    instance: str | None = None
    device: str = ""
    attached_at: float = 0.0

    @property
    def state(self) -> str:
        """The state as EC2 names it."""
        if self.failed:
            return "error"
        return "available" if self.instance is None else "in-use"


class Volumes:
    """All volumes of the account by id."""

    def __init__(self) -> None:
        self._volumes: dict[str, Volume] = {}

    def put(self, volume: Volume) -> Volume:
        """Add or replace a volume."""
        self._volumes[volume.id] = volume
        return volume

    def all(self) -> tuple[Volume, ...]:
        """All volumes, sorted."""
        return tuple(self._volumes[i] for i in sorted(self._volumes))

    def __contains__(self, volume_id: object) -> bool:
        return volume_id in self._volumes

    def get(self, volume_id: str) -> Volume:
        """One volume by id; a Refusal if it does not exist."""
        found = self._volumes.get(volume_id)
        if found is None:
            raise Refusal("InvalidVolume.NotFound", f"The volume '{volume_id}' does not exist.")
        return found

    def attach(self, volume_id: str, instance: Ec2Instance, device: str, now: float) -> Volume:
        """Attach a free volume to an instance of its zone."""
        volume = self.get(volume_id)
        if volume.failed:
            raise Refusal("IncorrectState", f"Volume '{volume_id}' is not 'available'.")
        if volume.instance is not None:
            raise Refusal("VolumeInUse", f"{volume_id} is already attached to an instance")
        if instance.state not in LIVING or instance.state is InstanceState.PENDING:
            raise Refusal("IncorrectState", f"Instance '{instance.id}' is not 'running'.")
        if instance.zone != volume.zone:
            raise Refusal(
                "InvalidVolume.ZoneMismatch",
                f"The volume '{volume_id}' is not in the same availability zone as instance '{instance.id}'",
            )
        if any(v.instance == instance.id and v.device == device for v in self._volumes.values()):
            raise Refusal(
                "InvalidParameterValue", f"Invalid value '{device}' for unixDevice. Attachment point in use"
            )
        return self.put(replace(volume, instance=instance.id, device=device, attached_at=now))

    def detach(self, volume_id: str, instance_id: str | None) -> Volume:
        """Detach it; return the volume as it was before."""
        volume = self.get(volume_id)
        if volume.instance is None or instance_id not in (None, volume.instance):
            raise Refusal("IncorrectState", f"Volume '{volume_id}' is in the 'available' state.")
        self.put(replace(volume, instance=None, device=""))
        return volume

    def remove(self, volume_id: str) -> None:
        """Delete a free volume."""
        if self.get(volume_id).instance is not None:
            raise Refusal("VolumeInUse", f"Volume {volume_id} is currently attached to an instance")
        del self._volumes[volume_id]

    def let_go(self, instance_id: str) -> None:
        """Detach the volumes of an instance that has ended."""
        for volume in self.all():
            if volume.instance == instance_id:
                self.put(replace(volume, instance=None, device=""))
