"""Stored data is encrypted: volumes, file systems, disks and buckets."""

from collections.abc import Iterator

from gpucluster.engine.offline.model import Resource, Value
from gpucluster.engine.policy import (
    EnforcementLevel,
    Rule,
    RuleResult,
    Stack,
    Undecided,
    Violation,
    at,
    each,
    is_unreadable,
    linked,
)

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
INSTANCES = (
    "aws:ec2/instance:Instance",
    "aws:ec2/spotInstanceRequest:SpotInstanceRequest",
    "aws:ec2/launchConfiguration:LaunchConfiguration",
)
BUCKET = "aws:s3/bucket:Bucket"
BUCKET_ENCRYPTION = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"

# type -> its encryption property. FSx always encrypts at rest (its user guide, "Encrypting data at rest"),
# so it has no row.
ENCRYPTED = {
    "aws:ebs/volume:Volume": "encrypted",
    "aws:efs/fileSystem:FileSystem": "encrypted",
    "aws:rds/instance:Instance": "storageEncrypted",
    "aws:rds/cluster:Cluster": "storageEncrypted",
}
YES = (True, "true")  # launch templates use texts
_EXPECTED = "true"


def encrypted(stack: Stack) -> Iterator[RuleResult]:
    """Check volumes, file systems, buckets, and the disks of launch templates and instances."""
    for resource in stack.of_type(*ENCRYPTED):
        name = ENCRYPTED[resource.type]
        yield from _on(resource, name, at(resource.properties, name))
    for template in stack.of_type(TEMPLATE):
        yield from _template(template)
    for instance in stack.of_type(*INSTANCES):
        yield from _instance(instance)
    for bucket in stack.of_type(BUCKET):
        yield from _bucket(stack, bucket)


def _template(template: Resource) -> Iterator[RuleResult]:
    """Check that the template sets the root device; otherwise the image decides."""
    given = template.properties.get("blockDeviceMappings")
    if not any(is_unreadable(block) or at(block, "ebs") is not None for _, block in each(given)):
        yield _plain(template, "blockDeviceMappings", "no mapping of the root device")
    for number, block in each(given):
        ebs = at(block, "ebs")
        where = f"blockDeviceMappings[{number}].ebs.encrypted"
        if is_unreadable(ebs) or ebs is not None:
            yield from _on(template, where, at(ebs, "encrypted"))


def _instance(instance: Resource) -> Iterator[RuleResult]:
    yield from _on(
        instance, "rootBlockDevice.encrypted", at(instance.properties, "rootBlockDevice", "encrypted")
    )
    for number, block in each(instance.properties.get("ebsBlockDevices")):
        yield from _on(instance, f"ebsBlockDevices[{number}].encrypted", at(block, "encrypted"))


def _bucket(stack: Stack, bucket: Resource) -> Iterator[RuleResult]:
    own = [one for one in stack.of_type(BUCKET_ENCRYPTION) if linked(one, "bucket", bucket)]
    if not own and not at(bucket.properties, "serverSideEncryptionConfiguration"):
        yield Violation(
            resource=bucket,
            property="serverSideEncryptionConfiguration",
            found="nothing",
            expected="encryption that the program says, with the site's key or S3's",
            next_step="declare a BucketServerSideEncryptionConfiguration for the bucket",
        )


def _on(resource: Resource, where: str, found: Value) -> Iterator[RuleResult]:
    if is_unreadable(found):
        yield Undecided(resource=resource, property=where, expected=_EXPECTED)
    elif found not in YES:
        yield _plain(resource, where, "nothing" if found is None else repr(found))


def _plain(resource: Resource, where: str, found: str) -> Violation:
    step = "set it; the account's default encryption is no part of the plan"
    return Violation(resource=resource, property=where, found=found, expected=_EXPECTED, next_step=step)


RULES = (
    Rule(name="unencrypted-storage", level=EnforcementLevel.MANDATORY, about="Volumes, file systems, disks and buckets are encrypted.", check=encrypted),
)  # fmt: skip
