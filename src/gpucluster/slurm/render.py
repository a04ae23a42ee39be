"""Render every file of a plan. To add one: template, View, a row in _FILES."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gpucluster import catalog
from gpucluster.artifacts import Artifact
from gpucluster.files import shipped
from gpucluster.plan import names
from gpucluster.plan.model import ClusterPlan, there
from gpucluster.slurm import known, lines, views


@dataclass(frozen=True, slots=True)
class _File:
    """A rendered file: its path in the bundle, its template, its View, and which plans have it."""

    path: str
    template: str
    view: Callable[[ClusterPlan], Any]
    of: Callable[[ClusterPlan], bool] = lambda _: True


_FILES = (
    _File(f"{names.SLURM_DIR}/slurm.conf", "slurm.conf.j2", views.slurm_conf),
    _File(f"{names.SLURM_DIR}/gres.conf", "gres.conf.j2", views.gres_conf),
    _File(f"{names.SLURM_DIR}/cgroup.conf", "cgroup.conf.j2", views.cgroup_conf),
    _File(
        f"{names.SLURM_DIR}/topology.conf", "topology.conf.j2", views.topology_conf, lambda p: bool(p.leaves)
    ),
    _File(names.HOSTS_FILE, "hosts.j2", views.hosts, lambda p: p.aws is not None),
    _File(names.HOSTS_FILE, "names.j2", views.all_names, lambda p: p.hosts is not None),
)


def render(plan: ClusterPlan) -> tuple[Artifact, ...]:
    """Slurm's files and the head's hosts lines, the plan's differing lines applied, every key checked."""
    texts = {file.path: _text(file.template, file.view(plan)) for file in _FILES if file.of(plan)}
    facts = catalog.slurm_facts(there(plan.slurm).version)
    configs = {path.removeprefix(f"{names.SLURM_DIR}/"): path for path in texts if path != names.HOSTS_FILE}
    strange = sorted({line.file for line in there(plan.slurm).lines} - configs.keys())
    if strange:
        raise ValueError(f"a Slurm line is for {', '.join(strange)}; there are {', '.join(configs)}")
    for file, path in configs.items():
        texts[path] = lines.apply(
            texts[path], [line for line in there(plan.slurm).lines if line.file == file]
        )
        known.check(file, texts[path], facts)
    return tuple(Artifact(path, texts[path].encode()) for path in sorted(texts))


def _text(template: str, view: Any) -> str:
    values = {field.name: getattr(view, field.name) for field in fields(view)}
    return environment().get_template(template).render(values)


@cache
def environment() -> Environment:
    """The one way in which templates are read."""
    return Environment(
        loader=FileSystemLoader(shipped("templates") / "slurm"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - configuration files, not HTML; names are checked by the spec
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
