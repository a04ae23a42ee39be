"""What a new job gets that names neither its account nor its QOS: the first ones of the spec. Pure."""

from collections.abc import Iterator

from gpucluster.gitops.model import Clause
from gpucluster.plan import names
from gpucluster.plan.model import Account, SlurmPlan


def clauses(old: SlurmPlan, new: SlurmPlan) -> Iterator[Clause]:
    """Yield each default that changes, also by another order alone. Jobs that are queued keep what they have."""
    before, after = _accounts(old), _accounts(new)
    for name, one in after.items():
        was, now = (_qos(account) for account in (before.get(name), one))
        if was and now and was != now:
            yield _new(f"of the account {name} without --qos get the QOS {now} instead of {was}")
    of_user, mine = _first(before), _first(after)
    for user, account in mine.items():
        if of_user.get(user, account) != account:
            yield _new(f"of {user} without --account are of the account {account} instead of {of_user[user]}")


def _new(what: str) -> Clause:
    return Clause(subject="new", text=f"after the change, new ones {what}", rows=())


def _qos(account: Account | None) -> str:
    """Return the default QOS; empty without one, or if it is that of the account's GPU hours, which has no other beside it."""
    first = "" if account is None else next(iter(account.qos), "")
    return "" if account is not None and first.startswith(names.month_qos(account.name, "")) else first


def _accounts(plan: SlurmPlan) -> dict[str, Account]:
    accounting = plan.slurm.accounting
    return {} if accounting is None else {one.name: one for one in accounting.accounts}


def _first(accounts: dict[str, Account]) -> dict[str, str]:
    """Return the first account of each user: it is the default."""
    found: dict[str, str] = {}
    for one in accounts.values():
        for user in one.users:
            found.setdefault(user, one.name)
    return found
