"""`extra` and `remove`: each key by the Slurm version, by its owner, and by its value."""

from collections.abc import Iterator, Mapping, Sequence

from gpucluster import catalog as facts_of
from gpucluster.catalog import Catalog, SlurmFacts, SlurmKey
from gpucluster.slurm.owned_keys import DEFAULTS, LISTS, OWNED, REMOVED
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import require
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules.findings import error, warning
from gpucluster.text import quoted

_YES_NO = ("yes", "no", "true", "false", "up", "down", "1", "0")
_OF_ACCOUNTING = ("priorityweightage", "priorityweightfairshare")
UNKILLABLE_S = 180  # UnkillableStepTimeout of templates/slurm/slurm.conf.j2
_NO_LIMIT = ("infinite", "unlimited")
_WIDE_TREE = 46341  # its square is more than an int holds, which slurmctld computes with before 25.05.6 (S12)
_WIDE_TREE_UNTIL = "24.11"


def of_slurm(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    slurm = require(spec.slurm)
    yield from _checked(spec, catalog, "slurm.conf", ("slurm",), slurm.extra, slurm.remove)
    given = {key.lower(): value for key, value in slurm.extra.items()}
    for key, value in slurm.extra.items():
        needed = _needed_for(key.lower(), value, given, accounting=slurm.accounting is not None)
        if needed:
            yield error("slurm", "extra", key, id="extra-needs", message=f"{key} needs {needed}")
        if key.lower() == "treewidth" and slurm.version <= _WIDE_TREE_UNTIL and _is_wide(value):
            yield warning("slurm", "extra", key, id="extra-tree-width", message=_wide_tree(slurm.version))


def _is_wide(value: str) -> bool:
    return value.isdecimal() and int(value) >= _WIDE_TREE


def _wide_tree(version: str) -> str:
    return (
        f"with a TreeWidth of {_WIDE_TREE} or more slurmctld {version} writes past its memory as soon as the cluster has more "
        "nodes than that; since Slurm 23.11 no cloud needs so wide a tree: leave TreeWidth out, or write a smaller one"
    )


def _needed_for(key: str, value: str, given: Mapping[str, str], *, accounting: bool) -> str:
    """Return what a key needs and the spec lacks, with what slurmctld does otherwise; empty: nothing."""
    if key in _OF_ACCOUNTING and value.strip("0") and not accounting:
        return "`slurm.accounting`: without slurmdbd slurmctld ignores it with an error"
    if key == "slurmschedloglevel" and value.strip("0") and "slurmschedlogfile" not in given:
        return "SlurmSchedLogFile: without it slurmctld does not start"
    least, limit = 5 * int(value) if value.isdecimal() else 0, given.get("unkillablesteptimeout", "")
    if key == "messagetimeout" and least > (int(limit) if limit.isdecimal() else UNKILLABLE_S):
        return f"UnkillableStepTimeout: {least} or more: slurmctld reports a shorter one as an error"
    return ""


def of_pool(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    pool = spec.pools[index]
    yield from _checked(spec, catalog, "node", ("pools", index), pool.extra, pool.remove)


def of_partition(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    part = spec.partitions[index]
    yield from _checked(spec, catalog, "partition", ("partitions", index), part.extra, part.remove)


def _checked(  # noqa: PLR0917 -- where, what, and both fields
    spec: ClusterSpec, catalog: Catalog, kind: str, at: Path, extra: Mapping[str, str], remove: Sequence[str]
) -> Iterator[Finding]:
    if not extra and not remove:
        return
    if spec.slurm is None:
        yield error(
            *at, id="extra-without-slurm", message="`extra` and `remove` are for Slurm, and the spec has none"
        )
        return
    version = require(spec.slurm).version
    if version not in catalog.slurm_supported:
        return  # already reported
    facts = facts_of.slurm_facts(version)
    seen: dict[str, str] = {}
    for key, value in extra.items():
        path = (*at, "extra", key)
        if other := seen.get(key.lower()):
            yield error(*path, id="extra-twice", message=f"{other} is the same key to Slurm")
        seen[key.lower()] = key
        problem = _of_key(kind, key, version) or _of_value(facts, kind, key.lower(), value)
        if problem:
            yield error(*path, id=problem[0], message=problem[1])
    for index, key in enumerate(remove):
        path = (*at, "remove", index)
        if key.lower() in seen:
            yield error(*path, id="extra-twice", message=f"`extra` sets {key}, so it cannot be left out")
        problem = _of_key(kind, key, version) or _of_removed(kind, key)
        if problem:
            yield error(*path, id=problem[0], message=problem[1])


def _of_key(kind: str, key: str, version: str) -> tuple[str, str] | None:
    found = facts_of.slurm_keys()[kind].get(key.lower())
    if kind == "slurm.conf" and (other := REMOVED.get(key.lower())):
        return "extra-version", f"Slurm has removed {key}, and slurmctld ends with it: {other}"
    if found is None:
        near = did_you_mean(key, (one.name for one in facts_of.slurm_keys()[kind].values()))
        return "extra-unknown", f"no version of Slurm knows {quoted(key)} in a {kind} line{near}"
    if version not in found.known_in:
        return "extra-version", _other_version(found, version)
    if instead := OWNED[kind].get(key.lower()):
        return "extra-owned", f"gpucluster writes {found.name} itself: {instead}"
    if found.type == "line":
        return "extra-owned", f"{found.name} begins a line of its own, which gpucluster does not write"
    return None


def _other_version(key: SlurmKey, version: str) -> str:
    if version in key.defunct_in:
        return f"Slurm {version} ignores {key.name} with an error; it was a setting until {key.known_in[-1]}"
    if version < key.known_in[0]:
        return f"Slurm {version} does not know {key.name}; {key.known_in[0]} does"
    return f"Slurm {version} no longer knows {key.name}; {key.known_in[-1]} was the last"


def _of_value(facts: SlurmFacts, kind: str, low: str, value: str) -> tuple[str, str] | None:
    key = facts_of.slurm_keys()[kind][low]
    if key.type == "number" and not (value.isdigit() or value.lower() in _NO_LIMIT or _is_fraction(value)):
        return "extra-value", f"{key.name} is a number, found {quoted(value)}"
    if key.type == "yes-no" and value.lower() not in _YES_NO:
        return "extra-value", f"{key.name} is YES or NO, found {quoted(value)}"
    return (_of_words(facts, key.name, value) if kind == "slurm.conf" else None) or _of_plugins(facts, value)


def _of_words(facts: SlurmFacts, key: str, value: str) -> tuple[str, str] | None:
    ours = {word.lower() for word in LISTS.get(key.lower(), ())}
    owned = [word for word in (part.partition("=")[0] for part in value.split(",")) if word.lower() in ours]
    if owned:
        return "extra-owned", f"gpucluster writes the word {owned[0]} of {key} itself"
    unknown = facts.unknown_words(key, value)
    if not unknown:
        return None
    near = did_you_mean(unknown[0], sorted(facts.tokens[key]))
    return "extra-value", f"Slurm {facts.version} does not know the word {quoted(unknown[0])} of {key}{near}"


def _of_plugins(facts: SlurmFacts, value: str) -> tuple[str, str] | None:
    unknown = facts.unknown_plugins(value)
    if not unknown:
        return None
    near = did_you_mean(unknown[0], sorted(facts.plugins))
    return "extra-value", f"Slurm {facts.version} has no plugin {quoted(unknown[0])}{near}"


def _is_fraction(value: str) -> bool:
    whole, dot, rest = value.partition(".")
    return bool(dot) and whole.isdigit() and rest.isdigit()


def _of_removed(kind: str, key: str) -> tuple[str, str] | None:
    if key.lower() in DEFAULTS[kind]:
        return None
    known = ", ".join(sorted(facts_of.slurm_key_names(kind)[one] for one in DEFAULTS[kind]))
    return (
        "remove-unknown",
        f"gpucluster writes no default of {key} that could be left out; there are {known}",
    )
