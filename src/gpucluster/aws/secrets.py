"""The empty secret for the munge key: the head's own role fills it, Pulumi never sees a value."""

import pulumi
import pulumi_aws as aws
from pulumi import Alias, Output, ResourceOptions

from gpucluster.aws.bucket import FORMER_TYPE


class Secrets(pulumi.ComponentResource):
    """One secret without a value."""

    munge: Output[str]  # ARN

    def __init__(self, cluster: str, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:Secrets", cluster, None, opts)
        # No name of its own: a name is taken for days after a deletion, a drawn one is free at the next `up` (T38).
        # No recovery window: the key in it opens nothing once its cluster is gone, and the head makes another.
        secret = aws.secretsmanager.Secret(
            f"{cluster}-munge",
            description="The munge key of a gpucluster; the head's own role writes it, Pulumi never sees it",
            recovery_window_in_days=0,
            opts=ResourceOptions(parent=self, aliases=[Alias(parent=_former(cluster))]),
        )
        self.munge = secret.arn
        self.register_outputs({"munge": self.munge})


def _former(cluster: str) -> str:
    """The component that the secret stood in before."""
    return f"urn:pulumi:{pulumi.get_stack()}::{pulumi.get_project()}::{FORMER_TYPE}::{cluster}"
