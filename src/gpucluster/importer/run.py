"""Import a site: read its files, write the spec, render it, and compare the rendered files with those of the site."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpucluster import catalog
from gpucluster.artifacts import Artifact
from gpucluster.errors import GpuclusterError
from gpucluster.importer import beside
from gpucluster.importer.accounts_beside import accounts_beside
from gpucluster.importer.associations import fields_of, read_associations, read_uids
from gpucluster.importer.differences import Difference, compare
from gpucluster.importer.files import Folder, require_text
from gpucluster.importer.lines import Complaint, NotReadableError, Reader
from gpucluster.importer.made import Made
from gpucluster.importer.people import read_people, report_members, with_groups
from gpucluster.importer.read_site import read_site
from gpucluster.importer.refused import valid_spec
from gpucluster.importer.restrictions import with_restrictions
from gpucluster.importer.site import Site
from gpucluster.importer.to_spec import to_spec
from gpucluster.importer.topology_yaml import read_topology_yaml
from gpucluster.plan import names
from gpucluster.plan.resolve import resolve
from gpucluster.slurm.config.render import render
from gpucluster.spec import Problem
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
_GROUP = "group"  # the whole name: it is a part of other names
_NOT_OF_SLURM = ("associations", "passwd", _GROUP)


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
    text, report = valid_spec(made, site, of_accounts)
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
    rendered, people = read_rendered(render(plan)), read_people(of_accounts)
    with_groups(site, rendered, made, people)
    report_members(site, made, plan, people)
    return Imported(
        name=plan.name,
        text=text,
        made=made,
        site=site,
        differences=compare(site, rendered, made, version),
        complaints=tuple(sorted(site.complaints, key=lambda one: one.place)),
        warnings=report.problems,
    )


def _with_accounts(made: Made, site: Site, files: Mapping[str, tuple[str, str]]) -> None:
    """Add the accounts of the dump to the spec, and the database on the head for them."""
    if "associations" not in files:
        return
    found = read_associations(site, *files["associations"])
    made.lost_exemptions = found.exemptions
    made.left_out_names = frozenset((kind.lower(), name.lower()) for kind, name in found.left_out)
    uids = read_uids(files.get("passwd", ("", ""))[1])
    made.without_uid = frozenset(found.users) - uids.keys()
    parts, sentences = fields_of(site, found, uids)
    if "accounts" not in parts:
        return
    made.spec |= {**parts, "slurm": {**made.slurm, "accounting": {"database": "local"}}}
    made.made_up = (
        *made.made_up,
        *sentences,
        "the database is a new one on the head: its first records are those of new jobs.",
    )


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
        ignored = several is not None and kind.startswith("topology.")  # Slurm reads one of them
        if kind not in (*_NOT_OF_SLURM, *beside.FILES) and not ignored:
            texts.append((kind, str(file), require_text(folder, file)))
    site = read_site(reader, texts)
    for file, kind in kinds.items():
        if kind in beside.FILES:
            beside.report_file(site, kind, str(file), require_text(folder, file))
    if several is not None:
        folder.used |= {file for file, kind in kinds.items() if kind == "topology.conf"}
        read_topology_yaml(site, str(several), require_text(folder, several))
    for file in others:
        if file not in folder.used:
            raise GpuclusterError(
                f"{file}: slurm.conf does not include it, and its name is none of gres.conf, topology.conf, cgroup.conf, assoc.dump, passwd, group",
                next_step="leave it out",
            )
    if files[0].is_dir():
        of_accounts |= dict(accounts_beside(site, folder, of_accounts.keys()))
    return site, of_accounts


def _listed(files: Sequence[Path]) -> Iterator[Path]:
    """The files of a folder: slurm.conf, and the others that stand beside it."""
    if not files[0].is_dir():
        yield from files
        return
    folder = files[0]
    yield folder / "slurm.conf"
    kinds = (kind for _, kind in _KINDS if kind not in _NOT_OF_SLURM)
    yield from (file for kind in (*kinds, *beside.FILES) if (file := folder / kind).is_file())
    yield from files[1:]


def _kind(file: Path) -> str | None:
    if file.name in beside.FILES:
        return file.name
    name = file.name.lower()
    return _GROUP if name == _GROUP else next((kind for part, kind in _KINDS if part in name), None)
