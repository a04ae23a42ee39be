"""Compare the fields of a View with the variables of its template."""

import typing
from dataclasses import fields, is_dataclass
from typing import Any

from jinja2 import Environment, meta, nodes


def assert_the_same_variables(environment: Environment, source: str, view: Any) -> None:
    """Both must have the same names, also in the lines of tables."""
    used, lines = _variables(environment, source)
    assert used == {field.name for field in fields(view)}
    hints = typing.get_type_hints(view)
    tables = {
        name: typing.get_args(hint)[0] for name, hint in hints.items() if typing.get_origin(hint) is tuple
    }
    assert lines.keys() == tables.keys()
    for name, line in tables.items():
        assert is_dataclass(line)
        assert lines[name] == {field.name for field in fields(line)}, name


def _variables(environment: Environment, source: str) -> tuple[set[str], dict[str, set[str]]]:
    """The template's variables, and for each table the attributes that its loop reads."""
    tree = environment.parse(source)
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
