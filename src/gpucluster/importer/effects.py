"""What a difference does to the people and jobs of the site: the three headings with which the report begins. Pure.

A key is here by what Slurm uses it for (slurm.conf(5)): a rule of who may use something, a limit, what ends jobs, what they ask for.
"""

from collections.abc import Callable

from gpucluster.importer import keys
from gpucluster.importer.gpus import words_of
from gpucluster.importer.lines import Effect
from gpucluster.importer.site import Key, Setting
from gpucluster.importer.slurm_defaults import DEFAULTS

NO_CHANGE = "nothing changes"  # how a reason ends if Slurm does the same without the setting
FUTURE = "State=FUTURE: the node does not exist yet"
UNUSED = "no partition has the node, so no job can run on it"
NO_NODE = "no node of the partition is imported"
CLOUD = "cloud"  # State of a node that Slurm makes when a job needs it
DOWN = "the partition is DOWN"  # nobody uses it before the rule is written


def effect_of(at: Key, old: Setting | None, new: Setting | None, why: str) -> Effect | None:
    """The heading of a row; None for one that hurts nobody."""
    if why.endswith((NO_CHANGE, DOWN)) or why in (FUTURE, UNUSED, NO_NODE):
        return None
    kind, _, key = at
    judge = (_ALSO_NEW if old is None else _JUDGES).get((kind, key))
    if judge is None:
        return None
    before, after = ("" if one is None else one.value.lower() for one in (old, new))
    return judge(key, before, after)


def _rule(_key: str, before: str, after: str) -> Effect | None:
    """A rule of who may do something."""
    return Effect.WIDER if not after and before not in ("none", "mcs/none") else None


def _scripts(_key: str, before: str, _after: str) -> Effect | None:
    """Rules of the site's own for each job; `lua` of the rendered file is another script."""
    return Effect.WIDER if before else None


def _denied(_key: str, before: str, after: str) -> Effect | None:
    """The names of a list that keeps accounts or QOS out."""
    return Effect.WIDER if set(_words(before)) - set(_words(after)) else None


def _filters(_key: str, before: str, after: str) -> Effect | None:
    """Rules of the site's own for each command of a user; two plugins only keep defaults and a log."""
    had, has = ({word.removeprefix("cli_filter/") for word in _words(text)} for text in (before, after))
    return Effect.WIDER if had - has - {"user_defaults", "syslog", "none"} else None


def _private(_key: str, before: str, after: str) -> Effect | None:
    """What other users do not see. `cloud` is no such word: it shows nodes that are powered down."""
    return Effect.WIDER if set(_words(before)) - {*_words(after), "cloud", "none"} else None


def _enforced(_key: str, before: str, after: str) -> Effect | None:
    """What of accounting a job must have."""
    had, has = (
        {one for word, implied in _IMPLIED.items() if word in text for one in implied}
        for text in (before, after)
    )
    if had - has:
        return Effect.WIDER
    return (
        Effect.REFUSED if has - had - {"safe"} else None
    )  # it holds jobs for limits in minutes, and a dump gives none


def _drained(_key: str, before: str, after: str) -> Effect | None:
    """A node that the site keeps free of jobs, or makes for them."""
    if before == CLOUD:
        return Effect.REFUSED
    return Effect.WIDER if before in _KEPT_FREE and after not in _KEPT_FREE else None


def _state(_key: str, before: str, after: str) -> Effect | None:
    if after == "down" and before not in ("down", "inactive"):
        return Effect.REFUSED
    return Effect.WIDER if not after and before not in ("", "up") else None


def _limit(key: str, before: str, after: str) -> Effect | None:
    """The most that a job may have."""
    one, other = _amount(key, after), _amount(key, before)
    if not after or other < one:
        return Effect.WIDER
    return Effect.REFUSED if one < other else None


def _size(key: str, before: str, after: str) -> Effect | None:
    """What there is for jobs; without such a key Slurm has a limit of its own."""
    return Effect.REFUSED if not after or _amount(key, after) < _amount(key, before) else None


def _left(key: str, before: str, after: str) -> Effect | None:
    """What a job has before it is ended: memory that it has not asked for, time above its limit."""
    return Effect.ENDED if not after or _amount(key, after) < _amount(key, before) else None


def _sooner(key: str, before: str, after: str) -> Effect | None:
    return Effect.ENDED if _amount(key, after) < _amount(key, before) else None


def _more_memory(key: str, before: str, after: str) -> Effect | None:
    """What a job may have above the memory that it asks for: percent of it, or of MinRAMSpace MB."""
    try:
        least = max(map(float, DEFAULTS["cgroup.conf"][key]))
        return Effect.ENDED if float(before) > max(least, float(after or 0)) else None
    except ValueError:
        return Effect.ENDED


def _less_memory(_key: str, before: str, after: str) -> Effect | None:
    """The most of a node's memory that a job may have, in percent."""
    try:
        return Effect.WIDER if float(before) < float(after or 100) else None
    except ValueError:
        return Effect.WIDER


def _confined(_key: str, before: str, after: str) -> Effect | None:
    """Without this plugin cgroup.conf limits no job."""
    had, has = ({word.removeprefix("task/") for word in _words(text)} for text in (before, after))
    return Effect.ENDED if "cgroup" in has - had else None


