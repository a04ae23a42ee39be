"""Types of the catalog: immutable values from the files in `data/`."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The accelerators of one machine. All of them are equal."""

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
    memory_mib: int  # nominal size; the operating system reports less
    gpu: Gpu | None
    network_cards: int
    efa: int  # maximum number of EFA interfaces, one for each network card; 0: none
    efa_cards: tuple[int, ...]  # cards that accept an EFA without an IP address (T29)
    card_interfaces: int  # maximum on one card
    network_layers: (
        int  # levels of the network topology that EC2 reports and EKS sets as node labels; 0: none
    )
    local_disks: int  # local NVMe disks, empty at each boot
    local_disks_gb: int  # total of all local disks
    markets: tuple[str, ...]  # EC2's usage classes: on-demand, spot, capacity-block
    zones_selling: Mapping[
        str, int
    ]  # region -> zones that offer it; zone letters differ between accounts, the number of zones does not


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """One MIG profile. The sum of all slices of a GPU is at most 7 for compute and 8 for memory."""

    most: int  # slices of this profile alone, on one GPU
    compute: int  # sevenths of the GPU
    memory: int  # eighths of its memory


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmKey:
    """A key of one file or line kind: its type, and the versions that accept it."""

    name: str  # as the manual writes it
    type: str  # uint16, uint32, uint64, yes-no, text; line: it begins a line of its own
    known_in: tuple[str, ...]  # versions, oldest first
    defunct_in: tuple[str, ...]  # versions that only log an error for it


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmRelease:
    """A version of Slurm, and the month in which SchedMD's support ends: `2026-05`; None: not known.

    `least`: its first release that mends what `mends` names, the last published faults of security that the version mends at
    all. None, and an empty text: not looked up.
    """

    version: str
    end_of_support: str | None
    least: str | None
    mends: str


_OTHER_PACKAGES = ("auth/jwt",)  # Debian has it in a package of its own, so the list of plugins lacks it


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmFacts:
    """The configuration that the parser of one Slurm version accepts."""

    version: str
    keys: Mapping[str, frozenset[str]]  # file or line kind (`node`, `partition`) -> keys, in lower case
    tokens: Mapping[str, frozenset[str]]  # key -> words of its comma list
    plugins: frozenset[str]  # `task/cgroup`

    def unknown_words(self, key: str, value: str) -> list[str]:
        """Return the words of the comma list that are no words of the key. Slurm ignores case, and a sign before the word."""
        known = {word.lower() for word in self.tokens.get(key, ())}
        words = [word.partition("=")[0] for word in value.split(",")]
        return [word for word in words if known and word.lstrip("+-").lower() not in known]

    def unknown_plugins(self, value: str, kind: str = "") -> list[str]:
        """Return the plugins of the comma list that this version lacks. A value may leave out a given kind: MpiDefault=pmix.

        Without a kind only the words with the kind of a plugin are checked: `task/cgroup`.
        """
        kinds = {kind} if kind else {plugin.partition("/")[0] for plugin in self.plugins}
        words = [word.partition("=")[0] for word in value.split(",")]
        named = {word: word if "/" in word or not kind else f"{kind}/{word}" for word in words}
        return [
            word
            for word, plugin in named.items()
            if "/" in plugin
            and plugin.partition("/")[0] in kinds
            and plugin not in self.plugins
            and plugin not in _OTHER_PACKAGES
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Hourly on-demand prices of one region. A machine without a row has an unknown price, which is not zero."""

    source: str
    date: str  # of the source, ISO format
    licence: str
    currency: str
    region: str
    rows: Mapping[str, Decimal]  # machine -> price of an hour
    services: Mapping[str, Decimal]  # `nat-hour`, `gp3-gib-month` -> USD; the key names the unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """All catalog data for the spec and the plan."""

    source: str
    date: str
    machines: Mapping[str, Machine]
    refused: Mapping[str, str]  # family of machine types -> reason why it is not supported
    regions: Mapping[str, tuple[str, ...]]  # region -> all zone names that exist in at least one account
    slurm_supported: tuple[str, ...]
    slurm_releases: Mapping[str, SlurmRelease]  # all versions with known keys, oldest first
    slurm_default: str  # supported by us and by SchedMD
    slurm_date: str  # of the list of releases, ISO format
    kubernetes_known: tuple[str, ...]  # "1.34", oldest first
    mig: Mapping[
        tuple[str, int], Mapping[str, MigProfile]
    ]  # GPU model and its memory in MiB -> profiles by name
    prices: Prices

    @property
    def slurm_known(self) -> tuple[str, ...]:
        """The versions of Slurm with known keys, oldest first; some are not supported."""
        return tuple(self.slurm_releases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crd:
    """One version of a custom resource: the source and the file of its schema."""

    api_version: str
    kind: str
    cluster_scoped: bool
    instead: str | None  # deprecated but served: the apiVersion to use instead
    file: str
    project: str
    tag: str
    licence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesFacts:
    """The built-in resources of each Kubernetes version, and the default state of each."""

    source: str
    date: str
    versions: tuple[str, ...]  # "1.34", oldest first
    served: Mapping[tuple[str, str], tuple[str, ...]]  # apiVersion and kind -> versions
    off_by_default: frozenset[str]  # apiVersions; EKS cannot enable them
    deprecated: Mapping[tuple[str, str], str]  # deprecated but served -> since when, and the replacement
    cluster_scoped: frozenset[str]  # kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A Helm chart that our manifests require."""

    version: str
    namespace: str
    repository: str  # oci://..., or https://... with an index
    newest: str | None = None  # version of Kubernetes that it takes; None: no limit is known
