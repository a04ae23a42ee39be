"""Who may use a partition, and who preempts whom: the fields of a spec for AllowAccounts, AllowQos, QOS and PreemptType.

A spec refuses the name of an account or QOS that it does not have. So a list is imported only if all of its names are; the
list of differences has the others.
"""

from collections.abc import Iterator, Mapping

from gpucluster.importer import keys
from gpucluster.importer.site import Settings, Site
from gpucluster.importer.to_spec import Made
from gpucluster.importer.write_yaml import Value
from gpucluster.plan.model.values import NORMAL_QOS
from gpucluster.text import format_duration

_LISTS = {"allowaccounts": ("accounts", "accounts"), "allowqos": ("allow_qos", "qos"), "qos": ("qos", "qos")}
_BY = {"preempt/qos": "qos", "preempt/partition_prio": "partition"}
_MODES = ("requeue", "cancel")
_MOST_EXEMPT_S = 30 * 86400


def with_restrictions(made: Made, site: Site) -> None:
    """Add the fields to the partitions and to `slurm`. The spec has its accounts and QOS already."""
    known = {part: _names(made.spec.get(part)) for part in ("accounts", "qos")}
    if made.spec.get("accounts"):  # the database has always this QOS
        known["qos"] |= {NORMAL_QOS}
    old = {new: name for name, new in made.partitions.items()}
    partitions = made.spec["partitions"]
    if isinstance(partitions, list):
        made.spec["partitions"] = [
            {**one, **dict(_of_partition(site.partitions[old[str(one["name"])]], known))}
            for one in partitions
            if isinstance(one, Mapping)
        ]
    slurm, preemption = made.spec["slurm"], _preemption(site.cluster)
    if isinstance(slurm, Mapping) and preemption:
        made.spec["slurm"] = {**slurm, "preemption": preemption}
    if preemption.get("by") != "qos":
        _without_preempts(made)


def without_restrictions(made: Made) -> None:
    """Take the restrictions out of the spec again, for example because its accounts are not imported."""
    fields = {field for field, _ in _LISTS.values()}
    partitions = made.spec["partitions"]
    if isinstance(partitions, list):
        made.spec["partitions"] = [
            {key: value for key, value in one.items() if key not in fields}
            for one in partitions
            if isinstance(one, Mapping)
        ]


def without_preemption(made: Made) -> bool:
    """Take `slurm.preemption` out of the spec again; return whether it was there."""
    slurm = made.spec["slurm"]
    if not isinstance(slurm, Mapping) or "preemption" not in slurm:
        return False
    made.spec["slurm"] = {key: value for key, value in slurm.items() if key != "preemption"}
    _without_preempts(made)
    return True


def _of_partition(settings: Settings, known: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, Value]]:
    for key, (field, part) in _LISTS.items():
        names = [name.strip().lower() for name in settings[key].value.split(",")] if key in settings else []
        if names and frozenset(names) <= known[part]:
            yield field, names[0] if key == "qos" else list(dict.fromkeys(names))


def _preemption(cluster: Settings) -> dict[str, Value]:
    """The mode is one word: with `GANG` or `SUSPEND` jobs share nodes in turn, which a spec does not have."""
    plugin, mode = (
        cluster[key].value.lower() if key in cluster else "" for key in ("preempttype", "preemptmode")
    )
    if plugin not in _BY or mode not in _MODES:
        return {}
    exempt = _seconds(cluster, "preemptexempttime")
    more: dict[str, Value] = (
        {"exempt": format_duration(exempt)} if exempt and exempt <= _MOST_EXEMPT_S else {}
    )
    return {"by": _BY[plugin], "mode": mode, **more}


def _seconds(settings: Settings, key: str) -> int | None:
    try:
        return keys.seconds(settings[key].value) if key in settings else None
    except ValueError:
        return None


def _without_preempts(made: Made) -> None:
    """A spec takes `preempts` only with preemption by QOS."""
    qos = made.spec.get("qos")
    if isinstance(qos, list):
        made.spec["qos"] = [
            {key: value for key, value in one.items() if key != "preempts"}
            for one in qos
            if isinstance(one, Mapping)
        ]


def _names(part: Value) -> frozenset[str]:
    rows = part if isinstance(part, list) else []
    return frozenset(str(one["name"]) for one in rows if isinstance(one, Mapping))
