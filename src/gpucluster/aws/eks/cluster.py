"""The control plane: the EKS cluster, its role, the key of its secrets and its logs."""

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws.eks.policies import secrets_policy, trust_service
from gpucluster.aws.eks.roles import CLUSTER_POLICIES, declare_role
from gpucluster.aws.encryption import Key
from gpucluster.aws.network import Network
from gpucluster.plan.eks import KEY_DAYS, LOG_DAYS, LOG_TYPES
from gpucluster.plan.model import AwsPlan
from gpucluster.plan.model.eks import EksControlPlane
from gpucluster.plan.names import log_group
from gpucluster.plan.security_rules import CONTROL_PLANE

# EKS keeps a control plane in exactly the zones of its creation (docs/facts/eks.md). Nodes need no subnet of their zone in it,
# so a zone that is added later has none.
SUBNETS = "vpcConfig.subnetIds"
# EKS keeps the key of the secrets, and the provider ignores another one (internal/service/eks/cluster.go, `resourceClusterUpdate`):
# then `pulumi up` would delete the key that the cluster uses. So it must replace the cluster, and fails before any deletion,
# because the name is in use.
SECRETS = "encryptionConfig"


class Cluster(pulumi.ComponentResource):
    """A cluster with the plan's name. People come in by access entries alone, never by a ConfigMap."""

    name: Output[str]  # known when the cluster exists
    arn: Output[str]

    def __init__(
        self,
        plan: AwsPlan,
        plane: EksControlPlane,
        version: str,
        *,
        network: Network,
        key: Key,
        opts: ResourceOptions,
    ) -> None:
        super().__init__("gpucluster:aws:EksCluster", plan.name, None, opts)
        child = ResourceOptions(parent=self)
        secrets = key if key is not None else self._key(plan.name, child)
        role = declare_role(
            plan,
            "control-plane",
            trust=trust_service("eks.amazonaws.com"),
            parent=self,
            managed=CLUSTER_POLICIES,
            inline=secrets.apply(secrets_policy),
        )
        # Declared before the cluster: EKS would create it without a retention, and it would outlive the cluster.
        logs = aws.cloudwatch.LogGroup(
            f"{plan.name}-control-plane",
            name=log_group(plan.name),
            retention_in_days=int(LOG_DAYS.value),
            opts=child,
        )
        context = network.vpc_context
        made = aws.eks.Cluster(
            plan.name,
            name=plan.name,
            version=version,
            role_arn=role.arn,
            # The caller of CreateCluster applies the first wave. Without this right nobody could enter a cluster that
            # names no `admins`. A change replaces the cluster, so it does not depend on `admins`.
            access_config={
                "authentication_mode": "API",
                "bootstrap_cluster_creator_admin_permissions": True,
            },
            bootstrap_self_managed_addons=False,  # `addons.py` installs them with pinned versions
            enabled_cluster_log_types=list(LOG_TYPES),
            encryption_config={"provider": {"key_arn": secrets}, "resources": ["secrets"]},
            vpc_config=aws.eks.ClusterVpcConfigArgs(
                subnet_ids=[
                    *context.private.values(),
                    *([] if context.spare is None else [context.spare]),
                ],
                security_group_ids=[network.groups.ids[CONTROL_PLANE]],
                endpoint_private_access=True,
                endpoint_public_access=bool(plane.public_from),
                public_access_cidrs=list(plane.public_from) or None,  # None: the class leaves the key out
            ),
            opts=ResourceOptions(
                parent=self,
                depends_on=[logs, *role.ready],
                ignore_changes=[SUBNETS],
                replace_on_changes=[SECRETS],
            ),
        )
        self.name, self.arn = made.name, made.arn
        self.register_outputs({"cluster": self.arn})

    @staticmethod
    def _key(cluster: str, child: ResourceOptions) -> Output[str]:
        """Declare the key of the secrets. Its policy is KMS's default: the account's own IAM policies decide."""
        return aws.kms.Key(
            f"{cluster}-secrets",
            description="The secrets of Kubernetes in a gpucluster",
            enable_key_rotation=True,
            deletion_window_in_days=int(KEY_DAYS.value),
            opts=child,
        ).arn
