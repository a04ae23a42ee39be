"""An FSx for Lustre and its links to S3."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws import groups
from gpucluster.aws.network import Network
from gpucluster.plan.model import Lustre, LustreLink
from gpucluster.plan.names import volume_name

# With a large bucket behind it, a file system is made in more than an hour (T45); the provider's own patience is 30 min.
PATIENCE = pulumi.CustomTimeouts(create="90m", update="90m", delete="60m")
SERVER = "2.15"  # Ubuntu 24.04's client speaks with it; a change replaces the file system


@dataclass(frozen=True, slots=True, kw_only=True)
class LustreFound:
    """A file system of ours or of the site."""

    id: Output[str]
    dns_name: Output[str]
    mount_name: Output[str]
    ready: Sequence[pulumi.Resource] = ()


def declare_lustre(name: str, wish: Lustre, network: Network, parent: pulumi.Resource) -> LustreFound:
    """The file system in its one zone, after the rules of its group, which are looked at when it is made (T45)."""
    system = aws.fsx.LustreFileSystem(
        name,
        deployment_type="PERSISTENT_2",
        storage_type="SSD",
        storage_capacity=wish.size_gib,
        per_unit_storage_throughput=wish.throughput,
        file_system_type_version=SERVER,
        subnet_ids=network.ground.private[wish.zone],
        security_group_ids=[network.groups.ids[groups.LUSTRE]],
        tags={"Name": name},
        opts=ResourceOptions(
            parent=parent,
            protect=True,
            depends_on=network.groups.rules[groups.LUSTRE],
            custom_timeouts=PATIENCE,
        ),
    )
    links = [_link(f"{name}-{volume_name(link.path) or 'root'}", link, system, parent) for link in wish.links]
    return LustreFound(
        id=system.id, dns_name=system.dns_name, mount_name=system.mount_name, ready=[system, *links]
    )


def look_up_lustre(name: str, identifier: str, parent: pulumi.Resource) -> LustreFound:
    """The provider has no data source for it, so it is read as a resource that is not ours."""
    system = aws.fsx.LustreFileSystem.get(name, identifier, opts=ResourceOptions(parent=parent))
    return LustreFound(id=system.id, dns_name=system.dns_name, mount_name=system.mount_name)


def _link(
    name: str, link: LustreLink, system: aws.fsx.LustreFileSystem, parent: pulumi.Resource
) -> aws.fsx.DataRepositoryAssociation:
    """What is taken away with it is the link; the files stay on both sides."""
    imports, exports = ([follow.name for follow in side] for side in (link.imports, link.exports))
    ways: aws.fsx.DataRepositoryAssociationS3ArgsDict = {}
    if imports:
        ways["auto_import_policy"] = {"events": imports}
    if exports:
        ways["auto_export_policy"] = {"events": exports}
    return aws.fsx.DataRepositoryAssociation(
        name,
        file_system_id=system.id,
        file_system_path=link.path,
        data_repository_path=link.s3,
        batch_import_meta_data_on_create=bool(imports),
        delete_data_in_filesystem=False,
        s3=ways,
        tags={"Name": name},
        opts=ResourceOptions(parent=parent, custom_timeouts=PATIENCE),
    )
