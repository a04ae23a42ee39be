"""Keys of `extra` and `remove` of which this package does not know what they do to jobs. Pure."""

from collections.abc import Iterator

from gpucluster.gitops.field_effects import Note
from gpucluster.plan.model import SlurmPlan
from gpucluster.text import listed

_Key = tuple[str, str, str]
# In lower case. Those whose effect on jobs other modules say (`partition_limits`, `plan.resolve.sizes`, `identity`), and those that
# were seen to touch no job (`docs/edits.md`), or only order the queue, or write logs.
_KNOWN = {
    "slurm.conf": frozenset(
        ("enforcepartlimits", "maxmempernode", "maxmempercpu", "firstjobid", "killwait", "communicationparameters")
    ),
    "node": frozenset(("memspeclimit", "corespeccount", "cpuspeclist", "weight")),
    "partition": frozenset(
        (
            "state", "minnodes", "maxnodes", "maxmempernode", "maxmempercpu", "allowgroups", "denyaccounts", "denyqos",
            "reqresv", "priorityjobfactor",
        )
    ),
}  # fmt: skip
_HARMLESS = ("priorityweight", "slurmctlddebug", "slurmddebug", "debugflags", "logtimeformat")


def notes(old: SlurmPlan, new: SlurmPlan | None) -> Iterator[Note]:
    """Yield that it is not known what the changed keys do. `new` is None if Slurm leaves."""
    if new is None:
        return
    before, after = _values(old), _values(new)
    names = sorted(
        key for kind, of, key in before.keys() | after.keys() if _is_told(kind, of, key, before, after)
    )
    if names:
        yield Note(running=f"what {listed(names)} does to jobs is not known here: slurm.conf(5) has it")


def _is_told(
    kind: str, of: str, key: str, before: dict[_Key, str | None], after: dict[_Key, str | None]
) -> bool:
    """Whether the value differs, also of a key that only one side has, in what stays."""
    at, word = (kind, of, key), key.lower()
    differs = (at in before, before.get(at)) != (at in after, after.get(at))
    return differs and word not in _KNOWN.get(kind, ()) and not word.startswith(_HARMLESS)


def _values(plan: SlurmPlan) -> dict[_Key, str | None]:
    return {(one.kind, one.of, one.key): one.value for one in plan.slurm.settings}
