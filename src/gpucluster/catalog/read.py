"""Read the data files, each at most once and only on request."""

from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import Any

from gpucluster.catalog.data_files import read_data
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
    SlurmKey,
    SlurmRelease,
)

SLURM_SUPPORTED = ("24.11", "26.05")


@cache
def load() -> Catalog:
    """Return the catalog of this release."""
    table, slurm = read_data("machines.json"), read_data("slurm-versions.json")
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
        slurm_releases={row["version"]: _slurm_release(row, slurm["least"]) for row in slurm["versions"]},
        slurm_default=slurm["default"],
        slurm_date=slurm["date"],
        kubernetes_known=kubernetes_facts().versions,
        mig=_mig(read_data("mig.json")["gpus"]),
        prices=prices(),
    )


def _slurm_release(row: dict[str, Any], of_least: dict[str, tuple[str, str]]) -> SlurmRelease:
    least, mends = of_least.get(row["version"], (None, ""))
    return SlurmRelease(**row, least=least, mends=mends)


@cache
def slurm_facts(version: str) -> SlurmFacts:
    """Return the options of `version`; KeyError for an unsupported version."""
    if version not in SLURM_SUPPORTED:
        raise KeyError(version)
    table = read_data(f"slurm-{version}.json")
    return SlurmFacts(
        version=table["version"],
        keys={
            kind: frozenset(low for low, key in keys.items() if version in key.known_in)
            for kind, keys in slurm_keys().items()
        },
        tokens={key: frozenset(words) for key, words in table["tokens"].items()},
        plugins=frozenset(table["plugins"]),
    )


@cache
def slurm_keys() -> Mapping[str, Mapping[str, SlurmKey]]:
    """Return the keys of all known versions: file or line kind -> key in lower case."""
    versions = [row["version"] for row in read_data("slurm-versions.json")["versions"]]

    def span(row: dict[str, Any], state: str) -> tuple[str, ...]:
        if state not in row:
            return ()
        first, last = row[state]
        return tuple(v for v in versions if first <= v and (last is None or v <= last))

    return {
        kind: {
            name.lower(): SlurmKey(
                name=name, type=row["type"], known_in=span(row, "ok"), defunct_in=span(row, "defunct")
            )
            for name, row in keys.items()
        }
        for kind, keys in read_data("slurm-keys.json")["keys"].items()
    }


@cache
def slurm_key_names(kind: str) -> dict[str, str]:
    """Return the keys of a file or a kind of line in every known version: lower case -> as the manual page writes it."""
    return {low: key.name for low, key in slurm_keys().get(kind, {}).items()}


@cache
def slurm_key_versions(kind: str) -> dict[str, tuple[str, ...]]:
    """Return the versions that know each key of a kind, oldest first. The keys are in lower case."""
    return {low: key.known_in for low, key in slurm_keys().get(kind, {}).items()}


@cache
def prices() -> Prices:
    """Return the only price list of this release. Other regions have no prices, because a factor would be a guess."""
    table = read_data("prices-us-east-1.json")
    return Prices(
        source=table["source"],
        date=table["date"],
        licence=table["licence"],
        currency=table["currency"],
        region=table["region"],
        rows={machine: Decimal(hour) for machine, hour in table["rows"].items()},
        services={what: Decimal(price) for what, price in table["services"]["rows"].items()},
    )


@cache
def crd_schemas() -> Mapping[tuple[str, str], Crd]:
    """Return the known custom resources by apiVersion and kind. `crd_schema` reads the schema."""
    rows = (Crd(**row) for row in read_data("crds/index.json")["resources"])
    return {(row.api_version, row.kind): row for row in rows}


@cache
def crd_schema(api_version: str, kind: str) -> Mapping[str, Any]:
    """Return the openAPIV3Schema from the project's release; KeyError for an unknown resource."""
    return read_data(f"crds/{crd_schemas()[api_version, kind].file}")


@cache
def kubernetes_facts() -> KubernetesFacts:
    """Return the built-in resources of each supported Kubernetes version."""
    table = read_data("kubernetes-versions.json")
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
    """Return the rows by name, sorted."""
    rows = read_data("kubernetes-charts.json")["charts"]
    return {name: Chart(**row) for name, row in sorted(rows.items())}


@cache
def kubernetes_node_image(version: str) -> str | None:
    """Return the release of EKS's AL2023 images for a Kubernetes version; None if the data has none."""
    table = read_data("kubernetes-node-images.json")
    return table["release"] if version in table["versions"] else None


@cache
def eks_standard_until(version: str) -> str | None:
    """Return the day on which EKS's standard support ends, as 2026-12-02; None if the data has none."""
    return read_data("eks-versions.json")["standard_until"].get(version)


@cache
def kubernetes_node_release(version: str, image: str) -> str | None:
    """Return the release of a node group for an image such as `v20260903`; None if the data has none."""
    return read_data("kubernetes-node-images.json")["releases"].get(image, {}).get(version)


@cache
def eks_addon_versions(version: str) -> Mapping[str, str]:
    """Return the pinned versions of EKS's add-ons for a Kubernetes version; empty if the data has none."""
    rows = read_data("eks-addons.json")["versions"].get(version, {})
    return {name: pin for name, (pin, _) in rows.items()}


@cache
def eks_addon_controllers(addon: str) -> tuple[tuple[str, str], ...]:
    """Return kind and name of what an add-on of EKS runs in `kube-system`; empty if the data has none."""
    rows = read_data("eks-addons.json")["controllers"].get(addon, {})
    return tuple((kind, name) for kind, names in rows.items() for name in names)


@cache
def eks_addon_gpu_daemon_sets(addon: str) -> tuple[str, ...]:
    """Return the DaemonSets that an add-on of EKS runs on nodes with GPUs alone."""
    return tuple(read_data("eks-addons.json")["on_gpus"].get(addon, ()))


def _pair(name: str) -> tuple[str, str]:
    api_version, _, kind = name.partition(" ")
    return api_version, kind


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
