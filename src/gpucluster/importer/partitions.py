"""The partitions of a site as those of a spec."""

from collections.abc import Iterable, Iterator, Mapping

from gpucluster.importer import keys
from gpucluster.importer.effects import NO_CHANGE
from gpucluster.importer.extra import extra_of
from gpucluster.importer.hardware import cpus_of, number_of, threads_as_one
from gpucluster.importer.made import Reasons
from gpucluster.importer.memory import kept_memory, memory_of_threads, why_of_threads
from gpucluster.importer.pools import Group
from gpucluster.importer.site import Settings, Site
from gpucluster.importer.write_yaml import Value
from gpucluster.spec.fields import MAX_NODES

LONGEST_TIME_MIN = 365 * 1440
_LONGEST = f"Slurm ignores a default above MaxTime, and takes MaxTime: {NO_CHANGE}"
_ALL_CPUS = "not imported: with `exclusive` a job has all CPUs of its nodes, and `max_cpus_per_node` would let none start"
_MOST_TIER = MAX_NODES  # of a spec; Slurm takes 0 to 65533


def partitions_of(  # noqa: PLR0917 -- the site, and what its parts have become
    site: Site,
    renamed: Mapping[str, str],
    groups: Mapping[Group, list[str]],
    pools: Mapping[Group, str],
    named: Mapping[str, Value],
    reasons: Reasons,
) -> Iterator[dict[str, Value]]:
    chosen = _default(site, renamed)
    threads_of = {
        group: max(threads_as_one(site.nodes[node]) for node in members) for group, members in groups.items()
    }
    tiers = _tiers(site, renamed, reasons)
    cpus_have_place = _cpus_have_place(site, groups)
    for name, new in renamed.items():
        settings = site.partitions[name]
        of = [pools[group] for group in groups if name in group.partitions]
        if not of:
            continue
        made: dict[str, Value] = {"name": new, "pools": of}
        if name == chosen:
            made["default"] = True
        made |= _times(settings, new, reasons)
        if "topology" in settings and settings["topology"].value in named:
            made["topology"] = settings["topology"].value
        if tiers[name] > 1:
            made["tier"] = tiers[name]
        exclusive = _exclusive(site.cluster, settings)
        least = min(cpus_of(group.hardware) for group in groups if name in group.partitions)
        made |= _most_cpus(settings, new, least, reasons, exclusive=exclusive)
        only_gpus = all(group.hardware.gpu_count for group in groups if name in group.partitions)
        if cpus_have_place and only_gpus and "max_cpus_per_node" not in made:
            made["requires_gpus"] = False  # the plan would refuse jobs without GPUs; Slurm does not
        if exclusive:
            made["exclusive"] = True
        threads = max(threads_of[group] for group in groups if name in group.partitions)
        memory = memory_of_threads(settings, threads)
        reasons |= {("partition", new, key): why_of_threads(key, threads) for key in memory}
        yield {**made, **_with_extra({**kept_memory(site.cluster, settings), **settings, **memory})}


def _times(settings: Settings, name: str, reasons: Reasons) -> dict[str, Value]:
    """The longest and the default time; Slurm has the longest for a default above it."""
    made: dict[str, Value] = {}
    longest = _minutes(settings, "maxtime")
    if longest is not None and longest <= LONGEST_TIME_MIN:
        made["max_time"] = keys.duration(max(1, longest))
    usual = _minutes(settings, "defaulttime") if "defaulttime" in settings else longest
    if longest is not None and _is_above(settings, longest):
        reasons["partition", name, "defaulttime"] = _LONGEST
    usual = min(one for one in (usual, longest, LONGEST_TIME_MIN) if one is not None)
    return {**made, "default_time": keys.duration(max(1, usual))}


def _most_cpus(
    settings: Settings, name: str, least: int, reasons: Reasons, *, exclusive: bool
) -> dict[str, Value]:
    """The limit of CPUs on a node; `least` are those of the smallest node of the partition."""
    most = number_of(settings, "maxcpuspernode")
    if most is not None and exclusive:
        reasons["partition", name, "maxcpuspernode"] = _ALL_CPUS
    return {"max_cpus_per_node": most} if most is not None and 0 < most <= least and not exclusive else {}


def _cpus_have_place(site: Site, groups: Iterable[Group]) -> bool:
    """Whether the plan may find a better place for jobs without GPUs: nodes without them, or a limit of CPUs."""
    return any(not group.hardware.gpu_count for group in groups) or any(
        "maxcpuspernode" in settings for settings in site.partitions.values()
    )


def _tiers(site: Site, renamed: Mapping[str, str], reasons: Reasons) -> dict[str, int]:
    """The tier of each partition. Slurm only compares them, so 1, 2 and so on stand for tiers that a spec does not take."""
    written = {name: number_of(site.partitions[name], "prioritytier") for name in renamed}
    found = {name: 1 if tier is None else tier for name, tier in written.items()}
    if all(1 <= tier <= _MOST_TIER for tier in found.values()):
        return found
    order = sorted(set(found.values()))
    reasons |= {
        (
            "partition",
            new,
            "prioritytier",
        ): f"Slurm compares tiers, and their order is the same: {NO_CHANGE}"
        for name, new in renamed.items()
        if written[name] is not None or "prioritytier" not in site.partitions[name]
    }
    return {name: order.index(tier) + 1 for name, tier in found.items()}


def _exclusive(cluster: Settings, partition: Settings) -> bool:
    """Whether each job has its nodes alone: select/linear gives no job a part of a node."""
    linear = "selecttype" in cluster and cluster["selecttype"].value.lower() == "select/linear"
    return linear or (
        "oversubscribe" in partition and partition["oversubscribe"].value.upper() == "EXCLUSIVE"
    )


def _default(site: Site, renamed: Iterable[str]) -> str:
    """The default partition: slurmctld takes the last line with Default=YES (_build_single_partitionline_info)."""
    marked = [
        name
        for name in renamed
        if "default" in site.partitions[name] and site.partitions[name]["default"].value.lower() in keys.YES
    ]
    return marked[-1] if marked else ""


def _with_extra(line: Settings) -> dict[str, Value]:
    found: dict[str, Value] = {**extra_of("partition", [line])}
    tier = line.get("prioritytier")
    if tier is not None and tier.written == "Priority":
        found.setdefault("PriorityJobFactor", tier.value)
    return {"extra": found} if found else {}


def _is_above(settings: Settings, longest: int) -> bool:
    """Whether the default time is above the longest one, which a spec takes as it is."""
    try:
        usual = keys.minutes(settings["defaulttime"].value) if "defaulttime" in settings else 0
    except ValueError:
        return False
    return longest <= LONGEST_TIME_MIN and (usual is None or usual > longest)


def _minutes(settings: Settings, key: str) -> int | None:
    """A time limit of a partition; None for no limit."""
    try:
        return keys.minutes(settings[key].value) if key in settings else None
    except ValueError:
        return None
