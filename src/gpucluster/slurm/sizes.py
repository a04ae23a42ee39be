"""What the keys of `extra` leave of a node for jobs. Standard library only. Pure.

slurmctld gives jobs no core of CoreSpecCount and CpuSpecList, and no memory of MemSpecLimit (slurm.conf(5)).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MOST = 2**32 - 1  # of a number in slurm.conf; INFINITE and UNLIMITED
_UNLIMITED = ("infinite", "unlimited")


@dataclass(frozen=True, slots=True)
class Reserved:
    """What a node keeps for the system."""

    cpus: int  # of whole cores
    memory_mib: int


def reserved(extra: Mapping[str, str], threads_per_core: int) -> Reserved:
    """Return what these keys of a NodeName line reserve. A value that is none, which a rule reports, reserves nothing."""
    given = lowered(extra)
    cores = amount(given.get("corespeccount", ""), 0)
    if "cpuspeclist" in given:
        cores = len({cpu // threads_per_core for cpu in cpu_ids(given["cpuspeclist"])})
    return Reserved(cores * threads_per_core, amount(given.get("memspeclimit", ""), 0))


def memory_limits(of_cluster: Mapping[str, str], of_partition: Mapping[str, str]) -> tuple[int, int]:
    """Return the most memory of a job on a node, and of each of its CPUs, in MiB; MOST: no limit. A partition has one of the two."""
    own = lowered(of_partition)
    given = own if {"maxmempernode", "maxmempercpu"} & own.keys() else lowered(of_cluster)
    return amount(given.get("maxmempernode", ""), 0) or MOST, amount(given.get("maxmempercpu", ""), 0) or MOST


def lowered(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the keys in lower case, as Slurm reads them."""
    return {key.lower(): value for key, value in extra.items()}


def amount(value: str, otherwise: int) -> int:
    """Return the number of a value; INFINITE is the largest. `otherwise` for an empty value and for one that is none."""
    if value.lower() in _UNLIMITED:
        return MOST
    digits, kilo = (value[:-1], 1024) if value[-1:] in ("k", "K") else (value, 1)
    return int(digits) * kilo if digits.isdecimal() else otherwise


def cpu_ids(value: str) -> Iterator[int]:
    """Yield the ids of `0-3,8`. Parts that are none are left out."""
    for part in value.split(","):
        found = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part.strip())
        if found:
            yield from range(int(found[1]), int(found[2] or found[1]) + 1)
