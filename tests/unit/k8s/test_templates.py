"""A View has exactly the variables of its template, also in its rows. Each template has a View."""

import importlib
import pkgutil
import typing
from dataclasses import is_dataclass
from typing import Any

import pytest
from jinja2 import nodes
from support.template_views import assert_the_same_variables

from gpucluster.files import shipped
from gpucluster.k8s import views
from gpucluster.k8s.render import COMPONENTS, environment
from gpucluster.k8s.views.charts import KUEUE_CONFIG
from gpucluster.k8s.views.jobset_specs import TEMPLATE as JOBSET_SPEC

FOLDER = shipped("templates") / "k8s"


def _views() -> dict[str, Any]:
    """Return every View by the template that its first line names."""
    modules = [
        importlib.import_module(f"{views.__name__}.{m.name}") for m in pkgutil.iter_modules(views.__path__)
    ]
    found = [one for module in modules for one in vars(module).values() if is_dataclass(one)]
    named = [(str(one.__doc__).removeprefix("templates/k8s/"), one) for one in found]
    return {template: one for template, one in named if template.endswith(".j2")}


VIEWS = _views()


def test_every_template_is_rendered_and_has_a_view() -> None:
    on_disk = {path.name for path in FOLDER.iterdir()}
    assert (
        on_disk
        == {component.template for component in COMPONENTS} | {KUEUE_CONFIG, JOBSET_SPEC}
        == set(VIEWS)
    )


@pytest.mark.parametrize("template", sorted(VIEWS))
def test_template_and_view_have_the_same_variables(template: str) -> None:
    assert_the_same_variables(environment(), (FOLDER / template).read_text(), VIEWS[template])


@pytest.mark.parametrize("template", sorted(VIEWS))
def test_view_has_only_json_values(template: str) -> None:
    """A View has only text and tables of text, so a template decides nothing."""
    hints = typing.get_type_hints(VIEWS[template])
    assert {typing.get_origin(hint) or hint for hint in hints.values()} <= {str, tuple}
    tree = environment().parse((FOLDER / template).read_text())
    assert not list(tree.find_all((nodes.If, nodes.Filter, nodes.Call)))


@pytest.mark.parametrize("template", sorted(VIEWS))
def test_first_line_of_a_template_states_its_purpose(template: str) -> None:
    first = (FOLDER / template).read_text().splitlines()[0]
    assert first.startswith("# ")
    assert len(first) > 30
