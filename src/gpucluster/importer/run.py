"""Import a site: read its files, write the spec, render it, and compare the rendered files with those of the site."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpucluster import catalog
from gpucluster.artifacts import Artifact
from gpucluster.errors import GpuclusterError
from gpucluster.importer.associations import fields_of, read_associations, read_uids
from gpucluster.importer.differences import Difference, compare
from gpucluster.importer.extra import refused
from gpucluster.importer.files import Folder, require_text
from gpucluster.importer.lines import Complaint, Effect, FileLine, NotReadableError, Reader
from gpucluster.importer.restrictions import (
    make_safe,
    with_restrictions,
    without_preemption,
    without_restrictions,
)
from gpucluster.importer.site import Site, read_site
from gpucluster.importer.to_spec import Made, to_spec
from gpucluster.importer.topology_yaml import read_topology_yaml
from gpucluster.importer.write_yaml import Value, write
from gpucluster.plan import names
from gpucluster.plan.resolve import resolve
from gpucluster.slurm.config.render import render
from gpucluster.slurm.hostlist import expand_slurm
from gpucluster.spec import Problem, Report, inspect_text
from gpucluster.spec.reading import item_label
from gpucluster.spec.yaml import MAX_BYTES

_KINDS = (  # a part of the file's name -> its kind; other files are read only if slurm.conf includes them
    ("gres", "gres.conf"),
    ("topology.yaml", "topology.yaml"),
    ("topology", "topology.conf"),
    ("cgroup", "cgroup.conf"),
    ("job_container", "job_container.conf"),
    ("slurmdbd", "slurmdbd.conf"),
    ("assoc", "associations"),  # of `sacctmgr dump`
    (".dump", "associations"),
    ("passwd", "passwd"),
)
_NOT_OF_SLURM = ("associations", "passwd")
_PART_OF_DUMP = re.compile(r"(users|qos|accounts)\[([^\]]+)\](?:\.limits\.(\w+))?")
_OF_ACCOUNTS = ("users", "qos", "accounts", "slurm.accounting")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The spec of a site, what its rendered files change, and the lines that are not imported."""

    name: str
    text: str
    made: Made
    site: Site
    differences: tuple[Difference, ...]
    complaints: tuple[Complaint, ...]
    warnings: tuple[Problem, ...]

    @property
    def hurts(self) -> bool:
        """Whether a line is not imported, or a difference hurts the people or the jobs of the site."""
        return bool(self.complaints) or any(one.effect for one in self.differences)


def import_files(files: Sequence[Path], *, version: str, name: str | None = None) -> Imported:
    """Import slurm.conf, or a folder that has it, with the files named after it. GpuclusterError if no spec can be made."""
    site, of_accounts = _read(files)
    try:
        made = to_spec(site, version=version, name=name)
    except ValueError as error:
        listed = "".join(f"\n  {complaint}" for complaint in site.complaints[:20])
        raise GpuclusterError(
            f"{files[0]}: {error}{listed}",
            next_step="name a slurm.conf with NodeName and PartitionName lines; of a large site, one with a part of them",
        ) from None
    _with_accounts(made, site, of_accounts)
    with_restrictions(made, site)
    text, report = _valid(made, site, of_accounts)
    if len(text.encode()) > MAX_BYTES:
        raise GpuclusterError(
            f"{files[0]}: the spec of this site has {len(text) >> 10} KiB, and a spec is at most {MAX_BYTES >> 10} KiB",
            next_step="import the site in parts: a slurm.conf with some of its nodes and partitions",
        )
    if report.spec is None:
        wrong = "".join(f"\n  {problem}" for problem in report.errors[:20])
        raise GpuclusterError(
            f"{files[0]}: the imported spec is not valid:{wrong}",
            next_step="please report it: this is a bug of gpucluster, not of your files",
        )
    plan = resolve(report.spec, catalog.load())
    if plan.slurm is None:
        raise TypeError("a spec of hosts has Slurm")
    rendered = read_rendered(render(plan))
    return Imported(
        name=plan.name,
        text=text,
        made=made,
        site=site,
        differences=compare(site, rendered, made, version),
        complaints=tuple(sorted(site.complaints, key=lambda one: one.place)),
        warnings=report.problems,
    )


