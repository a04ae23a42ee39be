"""Each View has exactly the variables of its template, also in the lines of its tables."""

import typing
from typing import Any

import pytest
from support.template_views import assert_the_same_variables

from gpucluster.files import shipped
from gpucluster.slurm.config import accounting_views, topology, views
from gpucluster.slurm.config.render import _FILES, JOB_ENV, environment

PAIRS = {
    "slurm.conf.j2": views.SlurmConf,
    "gres.conf.j2": views.GresConf,
    "cgroup.conf.j2": views.CgroupConf,
    "job_container.conf.j2": views.JobContainerConf,
    "slurmdbd.conf.j2": accounting_views.SlurmdbdConf,
    "mariadb.cnf.j2": accounting_views.MariadbConf,
    "topology.conf.j2": topology.TopologyConf,
    "topology.yaml.j2": topology.TopologyYaml,
    "job_submit.lua.j2": views.JobSubmit,
    "hosts.j2": views.Hosts,
    "names.j2": views.Names,
    "env.sh.j2": views.JobEnv,
    "profile.sh.j2": views.Profile,
    "plugstack.conf.j2": views.PlugstackConf,
}


def test_every_template_is_rendered_and_has_a_view() -> None:
    on_disk = {path.name for path in (shipped("templates") / "slurm").glob("*.j2")}
    assert on_disk == {file.template for file in _FILES} | {JOB_ENV} == set(PAIRS)


@pytest.mark.parametrize("template", sorted(PAIRS))
def test_template_and_view_have_the_same_variables(template: str) -> None:
    assert_the_same_variables(
        environment(), (shipped("templates") / "slurm" / template).read_text(), PAIRS[template]
    )


@pytest.mark.parametrize("template", sorted(PAIRS))
def test_view_has_only_text_and_tables(template: str) -> None:
    """Only text and tables of text, so that a template formats nothing."""
    for view in (PAIRS[template], *_tables(PAIRS[template])):
        kinds = {typing.get_origin(hint) or hint for hint in typing.get_type_hints(view).values()}
        assert kinds <= {str, tuple}


def _tables(view: Any) -> list[Any]:
    hints = typing.get_type_hints(view).values()
    return [typing.get_args(hint)[0] for hint in hints if typing.get_origin(hint) is tuple]
