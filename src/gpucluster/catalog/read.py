"""Read the data files, each at most once and only when asked."""

import json
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from gpucluster.catalog.model import Catalog, Gpu, Machine, Prices, SlurmFacts

_DATA = Path(__file__).parent / "data"
SLURM_SUPPORTED = ("24.11",)


@cache
def load() -> Catalog:
    """The catalog of this release."""
    table = _read("machines.json")
    return Catalog(
        source=table["source"],
        date=table["date"],
        machines={name: _machine(name, row) for name, row in table["machines"].items()},
        regions={
            region: tuple(f"{region}{letter}" for letter in letters)
            for region, letters in table["regions"].items()
        },
        slurm_supported=SLURM_SUPPORTED,
        slurm_known=tuple(_read("slurm-versions.json")["versions"]),
    )


@cache
def slurm_facts(version: str) -> SlurmFacts:
    """What `version` accepts; a KeyError for a version that is not supported."""
    if version not in SLURM_SUPPORTED:
        raise KeyError(version)
    table = _read(f"slurm-{version}.json")
    return SlurmFacts(
        version=table["version"],
        keys={kind: frozenset(key.lower() for key in keys) for kind, keys in table["keys"].items()},
        tokens={key: frozenset(words) for key, words in table["tokens"].items()},
        plugins=frozenset(table["plugins"]),
    )


@cache
def prices() -> Prices:
    """The one price list that ships; of another region nothing is known (a factor between regions would be a guess)."""
    table = _read("prices-us-east-1.json")
    return Prices(
        source=table["source"],
        date=table["date"],
        licence=table["licence"],
        currency=table["currency"],
        region=table["region"],
        rows={machine: Decimal(hour) for machine, hour in table["rows"].items()},
    )


def _read(name: str) -> Any:
    return json.loads((_DATA / name).read_text(encoding="utf-8"))


def _machine(name: str, row: dict[str, Any]) -> Machine:
    gpu = row["gpu"]
    return Machine(
        name=name,
        arch=row["arch"],
        vcpus=row["vcpus"],
        sockets=row["sockets"],
        cores_per_socket=row["cores_per_socket"],
        threads_per_core=row["threads_per_core"],
        memory_mib=row["memory_mib"],
        gpu=None if gpu is None else Gpu(**gpu),
        markets=tuple(row["markets"]),
        zones_selling=row["zones_selling"],
    )
