"""The place of a cluster on AWS: region, network, access from outside, the role for jobs."""

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """A zone's private subnet of ours, and the public one beside it, if there is one."""

    zone: str
    cidr: str
    public_cidr: str | None = None  # for gateways and login machines

    @property
    def has_public(self) -> bool:
        return self.public_cidr is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSubnet:
    """A zone's private subnet of the site, and the public one that the site named for it."""

    zone: str
    id: str
    public_id: str | None = None

    @property
    def has_public(self) -> bool:
        return self.public_id is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnNetwork:
    """The cluster's own VPC. Only login machines and gateways have public addresses."""

    kind: ClassVar[Literal["own"]] = "own"
    cidr: str
    subnets: tuple[Subnet, ...]
    nat: tuple[str, ...] = ()  # zones with a NAT gateway, in the plan's order; the first serves zones without
    endpoints: tuple[
        str, ...
    ] = ()  # interface endpoints: `ec2`, `secretsmanager`; the gateway endpoint of S3 always exists


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteNetwork:
    """A VPC of the site, with its own routes."""

    kind: ClassVar[Literal["site"]] = "site"
    nat: ClassVar[tuple[str, ...]] = ()
    vpc: str
    subnets: tuple[SiteSubnet, ...]
    endpoints: tuple[str, ...] = ()  # as in `OwnNetwork`, made by us in the site's subnets


Network = OwnNetwork | SiteNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Access to the login machines."""

    ssh_from: tuple[str, ...] = ()  # address ranges; empty: no ssh
    ssm: bool = False  # access by Session Manager, on every machine


NOBODY = Access()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsS3Access:
    """What the role of jobs may use in S3: each place is `s3://BUCKET` or `s3://BUCKET/PREFIX`, a folder, without a slash at its end."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()  # may read, write and delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Aws:
    """The region, network, tags and limits of the cluster on AWS."""

    region: str
    network: Network
    tags: tuple[tuple[str, str], ...] = ()  # the site's own tags, on every resource; sorted by key
    boundary: str | None = None  # ARN of the permission boundary of every role
    kms_key: str | None = None  # alias or ARN of a customer-managed key; None: the keys that AWS manages
    jobs: JobsS3Access | None = None  # None: jobs have no role
