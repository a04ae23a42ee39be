"""The pools of a spec: nodes with the same hardware, partitions, features and `extra`, because a partition has whole pools."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from gpucluster.importer.extra import extra_of
from gpucluster.importer.hardware import Hardware, cpus_of, hardware_of, number_of
from gpucluster.importer.names import host_name, short_name, unused
from gpucluster.importer.site import Settings, Site
from gpucluster.importer.write_yaml import Value
from gpucluster.plan import defaults
from gpucluster.spec.fields import MAX_NAME, Feature

SLURMS_WEIGHT = 1  # of a node without the key: slurm.conf(5)
_OF_FEATURE: TypeAdapter[str] = TypeAdapter(Feature)


class Group(NamedTuple):
    """What the nodes of a pool have in common."""

    hardware: Hardware
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    extra: tuple[tuple[str, str], ...]


def groups_of(site: Site, renamed: Mapping[str, str]) -> dict[Group, list[str]]:
    """The nodes of each pool, in the order of the files."""
    memberships: dict[str, list[str]] = {}
    for name, partition in site.partitions.items():
        for node in site.members(partition):
            memberships.setdefault(node, []).append(name)
    groups: dict[Group, list[str]] = {}
    unset = {} if _keeps_order(site, renamed, memberships) else {"Weight": str(SLURMS_WEIGHT)}
    for node in renamed:
        settings = site.nodes[node]
        extra = tuple(sorted({**unset, **extra_of("node", [settings])}.items()))
        key = Group(hardware_of(settings), tuple(memberships[node]), _features(settings), extra)
        groups.setdefault(key, []).append(node)
    return groups


def _keeps_order(site: Site, nodes: Iterable[str], memberships: Mapping[str, list[str]]) -> bool:
    """Whether the nodes of each partition keep their order of preference if the plan gives a Weight to those without one."""
    weights: dict[str, set[tuple[int, int]]] = {}  # by partition: the site's and the plan's
    for node in nodes:
        one = site.nodes[node]
        both = (_weight(one, SLURMS_WEIGHT), _weight(one, _plans_weight(one)))
        for partition in memberships[node]:
            weights.setdefault(partition, set()).add(both)
    ordered = (pairwise(sorted(found)) for found in weights.values())
    return not any(one[0] == other[0] or one[1] >= other[1] for pairs in ordered for one, other in pairs)


def _weight(settings: Settings, unset: int) -> int:
    weight = number_of(settings, "weight")
    return unset if weight is None else weight


def _plans_weight(settings: Settings) -> int:
    return defaults.WEIGHTS[hardware_of(settings).gpu_count > 0, True]  # hosts are always on


def parts_of(group: Group) -> dict[str, Value]:
    """The fields of a pool that its nodes have in common."""
    sharing = dict([group.hardware.sharing] if group.hardware.sharing else [])
    parts = {"sharing": sharing, "features": list(group.features), "extra": dict(group.extra)}
    return {key: value for key, value in parts.items() if value}


def machine_names(groups: Iterable[Group]) -> dict[Hardware, str]:
    """A name for each kind of hardware: its GPUs, or its cores."""
    made: dict[Hardware, str] = {}
    alike: dict[Hardware, str] = {}  # how the GPUs are shared is of the pool
    for hardware, *_ in groups:
        if (same := alike.get(replace(hardware, sharing=None))) is not None:
            made[hardware] = same
        elif hardware not in made:
            cpus = cpus_of(hardware)
            gpus = short_name(hardware.gpu_model, "gpu")[:12].rstrip("-")
            base = f"{gpus}-x{hardware.gpu_count}" if hardware.gpu_count else f"cpu-{cpus}"
            made[hardware] = alike[replace(hardware, sharing=None)] = unused(base, set(made.values()))
    return made


def pool_names(groups: Mapping[Group, list[str]]) -> dict[Group, str]:
    """The letters that the names of its nodes begin with; a number for the second of a name."""
    made: dict[Group, str] = {}
    for group, members in groups.items():
        letters = re.match(r"[a-z]+(?:-[a-z]+)*", host_name(members[0]))
        base = "nodes" if letters is None else letters[0][: MAX_NAME - 4].rstrip("-")
        made[group] = unused(base, set(made.values()))
    return made


def strange_features(settings: Settings) -> str:
    strange = ", ".join(word for word in _words(settings) if not takes(_OF_FEATURE, word))
    return f"not imported: the feature {strange}, whose form a spec does not take" if strange else ""


def _features(settings: Settings) -> tuple[str, ...]:
    """The features that a spec takes, in their order."""
    return tuple(word for word in _words(settings) if takes(_OF_FEATURE, word))


def _words(settings: Settings) -> tuple[str, ...]:
    words = settings["features"].value.split(",") if "features" in settings else []
    return tuple(dict.fromkeys(word for one in words if (word := one.strip())))


def takes(form: TypeAdapter[str], word: str) -> bool:
    try:
        form.validate_python(word)
    except ValidationError:
        return False
    return True
