"""The records that a plan wants. Pure."""

from gpucluster.plan.model import Account, Accounting, Limits, Qos
from gpucluster.slurm.accounts.records import CPU, GPU, AccountRecord, Member, QosRecord, Records, mark


def wanted(accounting: Accounting, cluster: str, month: str) -> Records:
    """Return the records. `month`: the current month (UTC) as `2026-11`."""
    members = [_member(account, user, cluster) for account in accounting.accounts for user in account.users]
    defaults = dict[str, str]()
    for one in members:
        defaults.setdefault(one.user, one.account)
    return Records(
        qos={one.name: _qos(one, cluster, month) for one in accounting.qos},
        accounts={one.name: _account(one, cluster) for one in accounting.accounts},
        members={one.key: one for one in members},
        default_accounts=defaults,
    )


def _qos(one: Qos, cluster: str, month: str) -> QosRecord:
    hours = one.gpu_hours_per_month
    return QosRecord(
        name=one.name,
        description=mark(cluster, "" if hours is None else month),
        priority=one.priority,
        preempts=frozenset(one.preempts),
        no_decay=hours is not None,
        group={} if one.limits.gpus is None else {GPU: one.limits.gpus},
        group_minutes={} if hours is None else {GPU: hours * 60},
        per_user=_per_user(one.limits),
    )


def _account(one: Account, cluster: str) -> AccountRecord:
    return AccountRecord(
        name=one.name,
        parent=one.parent,
        organization=mark(cluster),
        share=one.share,
        qos=frozenset(one.qos),
        default_qos=one.qos[0],
        group={} if one.limits.gpus is None else {GPU: one.limits.gpus},
    )


def _member(account: Account, user: str, cluster: str) -> Member:
    """A limit for each user of an account is a limit on the user's place in it: Slurm has no other."""
    return Member(account=account.name, user=user, comment=mark(cluster), group=_per_user(account.limits))


def _per_user(limits: Limits) -> dict[str, int]:
    found = {GPU: limits.gpus_per_user, CPU: limits.cpus_per_user}
    return {name: count for name, count in found.items() if count is not None}
