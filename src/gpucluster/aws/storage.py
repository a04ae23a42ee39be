"""Storage that survives machines: EFS, FSx for Lustre, the volumes of the head. All of it is encrypted and protected.

File systems that the spec names by id are only looked up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws.bucket import Bucket, MungeSecret
from gpucluster.aws.encryption import Key
from gpucluster.aws.lustre import LustreFound, declare_lustre, look_up_lustre
from gpucluster.aws.network import Network
from gpucluster.plan import security_rules
from gpucluster.plan.model import (
    AwsPlan,
    Efs,
    FsxLustre,
    Mount,
    NfsFromHead,
    NfsFromServer,
    Nvme,
    OtherMount,
    SiteEfs,
    SiteLustre,
)
from gpucluster.plan.mounts import heads_only
from gpucluster.plan.names import volume_name
from gpucluster.plan.store_policies import only_machines


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """The values that machines need to mount it; see `plan.model.FileSystemBinding`."""

    id: Output[str]
    dns_name: Output[str]
    mount_name: Output[str] | str = ""
    access_point: Output[str] | str = ""
    arn: Output[str] | None = None  # of our own EFS, which admits only roles with the right to mount it
    ready: Sequence[pulumi.Resource] = field(
        default=()
    )  # resources that must exist before a machine mounts it


class Storage(pulumi.ComponentResource):
    """File systems by mount and volumes by key."""

    file_systems: Mapping[str, FileSystem]
    volumes: Mapping[str, Output[str]]  # Volume.key -> id

    def __init__(self, plan: AwsPlan, network: Network, key: Key, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:FileSystems", plan.name, None, opts)
        self._plan, self._network, self._key = plan, network, key
        self._child = ResourceOptions(parent=self)
        found = ((mount.path, self._file_system(mount)) for mount in plan.storage)
        self.file_systems = {path: made for path, made in found if made is not None}
        self.volumes = self._volumes()
        ids = {path: made.id for path, made in self.file_systems.items()}
        self.register_outputs({"file_systems": ids, "volumes": dict(self.volumes)})

    @property
    def ready(self) -> list[pulumi.Resource]:
        return [one for made in self.file_systems.values() for one in made.ready]

    def efs_arns(self, *, on_head: bool) -> list[Output[str]]:
        """Return the ARNs of our own EFS that a head, or any other machine, mounts."""
        away = None if on_head else heads_only(self._plan)
        found = self.file_systems.items()
        return [one.arn for path, one in found if one.arn is not None and path != away]

    def _file_system(self, mount: Mount) -> FileSystem | None:
        """Other types of file systems need no resource in the cloud."""
        word = mount_word(mount.path)
        match mount.source:
            case Efs():
                return self._efs(f"{self._plan.name}-efs-{word}", mount)
            case SiteEfs(id=identifier):
                return self._site_efs(identifier)
            case FsxLustre() as lustre:
                return _of_lustre(
                    declare_lustre(f"{self._plan.name}-lustre-{word}", lustre, self._network, self._key, self)
                )
            case SiteLustre(id=identifier):
                return _of_lustre(look_up_lustre(f"{self._plan.name}-lustre-{word}", identifier, self))
            case NfsFromHead() | NfsFromServer() | Nvme() | OtherMount():
                return None  # nothing of AWS

    def _efs(self, name: str, mount: Mount) -> FileSystem:
        system = aws.efs.FileSystem(
            name,
            encrypted=True,
            kms_key_id=self._key,
            performance_mode="generalPurpose",
            throughput_mode="elastic",
            tags={"Name": name},
            opts=ResourceOptions(parent=self, protect=True),
        )
        targets = [self._target(f"{name}-{zone}", system, subnet) for zone, subnet in self._subnets()]
        policy = aws.efs.FileSystemPolicy(
            name, file_system_id=system.id, policy=system.arn.apply(only_machines), opts=self._child
        )
        # Without a POSIX user: users keep their own uids.
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
            id=system.id,
            dns_name=system.dns_name,
            access_point=point.id,
            arn=system.arn,
            ready=[*targets, policy, point],
        )

    def _subnets(self) -> list[tuple[str, Output[str]]]:
        return list(self._network.vpc_context.private.items())

    def _target(self, name: str, system: aws.efs.FileSystem, subnet: Output[str]) -> aws.efs.MountTarget:
        """Declare the mount target of a zone (T44). A zone has only one, so the old one is deleted first."""
        return aws.efs.MountTarget(
            name,
            file_system_id=system.id,
            subnet_id=subnet,
            security_groups=[self._network.groups.ids[security_rules.EFS]],
            opts=ResourceOptions(
                parent=self,
                delete_before_replace=True,
                depends_on=self._network.groups.rules[security_rules.EFS],
                custom_timeouts=pulumi.CustomTimeouts(create="30m", delete="20m"),
            ),
        )

    def _site_efs(self, identifier: str) -> FileSystem:
        """Look up an existing EFS. The site manages its mount targets and access."""
        opts = pulumi.InvokeOutputOptions(parent=self)
        found = aws.efs.get_file_system_output(file_system_id=identifier, opts=opts)
        return FileSystem(id=found.file_system_id, dns_name=found.dns_name)

    def _volumes(self) -> dict[str, Output[str]]:
        head = self._plan.head
        made: dict[str, Output[str]] = {}
        if head is None:
            return made
        for volume in head.volumes:
            name = f"{self._plan.name}-{volume.key}"
            made[volume.key] = aws.ebs.Volume(
                name,
                availability_zone=head.zone,
                size=volume.size_gib,
                type="gp3",
                encrypted=True,
                kms_key_id=self._key,
                tags={"Name": name},
                opts=ResourceOptions(parent=self, protect=True),
            ).id
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The stores of a cluster that its machines read: bucket, secret of the munge key, file systems, and their key."""

    bucket: Bucket
    secrets: MungeSecret
    storage: Storage
    key: Key

    def arns(self, *, on_head: bool) -> dict[str, Output[str] | list[Output[str]]]:
        """Return the ARNs by the field names of HeadScope and NodeScope. An empty key: AWS manages the keys."""
        return {
            "bucket": self.bucket.arn,
            "secret": self.secrets.munge,
            "key": Output.from_input("") if self.key is None else self.key,
            "file_systems": self.storage.efs_arns(on_head=on_head),
        }


def _of_lustre(found: LustreFound) -> FileSystem:
    return FileSystem(id=found.id, dns_name=found.dns_name, mount_name=found.mount_name, ready=found.ready)


def mount_word(path: str) -> str:
    """Return the part of resource names for a mount: `home` of `/home`."""
    return volume_name(path) or "root"