def _moved(_key: str, before: str, after: str) -> Effect | None:
    """The folder with the jobs that run and wait, or that in which slurmd finds the steps that run."""
    return Effect.ENDED if before.rstrip("/") != after.rstrip("/") else None


def _counted(_key: str, before: str, after: str) -> Effect | None:
    return Effect.ENDED if "memory" in after and "memory" not in before else None


def _bound(key: str, before: str, after: str) -> Effect | None:
    """Whether cgroups keep a job to its memory, or its swap, above which it is ended, or to the GPUs of its GRES."""
    had, has = (text in keys.YES for text in (before, after))
    if has and not had:
        return Effect.REFUSED if key == "constraindevices" else Effect.ENDED
    return Effect.WIDER if had and not has else None


def _options(_key: str, _before: str, after: str) -> Effect | None:
    """A file of plugins whose options jobs use."""
    return None if after else Effect.REFUSED


def _x11(_key: str, before: str, after: str) -> Effect | None:
    return Effect.REFUSED if "x11" in set(_words(before)) - set(_words(after)) else None


def _asked(_key: str, before: str, after: str) -> Effect | None:
    """Words that a job may ask for, or plugins by which it is taken."""
    return Effect.REFUSED if set(_words(before)) - set(_words(after)) else None


def _gres(_key: str, before: str, after: str) -> Effect | None:
    """A job asks for a name, with a type or without, and for a number."""
    has = tuple(words_of(after))
    fewer = any(
        not any(name == of and kind in ("", of_kind) and count <= number for of, of_kind, number in has)
        for name, kind, count in words_of(before)
        if count
    )
    return Effect.REFUSED if fewer else None


def _amount(key: str, text: str) -> int:
    """The number of a value; a word is no limit."""
    try:
        found = keys.minutes(text) if key in ("maxtime", "defaulttime") else int(text)
    except ValueError:
        found = None
    return 1 << 62 if found is None else found


def _words(value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.split(",") if word.strip())


_IMPLIED = {  # what Slurm searches in AccountingStorageEnforce -> what it enforces
    "1": ("associations",),
    "2": ("associations", "limits"),
    "associations": ("associations",),
    "limits": ("associations", "limits"),
    "qos": ("associations", "qos"),
    "safe": ("associations", "limits", "safe"),
    "wckeys": ("associations", "wckeys"),
    "all": ("associations", "limits", "qos", "safe", "wckeys"),
}
_KEPT_FREE = ("down", "drain", "fail", "failing")
_Judge = Callable[[str, str, str], Effect | None]
_Table = tuple[tuple[_Judge, str, tuple[str, ...]], ...]
_ALSO_NEW_BY_USE: _Table = (  # also where the site's files have no such key
    (_enforced, "slurm.conf", ("accountingstorageenforce",)),
    (_state, "partition", ("state",)),
    (_confined, "slurm.conf", ("taskplugin",)),
    (_moved, "slurm.conf", ("statesavelocation",)),
    (_limit, "partition", ("maxmempercpu",)),
    (_bound, "cgroup.conf", ("constrainramspace", "constrainswapspace", "constraindevices")),
)
_BY_USE: _Table = (
    (_rule, "slurm.conf", ("disablerootjobs", "mcsplugin")),
    (_scripts, "slurm.conf", ("jobsubmitplugins",)),
    (_filters, "slurm.conf", ("clifilterplugins",)),
    (_private, "slurm.conf", ("privatedata",)),
    (_private, "slurmdbd.conf", ("privatedata",)),
    (_rule, "partition", ("allowaccounts", "allowqos", "allowgroups", "allocnodes", "rootonly", "reqresv")),
    (_denied, "partition", ("denyaccounts", "denyqos")),
    (_drained, "node", ("state",)),
    (_drained, "downnodes", ("state",)),
    (_limit, "slurm.conf", ("maxmempercpu", "maxmempernode", "maxstepcount", "maxtaskspernode")),
    (_limit, "partition", ("qos", "maxtime", "maxnodes", "minnodes", "maxcpuspernode", "maxcpuspersocket", "maxmempernode")),
    (_size, "slurm.conf", ("maxjobcount", "maxarraysize")),
    (_size, "node", ("cpus", "realmemory")),
    (_left, "slurm.conf", ("defmempercpu", "defmempernode", "defmempergpu", "overtimelimit")),
    (_left, "partition", ("defmempercpu", "defmempernode", "defmempergpu", "overtimelimit")),
    (_sooner, "partition", ("defaulttime",)),
    (_moved, "slurm.conf", ("slurmdspooldir",)),
    (_more_memory, "cgroup.conf", ("allowedramspace", "allowedswapspace", "minramspace")),
    (_less_memory, "cgroup.conf", ("maxrampercent",)),
    (_counted, "slurm.conf", ("selecttypeparameters",)),
    (_x11, "slurm.conf", ("prologflags",)),
    (_options, "slurm.conf", ("plugstackconfig",)),
    (_asked, "slurm.conf", ("licenses", "authalttypes", "nodefeaturesplugins")),
    (_asked, "node", ("features", "nodename")),
    (_asked, "partition", ("partitionname",)),
    (_gres, "node", ("gres",)),
)  # fmt: skip
_ALSO_NEW, _JUDGES = (
    {(kind, key): judge for judge, kind, found in table for key in found}
    for table in (_ALSO_NEW_BY_USE, (*_ALSO_NEW_BY_USE, *_BY_USE))
)
