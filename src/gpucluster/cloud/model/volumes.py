"""EBS volumes that outlive instances: of one zone, on one instance at a time. Root volumes are their instances'."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpucluster.cloud.model.values import Ec2Instance, Refusal
from gpucluster.cloud.port import LIVING, InstanceState


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """One volume; `instance` is where it is attached, as `device`."""

    id: str
    zone: str
    size_gib: int
    created_at: float
    kind: str = "gp3"
    iops: int = 3000
    throughput: int = 125
    encrypted: bool = False
    kms_key: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    instance: str | None = None
    device: str = ""
    attached_at: float = 0.0

    @property
    def state(self) -> str:
        """EC2's word."""
        return "available" if self.instance is None else "in-use"


class Volumes:
    """All of the account, by id."""

    def __init__(self) -> None:
        self._volumes: dict[str, Volume] = {}

    def put(self, volume: Volume) -> Volume:
        """Put one there, or another in its place."""
        self._volumes[volume.id] = volume
        return volume

    def all(self) -> tuple[Volume, ...]:
        """Every one, sorted."""
        return tuple(self._volumes[i] for i in sorted(self._volumes))

    def __contains__(self, volume_id: object) -> bool:
        return volume_id in self._volumes

    def get(self, volume_id: str) -> Volume:
        """One by id, or EC2's refusal."""
        found = self._volumes.get(volume_id)
        if found is None:
            raise Refusal("InvalidVolume.NotFound", f"The volume '{volume_id}' does not exist.")
        return found

    def attach(self, volume_id: str, instance: Ec2Instance, device: str, now: float) -> Volume:
        """Attach a free volume to an instance of its zone."""
        volume = self.get(volume_id)
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
        """Take it off; return it as it was."""
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
        """The instance has ended: what was on it is free."""
        for volume in self.all():
            if volume.instance == instance_id:
                self.put(replace(volume, instance=None, device=""))
