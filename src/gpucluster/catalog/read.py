"""Read the data files, each at most once and only when asked."""

import json
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from gpucluster.catalog.model import (
    Catalog,
    Chart,
    Crd,
    Gpu,
    KubernetesFacts,
    Machine,
    MigProfile,
    Prices,
    SlurmFacts,
)

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
        refused=table["refused"],
        regions={
            region: tuple(f"{region}{letter}" for letter in letters)
            for region, letters in table["regions"].items()
        },
        slurm_supported=SLURM_SUPPORTED,
        slurm_known=tuple(_read("slurm-versions.json")["versions"]),
        kubernetes_known=kubernetes_facts().versions,
        mig=_mig(_read("mig.json")["gpus"]),
        prices=prices(),
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
        services={what: Decimal(price) for what, price in table["services"]["rows"].items()},
        services_source=table["services"]["source"],
        services_date=table["services"]["date"],
    )


@cache
def crd_schemas() -> Mapping[tuple[str, str], Crd]:
    """The custom resources that we know, by apiVersion and kind; `crd_schema` reads one's schema."""
    rows = (Crd(**row) for row in _read("crds/index.json")["resources"])
    return {(row.api_version, row.kind): row for row in rows}


@cache
def crd_schema(api_version: str, kind: str) -> Mapping[str, Any]:
    """The openAPIV3Schema of one of them, as its project releases it; a KeyError for one that we do not know."""
    return _read(f"crds/{crd_schemas()[api_version, kind].file}")


@cache
def kubernetes_facts() -> KubernetesFacts:
    """What each supported Kubernetes version serves by itself."""
    table = _read("kubernetes-versions.json")
    return KubernetesFacts(
        source=table["source"],
        date=table["date"],
        versions=tuple(table["versions"]),
        served={
            (api_version, kind): tuple(versions)
            for api_version, kinds in table["served"].items()
            for kind, versions in kinds.items()
        },
        off_by_default=frozenset(table["off_by_default"]),
        deprecated={_pair(name): since for name, since in table["deprecated"].items()},
        cluster_scoped=frozenset(table["cluster_scoped"]),
    )


@cache
def kubernetes_charts() -> dict[str, Chart]:
    """By name, in order."""
    rows = _read("kubernetes-charts.json")["charts"]
    return {name: Chart(**row) for name, row in sorted(rows.items())}


def _pair(name: str) -> tuple[str, str]:
    api_version, _, kind = name.partition(" ")
    return api_version, kind


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
        network_cards=row["network_cards"],
        efa=row["efa"],
        efa_cards=tuple(row["efa_cards"]),
        card_interfaces=row["card_interfaces"],
        network_layers=row["network_layers"],
        local_disks=row["local_disks"],
        local_disks_gb=row["local_disks_gb"],
        markets=tuple(row["markets"]),
        zones_selling=row["zones_selling"],
    )


def _mig(gpus: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, MigProfile]]:
    return {
        (gpu["model"], gpu["memory_mib"]): {
            name: MigProfile(most=most, compute=compute, memory=memory)
            for name, (most, compute, memory) in gpu["profiles"].items()
        }
        for gpu in gpus
    }
