"""Roles that pods of one service account assume by EKS Pod Identity."""

from collections.abc import Sequence
from functools import partial

import pulumi_aws as aws
from pulumi import Input, Output, ResourceOptions

from gpucluster.aws.eks.cluster import Cluster
from gpucluster.aws.eks.policies import trust_pods
from gpucluster.aws.eks.roles import EksRole, declare_role
from gpucluster.plan.model import AwsPlan


class Pods:
    """Makes roles for pods of one cluster."""

    def __init__(self, plan: AwsPlan, cluster: Cluster, account: Output[str]) -> None:
        self._plan, self._cluster, self._account = plan, cluster, account

    def role(
        self,
        word: str,
        namespace: str,
        service_account: str,
        *,
        managed: Sequence[str] = (),
        inline: Input[str] | None = None,
    ) -> EksRole:
        """Declare the role `word` for the pods of a service account."""
        known = Output.all(self._account, self._cluster.arn)
        trust = known.apply(partial(_trust, namespace, service_account))
        return declare_role(
            self._plan, word, trust=trust, parent=self._cluster, managed=managed, inline=inline
        )

    def associate(self, word: str, namespace: str, service_account: str, role: EksRole) -> None:
        """Declare that the pods of the service account get the role's credentials."""
        aws.eks.PodIdentityAssociation(
            f"{self._plan.name}-{word}",
            cluster_name=self._cluster.name,
            namespace=namespace,
            service_account=service_account,
            role_arn=role.arn,
            opts=ResourceOptions(parent=self._cluster, depends_on=role.ready),
        )


def _trust(namespace: str, service_account: str, known: Sequence[str]) -> str:
    account, cluster = known
    return trust_pods(account, cluster, namespace, service_account)
