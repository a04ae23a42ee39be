"""Limits of a partition whose effect on queued jobs has no row in the recorded table: what slurm.conf(5) says of each. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpucluster.plan.model import Partition, SlurmPlan
from gpucluster.text import listed


@dataclass(frozen=True, slots=True)
class _Limit:
    """A key of a partition's `extra`. `rule` and `who` follow from the old and the new value; an empty `rule`: it takes nothing."""

    key: str
    rule: Callable[[str, str], str]
    who: str


def unrecorded(was: Partition, now: Partition, old: SlurmPlan, new: SlurmPlan) -> Iterator[str]:
    """Yield what the manual says of limits that are new or lower in the partition."""
    for one in _LIMITS:
        rule = one.rule(*(setting(now.name, one.key, plan) for plan in (old, new)))
        if rule and not (one.key in _DENY and getattr(now, _DENY[one.key])):
            yield f"{rule.format(now.name)}: what Slurm does to {one.who} is not recorded"
    most, before = now.max_cpus_per_node, was.max_cpus_per_node
    if most is not None and (before is None or most < before):
        rule = f"all jobs in {now.name} together get at most {most} CPUs of a node"
        yield f"{rule}: what Slurm does to {_MORE} is not recorded"


def setting(name: str, key: str, plan: SlurmPlan) -> str:
    """Return what `extra` gives the partition; empty: nothing."""
    of_it = (one for one in plan.slurm.settings if (one.kind, one.of) == ("partition", name))
    return next((one.value for one in of_it if one.key.lower() == key.lower() and one.value), "")


def _number(text: str) -> int | None:
    """Return a limit; None: there is none. 0 is Slurm's word for that, too."""
    return int(text) if text.isdecimal() and int(text) else None


def _least(was: str, now: str) -> str:
    before, after = _number(was) or 1, _number(now) or 1
    return f"a job in {{}} gets at least {after} nodes" if after > before else ""


def _most(of_what: str) -> Callable[[str, str], str]:
    def rule(was: str, now: str) -> str:
        before, after = _number(was), _number(now)
        lower = after is not None and (before is None or after < before)
        return f"a job in {{}} gets at most {after} MiB {of_what}" if lower else ""

    return rule


def _groups(was: str, now: str) -> str:
    before, after = _names(was), _names(now)
    fewer = after and (not before or not set(before) <= set(after))
    return f"only users of {_named('group', after)} may use {{}}" if fewer else ""


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
_LIMITS = (
    _Limit("MinNodes", _least, "queued ones that ask for fewer"),
    _Limit("MaxMemPerNode", _most("of a node"), _MORE),
    _Limit("MaxMemPerCPU", _most("for each CPU"), _MORE),
    _Limit("AllowGroups", _groups, "queued ones of others"),
    _Limit("DenyAccounts", _denied("account"), "its queued jobs"),
    _Limit("DenyQos", _denied("QOS"), "its queued jobs"),
    _Limit("ReqResv", _reservation, "queued ones without one"),
)
_DENY = {"DenyAccounts": "accounts", "DenyQos": "allow_qos"}  # fields that leave the key without effect
