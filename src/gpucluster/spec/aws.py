"""Where on AWS: region, network, image, tags; and who gets in."""

from collections.abc import Mapping

from gpucluster.spec.aws_fields import (
    AmiId,
    Endpoint,
    NatWish,
    Os,
    PolicyArn,
    Range,
    S3Url,
    SubnetId,
    TagKey,
    TagValue,
    VpcId,
)
from gpucluster.spec.fields import Cidr, Flag, Text, UpdateClass, wish
from gpucluster.spec.part import Part, written


class Network(Part):
    """The cluster's own VPC (`cidr` and `zones`), or one that is there (`vpc` and `subnets`)."""

    cidr: Cidr | None = wish(
        UpdateClass.REPLACE, "Private IPv4 range of the VPC that is made, /16 to /25.", default=None
    )
    zones: tuple[Text, ...] | None = wish(
        UpdateClass.STOP_FLEET,
        "Zones with a subnet each; the head stands in the first.",
        default=None,
        min_length=1,
    )
    vpc: VpcId | None = wish(UpdateClass.REPLACE, "A VPC that is there.", default=None)
    subnets: Mapping[Text, SubnetId] | None = wish(
        UpdateClass.STOP_FLEET,
        "Its private subnets by zone; the head stands in the first.",
        default=None,
        min_length=1,
    )
    public: Mapping[Text, SubnetId] | None = wish(
        UpdateClass.REPLACE, "Its public subnets by zone, for login machines.", default=None, min_length=1
    )
    nat: NatWish | None = wish(
        UpdateClass.LIVE, "NAT gateways: one for all zones, one per-zone, or none.", default=None
    )
    endpoints: tuple[Endpoint, ...] | None = wish(
        UpdateClass.LIVE, "Services that are reached inside the VPC.", default=None, min_length=1
    )

    @property
    def places(self) -> tuple[str, ...]:
        """The zones of either form, in order."""
        if self.vpc is not None or self.subnets is not None:
            return tuple(written(self.subnets))
        return written(self.zones)


class Image(Part):
    """What machines boot from: the account's own build for a system, or one image by its id."""

    os: Os | None = wish(
        UpdateClass.REPLACE,
        "The first build of `gpucluster image build` for it, which has the plain name; a later one is taken by `ami`.",
        default=None,
    )
    ami: AmiId | None = wish(UpdateClass.REPLACE, "This image and no other.", default=None)


class PoolImage(Image):
    """The same for one pool, whose machines come anew anyway."""

    os: Os | None = wish(
        UpdateClass.NEW_NODES,
        "The first build of `gpucluster image build` for it, which has the plain name; a later one is taken by `ami`.",
        default=None,
    )
    ami: AmiId | None = wish(UpdateClass.NEW_NODES, "This image and no other.", default=None)


class Jobs(Part):
    """What jobs may do in S3, with keys of an hour that the node's agent hands to each."""

    read: tuple[S3Url, ...] = wish(
        UpdateClass.LIVE, "Buckets or prefixes that jobs read.", default=(), min_length=1
    )
    write: tuple[S3Url, ...] = wish(
        UpdateClass.LIVE, "Buckets or prefixes that jobs read, write and delete in.", default=(), min_length=1
    )


class Aws(Part):
    """Where on AWS."""

    region: Text = wish(UpdateClass.DATA_LOSS, "Region of the whole cluster.")
    network: Network = wish(UpdateClass.REPLACE, "The VPC: made for the cluster, or there already.")
    image: Image | None = wish(
        UpdateClass.REPLACE, "What Slurm's machines boot from; the head is made anew with it.", default=None
    )
    tags: Mapping[TagKey, TagValue] = wish(
        UpdateClass.LIVE, "The site's own tags, on everything that has tags.", default_factory=dict
    )
    boundary: PolicyArn | None = wish(
        UpdateClass.LIVE, "ARN of the policy that bounds every role.", default=None
    )
    jobs: Jobs | None = wish(
        UpdateClass.NEW_NODES, "A role for jobs: what they read and write in S3.", default=None
    )


class Access(Part):
    """Who reaches the login machines; nobody until named."""

    ssh_from: tuple[Range, ...] = wish(
        UpdateClass.LIVE, "Address ranges that may come by ssh.", default=(), min_length=1
    )
    ssm: Flag = wish(UpdateClass.LIVE, "Session Manager, on every machine.", default=False)
