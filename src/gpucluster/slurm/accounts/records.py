"""Records of slurmdbd that gpucluster sets: QOS, accounts, and the place of users in accounts.

gpucluster marks what it makes in Slurm's own fields: the description of a QOS, the organization of an account, the comment
of a user in an account. slurmdbd writes these fields in lower case (24.11.5).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

GPU, CPU = "gres/gpu", "cpu"
MARK = "gpucluster"
NO_DECAY = "NO_DECAY"

Tres = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class QosRecord:
    """A QOS. Only GPUs and CPUs of the limits are read."""

    name: str
    description: str = ""
    priority: int = 0
    preempts: frozenset[str] = frozenset()
    no_decay: bool = False
    group: Tres = field(default_factory=dict[str, int])  # GrpTRES
    group_minutes: Tres = field(default_factory=dict[str, int])  # GrpTRESMins
    per_user: Tres = field(default_factory=dict[str, int])  # MaxTRESPerUser


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRecord:
    """An account in the tree of this cluster. `closed`: no job can be submitted (GrpSubmitJobs=0)."""

    name: str
    parent: str
    organization: str = ""
    share: int = 1
    qos: frozenset[str] = frozenset()
    default_qos: str = ""
    group: Tres = field(default_factory=dict[str, int])
    closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A user in an account of this cluster. `qos` and `default_qos` are those of the account, unless somebody sets others.

    `partition`: the place counts only in this partition.
    """

    account: str
    user: str
    partition: str = ""
    comment: str = ""
    share: int = 1
    qos: frozenset[str] = frozenset()
    default_qos: str = ""
    group: Tres = field(default_factory=dict[str, int])
    closed: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """The account and the user."""
        return self.account, self.user


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLimit:
    """A limit or another setting that gpucluster never sets. `kind`: qos, account or user; `name`: `ACCOUNT/USER/PARTITION` of a place.

    `undo`: the word of sacctmgr that sets it as it is in a new record; empty: -1 clears it.
    """

    kind: str
    name: str
    limit: str
    value: str
    undo: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """All of a cluster, by name. `default_accounts`: the default account of each user.

    `in_partitions`: places for one partition. `admins`: the level of users who have one. `coordinators`: account and user.
    `other_limits` are what gpucluster does not set.
    """

    qos: Mapping[str, QosRecord] = field(default_factory=dict[str, QosRecord])
    accounts: Mapping[str, AccountRecord] = field(default_factory=dict[str, AccountRecord])
    members: Mapping[tuple[str, str], Member] = field(default_factory=dict[tuple[str, str], Member])
    default_accounts: Mapping[str, str] = field(default_factory=dict[str, str])
    in_partitions: tuple[Member, ...] = ()
    admins: Mapping[str, str] = field(default_factory=dict[str, str])
    coordinators: tuple[tuple[str, str], ...] = ()
    other_limits: tuple[OtherLimit, ...] = ()


def mark(cluster: str, month: str = "") -> str:
    """`gpucluster research`, and of a QOS with a monthly limit the month that it counts: `gpucluster research 2026-11`."""
    return " ".join((MARK, cluster, *([month] if month else [])))


def is_ours(text: str, cluster: str) -> bool:
    """Whether a record carries the mark of this cluster."""
    return text.split()[:2] == [MARK, cluster]


def other_cluster(text: str, cluster: str) -> str:
    """Return another cluster of gpucluster that has marked a record; empty if none has."""
    words = text.split()
    return words[1] if len(words) > 1 and words[0] == MARK and words[1] != cluster else ""
