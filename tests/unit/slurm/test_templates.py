"""A View holds exactly its template's variables, both ways, down to the lines of its tables."""

import typing
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from jinja2 import meta, nodes

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
    used, lines = _variables(template)
    view = PAIRS[template]
    assert used == {field.name for field in fields(view)}
    hints = typing.get_type_hints(view)
    tables = {
        name: typing.get_args(hint)[0] for name, hint in hints.items() if typing.get_origin(hint) is tuple
    }
    assert lines.keys() == tables.keys()
    for name, line in tables.items():
        assert is_dataclass(line)
        assert lines[name] == {field.name for field in fields(line)}, name


@pytest.mark.parametrize("template", sorted(PAIRS))
def test_a_view_is_formatted_already(template: str) -> None:
    """Only text and tables of text: a template decides nothing."""
    for view in (PAIRS[template], *_tables(PAIRS[template])):
        kinds = {typing.get_origin(hint) or hint for hint in typing.get_type_hints(view).values()}
        assert kinds <= {str, tuple}


def _tables(view: Any) -> list[Any]:
    hints = typing.get_type_hints(view).values()
    return [typing.get_args(hint)[0] for hint in hints if typing.get_origin(hint) is tuple]


def _variables(template: str) -> tuple[set[str], dict[str, set[str]]]:
    """The template's variables, and for each table the attributes that its loop reads."""
    tree = environment().parse((shipped("templates") / "slurm" / template).read_text())
    lines: dict[str, set[str]] = {}
    for loop in tree.find_all(nodes.For):
        assert isinstance(loop.iter, nodes.Name)
        assert isinstance(loop.target, nodes.Name)
        name = loop.target.name
        reads = loop.find_all(nodes.Getattr)
        lines[loop.iter.name] = {
            r.attr for r in reads if isinstance(r.node, nodes.Name) and r.node.name == name
        }
    return meta.find_undeclared_variables(tree), lines
