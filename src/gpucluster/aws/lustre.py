"""An FSx for Lustre and its links to S3."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws.encryption import Key
from gpucluster.aws.network import Network
from gpucluster.plan import security_rules
from gpucluster.plan.model import FsxLustre, LustreLink
from gpucluster.plan.names import volume_name

# With a large bucket the creation takes more than an hour (T45); the default timeout of the provider is 30 min.
PATIENCE = pulumi.CustomTimeouts(create="90m", update="90m", delete="60m")
SERVER = "2.15"  # supported by the client of Ubuntu 24.04; a change replaces the file system


@dataclass(frozen=True, slots=True, kw_only=True)
class LustreFound:
    """A created or an existing file system."""

    id: Output[str]
    dns_name: Output[str]
    mount_name: Output[str]
    ready: Sequence[pulumi.Resource] = ()


def declare_lustre(
    name: str, lustre: FsxLustre, network: Network, key: Key, parent: pulumi.Resource
) -> LustreFound:
    """Declare the file system after the rules of its security group, which FSx checks at creation (T45)."""
    system = aws.fsx.LustreFileSystem(
        name,
        deployment_type="PERSISTENT_2",
        storage_type="SSD",
        storage_capacity=lustre.size_gib,
        per_unit_storage_throughput=lustre.throughput,
        file_system_type_version=SERVER,
        kms_key_id=key,
        subnet_ids=network.vpc_context.private[lustre.zone],
        security_group_ids=[network.groups.ids[security_rules.LUSTRE]],
        tags={"Name": name},
        opts=ResourceOptions(
            parent=parent,
            protect=True,
            depends_on=network.groups.rules[security_rules.LUSTRE],
            custom_timeouts=PATIENCE,
        ),
    )
    links = [
        _link(f"{name}-{volume_name(link.path) or 'root'}", link, system, parent) for link in lustre.links
    ]
    return LustreFound(
        id=system.id, dns_name=system.dns_name, mount_name=system.mount_name, ready=[system, *links]
    )


def look_up_lustre(name: str, identifier: str, parent: pulumi.Resource) -> LustreFound:
    """Read an existing file system as an external resource, because the provider has no data source for it."""
    system = aws.fsx.LustreFileSystem.get(name, identifier, opts=ResourceOptions(parent=parent))
    return LustreFound(id=system.id, dns_name=system.dns_name, mount_name=system.mount_name)


def _link(
    name: str, link: LustreLink, system: aws.fsx.LustreFileSystem, parent: pulumi.Resource
) -> aws.fsx.DataRepositoryAssociation:
    """Declare a link to S3. Its deletion removes only the link; the files stay on both sides."""
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
        opts=ResourceOptions(
            parent=parent, custom_timeouts=PATIENCE, delete_before_replace=True
        ),  # one for each path
    )
