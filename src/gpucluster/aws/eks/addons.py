"""Add-ons of EKS with pinned versions. Our configuration wins over changes that somebody made in the cluster."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws.eks.roles import EksRole
from gpucluster.plan.eks import POD_ADDRESSES, RIGHTS, WARM_ADDRESSES
from gpucluster.plan.model.eks import Addon
from gpucluster.plan.names import TAINT_GPU

CONFIGURATION: Mapping[str, Mapping[str, Any]] = {
    # Its DCGM server tolerates no taint by default, and without it the agent sees no GPU.
    "eks-node-monitoring-agent": {"dcgmAgent": {"tolerations": [{"key": TAINT_GPU, "operator": "Exists"}]}},
    "vpc-cni": {  # AWS's schema of the add-on requires strings
        "enableNetworkPolicy": "true",
        "env": {"MINIMUM_IP_TARGET": f"{POD_ADDRESSES.value:g}", "WARM_IP_TARGET": f"{WARM_ADDRESSES}"},
    },
}


class Addons(pulumi.ComponentResource):
    """Add-ons of one phase: those that nodes need to join, or those whose pods need nodes."""

    ready: Sequence[pulumi.Resource]

    def __init__(
        self,
        cluster: str,
        word: str,
        addons: Sequence[Addon],
        *,
        name: Output[str],
        roles: Mapping[str, EksRole],
        after: Sequence[pulumi.Resource],
        opts: ResourceOptions,
    ) -> None:
        super().__init__("gpucluster:aws:EksAddons", f"{cluster}-{word}", None, opts)
        self._plan_name, self._eks_name, self._roles, self._after = cluster, name, roles, after
        self.ready = [self._addon(one) for one in addons]
        self.register_outputs({})

    def _addon(self, addon: Addon) -> aws.eks.Addon:
        role, configuration = self._roles.get(addon.name), CONFIGURATION.get(addon.name)
        return aws.eks.Addon(
            f"{self._plan_name}-{addon.name}",
            cluster_name=self._eks_name,
            addon_name=addon.name,
            addon_version=addon.version,
            configuration_values=None if configuration is None else json.dumps(configuration, sort_keys=True),
            pod_identity_associations=None
            if role is None
            else [{"role_arn": role.arn, "service_account": RIGHTS[addon.name][1]}],
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            opts=ResourceOptions(
                parent=self, depends_on=[*self._after, *([] if role is None else role.ready)]
            ),
        )
