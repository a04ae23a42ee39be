"""Limits that `extra` gives a partition, or the whole cluster: what its queued jobs ask for in vain. Pure.

`recorded` has those of the table of requests. Of the others `unrecorded` says what slurm.conf(5) says.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpucluster.gitops.lost_gres import Lost
from gpucluster.plan.model import Partition, SlurmPlan
from gpucluster.plan.model.accounting import NO_LIMITS
from gpucluster.text import listed


@dataclass(frozen=True, slots=True)
class _Limit:
    """A key of a partition's `extra`. `rule` and `who` follow from the old and the new value; an empty `rule`: it takes nothing."""

    key: str
    rule: Callable[[str, str], str]
    who: str


def recorded(name: str, old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    """Yield limits that are new or lower in the partition, with their rows."""
    was, now = ({key: limit(name, key, plan) for key in _RECORDED} for plan in (old, new))
    if _is_higher(was["MinNodes"], now["MinNodes"]):
        least = now["MinNodes"]
        jobs = f"that ask for fewer than {least} nodes, or name no number of them (also if their tasks fill {least}),"
        also = ("partition-min-nodes-task", "partition-min-nodes-tasks")
        yield Lost("partition-min-nodes", jobs, (name,), also=also)
    for key, row, what, read in (
        ("MaxNodes", "partition-max-nodes", "nodes", _digits),
        ("MaxMemPerNode", "partition-max-memory", "MiB of a node", _number),
    ):
        if _is_lower(read(was[key]), read(now[key])):
            yield Lost(row, f"that ask for more than {now[key]} {what}", (name,))
    if fewer := _fewer(was["AllowGroups"], now["AllowGroups"]):
        none = "not in" if len(fewer) == 1 else "in none of"
        yield Lost("partition-groups", f"of users who are {none} {_named('group', fewer)}", (name,))


def unrecorded(was: Partition, now: Partition, old: SlurmPlan, new: SlurmPlan) -> Iterator[str]:
    """Yield what the manual says of limits that are new or lower in the partition."""
    for one in _LIMITS:
        rule = one.rule(*(limit(now.name, one.key, plan) for plan in (old, new)))
        if rule and not (one.key in _DENY and getattr(now, _DENY[one.key])):
            yield f"{rule.format(now.name)}: what Slurm does to {one.who} is not recorded"
    most = now.max_cpus_per_node
    if _is_lower(was.max_cpus_per_node, most):
        rule = f"all jobs in {now.name} together get at most {most} CPUs of a node"
        yield f"{rule}: what Slurm does to {_MORE} is not recorded"
    if now.exclusive and not was.exclusive and _limits_tres(new):
        yield f"those in {now.name} count with all CPUs and GPUs of their nodes against limits of accounts and QOS"


def _limits_tres(plan: SlurmPlan) -> bool:
    """Whether an account or a QOS has a limit on CPUs or GPUs."""
    found = plan.slurm.accounting
    if found is None:
        return False
    limits = (one.limits for part in (found.accounts, found.qos) for one in part)
    return any(one != NO_LIMITS for one in limits) or any(one.gpu_hours_per_month for one in found.qos)


def limit(name: str, key: str, plan: SlurmPlan) -> str:
    """Return what holds in the partition. Slurm takes a limit of memory of the cluster where it has none of its own."""
    if key in _OF_MEMORY and all(setting(name, one, plan) in _NONE for one in _OF_MEMORY):
        return of_cluster(key, plan)
    return setting(name, key, plan)


def setting(name: str, key: str, plan: SlurmPlan) -> str:
    """Return what `extra` gives the partition; empty: nothing."""
    return _value("partition", name, key, plan)


def of_cluster(key: str, plan: SlurmPlan) -> str:
    """Return what `slurm.extra` gives the whole cluster; empty: nothing."""
    return _value("slurm.conf", "", key, plan)


def _value(kind: str, of: str, key: str, plan: SlurmPlan) -> str:
    of_it = (one for one in plan.slurm.settings if (one.kind, one.of) == (kind, of))
    return next((one.value for one in of_it if one.key.lower() == key.lower() and one.value), "")


def _digits(text: str) -> int | None:
    """Return a limit; None: there is none."""
    return int(text) if text.isdecimal() else None


def _number(text: str) -> int | None:
    """Return a limit of which 0 is Slurm's word for none, too."""
    return _digits(text) or None


def _is_higher(was: str, now: str) -> bool:
    return (_number(now) or 1) > (_number(was) or 1)


def _is_lower(was: int | None, now: int | None) -> bool:
    return now is not None and (was is None or now < was)


def _of_cpu(was: str, now: str) -> str:
    return (
        f"a job in {{}} gets at most {now} MiB for each CPU" if _is_lower(_number(was), _number(now)) else ""
    )


def _fewer(was: str, now: str) -> list[str]:
    """Return the groups whose users alone may use it, if others might before."""
    before, after = _names(was), _names(now)
    return after if after and (not before or not set(before) <= set(after)) else []


def _denied(what: str) -> Callable[[str, str], str]:
    def rule(was: str, now: str) -> str:
        more = [name for name in _names(now) if name not in _names(was)]
        return f"{_named(what, more)} may not use {{}}" if more else ""

    return rule


def _reservation(was: str, now: str) -> str:
    needed = now.upper() == "YES" != was.upper()
    return "a job in {} must name a reservation" if needed else ""


def _names(text: str) -> list[str]:
    return [] if text.upper() == "ALL" else [one.strip() for one in text.split(",") if one.strip()]


def _named(what: str, found: list[str]) -> str:
    plural = what if what == "QOS" or len(found) == 1 else f"{what}s"
    return f"the {plural} {listed(found)}"


_MORE = "queued ones that ask for more"
_NONE = ("", "0")
_OF_MEMORY = ("MaxMemPerNode", "MaxMemPerCPU")  # one of them holds
_RECORDED = ("MinNodes", "MaxNodes", "MaxMemPerNode", "AllowGroups")
_LIMITS = (
    _Limit("MaxMemPerCPU", _of_cpu, _MORE),
    _Limit("DenyAccounts", _denied("account"), "its queued jobs"),
    _Limit("DenyQos", _denied("QOS"), "its queued jobs"),
    _Limit("ReqResv", _reservation, "queued ones without one"),
)
_DENY = {"DenyAccounts": "accounts", "DenyQos": "allow_qos"}  # fields that leave the key without effect