def _valid(made: Made, site: Site, files: Mapping[str, tuple[str, str]]) -> tuple[str, Report]:
    """Take what the rules refuse out of the spec, part by part; the list of differences, or a complaint, has it."""
    text, report = _checked(made)
    parts: tuple[Callable[[Sequence[Problem]], bool], ...] = (
        lambda errors: _without_extra(made, errors),
        lambda errors: _without_preemption(made, errors),
        lambda errors: _without_part(made, site, files, errors),
        lambda errors: _without_accounts(made, site, files, errors),
        lambda errors: _without_extra(made, errors),  # some keys need accounting
        lambda errors: _without_topology(made, site, errors),
    )
    for take_out in parts:
        while report.spec is None and take_out(report.errors):
            text, report = _checked(made)
    return _checked(made) if make_safe(made, site) else (text, report)


def _without_preemption(made: Made, errors: Iterable[Problem]) -> bool:
    why = next((problem.message for problem in errors if problem.path.startswith("slurm.preemption")), "")
    return bool(why) and without_preemption(made, why)


def _with_accounts(made: Made, site: Site, files: Mapping[str, tuple[str, str]]) -> None:
    """Add the accounts of the dump to the spec, and the database on the head for them."""
    if "associations" not in files:
        return
    found = read_associations(site, *files["associations"])
    made.lost_exemptions = found.exemptions
    parts, sentences = fields_of(site, found, read_uids(files.get("passwd", ("", ""))[1]))
    if "accounts" not in parts:
        return
    slurm = made.spec["slurm"]
    if isinstance(slurm, Mapping):
        made.spec["slurm"] = {**slurm, "accounting": {"database": "local"}}
    made.spec |= parts
    made.made_up = (
        *made.made_up,
        *sentences,
        "the database is a new one on the head: its first records are those of new jobs.",
    )


def _without_part(
    made: Made, site: Site, files: Mapping[str, tuple[str, str]], errors: Sequence[Problem]
) -> bool:
    """Take one limit, or one user, of the dump out of the spec; return whether it was."""
    wrong = next(((found, one) for one in errors if (found := _PART_OF_DUMP.match(one.path))), None)
    if wrong is None or "associations" not in files:
        return False
    (part, name, limit), problem = wrong[0].groups(), wrong[1]
    if not limit and part != "users":
        return False
    before = {key: made.spec.get(key) for key in ("users", "qos", "accounts")}
    if limit:
        _change(made, part, lambda one: _without_limit(one, limit) if one["name"] == name else one)
        message, effect = f"the limit {limit} of {name}", Effect.WIDER
    else:
        users = made.spec.get("users")
        made.spec["users"] = (
            [one for one in users if isinstance(one, Mapping) and one["name"] != name]
            if isinstance(users, list)
            else []
        )
        if not made.spec["users"]:
            del made.spec["users"]
        _change(made, "accounts", lambda one: _without_user(one, name))
        message, effect = f"the user {name}", Effect.REFUSED
    site.complain(
        FileLine(files["associations"][0], 1), f"{message} is not imported: {problem.message}", effect
    )
    return before != {key: made.spec.get(key) for key in before}


def _change(made: Made, part: str, change: Callable[[Mapping[str, Value]], Mapping[str, Value]]) -> None:
    found = made.spec.get(part)
    if isinstance(found, list):
        made.spec[part] = [change(one) for one in found if isinstance(one, Mapping)]


def _without_limit(one: Mapping[str, Value], limit: str) -> Mapping[str, Value]:
    limits = one.get("limits")
    left = (
        {key: value for key, value in limits.items() if key != limit} if isinstance(limits, Mapping) else {}
    )
    rest = {key: value for key, value in one.items() if key != "limits"}
    return {**rest, "limits": left} if left else rest


