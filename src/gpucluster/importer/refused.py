"""Take what the rules refuse out of an imported spec, part by part: the list of differences, or a complaint, has it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from gpucluster import catalog
from gpucluster.importer.extra import refused
from gpucluster.importer.lines import Effect, FileLine
from gpucluster.importer.made import Made, Reasons, mapping
from gpucluster.importer.restrictions import make_safe, without_preemption, without_restrictions
from gpucluster.importer.site import JOB_CONTAINER, Site
from gpucluster.importer.write_yaml import Value, write
from gpucluster.slurm.hostlist import expand_slurm
from gpucluster.spec import Problem, Report, inspect_text
from gpucluster.spec.reading import item_label

_LIMIT_OF_DUMP = re.compile(r"(qos|accounts)\[([^\]]+)\]\.limits\.(\w+)")
_USER_OF_DUMP = re.compile(r"users\[([^\]]+)\]")
_FIELD_OF_PARTITION = re.compile(r"partitions\[([^\]]+)\]\.(\w+)")
_NEEDED = ("name", "pools")  # of a partition
_OF_ACCOUNTS = ("users", "qos", "accounts", "slurm.accounting")
_KINDS_OF_PARTS = {"slurm": "slurm.conf", "pools": "node", "partitions": "partition"}


def valid_spec(made: Made, site: Site, files: Mapping[str, tuple[str, str]]) -> tuple[str, Report]:
    """Take what the rules refuse out of the spec, part by part; the list of differences, or a complaint, has it."""
    text, report = _checked(made)
    parts: tuple[Callable[[Sequence[Problem]], bool], ...] = (
        lambda errors: _without_extra(made, errors),
        lambda errors: _without_preemption(made, errors),
        lambda errors: _without_tmp_folder(made, errors),
        lambda errors: _without_mps(made, errors),
        lambda errors: _without_part(made, site, files, errors),
        lambda errors: _without_accounts(made, site, files, errors),
        lambda errors: _without_extra(made, errors),  # some keys need accounting
        lambda errors: _without_topology(made, site, errors),
        lambda errors: _without_field(made, site, errors),
    )
    for take_out in parts:
        while report.spec is None and take_out(report.errors):
            text, report = _checked(made)
    return _checked(made) if make_safe(made, site) else (text, report)


def _without_preemption(made: Made, errors: Iterable[Problem]) -> bool:
    why = next((problem.message for problem in errors if problem.path.startswith("slurm.preemption")), "")
    return bool(why) and without_preemption(made, why)


def _without_tmp_folder(made: Made, errors: Iterable[Problem]) -> bool:
    """Take the folder for the /tmp of jobs out of the spec if it is refused; return whether it was."""
    why = next((problem.message for problem in errors if problem.path.startswith("slurm.private_tmp")), "")
    if why:
        made.spec["slurm"] = {key: value for key, value in made.slurm.items() if key != "private_tmp"}
        made.reasons[JOB_CONTAINER, "", "basepath"] = f"not imported: {why}"
    return bool(why)


def _without_mps(made: Made, errors: Iterable[Problem]) -> bool:
    """Take MPS off the pools beside others in a partition; return whether there was one."""
    why = next((problem.message for problem in errors if problem.id == "mps-alone"), "")
    of_mps = {str(one["name"]) for one in made.rows("pools") if "mps" in mapping(one.get("sharing"))}
    partitions = [one["pools"] for one in made.rows("partitions")] if why else []
    listed = [set(map(str, pools)) for pools in partitions if isinstance(pools, list)]
    mixed = {pool for pools in listed if not pools <= of_mps for pool in pools & of_mps}
    for one in made.rows("pools"):
        if one["name"] in mixed:
            names = expand_slurm(str(one["hosts"]))
            made.reasons |= {("node", name, "gres"): f"not imported: {why}" for name in names}
    made.spec["pools"] = [
        _less(one, "sharing", {"mps"}) if one["name"] in mixed else one for one in made.rows("pools")
    ]
    return bool(mixed)


def _without_part(
    made: Made, site: Site, files: Mapping[str, tuple[str, str]], errors: Sequence[Problem]
) -> bool:
    """Take one limit, or one user, of the dump out of the spec; return whether it was."""
    before = dict(made.spec)
    for problem in errors if "associations" in files else ():
        if taken := _without_limit(made, site, problem.path) or _without_user(made, problem.path):
            message = f"{taken[0]} is not imported: {problem.message}"
            site.complain(FileLine(files["associations"][0], 1), message, taken[1])
            return made.spec != before
    return False


def _without_limit(made: Made, site: Site, path: str) -> tuple[str, Effect | None] | None:
    """Take the limit at this path out, and return its words; None for another path. Without GPUs a limit on them limits nobody."""
    if (match := _LIMIT_OF_DUMP.match(path)) is None:
        return None
    part, label, limit = match.groups()
    name = _name_of(made, part, label)
    made.spec[part] = [
        _less(one, "limits", {limit}) if one["name"] == name else one for one in made.rows(part)
    ]
    limits = not limit.startswith("gpus") or "gpu" in site.gres_names
    return f"the limit {limit} of {name}", Effect.WIDER if limits else None


def _without_user(made: Made, path: str) -> tuple[str, Effect] | None:
    """Take the user at this path out, also of the accounts, and return its words; None for another path."""
    if (match := _USER_OF_DUMP.match(path)) is None:
        return None
    name = _name_of(made, "users", match[1])
    made.spec["accounts"] = [_less(one, "users", {name}) for one in made.rows("accounts")]
    left = [one for one in made.rows("users") if one["name"] != name]
    made.spec["users"] = left
    if not left:
        del made.spec["users"]
    return f"the user {name}", Effect.REFUSED


def _name_of(made: Made, part: str, label: str) -> str:
    """The name of the item that a path has under this label; empty if there is none."""
    labels = {item_label(one["name"], at): str(one["name"]) for at, one in enumerate(made.rows(part))}
    return labels.get(label, "")


def _without_field(made: Made, site: Site, errors: Iterable[Problem]) -> bool:
    """Take the fields of partitions out that nothing else has taken out; return whether there was one."""
    wrong: dict[tuple[str, str], str] = {}
    for problem in errors:
        if match := _FIELD_OF_PARTITION.match(problem.path):
            wrong.setdefault((_name_of(made, "partitions", match[1]), match[2]), problem.message)
    before, old = made.rows("partitions"), {new: old for old, new in made.partitions.items()}
    for one in before:
        for field in one.keys() - set(_NEEDED):
            if message := wrong.get((str(one["name"]), field)):
                place = site.partitions[old[str(one["name"])]]["partitionname"].place
                site.complain(place, f"`{field}` of the partition {one['name']} is not imported: {message}")
    made.spec["partitions"] = [
        {k: value for k, value in one.items() if k in _NEEDED or (str(one["name"]), k) not in wrong}
        for one in before
    ]
    return made.rows("partitions") != before


def _less(one: Mapping[str, Value], key: str, words: Set[str]) -> dict[str, Value]:
    """A part without these words of a list or a mapping, and without the key if none is left."""
    found = one.get(key)
    left: Value = None
    if isinstance(found, Mapping):
        left = {word: value for word, value in found.items() if word.lower() not in words}
    elif isinstance(found, list):
        left = [word for word in found if word not in words]
    rest = {name: value for name, value in one.items() if name != key}
    return {**rest, key: left} if left else rest


def _without_accounts(
    made: Made, site: Site, files: Mapping[str, tuple[str, str]], errors: Sequence[Problem]
) -> bool:
    """Take all of the dump out of the spec if a rule refuses a part of it, for example a name of the system; return whether it was."""
    wrong = [one for one in errors if one.path.startswith(_OF_ACCOUNTS)]
    if not wrong or "accounts" not in made.spec:
        return False
    for key in ("users", "qos", "accounts"):
        made.spec.pop(key, None)
    made.spec["slurm"] = {key: value for key, value in made.slurm.items() if key != "accounting"}
    without_restrictions(made, site)
    if mapping(made.slurm.get("preemption")).get("by") == "qos":
        without_preemption(made, "the QOS of the dump are not")
    site.complain(
        FileLine(files["associations"][0], 1),
        f"the accounts are not imported: {wrong[0].path}: {wrong[0].message}",
    )
    return True


def _checked(made: Made) -> tuple[str, Report]:
    text = write(made.spec, ("Imported by gpucluster from the files of a site.", *made.sentences))
    return text, inspect_text(text, f"{made.spec['name']}.yaml", catalog.load())


def _without_extra(made: Made, errors: Sequence[Problem]) -> bool:
    """Take the keys out of `extra` that the rules refuse; return whether there was one.

    The list of differences then has them as lost, with the rule's reason.
    """
    wrong = {found: problem.message for problem in errors if (found := refused(problem.path))}
    before = {part: made.spec[part] for part in _KINDS_OF_PARTS}
    for part, value in before.items():
        made.spec[part] = (
            _without_refused(made, part, "", value, wrong)
            if isinstance(value, Mapping)
            else [
                _without_refused(made, part, item_label(one["name"], index), one, wrong)
                for index, one in enumerate(made.rows(part))
            ]
        )
    return any(made.spec[part] != value for part, value in before.items())


def _without_refused(
    made: Made, part: str, label: str, value: Mapping[str, Value], wrong: Reasons
) -> dict[str, Value]:
    keys = {key: why for (of, at, key), why in wrong.items() if (of, at) == (part, label)}
    names = expand_slurm(str(value["hosts"])) if part == "pools" and keys else (str(value.get("name", "")),)
    kind = _KINDS_OF_PARTS[part]
    made.reasons |= {(kind, name, key): f"not imported: {why}" for key, why in keys.items() for name in names}
    return _less(value, "extra", keys.keys())


def _without_topology(made: Made, site: Site, errors: Sequence[Problem]) -> bool:
    """Take the topology out of the spec if it is refused, for example a block below the base size; return whether it was."""
    of_topology = [problem for problem in errors if problem.path.startswith("slurm.topology")]
    if not of_topology:
        return False
    rest = mapping(mapping(made.slurm["topology"]).get("named"))
    wrong = [name for name in rest if of_topology[0].path.startswith(f"slurm.topology.named.{name}")]
    left = {name: one for name, one in rest.items() if name not in wrong} if wrong else {}
    made.spec["slurm"] = {
        **{key: value for key, value in made.slurm.items() if key != "topology"},
        **({"topology": {"named": left}} if left else {}),
    }
    made.spec["partitions"] = [
        {key: value for key, value in one.items() if key != "topology" or value in left}
        for one in made.rows("partitions")
    ]
    places = site.named if wrong else {**site.switches, **site.named}
    place = places[wrong[0]].place if wrong else next(iter(places.values())).place
    what = f"topology {wrong[0]}" if wrong else "topology"
    site.complain(place, f"the {what} is not imported: {of_topology[0].message}")
    return True
