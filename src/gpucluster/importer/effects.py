"""What a difference does to the people and jobs of the site: the three headings with which the report begins. Pure.

A key is here by what Slurm uses it for (slurm.conf(5)): a rule of who may use something, a limit, what ends jobs, what they ask for.
"""

from gpucluster.importer import keys
from gpucluster.importer.gpus import words_of
from gpucluster.importer.lines import Effect
from gpucluster.importer.site import Key, Setting


NO_CHANGE = "nothing changes"  # how a reason ends if Slurm does the same without the setting
DOWN = "the partition is DOWN"  # nobody uses it before the rule is written
_RULES = {
    "slurm.conf": ("accountingstorageenforce", "jobsubmitplugins", "privatedata", "disablerootjobs"),
    "partition": ("allowaccounts", "denyaccounts", "allowqos", "denyqos", "allowgroups", "allocnodes", "rootonly", "reqresv"),
}  # fmt: skip
_LIMITS = {
    "slurm.conf": ("maxmempercpu", "maxmempernode", "maxstepcount", "maxtaskspernode"),
    "partition": ("qos", "maxtime", "maxnodes", "minnodes", "maxcpuspernode", "maxcpuspersocket", "maxmempercpu", "maxmempernode"),
}  # fmt: skip
_MOST = {"slurm.conf": ("maxjobcount", "maxarraysize")}  # without them Slurm has a limit of its own
_LEFT = ("overtimelimit",)  # time that a job has beyond its limit
_MEMORY = ("defmempercpu", "defmempernode", "defmempergpu")
_ASKED = {"node": ("features", "nodename"), "partition": ("partitionname",), "slurm.conf": ("licenses",)}
_SIZES = {"node": ("cpus", "realmemory")}


def effect_of(at: Key, old: Setting | None, new: Setting | None, why: str) -> Effect | None:
    """The heading of a row; None for one that hurts nobody."""
    if why.endswith((NO_CHANGE, DOWN)):
        return None
    kind, _, key = at
    before, after = ("" if one is None else one.value.lower() for one in (old, new))
    if (kind, key, after) == ("partition", "state", "down") and before not in ("down", "inactive"):
        return Effect.REFUSED
    if old is None:
        return None
    if key in _RULES.get(kind, ()) or (kind, key) == ("partition", "state"):
        return Effect.WIDER if new is None and before not in ("none", "up") else None
    if key in (*_LIMITS.get(kind, ()), *_MOST.get(kind, ()), *_SIZES.get(kind, ())):
        return _of_number(kind, key, before, after)
    if key in _MEMORY or key in _LEFT:
        return Effect.ENDED if not after or _amount(key, after) < _amount(key, before) else None
    if (kind, key) == ("slurm.conf", "selecttypeparameters"):
        return Effect.ENDED if "memory" in after and "memory" not in before else None
    if (kind, key) == ("cgroup.conf", "constrainramspace"):
        return Effect.ENDED if after == "yes" != before else None
    if (kind, key) == ("slurm.conf", "prologflags"):
        return Effect.REFUSED if "x11" in before.split(",") and "x11" not in after.split(",") else None
    if (kind, key) == ("node", "gres"):
        return Effect.REFUSED if _fewer_gres(before, after) else None
    if key in _ASKED.get(kind, ()):
        return Effect.REFUSED if set(_words(before)) - set(_words(after)) else None
    return None


def _of_number(kind: str, key: str, before: str, after: str) -> Effect | None:
    limit = key in _LIMITS.get(kind, ())
    if not after:
        return Effect.WIDER if limit else Effect.REFUSED
    one, other = _amount(key, after), _amount(key, before)
    if one < other:
        return Effect.REFUSED
    return Effect.WIDER if limit and other < one else None


def _amount(key: str, text: str) -> int:
    """The number of a value; a word is no limit."""
    try:
        found = keys.minutes(text) if key == "maxtime" else int(text)
    except ValueError:
        found = None
    return 1 << 62 if found is None else found


def _fewer_gres(before: str, after: str) -> bool:
    """Whether a job cannot ask for what it could: a name, a type, or as many."""
    has = tuple(words_of(after))
    return any(
        not any(name == of and kind in ("", of_kind) and count <= number for of, of_kind, number in has)
        for name, kind, count in words_of(before)
        if count
    )


def _words(value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.split(",") if word.strip())