def _without_user(one: Mapping[str, Value], user: str) -> Mapping[str, Value]:
    users = one.get("users")
    left: list[Value] = [name for name in users if name != user] if isinstance(users, list) else []
    rest = {key: value for key, value in one.items() if key != "users"}
    return {**rest, "users": left} if left else rest


def _without_accounts(
    made: Made, site: Site, files: Mapping[str, tuple[str, str]], errors: Sequence[Problem]
) -> bool:
    """Take all of the dump out of the spec if a rule refuses a part of it, for example a name of the system; return whether it was."""
    wrong = [one for one in errors if one.path.startswith(_OF_ACCOUNTS)]
    slurm = made.spec["slurm"]
    if not wrong or "accounts" not in made.spec or not isinstance(slurm, Mapping):
        return False
    for key in ("users", "qos", "accounts"):
        made.spec.pop(key, None)
    made.spec["slurm"] = {key: value for key, value in slurm.items() if key != "accounting"}
    without_restrictions(made, site)
    if _by_qos(made):
        without_preemption(made, "the QOS of the dump are not")
    site.complain(
        FileLine(files["associations"][0], 1),
        f"the accounts are not imported: {wrong[0].path}: {wrong[0].message}",
    )
    return True


def _by_qos(made: Made) -> bool:
    slurm = made.spec["slurm"]
    preemption = slurm.get("preemption") if isinstance(slurm, Mapping) else None
    return isinstance(preemption, Mapping) and preemption.get("by") == "qos"


def _checked(made: Made) -> tuple[str, Report]:
    text = write(made.spec, tuple(_comments(made)))
    return text, inspect_text(text, f"{made.spec['name']}.yaml", catalog.load())


_KINDS_OF_PARTS = {"slurm": "slurm.conf", "pools": "node", "partitions": "partition"}


def _without_extra(made: Made, errors: Sequence[Problem]) -> bool:
    """Take the keys out of `extra` that the rules refuse; return whether there was one.

    The list of differences then has them as lost, with the rule's reason.
    """
    wrong = {found: problem.message for problem in errors if (found := refused(problem.path))}
    before = {part: made.spec[part] for part in _KINDS_OF_PARTS}
    for part, value in before.items():
        if isinstance(value, Mapping):
            made.spec[part] = _without_refused(made, part, "", value, wrong)
        elif isinstance(value, list):
            made.spec[part] = [
                _without_refused(made, part, item_label(one["name"], index), one, wrong)
                if isinstance(one, Mapping)
                else one
                for index, one in enumerate(value)
            ]
    return any(made.spec[part] != value for part, value in before.items())


def _without_refused(
    made: Made, part: str, label: str, value: Mapping[str, Value], wrong: Mapping[tuple[str, str, str], str]
) -> dict[str, Value]:
    keys = {key: why for (of, at, key), why in wrong.items() if (of, at) == (part, label)}
    names = expand_slurm(str(value["hosts"])) if part == "pools" and keys else (str(value.get("name", "")),)
    kind = _KINDS_OF_PARTS[part]
    made.reasons |= {(kind, name, key): f"not imported: {why}" for key, why in keys.items() for name in names}
    return _less(value, frozenset(keys))


def _less(part: Mapping[str, Value], keys: frozenset[str]) -> dict[str, Value]:
    extra = part.get("extra")
    rest = {key: value for key, value in part.items() if key != "extra"}
    if not isinstance(extra, Mapping):
        return rest
    kept: dict[str, Value] = {key: value for key, value in extra.items() if key.lower() not in keys}
    return {**rest, "extra": kept} if kept else rest


