"""The one table of resource types."""

from collections.abc import Mapping

from gpucluster.engine.provider.schema import ResourceType
from gpucluster.engine.provider.types import events, groups, identity, instances, network, storage, templates

TYPES: Mapping[str, ResourceType] = {
    row.name: row
    for row in (
        *network.ROWS,
        *groups.ROWS,
        *identity.ROWS,
        *storage.ROWS,
        *events.ROWS,
        *templates.ROWS,
        *instances.ROWS,
    )
}
