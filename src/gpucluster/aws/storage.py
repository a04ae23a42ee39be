"""The file systems and disks that outlive machines: EFS, FSx for Lustre, the head's volumes; all encrypted, ours protected.

What is the site's (by id) is only looked up, and never changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws import groups
from gpucluster.aws.lustre import declare_lustre, look_up_lustre
from gpucluster.aws.network import Network
from gpucluster.plan.model import ClusterPlan, Mount, there
from gpucluster.plan.names import volume_name


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """What machines must know to mount it, as `plan.model.FileSystemBinding` has it."""

    id: Output[str]
    dns_name: Output[str]
    mount_name: Output[str] | str = ""
    access_point: Output[str] | str = ""
    ready: Sequence[pulumi.Resource] = field(default=())  # what must be there before a machine mounts it


class Storage(pulumi.ComponentResource):
    """File systems by mount and volumes by key."""

    file_systems: Mapping[str, FileSystem]
    volumes: Mapping[str, Output[str]]  # Volume.key -> id

    def __init__(self, plan: ClusterPlan, network: Network, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:FileSystems", plan.name, None, opts)
        self._plan, self._network, self._child = plan, network, ResourceOptions(parent=self)
        found = ((mount.path, self._file_system(mount)) for mount in plan.storage)
        self.file_systems = {path: made for path, made in found if made is not None}
        self.volumes = self._volumes()
        ids = {path: made.id for path, made in self.file_systems.items()}
        self.register_outputs({"file_systems": ids, "volumes": dict(self.volumes)})

    @property
    def ready(self) -> list[pulumi.Resource]:
        return [one for made in self.file_systems.values() for one in made.ready]

    def _file_system(self, mount: Mount) -> FileSystem | None:
        """What is neither EFS nor Lustre is nothing of the cloud's."""
        if mount.efs is not None:
            name = f"{self._plan.name}-efs-{mount_word(mount.path)}"
            return self._efs(name, mount) if mount.efs.id is None else self._site_efs(mount.efs.id)
        if mount.lustre is not None:
            name = f"{self._plan.name}-lustre-{mount_word(mount.path)}"
            if mount.lustre.id is not None:
                found = look_up_lustre(name, mount.lustre.id, self)
            else:
                found = declare_lustre(name, mount.lustre, self._network, self)
            return FileSystem(
                id=found.id, dns_name=found.dns_name, mount_name=found.mount_name, ready=found.ready
            )
        return None

    def _efs(self, name: str, mount: Mount) -> FileSystem:
        system = aws.efs.FileSystem(
            name,
            encrypted=True,
            performance_mode="generalPurpose",
            throughput_mode="elastic",
            tags={"Name": name},
            opts=ResourceOptions(parent=self, protect=True),
        )
        targets = [self._target(f"{name}-{zone}", system, subnet) for zone, subnet in self._subnets()]
        # No user of its own: people keep the ids that they have on every machine.
        point = aws.efs.AccessPoint(
            name,
            file_system_id=system.id,
            root_directory={
                "path": mount.path,
                "creation_info": {"owner_uid": 0, "owner_gid": 0, "permissions": "0755"},
            },
            tags={"Name": name},
            opts=self._child,
        )
        return FileSystem(
            id=system.id, dns_name=system.dns_name, access_point=point.id, ready=[*targets, point]
        )

    def _subnets(self) -> list[tuple[str, Output[str]]]:
        return list(self._network.ground.private.items())

    def _target(self, name: str, system: aws.efs.FileSystem, subnet: Output[str]) -> aws.efs.MountTarget:
        """One a zone (T44), which is exclusive: a new one cannot stand beside the old."""
        return aws.efs.MountTarget(
            name,
            file_system_id=system.id,
            subnet_id=subnet,
            security_groups=[self._network.groups.ids[groups.EFS]],
            opts=ResourceOptions(
                parent=self,
                delete_before_replace=True,
                depends_on=self._network.groups.rules[groups.EFS],
                custom_timeouts=pulumi.CustomTimeouts(create="30m", delete="20m"),
            ),
        )

    def _site_efs(self, identifier: str) -> FileSystem:
        """Mount targets and access are the site's."""
        opts = pulumi.InvokeOutputOptions(parent=self)
        found = aws.efs.get_file_system_output(file_system_id=identifier, opts=opts)
        return FileSystem(id=found.file_system_id, dns_name=found.dns_name)

    def _volumes(self) -> dict[str, Output[str]]:
        head = there(self._plan.head)
        made: dict[str, Output[str]] = {}
        for volume in head.volumes:
            name = f"{self._plan.name}-{volume.key}"
            made[volume.key] = aws.ebs.Volume(
                name,
                availability_zone=there(head.zone),
                size=volume.size_gib,
                type="gp3",
                encrypted=True,
                tags={"Name": name},
                opts=ResourceOptions(parent=self, protect=True),
            ).id
        return made


def mount_word(path: str) -> str:
    """A mount's word in names: `home` of `/home`."""
    return volume_name(path) or "root"
