"""Accounting, QOS, accounts, preemption, and what partitions say of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpucluster.catalog import Catalog
from gpucluster.plan import names
from gpucluster.plan.model.values import NORMAL_QOS
from gpucluster.spec.accounting import Limits, qos_of
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.model import ClusterSpec, Partition, Pool
from gpucluster.spec.part import AbsentError, require
from gpucluster.spec.pools import of_slurm
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules.findings import error, or_none, parsed, repeated, same_names, warning
from gpucluster.text import quoted

_EXTERNAL = ("port", "secret", "ca")
_OF_GPUS = ("gpus", "gpus_per_user", "gpu_hours_per_month")


def needed(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Shares, limits and QOS are records of a database."""
    for key in ("qos", "accounts"):
        if not parsed(lambda key=key: getattr(spec, key)):
            continue
        if spec.slurm is None:
            message = f"'{key}' needs a 'slurm' part, and the cluster has none"
            yield error(key, id="no-slurm", message=message)
        elif or_none(lambda: require(spec.slurm).accounting) is None and not _unread_accounting(spec):
            message = f"'{key}' needs a database: write `slurm: {{accounting: {{database: local}}}}`"
            yield error(key, id="no-accounting", message=message)


def database(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """The database is on the head, or an existing one with its secret."""
    part, at = require(require(spec.slurm).accounting), ("slurm", "accounting")
    if part.database is None and part.host is None:
        message = "'database' or 'host' is missing: `database: local`, or the host and the secret of an existing database"
        yield error(*at, id="missing-key", message=message)
    elif part.database is not None and part.host is not None:
        message = "the database is on the head (`database`) or elsewhere (`host`), not both"
        yield error(*at, "host", id="two-databases", message=message)
    elif part.host is not None and part.secret is None:
        message = "'secret' is missing: the ARN of the secret with `username` and `password` of the database"
        yield error(*at, id="missing-key", message=message)
    for key in _EXTERNAL:
        if part.host is None and getattr(part, key) is not None:
            message = f"'{key}' is for an existing database, and the spec names no `host`"
            yield error(*at, key, id="not-here", message=message)


def database_place(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """A second head cannot reach a database on the first; a host that exists has no secret of AWS."""
    part, at = require(require(spec.slurm).accounting), ("slurm", "accounting")
    if part.host is not None and spec.hosts is not None:
        message = "the secret of an existing database is in AWS Secrets Manager, which these hosts do not use; write `database: local`"
        yield error(*at, "host", id="not-here", message=message)
    if part.database is not None and spec.head is not None and spec.head.standby is not None:
        message = "with a standby the database is not on the head, which may be off: write `host` and `secret` of an existing database"
        yield error(*at, "database", id="standby-database", message=message)


def names_once(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    yield from same_names([lambda one=one: one.name for one in parsed(lambda: spec.qos)], "qos")  # type: ignore[attr-defined]
    yield from same_names([lambda one=one: one.name for one in parsed(lambda: spec.accounts)], "accounts")  # type: ignore[attr-defined]


def preemption(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Preemption needs somebody to preempt, and a job to run again."""
    part, at = require(require(spec.slurm).preemption), ("slurm", "preemption")
    preempting = [one.name for one in spec.qos if one.preempts]
    if part.by == "qos" and not preempting:
        message = "no QOS preempts another: write `qos: [{name: urgent, preempts: [normal]}]`"
        yield error(*at, "by", id="nothing-preempts", message=message)
    if part.by == "partition" and len({one.tier or 1 for one in spec.partitions}) < 2:
        message = "all partitions have the same tier: write `tier` in the partition whose jobs go first"
        yield error(*at, "by", id="nothing-preempts", message=message)
    if part.mode == "requeue" and require(spec.slurm).requeue is False:
        message = "'requeue: false' lets preempted jobs end without another run; write `mode: cancel`, or remove `slurm.requeue`"
        yield error(*at, "mode", id="preempt-requeue", message=message)


def cycles(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Two QOS that preempt each other would do so without end; an account below itself has no top."""
    below = {one.name: tuple(one.preempts) for one in spec.qos}
    for index, one in enumerate(spec.qos):
        if circle := _circle(one.name, below):
            message = f"{circle}: these QOS preempt each other without end"
            yield error("qos", index, "preempts", id="qos-cycle", message=message)
            break
    above = {one.name: (one.parent,) if one.parent else () for one in spec.accounts}
    for index, account in enumerate(spec.accounts):
        if circle := _circle(account.name, above):
            message = f"{circle}: no account of this circle is below the top"
            yield error("accounts", index, "parent", id="account-cycle", message=message)
            break


def users_without_account(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """With accounts, Slurm refuses the jobs of a user without one."""
    require(require(spec.slurm).accounting)
    if not spec.accounts:
        return
    placed = {user for account in spec.accounts for user in account.users}
    for index, user in enumerate(spec.users):
        if user.name not in placed:
            message = f"{quoted(user.name)} is in no account: Slurm refuses the user's jobs; add the user to `accounts[].users`"
            yield warning("users", index, id="user-without-account", message=message)


def qos(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """A QOS preempts others that are known, if preemption is by QOS."""
    one, at = spec.qos[index], ("qos", index)
    if one.preempts:
        yield from repeated(one.preempts, (*at, "preempts"), "the QOS")
        yield from _each_qos(one.preempts, spec, (*at, "preempts"))
        part = require(spec.slurm).preemption
        if part is None or part.by != "qos":
            message = "'preempts' counts only with `slurm: {preemption: {by: qos}}`"
            yield error(*at, "preempts", id="no-preemption", message=message)


def limits_of_qos(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    one, at = spec.qos[index], ("qos", index, "limits")
    yield from _limits(spec, require(one.limits), at, catalog)
    places = (p for p in spec.partitions if not p.allow_qos or one.name in p.allow_qos)
    yield from _of_slices(spec, require(one.limits), at, places, "allow_qos")


def limits_of_account(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    one, at = spec.accounts[index], ("accounts", index, "limits")
    yield from _limits(spec, require(one.limits), at, catalog)
    places = (p for p in spec.partitions if not p.accounts or one.name in p.accounts)
    yield from _of_slices(spec, require(one.limits), at, places, "accounts")


def account(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """An account is below a known one, and has known QOS."""
    one, at = spec.accounts[index], ("accounts", index)
    if one.parent is not None:
        yield from _one_account(one.parent, spec, (*at, "parent"))
    yield from repeated(one.qos, (*at, "qos"), "the QOS")
    yield from _each_qos(one.qos, spec, (*at, "qos"))


def users_of_account(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """The users of an account exist; a directory may have any."""
    one, at = spec.accounts[index], ("accounts", index, "users")
    yield from repeated(one.users, at, "the user")
    if spec.directory is None:
        known = [user.name for user in spec.users]
        for place, name in enumerate(one.users):
            if name not in known:
                message = f"{quoted(name)} is not one of `users`{_near(name, known)}"
                yield error(*at, place, id="unknown-user", message=message)


def month(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """GPU-hours of a month are counted by a QOS of the account, so its jobs can have no other."""
    one, at = spec.accounts[index], ("accounts", index)
    if require(one.limits).gpu_hours_per_month is None:
        return
    below = [other.name for other in spec.accounts if other.parent == one.name]
    if below:
        message = f"'gpu_hours_per_month' counts the jobs of this account only, and {below[0]} is below it: write it there"
        yield error(*at, "limits", "gpu_hours_per_month", id="month-limit", message=message)
    found = qos_of(one, spec.accounts)
    if len(found) != 1:
        message = f"'gpu_hours_per_month' needs exactly one QOS, and the account has {', '.join(found)}: Slurm counts the hours of each QOS apart"
        yield error(*at, "limits", "gpu_hours_per_month", id="month-limit", message=message)
        return
    name = next(iter(found))
    base = next((known for known in spec.qos if known.name == name), None)
    grouped = (
        base is not None
        and base.limits is not None
        and (base.limits.gpus is not None or base.limits.gpu_hours_per_month is not None)
    )
    if grouped:
        message = f"the QOS {name} limits the sum of all its jobs, and this account gets a QOS of its own like it: Slurm would count them apart"
        yield error(*at, "limits", "gpu_hours_per_month", id="month-limit", message=message)
    made = names.month_qos(one.name, name)
    if made in [known.name for known in spec.qos]:
        message = f"this account gets the QOS {made}, and a QOS of the spec has that name"
        yield error(*at, "limits", "gpu_hours_per_month", id="duplicate-name", message=message)


def partition(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """The QOS and accounts of a partition are known."""
    one, at = spec.partitions[index], ("partitions", index)
    if one.qos is not None:
        yield from _of_database(spec, (*at, "qos"))
        yield from _one_qos(one.qos, spec, (*at, "qos"))
    if one.allow_qos:
        yield from _of_database(spec, (*at, "allow_qos"))
        yield from repeated(one.allow_qos, (*at, "allow_qos"), "the QOS")
        yield from _each_qos(one.allow_qos, spec, (*at, "allow_qos"))
    if one.accounts:
        yield from _of_database(spec, (*at, "accounts"))
        yield from repeated(one.accounts, (*at, "accounts"), "the account")
        for place, name in enumerate(one.accounts):
            yield from _one_account(name, spec, (*at, "accounts", place))


def _limits(spec: ClusterSpec, limits: Limits, at: Path, catalog: Catalog) -> Iterator[Finding]:
    if all(getattr(limits, key) is None for key in Limits.model_fields):
        yield error(
            *at, id="no-limit", message=f"no limit is named; there are {', '.join(Limits.model_fields)}"
        )
    if any(_has_gpus(spec, pool, catalog) for pool in of_slurm(spec)):
        return
    for key in _OF_GPUS:
        if getattr(limits, key) is not None:
            yield error(*at, key, id="no-gpus", message=f"'{key}' limits GPUs, and no pool of Slurm has one")


def _of_slices(
    spec: ClusterSpec, limits: Limits, at: Path, places: Iterable[Partition], field: str
) -> Iterator[Finding]:
    """A MIG slice is one `gpu` to Slurm's limits, whatever its share of the GPU is."""
    sliced = {pool.name for pool in of_slurm(spec) if pool.sharing is not None and pool.sharing.mig}
    found = next((place.name for place in places if sliced & set(place.pools)), None)
    if found is None:
        return
    for key in _OF_GPUS:
        if getattr(limits, key) is not None:
            message = f"'{key}' counts each MIG slice of the partition {found} as a GPU: keep it out of that partition by `{field}`, or leave the limit out"
            yield error(*at, key, id="limit-of-slices", message=message)


def _has_gpus(spec: ClusterSpec, pool: Pool, catalog: Catalog) -> bool:
    if spec.hosts is not None:
        kind = spec.machines.get(pool.machine or "")
        return kind is None or kind.gpus is not None  # an unknown kind is reported elsewhere
    found = [catalog.machines.get(name) for source in pool.capacity for name in source.machines]
    return any(machine is None or machine.gpu is not None for machine in found)


def _of_database(spec: ClusterSpec, at: Path) -> Iterator[Finding]:
    if require(spec.slurm).accounting is None:
        message = f"'{at[-1]}' needs a database: write `slurm: {{accounting: {{database: local}}}}`"
        yield error(*at, id="no-accounting", message=message)


def _qos_names(spec: ClusterSpec) -> list[str]:
    """The QOS that a spec may name; slurmdbd itself makes `normal`."""
    return list(dict.fromkeys((*(one.name for one in spec.qos), NORMAL_QOS)))


def _each_qos(found: Iterable[str], spec: ClusterSpec, at: Path) -> Iterator[Finding]:
    for index, name in enumerate(found):
        yield from _one_qos(name, spec, (*at, index))


def _one_qos(name: str, spec: ClusterSpec, at: Path) -> Iterator[Finding]:
    known = _qos_names(spec)
    if name not in known:
        yield error(*at, id="unknown-qos", message=f"{quoted(name)} is not a QOS{_near(name, known)}")


def _one_account(name: str, spec: ClusterSpec, at: Path) -> Iterator[Finding]:
    known = [one.name for one in spec.accounts]
    if name not in known:
        message = f"{quoted(name)} is not an account{_near(name, known)}"
        yield error(*at, id="unknown-account", message=message)


def _near(name: str, known: Sequence[str]) -> str:
    return did_you_mean(name, known) or (f"; there are {', '.join(known)}" if known else "; there is none")


def _circle(start: str, next_of: Mapping[str, tuple[str, ...]]) -> str:
    """Return `a -> b -> a`, a way from a name to itself; empty if there is none."""
    ways: list[tuple[str, ...]] = [(start,)]
    seen = set[str]()
    while ways:
        way = ways.pop()
        for name in next_of.get(way[-1], ()):
            if name == start:
                return " -> ".join((*way, start))
            if name not in seen:
                seen.add(name)
                ways.append((*way, name))
    return ""


def _unread_accounting(spec: ClusterSpec) -> bool:
    """Whether the part is written and has an error of its own, which is already reported."""
    try:
        _ = require(spec.slurm).accounting
    except AbsentError:
        return True
    return False
