"""The bucket that carries the bundle, the control object and the head's status."""

import pulumi
import pulumi_aws as aws
from pulumi import Alias, Output, ResourceOptions

from gpucluster.aws.policies import only_tls

FORMER_TYPE = "gpucluster:aws:Storage"  # bucket and secret were one component's


class Bucket(pulumi.ComponentResource):
    """One private bucket with versions."""

    name: Output[str]
    arn: Output[str]

    def __init__(self, cluster: str, opts: ResourceOptions) -> None:
        former = ResourceOptions(aliases=[Alias(type_=FORMER_TYPE)])
        super().__init__("gpucluster:aws:Bucket", cluster, None, ResourceOptions.merge(opts, former))
        self._child = ResourceOptions(parent=self)
        # force_destroy: what is in it can be made again (bundle) or dies with the cluster (control, status);
        # versions would else keep `down` from emptying the cloud.
        bucket = aws.s3.Bucket(cluster, force_destroy=True, opts=self._child)
        self.name, self.arn = bucket.bucket, bucket.arn
        self._close(cluster, bucket)
        self.register_outputs({"bucket": self.name})

    def _close(self, cluster: str, bucket: aws.s3.Bucket) -> None:
        aws.s3.BucketPublicAccessBlock(
            cluster,
            bucket=bucket.bucket,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=self._child,
        )
        aws.s3.BucketVersioning(
            cluster, bucket=bucket.bucket, versioning_configuration={"status": "Enabled"}, opts=self._child
        )
        aws.s3.BucketServerSideEncryptionConfiguration(
            cluster,
            bucket=bucket.bucket,
            rules=[{"apply_server_side_encryption_by_default": {"sse_algorithm": "AES256"}}],
            opts=self._child,
        )
        aws.s3.BucketPolicy(
            cluster, bucket=bucket.bucket, policy=bucket.arn.apply(only_tls), opts=self._child
        )
