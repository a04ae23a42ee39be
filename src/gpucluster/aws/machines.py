"""What every machine of ours that Pulumi owns has alike: metadata by token only, an encrypted root, tags."""

import pulumi_aws as aws
from pulumi import Output

from gpucluster.aws.userdata import encoded, user_data
from gpucluster.plan.model import ClusterPlan, there
from gpucluster.plan.names import TAG_CLUSTER, TAG_ROLE


def metadata() -> aws.ec2.InstanceMetadataOptionsArgsDict:
    """Tokens only; hop limit 1, so that a container behind a bridge does not reach the role (T33)."""
    return {"http_endpoint": "enabled", "http_tokens": "required", "http_put_response_hop_limit": 1}


def root() -> aws.ec2.InstanceRootBlockDeviceArgsDict:
    return {"encrypted": True, "volume_type": "gp3", "delete_on_termination": True}


def tags(name: str, role: str) -> dict[str, str]:
    """An instance's own; the provider's default tags come beside them."""
    return {"Name": name, TAG_ROLE: role}


def volume_tags(plan: ClusterPlan, name: str, role: str) -> dict[str, str]:
    """A root volume's: default tags do not reach it (T17)."""
    return {**cost_tags(plan), "Name": name, TAG_ROLE: role}


def cost_tags(plan: ClusterPlan) -> dict[str, str]:
    """What a bill is split by: the site's own tags and the cluster."""
    return {**dict(there(plan.aws).tags), TAG_CLUSTER: plan.name}


def boot_text(plan: ClusterPlan, bucket: Output[str], role: str, name: str = "") -> Output[str]:
    """The user data of machines of that role, encoded; a login machine is told its name."""
    region = there(plan.aws).region
    return bucket.apply(
        lambda place: encoded(user_data(cluster=plan.name, region=region, bucket=place, role=role, name=name))
    )
