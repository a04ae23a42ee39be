"""Access entries: the IAM roles and users that the API server admits, with their groups and rights."""

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.plan.model.eks import AccessEntry
from gpucluster.plan.names import principal_word

ADMIN_POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"


class Access(pulumi.ComponentResource):
    """One entry for each principal. Admins have a policy of EKS; the groups of others have roles in the waves."""

    def __init__(
        self, cluster: str, name: Output[str], entries: tuple[AccessEntry, ...], opts: ResourceOptions
    ) -> None:
        super().__init__("gpucluster:aws:EksAccess", cluster, None, opts)
        self._plan_name, self._eks_name = cluster, name
        for entry in entries:
            self._declare(entry)
        self.register_outputs({})

    def _declare(self, entry: AccessEntry) -> None:
        logical = f"{self._plan_name}-{principal_word(entry.principal)}"
        made = aws.eks.AccessEntry(
            logical,
            cluster_name=self._eks_name,
            principal_arn=entry.principal,
            kubernetes_groups=list(entry.groups) or None,
            type="STANDARD",
            opts=ResourceOptions(parent=self),
        )
        if entry.admin:
            aws.eks.AccessPolicyAssociation(
                logical,
                cluster_name=self._eks_name,
                principal_arn=made.principal_arn,
                policy_arn=ADMIN_POLICY,
                access_scope={"type": "cluster"},
                opts=ResourceOptions(parent=self),
            )
