"""The table of all resource types."""

from collections.abc import Mapping

from gpucluster.sandbox.provider.schema import ResourceType
from gpucluster.sandbox.provider.types import (
    budgets,
    efs,
    eks,
    eks_access,
    eks_addons,
    eks_nodes,
    endpoints,
    events,
    fsx,
    gateways,
    groups,
    identity,
    instances,
    keys,
    logs,
    network,
    placement,
    routes,
    storage,
    templates,
    volumes,
)

TYPES: Mapping[str, ResourceType] = {
    row.name: row
    for row in (
        *network.ROWS,
        *gateways.ROWS,
        *routes.ROWS,
        *endpoints.ROWS,
        *groups.ROWS,
        *identity.ROWS,
        *storage.ROWS,
        *events.ROWS,
        *templates.ROWS,
        *placement.ROWS,
        *volumes.ROWS,
        *instances.ROWS,
        *efs.ROWS,
        *fsx.ROWS,
        *budgets.ROWS,
        *eks.ROWS,
        *eks_access.ROWS,
        *eks_addons.ROWS,
        *eks_nodes.ROWS,
        *keys.ROWS,
        *logs.ROWS,
    )
}
