"""Slurm's accounting: the database, QOS, accounts, limits, preemption and reservations. Standard library only, because machines import it."""

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDatabase:
    """MariaDB on the head. It knows slurmdbd by its uid over a Unix socket, so there is no password."""

    kind: ClassVar[Literal["local-database"]] = "local-database"

    buffer_pool_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalDatabase:
    """An existing MySQL or MariaDB, over TLS."""

    kind: ClassVar[Literal["external-database"]] = "external-database"

    host: str
    port: int
    secret: str  # ARN of a secret with `username` and `password`
    ca: str  # file on the head


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits; None is no limit. Of an account, `_per_user` is for each user of this account."""

    gpus: int | None = None
    gpus_per_user: int | None = None
    cpus_per_user: int | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Qos:
    """A QOS. `gpu_hours_per_month` counts without decay, and starts at zero each month (UTC)."""

    name: str
    priority: int = 0
    preempts: tuple[str, ...] = ()
    limits: Limits = NO_LIMITS
    gpu_hours_per_month: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account of the tree. Parents stand before their children."""

    name: str
    parent: str  # ROOT_ACCOUNT: at the top
    share: int
    qos: tuple[str, ...]  # the first one is the default
    users: tuple[str, ...] = ()
    limits: Limits = NO_LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """Where job records go, and what is enforced."""

    database: LocalDatabase | ExternalDatabase
    keep_s: int  # records of jobs that ended longer ago are archived and deleted
    qos: tuple[Qos, ...] = ()
    accounts: tuple[Account, ...] = ()

    @property
    def secret(self) -> str | None:
        """ARN of the secret of an existing database."""
        return self.database.secret if isinstance(self.database, ExternalDatabase) else None

    @property
    def enforced(self) -> bool:
        """Whether a job needs an account. Without accounts and QOS in the spec every user may run jobs."""
        return bool(self.qos or self.accounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """Who may take the nodes of running jobs."""

    by: str  # qos, partition
    mode: str  # requeue, cancel
    exempt_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class License:
    """Licences that jobs share."""

    name: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteReservation:
    """A reservation of the site in Slurm. Times are in seconds, `starts_at` of Unix time."""

    name: str  # as in the spec, without the prefix of Slurm's name
    nodes: str  # a hostlist
    starts_at: int
    duration_s: int
    every_s: int = 0  # 0: once; else a day or a week
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partition: str | None = None
    maint: bool = False
