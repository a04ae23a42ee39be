"""`extra` and `remove`: each key by the Slurm version, by its owner, and by its value."""

from collections.abc import Iterator, Mapping, Sequence

from gpucluster import catalog as facts_of
from gpucluster.catalog import Catalog, SlurmKey
from gpucluster.slurm.owned_keys import DEFAULTS, OWNED, REMOVED, RENAMED
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import require
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules.findings import error, warning
from gpucluster.text import quoted

_WIDE_TREE = 46341  # its square is more than an int holds, which slurmctld computes with before 25.05.6 (S12)
_WIDE_TREE_UNTIL = "24.11"


def of_slurm(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    slurm = require(spec.slurm)
    yield from _checked(spec, catalog, "slurm.conf", ("slurm",), slurm.extra, slurm.remove)
    for key, value in slurm.extra.items():
        if key.lower() == "treewidth" and slurm.version <= _WIDE_TREE_UNTIL and _is_wide(value):
            yield warning("slurm", "extra", key, id="extra-tree-width", message=_wide_tree(slurm.version))


def _is_wide(value: str) -> bool:
    return value.isdecimal() and int(value) >= _WIDE_TREE


def _wide_tree(version: str) -> str:
    return (
        f"with a TreeWidth of {_WIDE_TREE} or more slurmctld {version} writes past its memory as soon as the cluster has more "
        "nodes than that; since Slurm 23.11 no cloud needs so wide a tree: leave TreeWidth out, or write a smaller one"
    )


def of_pool(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    pool = spec.pools[index]
    yield from _checked(spec, catalog, "node", ("pools", index), pool.extra, pool.remove)
    if pool.features and spec.slurm is None:
        yield error(
            "pools",
            index,
            "features",
            id="extra-without-slurm",
            message="`features` are Slurm's, and the spec has none",
        )


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
    if extra:
        yield from _set(spec, catalog, kind, at, extra, version)
    set_keys = {key.lower() for key in extra}
    for index, key in enumerate(remove):
        path = (*at, "remove", index)
        if key.lower() in set_keys:
            yield error(*path, id="extra-twice", message=f"`extra` sets {key}, so it cannot be left out")
        problem = _of_key(kind, key, version) or _of_removed(kind, key)
        if problem:
            yield error(*path, id=problem[0], message=problem[1])


def _set(  # noqa: PLR0917 -- as above
    spec: ClusterSpec, catalog: Catalog, kind: str, at: Path, extra: Mapping[str, str], version: str
) -> Iterator[Finding]:
    # The two modules take a tenth of a check, and few specs have `extra`.
    from gpucluster.spec.rules.extra_needs import Lines, missing  # noqa: PLC0415
    from gpucluster.spec.rules.extra_values import of_value  # noqa: PLC0415

    facts, lines = facts_of.slurm_facts(version), Lines(spec, catalog, kind, at)
    seen: dict[str, str] = {}
    for key, value in extra.items():
        path = (*lines.at, "extra", key)
        if other := seen.get(key.lower()):
            yield error(*path, id="extra-twice", message=f"{other} is the same key to Slurm")
        seen[key.lower()] = key
        problem = _of_key(lines.kind, key, version) or of_value(facts, lines.kind, key.lower(), value)
        if problem:
            yield error(*path, id=problem[0], message=problem[1])
    for needs in missing(lines, extra):
        yield error(
            *lines.at, "extra", needs.key, id="extra-needs", message=f"{needs.key} needs {needs.what}"
        )


def _of_key(kind: str, key: str, version: str) -> tuple[str, str] | None:
    found = facts_of.slurm_keys()[kind].get(key.lower())
    if kind == "slurm.conf" and (gone := _gone(key)):
        return "extra-version", gone
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


def _gone(key: str) -> str:
    if other := REMOVED.get(key.lower()):
        return f"Slurm has removed {key}, and slurmctld ends with it: {other}"
    other = RENAMED.get(key.lower())
    return f"slurmctld reports {key} as an error: {other}" if other else ""


def _other_version(key: SlurmKey, version: str) -> str:
    if version in key.defunct_in:
        return f"Slurm {version} ignores {key.name} with an error; it was a setting until {key.known_in[-1]}"
    if version < key.known_in[0]:
        known = facts_of.load().slurm_supported
        first = next((one for one in key.known_in if one in known), key.known_in[0])
        return f"Slurm {version} does not know {key.name}; {first} does"
    return f"Slurm {version} no longer knows {key.name}; {key.known_in[-1]} was the last"


def _of_removed(kind: str, key: str) -> tuple[str, str] | None:
    if key.lower() in DEFAULTS[kind]:
        return None
    known = ", ".join(sorted(facts_of.slurm_key_names(kind)[one] for one in DEFAULTS[kind]))
    return (
        "remove-unknown",
        f"gpucluster writes no default of {key} that could be left out; there are {known}",
    )
