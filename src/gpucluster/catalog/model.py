"""The catalog's values: plain, frozen, read from the files in `data/`."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The accelerators of one machine; all of them are alike."""

    model: str
    count: int
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine type as EC2 describes it."""

    name: str
    arch: str
    vcpus: int
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    memory_mib: int  # nameplate; the operating system sees less
    gpu: Gpu | None
    network_cards: int
    efa: int  # EFA interfaces at most, one a card; 0: it has none
    efa_cards: tuple[int, ...]  # the cards that take an EFA without an address (T29)
    card_interfaces: int  # the most on one card
    network_layers: int  # switches above it that EC2 tells, and EKS as labels of its node; 0: it tells none
    local_disks: int  # NVMe of the machine's own, empty at each boot
    local_disks_gb: int  # all of them together
    markets: tuple[str, ...]  # EC2's usage classes: on-demand, spot, capacity-block
    zones_selling: Mapping[
        str, int
    ]  # region -> zones that sell it; letters are each account's own, counts are not


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """One way to slice a GPU. All slices of a GPU together: at most 7 of compute and 8 of memory."""

    most: int  # of this profile alone, on one GPU
    compute: int  # sevenths of the GPU
    memory: int  # eighths of its memory


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmFacts:
    """What the parser of one Slurm version accepts."""

    version: str
    keys: Mapping[str, frozenset[str]]  # file or line kind (`node`, `partition`) -> keys, in lower case
    tokens: Mapping[str, frozenset[str]]  # key -> words of its comma list
    plugins: frozenset[str]  # `task/cgroup`


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Hourly on-demand prices of one region. A machine without a row has no price: it is unknown, never nothing."""

    source: str
    date: str  # of the source, ISO
    licence: str
    currency: str
    region: str
    rows: Mapping[str, Decimal]  # machine -> an hour
    services: Mapping[str, Decimal]  # `nat-hour`, `gp3-gib-month` -> USD; the key names the unit
    services_source: str
    services_date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Everything that the spec and the plan look up."""

    source: str
    date: str
    machines: Mapping[str, Machine]
    refused: Mapping[str, str]  # beginning of a type's name -> why it is not offered
    regions: Mapping[str, tuple[str, ...]]  # region -> every zone name that some account has there
    slurm_supported: tuple[str, ...]
    slurm_known: tuple[str, ...]  # versions whose facts are recorded, supported or not yet
    kubernetes_known: tuple[str, ...]  # "1.34", oldest first
    mig: Mapping[
        tuple[str, int], Mapping[str, MigProfile]
    ]  # GPU model and its memory in MiB -> profiles by name
    prices: Prices


@dataclass(frozen=True, slots=True, kw_only=True)
class Crd:
    """One version of a custom resource: where its schema is from, and in which file it lies."""

    api_version: str
    kind: str
    cluster_scoped: bool
    instead: str | None  # deprecated though served: the apiVersion to use
    file: str
    project: str
    tag: str
    licence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesFacts:
    """Which Kubernetes version has which built-in resource, and which of them are on."""

    source: str
    date: str
    versions: tuple[str, ...]  # "1.34", oldest first
    served: Mapping[tuple[str, str], tuple[str, ...]]  # apiVersion and kind -> versions
    off_by_default: frozenset[str]  # apiVersions; on EKS they cannot be turned on
    deprecated: Mapping[tuple[str, str], str]  # served still -> since when, and what instead
    cluster_scoped: frozenset[str]  # kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A Helm chart that manifests of ours take for granted."""

    version: str
    namespace: str
