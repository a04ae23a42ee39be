"""The bucket of the bundle, the control object and the head's status; and the secret of the munge key."""

import pulumi
import pulumi_aws as aws
from pulumi import Alias, Output, ResourceOptions

from gpucluster.aws.encryption import Key
from gpucluster.plan.store_policies import EXPIRING, OLD_VERSION_DAYS, only_tls

FORMER_TYPE = "gpucluster:aws:Storage"  # once bucket and secret were in one component


class Bucket(pulumi.ComponentResource):
    """One private, versioned bucket."""

    name: Output[str]
    arn: Output[str]

    def __init__(self, cluster: str, key: Key, opts: ResourceOptions) -> None:
        former = ResourceOptions(aliases=[Alias(type_=FORMER_TYPE)])
        super().__init__("gpucluster:aws:Bucket", cluster, None, ResourceOptions.merge(opts, former))
        self._child = ResourceOptions(parent=self)
        # force_destroy: the bundle can be created again, control object and status end with the cluster. Without it
        # the object versions would prevent the deletion of the bucket.
        bucket = aws.s3.Bucket(cluster, force_destroy=True, opts=self._child)
        self.name, self.arn = bucket.bucket, bucket.arn
        self._restrict(cluster, bucket, key)
        self.register_outputs({"bucket": self.name})

    def _restrict(self, cluster: str, bucket: aws.s3.Bucket, key: Key) -> None:
        aws.s3.BucketPublicAccessBlock(
            cluster,
            bucket=bucket.bucket,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=self._child,
        )
        versioning = aws.s3.BucketVersioning(
            cluster, bucket=bucket.bucket, versioning_configuration={"status": "Enabled"}, opts=self._child
        )
        aws.s3.BucketLifecycleConfiguration(
            cluster,
            bucket=bucket.bucket,
            rules=[_expiry(name, key) for name, key in EXPIRING.items()],
            opts=ResourceOptions.merge(self._child, ResourceOptions(depends_on=[versioning])),
        )
        aws.s3.BucketServerSideEncryptionConfiguration(
            cluster,
            bucket=bucket.bucket,
            rules=[_encryption(key)],
            opts=self._child,
        )
        aws.s3.BucketPolicy(
            cluster, bucket=bucket.bucket, policy=bucket.arn.apply(only_tls), opts=self._child
        )


def _expiry(name: str, key: str) -> aws.s3.BucketLifecycleConfigurationRuleArgsDict:
    """Return the rule that deletes old versions of one object. The newest version stays."""
    return {
        "id": f"old-versions-of-{name}",
        "status": "Enabled",
        "filter": {"prefix": key},
        "noncurrent_version_expiration": {"noncurrent_days": OLD_VERSION_DAYS},
    }


def _encryption(key: Key) -> aws.s3.BucketServerSideEncryptionConfigurationRuleArgsDict:
    """Return the default encryption. The bucket key spares a request to KMS for each object."""
    if key is None:
        return {"apply_server_side_encryption_by_default": {"sse_algorithm": "AES256"}}
    default: aws.s3.BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgsDict = {
        "sse_algorithm": "aws:kms",
        "kms_master_key_id": key,
    }
    return {"apply_server_side_encryption_by_default": default, "bucket_key_enabled": True}


class MungeSecret(pulumi.ComponentResource):
    """One secret, created without a value."""

    munge: Output[str]  # ARN

    def __init__(self, cluster: str, key: Key, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:Secrets", cluster, None, opts)
        # No fixed name: after a deletion a name stays in use for days, a generated name does not (T38).
        # No recovery window: without its cluster the key is useless, and a new head creates another.
        secret = aws.secretsmanager.Secret(
            f"{cluster}-munge",
            description="The munge key of a gpucluster; the head's own role writes it, Pulumi never sees it",
            recovery_window_in_days=0,
            kms_key_id=key,
            opts=ResourceOptions(parent=self, aliases=[Alias(parent=_former(cluster))]),
        )
        self.munge = secret.arn
        self.register_outputs({"munge": self.munge})


def _former(cluster: str) -> str:
    """Return the URN of the former component of the secret."""
    return f"urn:pulumi:{pulumi.get_stack()}::{pulumi.get_project()}::{FORMER_TYPE}::{cluster}"
