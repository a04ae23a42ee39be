"""The AWS part of a spec: region, network, image, tags, access."""

from collections.abc import Mapping

from gpucluster.spec.aws_fields import (
    AmiId,
    Endpoint,
    KmsKey,
    NatKind,
    Os,
    PolicyArn,
    Range,
    S3Url,
    SubnetId,
    TagKey,
    TagValue,
    VpcId,
)
from gpucluster.spec.fields import Cidr, Flag, Text, UpdateClass, spec_field
from gpucluster.spec.part import Part, require


class Network(Part):
    """A new VPC (`cidr` and `zones`) or an existing one (`vpc` and `subnets`)."""

    cidr: Cidr | None = spec_field(
        UpdateClass.REPLACE, "Private IPv4 range of the new VPC, /16 to /25.", default=None
    )
    zones: tuple[Text, ...] | None = spec_field(
        UpdateClass.STOP_FLEET,
        "Availability zones, each with a subnet. The head is in the first.",
        default=None,
        min_length=1,
    )
    vpc: VpcId | None = spec_field(UpdateClass.REPLACE, "Id of the existing VPC.", default=None)
    subnets: Mapping[Text, SubnetId] | None = spec_field(
        UpdateClass.STOP_FLEET,
        "Private subnets of the existing VPC, by zone. The head is in the first.",
        default=None,
        min_length=1,
    )
    public: Mapping[Text, SubnetId] | None = spec_field(
        UpdateClass.REPLACE,
        "Public subnets of the existing VPC, by zone, for login machines.",
        default=None,
        min_length=1,
    )
    nat: NatKind | None = spec_field(
        UpdateClass.LIVE, "NAT gateways: `one` for all zones, one `per-zone`, or `none`.", default=None
    )
    endpoints: tuple[Endpoint, ...] | None = spec_field(
        UpdateClass.LIVE, "AWS services that get a VPC endpoint.", default=None, min_length=1
    )

    @property
    def places(self) -> tuple[str, ...]:
        """Return the zones of either form, in order."""
        if self.vpc is not None or self.subnets is not None:
            return tuple(require(self.subnets))
        return require(self.zones)


class Image(Part):
    """The machine image: your account's own build, or one AMI by its id."""

    os: Os | None = spec_field(
        UpdateClass.REPLACE,
        "The operating system: the first build of `gpucluster image build` for it. Name a later build by `ami`.",
        default=None,
    )
    ami: AmiId | None = spec_field(UpdateClass.REPLACE, "Id of the AMI, instead of `os`.", default=None)


class PoolImage(Image):
    """The machine image of one pool."""

    os: Os | None = spec_field(
        UpdateClass.NEW_NODES,
        "The operating system: the first build of `gpucluster image build` for it. Name a later build by `ami`.",
        default=None,
    )
    ami: AmiId | None = spec_field(UpdateClass.NEW_NODES, "Id of the AMI, instead of `os`.", default=None)


class Jobs(Part):
    """Access of jobs to S3. The node's agent gives each job credentials for one hour."""

    read: tuple[S3Url, ...] = spec_field(
        UpdateClass.LIVE, "Buckets or prefixes that jobs may read.", default=(), min_length=1
    )
    write: tuple[S3Url, ...] = spec_field(
        UpdateClass.LIVE,
        "Buckets or prefixes where jobs may read, write and delete.",
        default=(),
        min_length=1,
    )


class Aws(Part):
    """The AWS region, the network and the images."""

    region: Text = spec_field(UpdateClass.DATA_LOSS, "Region of the whole cluster.")
    network: Network = spec_field(UpdateClass.REPLACE, "The VPC: a new one or an existing one.")
    image: Image | None = spec_field(
        UpdateClass.REPLACE, "The image of Slurm's machines. A change replaces the head, too.", default=None
    )
    tags: Mapping[TagKey, TagValue] = spec_field(
        UpdateClass.NEW_NODES,
        "Your own tags, on every resource that has tags. A node that runs keeps those it has.",
        default_factory=dict,
    )
    boundary: PolicyArn | None = spec_field(
        UpdateClass.LIVE, "ARN of the permissions boundary of every IAM role.", default=None
    )
    kms_key: KmsKey | None = spec_field(
        UpdateClass.REPLACE,
        "Your own KMS key (alias or ARN) for volumes, created file systems, the bucket and the secret.",
        default=None,
    )
    jobs: Jobs | None = spec_field(
        UpdateClass.NEW_NODES, "The IAM role of jobs: which parts of S3 they read and write.", default=None
    )


class Access(Part):
    """Who may connect to the login machines. Without it no one may."""

    ssh_from: tuple[Range, ...] = spec_field(
        UpdateClass.LIVE, "Address ranges that may connect by ssh.", default=(), min_length=1
    )
    ssm: Flag = spec_field(UpdateClass.LIVE, "Session Manager on every machine.", default=False)
