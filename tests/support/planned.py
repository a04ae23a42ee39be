"""Resources of the offline planner by the words `Kind name`."""

from gpucluster.engine.offline.model import Planned, Resource


def word(resource: Resource) -> str:
    return f"{resource.type.rpartition(':')[2]} {resource.name}"


def one(planned: Planned, name: str) -> Resource:
    """Return the resource of the provider with these words. ValueError if there is not exactly one."""
    (found,) = [r for r in planned.resources if word(r) == name and r.custom]
    return found


def names_of(urns: tuple[str, ...]) -> set[str]:
    """Return the words of the resources with these URNs."""
    return {f"{urn.split('::')[2].rpartition(':')[2]} {urn.split('::')[3]}" for urn in urns}
