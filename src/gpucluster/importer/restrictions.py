"""Who may use a partition, and who preempts whom: the fields of a spec for AllowAccounts, AllowQos, QOS and PreemptType.

A spec refuses the name of an account or QOS that it does not have. With accounts in the spec such a name is that of nobody, and is
left out. What cannot be kept safely is not written: no preemption without its exemptions, and a partition without its rules is DOWN.
"""

from collections.abc import Callable, Iterator, Mapping

from gpucluster.importer import keys
from gpucluster.importer.effects import DOWN, NO_CHANGE
from gpucluster.importer.hardware import number_of
from gpucluster.importer.made import Made, mapping
from gpucluster.importer.site import Settings, Site
from gpucluster.importer.write_yaml import Value
from gpucluster.plan.model.values import NORMAL_QOS
from gpucluster.slurm.states import PartitionState
from gpucluster.text import format_duration

ACCESS = (
    "allowaccounts", "denyaccounts", "allowqos", "denyqos", "allowgroups", "allocnodes", "rootonly", "reqresv",
)  # fmt: skip
EXEMPTIONS = ("preemptexempttime", "preemptparameters")  # of slurm.conf
_LISTS = {"allowaccounts": ("accounts", "accounts"), "allowqos": ("allow_qos", "qos"), "qos": ("qos", "qos")}
_DENIED = {"denyaccounts": "accounts", "denyqos": "qos"}
_NAMES = {"accounts": "account", "qos": "QOS"}
_OPEN = ("all", "no", "false", "0", "")  # a value that keeps nobody out
_BY = {"preempt/qos": "qos", "preempt/partition_prio": "partition"}
_MODES = ("requeue", "cancel")
_MOST_EXEMPT_S = 30 * 86400
_NO_DUMP = "not imported: it names accounts or QOS of the database; add the assoc.dump of `sacctmgr dump`"
_Part = dict[str, Value]


def with_restrictions(made: Made, site: Site) -> None:
    """Add the fields to the partitions and to `slurm`. The spec has its accounts and QOS already."""
    known = {part: frozenset(str(one["name"]) for one in made.rows(part)) for part in _NAMES}
    if made.spec.get("accounts"):  # the database has always this QOS
        known["qos"] |= {NORMAL_QOS}
    _each_partition(made, site, lambda one, settings: _restricted(made, one, settings, known))
    preemption = _preemption(made, site.cluster)
    if preemption:
        made.spec["slurm"] = {**made.slurm, "preemption": preemption}
    if preemption.get("by") != "qos":
        _without_preempts(made)


def without_restrictions(made: Made, site: Site) -> None:
    """Take the restrictions out of the spec again, for example because its accounts are not imported."""
    fields = {field for field, _ in _LISTS.values()}

    def less(one: _Part, settings: Settings) -> _Part:
        for key in (*_LISTS, *_DENIED):
            if key in settings:
                made.reasons["partition", str(one["name"]), key] = (
                    "not imported: the accounts of the dump are not"
                )
        return {key: value for key, value in one.items() if key not in fields}

    _each_partition(made, site, less)


def without_preemption(made: Made, why: str) -> bool:
    """Take `slurm.preemption` out of the spec again; return whether it was there."""
    if "preemption" not in made.slurm:
        return False
    made.spec["slurm"] = {key: value for key, value in made.slurm.items() if key != "preemption"}
    _no_preemption(made, why)
    _without_preempts(made)
    return True


def make_safe(made: Made, site: Site) -> bool:
    """Take out of the finished spec what has lost its exemptions or its rules; return whether it changed."""
    before = dict(made.spec)
    lost = tuple(dict.fromkeys(_lost_exemptions(made, site)))
    if lost:
        without_preemption(
            made,
            f"an exemption from it is lost ({', '.join(lost)}), so jobs that are safe on the site could be ended",
        )
    _each_partition(made, site, lambda one, settings: _closed(made, one, settings))
    return made.spec != before


def _each_partition(made: Made, site: Site, change: Callable[[_Part, Settings], _Part]) -> None:
    old = {new: name for name, new in made.partitions.items()}
    made.spec["partitions"] = [
        change(dict(one), site.partitions[old[str(one["name"])]]) for one in made.rows("partitions")
    ]


def _restricted(made: Made, one: _Part, settings: Settings, known: Mapping[str, frozenset[str]]) -> _Part:
    """The partition with its lists; the reason for each name that is left out."""
    name = str(one["name"])
    for key, (field, part) in _LISTS.items():
        if key not in settings or settings[key].value.lower() in _OPEN:
            continue
        kept, why = _kept(settings[key].value, part, known)
        if kept:
            one[field] = kept[0] if key == "qos" else kept
        if why:
            made.reasons["partition", name, key] = f"not imported: {why}" if known["accounts"] else _NO_DUMP
    for key, part in _DENIED.items():
        if key not in settings:
            continue
        kept, why = _kept(settings[key].value, part, known)
        _set_extra(one, keys.spelled("partition", key), ",".join(kept))
        if not known["accounts"]:
            made.reasons["partition", name, key] = _NO_DUMP
        elif lost := _left_out(made, settings[key].value, part, kept):
            made.reasons["partition", name, key] = (
                f"not imported: the {_NAMES[part]} {', '.join(lost)} of the dump is not"
            )
        elif why:
            made.reasons["partition", name, key] = f"{why}, so no job has it: {NO_CHANGE}"
    return one


def _left_out(made: Made, value: str, part: str, kept: list[str]) -> list[str]:
    """The names of the list that the site has, and the spec has not."""
    kind = _NAMES[part].lower()
    return [name for name in _listed(value) if name not in kept and (kind, name) in made.left_out_names]


