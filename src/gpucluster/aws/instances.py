"""The common parts of all instances: AMI, metadata options, root volume, tags, user data."""

import pulumi
import pulumi_aws as aws
from pulumi import Output

from gpucluster.aws.encryption import Key
from gpucluster.plan.model import AwsPlan, AwsPool, Image, ImageById, SlurmOnAws
from gpucluster.plan.names import TAG_CLUSTER, TAG_ROLE
from gpucluster.plan.user_data import encoded, user_data


def metadata() -> aws.ec2.InstanceMetadataOptionsArgsDict:
    """Require tokens. Hop limit 1 keeps containers behind a bridge from the credentials of the role (T33)."""
    return {"http_endpoint": "enabled", "http_tokens": "required", "http_put_response_hop_limit": 1}


def root(name: str, role: str, key: Key) -> aws.ec2.InstanceRootBlockDeviceArgsDict:
    """Return the root volume. The provider adds its default tags (T17).

    A tag that repeats a default tag would be a difference for ever, and `volume_tags` would also write onto data disks.
    """
    root: aws.ec2.InstanceRootBlockDeviceArgsDict = {
        "encrypted": True,
        "volume_type": "gp3",
        "delete_on_termination": True,
        "tags": tags(name, role),
    }
    if key is not None:
        root["kms_key_id"] = key
    return root


def tags(name: str, role: str) -> dict[str, str]:
    """Return the tags of an instance; the provider adds its default tags."""
    return {"Name": name, TAG_ROLE: role}


def cost_tags(plan: AwsPlan) -> dict[str, str]:
    """Return the tags for cost allocation: those of the site, and the cluster."""
    return {**dict(plan.aws.tags), TAG_CLUSTER: plan.name}


def encoded_user_data(plan: SlurmOnAws, bucket: Output[str], role: str, name: str = "") -> Output[str]:
    """Return the user data of machines of this role in base64. `name` is for login machines."""
    region = plan.aws.region
    return bucket.apply(
        lambda place: encoded(user_data(cluster=plan.name, region=region, bucket=place, role=role, name=name))
    )


Found = Output[aws.ec2.GetAmiResult]


class Images:
    """The AMI look-ups of one program, each made once."""

    def __init__(self, plan: SlurmOnAws, provider: pulumi.ProviderResource) -> None:
        self._plan = plan
        self._default = plan.image
        self._opts = pulumi.InvokeOutputOptions(provider=provider)
        self._found: dict[Image, Found] = {}

    @property
    def default(self) -> Found:
        return self._of(self._default)

    def of(self, pool: AwsPool) -> Found:
        """Return the image of the pool, or of the cluster."""
        return self._of(pool.image or self._default)

    def every(self) -> list[Found]:
        """Return all images of the cluster."""
        wanted = dict.fromkeys([self._default, *(pool.image or self._default for pool in self._plan.pools)])
        return [self._of(image) for image in wanted]

    def _of(self, image: Image) -> Found:
        if image not in self._found:
            self._found[image] = self._look_up(image)
        return self._found[image]

    def _look_up(self, image: Image) -> Found:
        """Look up by id, or by name in the own account only: any account may publish an image of any name."""
        if isinstance(image, ImageById):
            by_id: list[aws.ec2.GetAmiFilterArgsDict] = [{"name": "image-id", "values": [image.id]}]
            return aws.ec2.get_ami_output(filters=by_id, opts=self._opts)
        named: list[aws.ec2.GetAmiFilterArgsDict] = [{"name": "name", "values": [image.name]}]
        return aws.ec2.get_ami_output(owners=["self"], filters=named, opts=self._opts)