def _without_topology(made: Made, site: Site, errors: Sequence[Problem]) -> bool:
    """Take the topology out of the spec if it is refused, for example a block below the base size; return whether it was."""
    slurm = made.spec["slurm"]
    of_topology = [problem for problem in errors if problem.path.startswith("slurm.topology")]
    if not of_topology or not isinstance(slurm, Mapping):
        return False
    topology = slurm["topology"]
    named = topology.get("named") if isinstance(topology, Mapping) else None
    rest: Mapping[str, Value] = named if isinstance(named, Mapping) else {}
    wrong = [name for name in rest if of_topology[0].path.startswith(f"slurm.topology.named.{name}")]
    left = {name: one for name, one in rest.items() if name not in wrong} if wrong else {}
    made.spec["slurm"] = {
        **{key: value for key, value in slurm.items() if key != "topology"},
        **({"topology": {"named": left}} if left else {}),
    }
    partitions = made.spec["partitions"]
    if isinstance(partitions, list):
        made.spec["partitions"] = [
            {key: value for key, value in one.items() if key != "topology" or value in left}
            for one in partitions
            if isinstance(one, dict)
        ]
    places = site.named if wrong else {**site.switches, **site.named}
    place = places[wrong[0]].place if wrong else next(iter(places.values())).place
    what = f"topology {wrong[0]}" if wrong else "topology"
    site.complain(place, f"the {what} is not imported: {of_topology[0].message}")
    return True


def read_rendered(artifacts: Sequence[Artifact]) -> Site:
    """Our own files, read as those of a site."""
    start = f"{names.SLURM_DIR}/"
    texts = {
        a.path.removeprefix(start): a.content.decode()
        for a in artifacts
        if a.path.startswith(start) and a.path.endswith((".conf", ".yaml"))  # job_submit.lua has no keys
    }
    first = [("slurm.conf", "slurm.conf", texts.pop("slurm.conf"))]
    several = texts.pop("topology.yaml", None)
    site = read_site(
        Reader(_NoFiles()), [*first, *((name, name, text) for name, text in sorted(texts.items()))]
    )
    if several is not None:
        read_topology_yaml(site, "topology.yaml", several)
    return site


class _NoFiles:
    """Rendered files include nothing."""

    def read(self, name: str) -> tuple[str, str]:
        raise NotReadableError(f"{name}: a rendered file includes no other")


def _read(files: Sequence[Path]) -> tuple[Site, dict[str, tuple[str, str]]]:
    """The site, and the files that are not Slurm's: kind -> name and text."""
    first, *others = _listed(files)
    folder = Folder(first.parent, tuple(others))
    reader = Reader(folder)
    texts = [("slurm.conf", str(first), require_text(folder, first))]
    kinds = {file: kind for file in others if (kind := _kind(file))}
    several = next((file for file, kind in kinds.items() if kind == "topology.yaml"), None)
    of_accounts = {
        kind: (str(file), require_text(folder, file)) for file, kind in kinds.items() if kind in _NOT_OF_SLURM
    }
    for file, kind in kinds.items():
        if kind in _NOT_OF_SLURM:
            continue
        if several is None or kind not in (
            "topology.yaml",
            "topology.conf",
        ):  # then Slurm ignores topology.conf
            texts.append((kind, str(file), require_text(folder, file)))
    site = read_site(reader, texts)
    if several is not None:
        folder.used |= {file for file, kind in kinds.items() if kind == "topology.conf"}
        read_topology_yaml(site, str(several), require_text(folder, several))
    for file in others:
        if file not in folder.used:
            raise GpuclusterError(
                f"{file}: slurm.conf does not include it, and its name is none of gres.conf, topology.conf, cgroup.conf, assoc.dump, passwd",
                next_step="leave it out",
            )
    return site, of_accounts


def _listed(files: Sequence[Path]) -> Iterator[Path]:
    """The files of a folder: slurm.conf, and the others that stand beside it."""
    if not files[0].is_dir():
        yield from files
        return
    folder = files[0]
    yield folder / "slurm.conf"
    yield from (file for _, kind in _KINDS if kind not in _NOT_OF_SLURM and (file := folder / kind).is_file())
    yield from files[1:]


def _kind(file: Path) -> str | None:
    return next((kind for part, kind in _KINDS if part in file.name.lower()), None)


def _comments(made: Made) -> Iterator[str]:
    yield "Imported by gpucluster from the files of a site."
    yield from made.made_up
