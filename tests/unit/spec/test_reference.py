"""docs/spec.md is generated from the models; its examples come from files that other tests read."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpucluster.spec.reference import reference_text
from gpucluster.spec.tree import plain
from gpucluster.spec.yaml import parse

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "spec.md"


def _documents(folder: str) -> Iterator[object]:
    files = sorted((ROOT / folder).glob("*.yaml"), key=lambda file: file.name != "burst.yaml")
    return (plain(parse(file.read_text()).root) for file in files)


def test_committed_page_equals_the_generated_page(request: pytest.FixtureRequest) -> None:
    text = reference_text(_documents("stacks"), _documents("workloads"))
    if request.config.getoption("--update-golden"):
        PAGE.write_text(text)
    assert PAGE.is_file(), "docs/spec.md is missing: make golden"
    assert text == PAGE.read_text(), "docs/spec.md is stale: make golden, then read git diff"


def test_every_field_has_an_example() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) > 150
    bare = [row for row in rows if row.endswith("|  |") and "mapping" not in row.split("|")[2]]
    assert not bare
