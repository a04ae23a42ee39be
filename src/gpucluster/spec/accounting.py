"""Slurm's accounting: the database, the QOS, the accounts with their users and limits, and preemption."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.plan.model.values import NORMAL_QOS, ROOT_ACCOUNT
from gpucluster.spec.aws_fields import SecretArn, word_of
from gpucluster.spec.fields import (
    DURATION_SCHEMA,
    MAX_SLURM_NAME,
    AbsolutePath,
    Text,
    UpdateClass,
    duration,
    matching,
    refuse,
    spec_field,
)
from gpucluster.spec.host_fields import Port, UserName, number
from gpucluster.spec.part import Part
from gpucluster.text import Form

DATABASES = ("local",)
PREEMPTED_BY = ("qos", "partition")
PREEMPT_MODES = ("requeue", "cancel")
MOST_SHARE = 1_000_000
MOST_PRIORITY = 1_000_000
MOST_GPUS = 1_000_000
MOST_CPUS = 100_000_000
MOST_HOURS = 1_000_000_000  # Slurm counts minutes in 64 bits

_DNS_NAME = Form(
    r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?){0,8}"
)


_REST = rf"(?:[a-z0-9._-]{{0,{MAX_SLURM_NAME - 2}}}[a-z0-9])?"
_ACCOUNT, _QOS = Form(f"[a-z0-9]{_REST}"), Form(f"[a-z]{_REST}")
_LETTERS = f"a-z, 0-9, '.', '_' and '-', at most {MAX_SLURM_NAME} characters, ending with a letter or digit, beginning with a letter"
_account_form = matching(_ACCOUNT, "bad-name", f"the name of an account: {_LETTERS} or digit")
parse_qos = matching(_QOS, "bad-name", f"the name of a QOS: {_LETTERS}")


def parse_account(value: object) -> str:
    """Parse the name of an account: Slurm's own top account has the name `root`."""
    if value == ROOT_ACCOUNT:
        raise refuse(
            "reserved-name", "'root' is Slurm's own account at the top of the tree; take another name"
        )
    return _account_form(value)


def _whole(least: int, most: int) -> tuple[BeforeValidator, WithJsonSchema]:
    schema = {"type": "integer", "minimum": least, "maximum": most}
    return BeforeValidator(number(least, most)), WithJsonSchema(schema)


DatabaseWord = Annotated[
    str,
    BeforeValidator(word_of(DATABASES, "bad-database", "a database")),
    WithJsonSchema({"enum": list(DATABASES)}),
]
DatabaseHost = Annotated[
    str,
    BeforeValidator(matching(_DNS_NAME, "bad-host", "a DNS name or an IPv4 address such as db.example.org")),
    WithJsonSchema({"type": "string", "pattern": f"^{_DNS_NAME.pattern}$", "examples": ["db.example.org"]}),
]
PreemptedBy = Annotated[
    str,
    BeforeValidator(word_of(PREEMPTED_BY, "bad-preemption", "what decides who preempts")),
    WithJsonSchema({"enum": list(PREEMPTED_BY)}),
]
PreemptMode = Annotated[
    str,
    BeforeValidator(word_of(PREEMPT_MODES, "bad-preemption", "what happens to a preempted job")),
    WithJsonSchema({"enum": list(PREEMPT_MODES)}),
]
AccountName = Annotated[
    str,
    BeforeValidator(parse_account),
    WithJsonSchema({"type": "string", "pattern": f"^{_ACCOUNT.pattern}$", "not": {"const": ROOT_ACCOUNT}}),
]
Exempt = Annotated[int, BeforeValidator(duration(1, 30 * 86400)), WithJsonSchema(DURATION_SCHEMA)]
Keep = Annotated[int, BeforeValidator(duration(30 * 86400, 3650 * 86400)), WithJsonSchema(DURATION_SCHEMA)]
Share = Annotated[int, *_whole(1, MOST_SHARE)]
Priority = Annotated[int, *_whole(0, MOST_PRIORITY)]
Gpus = Annotated[int, *_whole(0, MOST_GPUS)]
Cpus = Annotated[int, *_whole(0, MOST_CPUS)]
Hours = Annotated[int, *_whole(1, MOST_HOURS)]
LicenseCount = Annotated[int, *_whole(1, 1_000_000)]


QosName = Annotated[
    str,
    BeforeValidator(parse_qos),
    WithJsonSchema({"type": "string", "pattern": f"^{_QOS.pattern}$"}),
]


