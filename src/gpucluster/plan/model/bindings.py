"""Values that only the cloud knows, from Pulumi's outputs: `bindings.json` beside the plan."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateBinding:
    """A launch template in the cloud. Launches use this version, never `$Latest`."""

    id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystemBinding:
    """A file system in the cloud."""

    id: str
    dns_name: str
    mount_name: str = ""  # of an FSx for Lustre
    access_point: str = ""  # of an EFS


@dataclass(frozen=True, slots=True, kw_only=True)
class Bindings:
    """Values that only the cloud knows, from Pulumi's outputs; `bindings.json` beside the plan."""

    schema: int
    region: str
    bucket: str
    secret: str  # ARN of the munge key's secret
    subnets: dict[str, str]  # zone -> subnet id
    templates: dict[str, TemplateBinding]  # LaunchTemplate.key -> template
    file_systems: dict[str, FileSystemBinding] = field(
        default_factory=dict[str, FileSystemBinding]
    )  # by mount
    queue: str = ""  # URL of the queue of interruptions; empty: no queue is read
    volumes: dict[str, str] = field(default_factory=dict[str, str])  # Volume.key -> volume id
    placement_groups: dict[str, str] = field(
        default_factory=dict[str, str]
    )  # `POOL/ZONE` -> the group's name
    jobs_role: str = ""  # ARN of the role for jobs; empty: no role
    groups: dict[str, str] = field(
        default_factory=dict[str, str]
    )  # role -> security group: a launch with a list of interfaces sets it at each (T31)
    account: str = ""  # of AWS, of the cluster's resources; empty: not known
