"""The command that gives an instance its tags again: an operator types it, no program does."""

from collections.abc import Mapping

from gpucluster.plan import names


def tag_step(instance: str, tags: Mapping[str, str], region: str = "") -> str:
    """Return the command that gives an instance these tags."""
    words = " ".join(f"Key={key},Value={value}" for key, value in tags.items())
    where = f" --region {region}" if region else ""
    return f"aws ec2 create-tags{where} --resources {instance} --tags {words}"


def node_tags(cluster: str) -> dict[str, str]:
    """Return the tags that make an instance a node of the cluster: the head may terminate only what has both."""
    return {names.TAG_CLUSTER: cluster, names.TAG_ROLE: names.ROLE_NODE}
