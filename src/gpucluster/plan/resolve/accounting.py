"""Accounting: the database, the QOS of accounts with a monthly limit, and the tree of accounts. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from gpucluster.plan import defaults, names
from gpucluster.plan.model import (
    Account,
    Accounting,
    ExternalDatabase,
    License,
    Limits,
    LocalDatabase,
    Preemption,
    Qos,
)
from gpucluster.plan.model.values import ROOT_ACCOUNT
from gpucluster.spec import ClusterSpec
from gpucluster.spec.accounting import Account as AccountSpec
from gpucluster.spec.accounting import Accounting as AccountingSpec
from gpucluster.spec.accounting import Limits as LimitsSpec
from gpucluster.spec.accounting import Preemption as PreemptionSpec
from gpucluster.spec.accounting import Qos as QosSpec
from gpucluster.spec.accounting import qos_of
from gpucluster.spec.part import require

LEAST_POOL_MIB, MOST_POOL_MIB = (
    2048,
    4096,
)  # of the database's cache; slurmdbd logs an error below 2 GiB (24.11.5)


def accounting(spec: ClusterSpec, head_mib: int) -> Accounting | None:
    """Return the database with all QOS and accounts; None if the spec has none. `head_mib`: memory of the head."""
    requested = require(spec.slurm).accounting
    if requested is None:
        return None
    accounts = tuple(_account(one, spec.accounts) for one in in_tree_order(spec.accounts))
    monthly = tuple(one for one in spec.accounts if _hours(one.limits) is not None)
    bases = {one.name: _base(one, spec.accounts) for one in monthly}
    own = {one.name: names.month_qos(one.name, bases[one.name]) for one in monthly}
    known = tuple(_qos(one) for one in spec.qos)
    made = tuple(_month_qos(one, own[one.name], bases[one.name], known) for one in monthly)
    return Accounting(
        database=_database(requested, head_mib),
        keep_s=requested.keep or int(defaults.KEEP_S.value),
        qos=(*(_preempting_made(one, bases, own) for one in known), *made),
        accounts=tuple(replace(one, qos=(own[one.name],)) if one.name in own else one for one in accounts),
    )


def preemption(requested: PreemptionSpec | None) -> Preemption | None:
    """Return who may preempt whom; None if nobody may."""
    if requested is None:
        return None
    return Preemption(by=requested.by, mode=requested.mode, exempt_s=requested.exempt or 0)


def licenses(spec: ClusterSpec) -> tuple[License, ...]:
    """Return the licences, by name."""
    found = require(spec.slurm).licenses
    return tuple(License(name=name, count=count) for name, count in sorted(found.items()))


def allowed_qos(spec: ClusterSpec, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """Return the QOS of a partition, with those that are made from them for accounts with a monthly limit."""
    monthly = (one for one in spec.accounts if _hours(one.limits) is not None)
    made = ((_base(one, spec.accounts), one.name) for one in monthly)
    return (*allowed, *(names.month_qos(name, base) for base, name in made if base in allowed))


def in_tree_order(accounts: Iterable[AccountSpec]) -> tuple[AccountSpec, ...]:
    """Return parents before their children, and siblings in the order of the spec."""
    waiting, found, above = list(accounts), list[AccountSpec](), {ROOT_ACCOUNT}
    while waiting:
        ready = [one for one in waiting if (one.parent or ROOT_ACCOUNT) in above]
        if not ready:
            raise ValueError(f"accounts without a way to the top: {', '.join(one.name for one in waiting)}")
        waiting = [one for one in waiting if (one.parent or ROOT_ACCOUNT) not in above]
        found += ready
        above.update(one.name for one in ready)
    return tuple(found)


def _database(requested: AccountingSpec, head_mib: int) -> LocalDatabase | ExternalDatabase:
    if requested.host is None:
        part = int(head_mib * defaults.BUFFER_POOL_PERCENT.value / 100)
        return LocalDatabase(buffer_pool_mib=min(max(part, LEAST_POOL_MIB), MOST_POOL_MIB))
    return ExternalDatabase(
        host=requested.host,
        port=requested.port or names.DATABASE_PORT,
        secret=require(requested.secret),
        ca=requested.ca or names.SYSTEM_CA,
    )


def _account(one: AccountSpec, accounts: tuple[AccountSpec, ...]) -> Account:
    return Account(
        name=one.name,
        parent=one.parent or ROOT_ACCOUNT,
        share=one.share,
        qos=qos_of(one, accounts),
        users=one.users,
        limits=_limits(one.limits),
    )


def _qos(one: QosSpec) -> Qos:
    return Qos(
        name=one.name,
        priority=one.priority,
        preempts=one.preempts,
        limits=_limits(one.limits),
        gpu_hours_per_month=_hours(one.limits),
    )


def _month_qos(one: AccountSpec, name: str, base: str, known: tuple[Qos, ...]) -> Qos:
    """The QOS of an account with a monthly limit: like its base, with the limit."""
    like = next((qos for qos in known if qos.name == base), Qos(name=base))
    return replace(like, name=name, gpu_hours_per_month=_hours(one.limits))


def _preempting_made(one: Qos, bases: dict[str, str], own: dict[str, str]) -> Qos:
    made = tuple(own[account] for account, base in bases.items() if base in one.preempts)
    return replace(one, preempts=(*one.preempts, *made))


def _base(one: AccountSpec, accounts: Iterable[AccountSpec]) -> str:
    return qos_of(one, accounts)[0]


def _limits(requested: LimitsSpec | None) -> Limits:
    if requested is None:
        return Limits()
    return Limits(
        gpus=requested.gpus, gpus_per_user=requested.gpus_per_user, cpus_per_user=requested.cpus_per_user
    )


def _hours(limits: LimitsSpec | None) -> int | None:
    return None if limits is None else limits.gpu_hours_per_month
