"""Render Slurm's files of a plan. To add a file, write a template, its View, and a row in _FILES."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gpucluster import catalog
from gpucluster.artifacts import Artifact
from gpucluster.files import shipped
from gpucluster.plan import names
from gpucluster.plan.model import Containers, LocalDatabase, Pool, SlurmLine, SlurmPlan
from gpucluster.slurm.config import accounting_views, key_check, topology, views
from gpucluster.slurm.config.extra import with_settings


@dataclass(frozen=True, slots=True)
class _File:
    """A rendered file: its path in the bundle, its template, its View, and the plans that have it."""

    path: str
    template: str
    view: Callable[[SlurmPlan], Any]
    of: Callable[[SlurmPlan], bool] = lambda _: True


JOB_SUBMIT = "job_submit.lua"  # only slurmctld reads it: configless nodes do not get it
PLUGSTACK = "plugstack.conf"  # it has no keys: each line is a plugin with its arguments
JOB_ENV = "env.sh.j2"  # one file for each pool


def _has_local_database(plan: SlurmPlan) -> bool:
    return plan.slurm.accounting is not None and isinstance(plan.slurm.accounting.database, LocalDatabase)


_FILES = (
    _File(f"{names.SLURM_DIR}/slurm.conf", "slurm.conf.j2", views.slurm_conf),
    _File(f"{names.SLURM_DIR}/gres.conf", "gres.conf.j2", views.gres_conf),
    _File(f"{names.SLURM_DIR}/cgroup.conf", "cgroup.conf.j2", views.cgroup_conf),
    _File(f"{names.SLURM_DIR}/topology.conf", "topology.conf.j2", topology.topology_conf, topology.has_conf),
    _File(f"{names.SLURM_DIR}/topology.yaml", "topology.yaml.j2", topology.topology_yaml, topology.has_yaml),
    _File(
        f"{names.SLURM_DIR}/job_container.conf",
        "job_container.conf.j2",
        views.job_container_conf,
        lambda p: p.slurm.private_tmp is not None,
    ),
    _File(
        f"{names.SLURM_DIR}/{PLUGSTACK}",
        "plugstack.conf.j2",
        views.plugstack_conf,
        lambda p: p.slurm.containers is Containers.PYXIS,
    ),
    _File(f"{names.SLURM_DIR}/{JOB_SUBMIT}", "job_submit.lua.j2", views.job_submit, views.has_job_submit),
    _File(
        names.SLURMDBD_FILE,
        "slurmdbd.conf.j2",
        accounting_views.slurmdbd_conf,
        lambda p: p.slurm.accounting is not None,
    ),
    _File(names.MARIADB_FILE, "mariadb.cnf.j2", accounting_views.mariadb_conf, _has_local_database),
    _File(names.PROFILE_FILE, "profile.sh.j2", views.profile, lambda p: p.slurm.software is not None),
    _File(names.HOSTS_FILE, "hosts.j2", views.hosts, lambda p: p.aws is not None),
    _File(names.HOSTS_FILE, "names.j2", views.all_names, lambda p: p.hosts is not None),
)


def render(plan: SlurmPlan) -> tuple[Artifact, ...]:
    """Slurm's files, the hosts file and the environment of each pool's jobs, with the lines of `plan.slurm.lines` applied and every key checked."""
    texts = {file.path: _text(file.template, file.view(plan)) for file in _FILES if file.of(plan)}
    facts = catalog.slurm_facts(plan.slurm.version)
    environments = {f"{names.ENV_DIR}/{pool.name}.sh": job_env(plan.name, pool) for pool in plan.pools}
    configs = {path.rpartition("/")[2]: path for path in texts if path.endswith(".conf")}
    configs.pop(PLUGSTACK, None)
    strange = sorted({line.file for line in plan.slurm.lines} - configs.keys())
    if strange:
        raise ValueError(f"a line is for the file {', '.join(strange)}; expected one of {', '.join(configs)}")
    if plan.slurm.settings:
        texts[configs["slurm.conf"]] = with_settings(texts[configs["slurm.conf"]], plan)
    for file, path in configs.items():
        texts[path] = apply_lines(texts[path], [line for line in plan.slurm.lines if line.file == file])
        key_check.check(file, texts[path], facts)
    return tuple(Artifact(path, text.encode()) for path, text in sorted({**texts, **environments}.items()))


def job_env(cluster: str, pool: Pool) -> str:
    """The environment of the pool's jobs, as a file that a shell reads."""
    return _text(JOB_ENV, views.job_env(cluster, pool.name, pool.environment))


def apply_lines(text: str, lines: Iterable[SlurmLine]) -> str:
    """Set, add or remove the key of each line, for a rehearsal. The case of keys does not matter, as in Slurm."""
    for line in lines:
        text = _with_line(text, line)
    return text


def _with_line(text: str, line: SlurmLine) -> str:
    changed: list[str] = []
    written = line.value is None
    for old in text.splitlines():
        if old.partition("=")[0].strip().lower() != line.key.lower():
            changed.append(old)
        elif not written:
            changed.append(f"{line.key}={line.value}")
            written = True
    if not written:
        changed.append(f"{line.key}={line.value}")
    return "\n".join(changed) + "\n"


def _text(template: str, view: Any) -> str:
    values = {field.name: getattr(view, field.name) for field in fields(view)}
    return environment().get_template(template).render(values)


@cache
def environment() -> Environment:
    """The jinja2 environment of the templates."""
    return Environment(
        loader=FileSystemLoader(shipped("templates") / "slurm"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - configuration files, not HTML; names are checked by the spec
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
