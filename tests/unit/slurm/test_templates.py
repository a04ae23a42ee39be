"""A View holds exactly its template's variables, both ways, down to the lines of its tables."""

import typing
from typing import Any

import pytest
from template_views import assert_the_same_variables

from gpucluster.files import shipped
from gpucluster.slurm import views
from gpucluster.slurm.render import _FILES, environment

PAIRS = {
    "slurm.conf.j2": views.SlurmConf,
    "gres.conf.j2": views.GresConf,
    "cgroup.conf.j2": views.CgroupConf,
    "topology.conf.j2": views.TopologyConf,
    "hosts.j2": views.Hosts,
    "names.j2": views.Names,
}


def test_every_template_is_rendered_and_has_a_view() -> None:
    on_disk = {path.name for path in (shipped("templates") / "slurm").iterdir()}
    assert on_disk == {file.template for file in _FILES} == set(PAIRS)


@pytest.mark.parametrize("template", sorted(PAIRS))
def test_template_and_view_name_the_same_variables(template: str) -> None:
    assert_the_same_variables(
        environment(), (shipped("templates") / "slurm" / template).read_text(), PAIRS[template]
    )


@pytest.mark.parametrize("template", sorted(PAIRS))
def test_a_view_is_formatted_already(template: str) -> None:
    """Only text and tables of text: a template decides nothing."""
    for view in (PAIRS[template], *_tables(PAIRS[template])):
        kinds = {typing.get_origin(hint) or hint for hint in typing.get_type_hints(view).values()}
        assert kinds <= {str, tuple}


def _tables(view: Any) -> list[Any]:
    hints = typing.get_type_hints(view).values()
    return [typing.get_args(hint)[0] for hint in hints if typing.get_origin(hint) is tuple]
