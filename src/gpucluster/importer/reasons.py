"""Why a setting of a site is lost or changed in the rendered files: the sentence of each row of the report."""

from dataclasses import dataclass
from enum import StrEnum

from gpucluster import catalog
from gpucluster.importer import gpus, keys
from gpucluster.importer.effects import NO_NODE
from gpucluster.importer.extra import PLUGINS
from gpucluster.importer.made import Made
from gpucluster.importer.partitions import LONGEST_TIME_MIN
from gpucluster.importer.site import Key, Setting
from gpucluster.importer.slurm_defaults import is_default
from gpucluster.slurm.owned_keys import LISTS, OWNED, POWER

SLURMS_OWN = "Slurm has this value without the key"  # not lost: the class becomes `same`


class Change(StrEnum):
    """The class of a difference, in the order of the report."""

    LOST = "lost"
    CHANGED = "changed"
    MOVED = "moved"
    DEFAULTED = "defaulted"
    SAME = "same"


def why(change: Change, at: Key, old: Setting | None, new: Setting | None, why_lost: "WhyLost") -> str:
    if old is None:
        written = "the site's files do not set it; gpucluster writes it"
        return why_lost.made.reasons.get(at) or _DEFAULTED.get((at[0], at[2]), written)
    if new is None:
        return why_lost(at, old)
    if change is Change.MOVED:
        return f"{old.written} is {new.written} now"
    if change is Change.SAME:
        return ""
    return _why_changed(at, old, why_lost.made)


def _why_changed(at: Key, old: Setting, made: Made) -> str:
    kind, _, key = at
    if noted := made.reasons.get(at):
        return noted
    if (kind, key) in keys.TIMES:
        return _why_time(old.value)
    if (
        reason := gpus.why_changed(old.value)
        if (kind, key) == ("node", "gres")
        else _CHANGED.get((kind, key))
    ):
        return reason
    owned = _owned(kind, old)
    return f"gpucluster writes its own value: {owned}" if owned else "gpucluster writes its own value"


def _why_time(value: str) -> str:
    try:
        found = keys.minutes(value)
    except ValueError:
        return "it is no time of Slurm's"
    if found is None or found > LONGEST_TIME_MIN:
        return f"a time of a spec is at most {LONGEST_TIME_MIN // 1440} days"
    return "a time of a spec is at least 1 min"


def _owned(kind: str, old: Setting) -> str:
    return OWNED.get(kind, {}).get(old.written.lower(), "")


@dataclass(frozen=True, slots=True)
class WhyLost:
    """Why a setting of the site has no place in the rendered files; the first reason that applies."""

    made: Made
    version: str

    def __call__(self, at: Key, old: Setting) -> str:
        kind, name, key = at
        reasons = (
            self.made.left_out.get(name, "") if kind in ("node", "gres.conf") else "",
            NO_NODE
            if kind == "partition" and all(one["name"] != name for one in self.made.rows("partitions"))
            else "",
            SLURMS_OWN if is_default(kind, key, old.value) else "",
            self.made.reasons.get(at, ""),
            self.made.reasons.get((kind, "", ""), "its topology is not imported")
            if kind.startswith("topology.")
            else "",
            _LINES_OF_OTHERS.get(kind, ""),
            "a spec for hosts has one head"
            if kind == "slurm.conf" and key.startswith("slurmctldhost ")
            else "",
            "" if keys.known(kind, old.written, self.version) else _unknown(kind, old.written, self.version),
            "the hosts of a spec are always on: nothing powers them down"
            if _owned(kind, old) == POWER
            else "",
            _FILES_OF_OTHERS.get(kind, ""),
            f"not imported: {_PROGRAMS[key]}" if kind == "slurm.conf" and key in _PROGRAMS else "",
            "not imported: it is no number"
            if (kind, key) == ("partition", "prioritytier") and not old.value.isdecimal()
            else "",
            f"not imported: {owned}" if (owned := _owned(kind, old)) else "",
            _not_extra(kind, old),
        )
        return next((reason for reason in reasons if reason), "the spec has no field for it")


def _not_extra(kind: str, old: Setting) -> str:
    """Why a key that `extra` takes is not there."""
    low = old.written.lower()
    if low not in _EXTRA_KINDS.get(kind, ()):
        return ""
    if keys.HIDDEN in old.value:
        return "not imported: a password is in no spec"
    ours = sorted({word for word in LISTS.get(low, ()) if word.lower() in old.value.lower().split(",")})
    if ours:
        return f"not imported: gpucluster writes {ours[0]} itself where it is needed"
    if "/" in old.value or low in PLUGINS:
        return "not imported: it is a path or a plugin of the site's machines; write it under `extra` if the new ones have it"
    return "not imported: `extra` takes no such value"