class Accounting(Part):
    """Records of all jobs in a database, with which fair-share, QOS and limits work."""

    database: DatabaseWord | None = spec_field(
        UpdateClass.RESTART,
        "`local`: MariaDB and slurmdbd on the head. The head makes the database and its password.",
        default=None,
    )
    host: DatabaseHost | None = spec_field(
        UpdateClass.RESTART, "Host of an existing MySQL or MariaDB, instead of `database`.", default=None
    )
    port: Port | None = spec_field(UpdateClass.RESTART, "Port of the existing database.", default=None)
    secret: SecretArn | None = spec_field(
        UpdateClass.RESTART,
        "ARN of the secret with `username` and `password` of the existing database, as JSON.",
        default=None,
    )
    ca: AbsolutePath | None = spec_field(
        UpdateClass.RESTART,
        "File on the head with the certificates that sign the existing database's. The default are the system's.",
        default=None,
    )
    keep: Keep | None = spec_field(
        UpdateClass.LIVE,
        "slurmdbd archives and deletes records of jobs that ended before this time.",
        default=None,
    )


class Preemption(Part):
    """A waiting job may take the nodes of running jobs."""

    by: PreemptedBy = spec_field(
        UpdateClass.RESTART, "`qos`: by `qos[].preempts`. `partition`: by `partitions[].tier`."
    )
    mode: PreemptMode = spec_field(
        UpdateClass.RESTART, "What happens to the preempted job: `requeue` or `cancel`.", default="requeue"
    )
    exempt: Exempt | None = spec_field(
        UpdateClass.LIVE, "A job is not preempted in this time after its start.", default=None
    )


class Limits(Part):
    """Limits on running jobs. A job above a limit waits."""

    gpus: Gpus | None = spec_field(UpdateClass.LIVE, "Most GPUs of all its running jobs.", default=None)
    gpus_per_user: Gpus | None = spec_field(
        UpdateClass.LIVE, "Most GPUs of the running jobs of each user.", default=None
    )
    cpus_per_user: Cpus | None = spec_field(
        UpdateClass.LIVE, "Most CPUs of the running jobs of each user.", default=None
    )
    gpu_hours_per_month: Hours | None = spec_field(
        UpdateClass.LIVE, "Most GPU-hours of a calendar month (UTC).", default=None
    )


class Qos(Part):
    """A quality of service: a priority, limits, and what it preempts."""

    name: QosName = spec_field(UpdateClass.LIVE, "Name of the QOS, for `sbatch --qos`.")
    priority: Priority = spec_field(
        UpdateClass.LIVE, "Priority; only its ratio to the highest one counts.", default=0
    )
    preempts: tuple[Text, ...] = spec_field(
        UpdateClass.LIVE,
        "QOS whose running jobs may be preempted by jobs of this one.",
        default=(),
        min_length=1,
    )
    limits: Limits | None = spec_field(UpdateClass.LIVE, "Limits on the jobs of this QOS.", default=None)


class Account(Part):
    """An account with its users, its share and its limits. Accounts form a tree."""

    name: AccountName = spec_field(UpdateClass.LIVE, "Name of the account, for `sbatch --account`.")
    parent: Text | None = spec_field(
        UpdateClass.LIVE, "The account above this one. Without it the account is at the top.", default=None
    )
    share: Share = spec_field(
        UpdateClass.LIVE,
        "Its part of the cluster, in proportion to the accounts with the same parent.",
        default=1,
    )
    qos: tuple[Text, ...] = spec_field(
        UpdateClass.LIVE,
        "QOS that its jobs may use; the first one is the default. Without it: those of the parent, or `normal`.",
        default=(),
        min_length=1,
    )
    users: tuple[UserName, ...] = spec_field(
        UpdateClass.LIVE,
        "Its users. The first account of a user is the user's default.",
        default=(),
        min_length=1,
    )
    limits: Limits | None = spec_field(UpdateClass.LIVE, "Limits on the jobs of this account.", default=None)


def qos_of(account: Account, accounts: Iterable[Account]) -> tuple[str, ...]:
    """Return the QOS of an account: its own, else those of the nearest account above that names some."""
    by_name = {one.name: one for one in accounts}
    at, seen = account, set[str]()
    while not at.qos and at.parent in by_name and at.name not in seen:
        seen.add(at.name)
        at = by_name[at.parent]
    return at.qos or (NORMAL_QOS,)