def _listed(value: str) -> list[str]:
    return list(dict.fromkeys(name.strip().lower() for name in value.split(",")))


def _kept(value: str, part: str, known: Mapping[str, frozenset[str]]) -> tuple[list[str], str]:
    names = _listed(value)
    strange = [name for name in names if name not in known[part]]
    why = f"the spec has no {_NAMES[part]} {', '.join(strange)}" if strange else ""
    return [name for name in names if name in known[part]], why


def _set_extra(one: _Part, key: str, value: str) -> None:
    """Set a key of `extra`, or remove it."""
    extra = {name: old for name, old in mapping(one.pop("extra", None)).items() if name != key}
    if value:
        extra = dict(sorted({**extra, key: value}.items()))
    if extra:
        one["extra"] = extra


def _closed(made: Made, one: _Part, settings: Settings) -> _Part:
    """The partition as DOWN if a rule of who may use it is lost. A name that nobody has is no loss."""
    has = {key.lower() for key in mapping(one.get("extra"))}
    has |= {key for key, (field, _) in _LISTS.items() if field in one}
    name = str(one["name"])
    found = [
        key
        for key in (*ACCESS, "qos")
        if key in settings
        and settings[key].value.lower() not in _OPEN
        and key not in has
        and not made.reasons.get(("partition", name, key), "").endswith(NO_CHANGE)
    ]
    lost = found if found != ["qos"] else []  # its limits alone close no partition
    if lost:
        listed = " and ".join(settings[key].written for key in lost)
        _set_extra(one, "State", PartitionState.DOWN.value)
        made.made_up = (
            *made.made_up,
            f"the partition {name} is DOWN: its {listed} {'is' if len(lost) == 1 else 'are'} not imported, and without "
            f"{'it' if len(lost) == 1 else 'them'} everybody could use the partition. Write the rule, then remove `State`.",
        )
        made.reasons["partition", name, "state"] = (
            f"its jobs wait: {DOWN}, because its {listed} cannot be kept"
        )
        for key in lost:
            why = made.reasons.get(("partition", name, key), "not imported: `extra` takes no such value")
            made.reasons["partition", name, key] = f"{why}; {DOWN}"
    return one


def _lost_exemptions(made: Made, site: Site) -> Iterator[str]:
    """The keys that keep jobs of the site from being ended, and that the spec lacks."""
    yield from made.lost_exemptions
    preemption = mapping(made.slurm.get("preemption"))
    if not preemption:
        return
    has = {key.lower() for key in mapping(made.slurm.get("extra"))}
    has |= {"preemptexempttime"} if "exempt" in preemption else set()
    whole = {key for key in EXEMPTIONS if ("slurm.conf", "", key) in made.reasons}
    yield from (
        site.cluster[key].written
        for key in EXEMPTIONS
        if key in site.cluster and (key not in has or key in whole) and _seconds(site.cluster, key) != 0
    )
    if preemption.get("by") != "partition":
        return
    of = {str(one["name"]): one for one in made.rows("partitions")}
    for old, new in made.partitions.items():
        settings, one = site.partitions[old], of.get(new, {})
        mode = settings["preemptmode"].value.lower() if "preemptmode" in settings else preemption["mode"]
        same = mode == preemption["mode"]
        if "preemptmode" in settings:
            made.reasons["partition", new, "preemptmode"] = (
                f"it is the mode of the cluster: {NO_CHANGE}"
                if same
                else "not imported: a spec has one mode of preemption for all partitions"
            )
        if not same:
            yield "PreemptMode"
        if "gracetime" in settings and "GraceTime" not in mapping(one.get("extra")):
            yield "GraceTime"
        if "prioritytier" in settings and number_of(settings, "prioritytier") is None:
            yield "PriorityTier"


def _preemption(made: Made, cluster: Settings) -> dict[str, Value]:
    """The mode is one word: with `GANG` or `SUSPEND` jobs share nodes in turn, which a spec does not have."""
    plugin, mode = (
        cluster[key].value.lower() if key in cluster else "" for key in ("preempttype", "preemptmode")
    )
    if plugin not in _BY:
        _no_preemption(made, f"`slurm.preemption` is by {' or '.join(_BY.values())}")
        return {}
    if mode not in _MODES:
        _no_preemption(made, f"`slurm.preemption.mode` is {' or '.join(_MODES)}")
        return {}
    exempt, at = _seconds(cluster, "preemptexempttime"), ("slurm.conf", "", "preemptexempttime")
    more: dict[str, Value] = {}
    if exempt and exempt <= _MOST_EXEMPT_S:
        more["exempt"] = format_duration(exempt)
    elif exempt:
        made.reasons[at] = "not imported: `slurm.preemption.exempt` is at most 30 days"
    elif exempt is None and "preemptexempttime" in cluster:
        made.reasons[at] = "not imported: it is no time of Slurm's"
    return {"by": _BY[plugin], "mode": mode, **more}


def _no_preemption(made: Made, why: str) -> None:
    for key in ("preempttype", "preemptmode", "preemptexempttime"):
        made.reasons.setdefault(("slurm.conf", "", key), f"not imported: {why}")


def _seconds(settings: Settings, key: str) -> int | None:
    try:
        return keys.seconds(settings[key].value) if key in settings else None
    except ValueError:
        return None


def _without_preempts(made: Made) -> None:
    """A spec takes `preempts` only with preemption by QOS."""
    having = [str(one["name"]) for one in made.rows("qos") if "preempts" in one]
    if not having:
        return
    made.spec["qos"] = [
        {key: value for key, value in one.items() if key != "preempts"} for one in made.rows("qos")
    ]
    made.made_up = (
        *made.made_up,
        f"Preempt of the QOS {', '.join(having)} is left out: the spec has no preemption by QOS.",
    )