def _unknown(kind: str, written: str, version: str) -> str:
    having = keys.versions(kind, written)
    if not having:
        return "no Slurm of 22.05 to 26.05 knows it"
    which = f"{having[0]} does" if len(having) == 1 else f"{having[0]} to {having[-1]} do"
    return f"Slurm {version} does not know it; {which}"


_OTHER_FOLDER = "without a copy of the site's folder, made while slurmctld is stopped, running jobs are ended, and queued ones are gone"
_NO_SWAP = "a job has no swap beside its memory: above it the job is ended"
_OWN_GPUS = "a job sees no GPU that it did not ask for"
_LICENCE = "a weight of a licence is not kept: gpucluster counts no licence as a TRES (AccountingStorageTRES)"
_OWN_SCRIPT = "the site's plugins and its job_submit.lua; gpucluster's own script is that of `partitions[].requires_gpus`"
_CHANGED = {
    ("slurm.conf", "jobsubmitplugins"): f"not imported: {_OWN_SCRIPT}",
    ("cgroup.conf", "constraindevices"): _OWN_GPUS,
    ("cgroup.conf", "constrainswapspace"): _NO_SWAP,
    ("slurm.conf", "statesavelocation"): _OTHER_FOLDER,
    ("slurm.conf", "priorityweighttres"): _LICENCE,
    ("partition", "tresbillingweights"): _LICENCE,
    (
        "slurm.conf",
        "slurmdspooldir",
    ): "slurmd finds no running step there: a job that runs is requeued, and its processes go on",
    ("slurm.conf", "clustername"): "a spec's name has a-z, 0-9 and '-', and Slurm writes it in lower case",
    ("slurm.conf", "slurmctldhost"): "the head of a spec is a short host name, and no node",
    ("slurm.conf", "slurmctldhost address"): "the head of a spec has an IPv4 address",
    ("node", "nodename"): "a host of a spec has a short name of a-z, 0-9 and '-'",
    ("node", "nodeaddr"): "a host of a spec has an IPv4 address of its own",
    ("node", "state"): "the hosts of a spec are always on; `scontrol update` drains one",
    ("node", "features"): "gpucluster adds the names of the pool, the machine and the GPU model",
    ("partition", "default"): "slurmctld takes the last partition with Default=YES, and so does the spec",
    (
        "passwd",
        "gid",
    ): "a user of a spec has a group of its own, which becomes the primary one on each host: files of the old group are then those of others",
    ("partition", "partitionname"): "a partition of a spec has letters, digits, '.', '_' and '-'",
    ("partition", "nodes"): "a partition of a spec has the hosts of its pools",
}
_DEFAULTED = {
    ("slurm.conf", "statesavelocation"): _OTHER_FOLDER,
    (
        "partition",
        "maxmempercpu",
    ): "with `max_cpus_per_node` a job has no more memory for each CPU: one above it has more CPUs, or is refused",
    ("partition", "priorityjobfactor"): "Priority of the site sets it, too",
    (
        "cgroup.conf",
        "constrainramspace",
    ): "without it no cgroup ends a job above its memory; name the cgroup.conf of the site if it has one",
    ("cgroup.conf", "constrainswapspace"): _NO_SWAP,
    ("cgroup.conf", "constraindevices"): _OWN_GPUS,
    (
        "slurm.conf",
        "taskplugin",
    ): "without task/cgroup no cgroup ends a job above its memory, and a job sees every GPU of its nodes",
    ("slurm.conf", "accountingstorageenforce"): "without it a job needs no association, and has no limit",
}
_FILES_OF_OTHERS = {
    "slurmdbd.conf": "not imported: write `slurm.accounting`",
    "gres.conf": "gpucluster writes the devices of the pool's `machine` and `sharing`",
}
_PROGRAMS = {  # a program of the site: what to do with it
    "jobsubmitplugins": _OWN_SCRIPT,
    "healthcheckprogram": "write `health`: gpucluster's checks run on idle nodes",
    "prolog": "write `health`: gpucluster's checks run before each job. What the program prepares belongs into the hosts' own set-up or into `slurm.private_tmp`",
    "epilog": "write `health`: gpucluster's checks run after each job. slurmd itself ends what a job leaves; `slurm.private_tmp` removes its files",
    "taskprolog": "move its variables to the profile of the users, or to a module",
    "taskepilog": "move it to the job scripts",
    "prologslurmctld": "move it to the job scripts",
    "epilogslurmctld": "read the records of accounting instead, or jobs.log",
}
_EXTRA_KINDS = {kind: catalog.slurm_key_names(kind).keys() for kind in OWNED}
_LINES_OF_OTHERS = {
    "nodeset": "the partitions of a spec name pools instead",
    "passwd": "a spec has no groups: a host keeps those that it has, and a new machine, such as the head, has none",
    "downnodes": "`scontrol update` sets the state of a node",
}
