"""The bucket that carries the bundle and the control object, and the empty secret for the munge key."""

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws.policies import only_tls


class Storage(pulumi.ComponentResource):
    """One private bucket, one secret without a value."""

    bucket: Output[str]
    bucket_arn: Output[str]
    secret_arn: Output[str]

    def __init__(self, cluster: str, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:Storage", cluster, None, opts)
        self._child = ResourceOptions(parent=self)
        # force_destroy: what is in it can be made again (bundle) or dies with the cluster (control, status);
        # versions would else keep `down` from emptying the cloud.
        bucket = aws.s3.Bucket(cluster, force_destroy=True, opts=self._child)
        self.bucket, self.bucket_arn = bucket.bucket, bucket.arn
        self._close(cluster, bucket)
        # No name of its own: a name is taken for days after a deletion, a drawn one is free at the next `up`.
        # No recovery window: the key in it opens nothing once its cluster is gone, and the head makes another.
        secret = aws.secretsmanager.Secret(
            f"{cluster}-munge",
            description="The munge key of a gpucluster; the head's own role writes it, Pulumi never sees it",
            recovery_window_in_days=0,
            opts=self._child,
        )
        self.secret_arn = secret.arn
        self.register_outputs({"bucket": self.bucket, "secret": self.secret_arn})

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
