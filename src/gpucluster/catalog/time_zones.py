"""The time zones that Kubernetes knows. The source is in `data/time-zones.json`."""

from functools import cache

from gpucluster.catalog.data_files import read_data


@cache
def time_zones() -> frozenset[str]:
    """Return all names, such as `Europe/Berlin`, `UTC` and `US/Eastern`."""
    areas = read_data("time-zones.json")["areas"]
    return frozenset(f"{area}/{name}" if area else name for area, names in areas.items() for name in names)
