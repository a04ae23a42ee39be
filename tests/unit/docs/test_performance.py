"""docs/performance.md names every benchmark, and `check` accepts the specs of the benchmarks."""

import runpy
from pathlib import Path

import pytest

from bench import gangs, kube, pools, render
from gpucluster import catalog
from gpucluster.spec import inspect_text

TOP = Path(__file__).parents[3]
BENCH = runpy.run_path(str(TOP / "bench/__main__.py"), run_name="bench")
NAMES = [*BENCH["BENCHES"], *BENCH["ROOTS"], *BENCH["ASKED"]]


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_is_in_the_table_of_limits(name: str) -> None:
    rows = (TOP / "docs/performance.md").read_text().splitlines()
    assert any(row.startswith(f"| `{name}` |") for row in rows), f"docs/performance.md has no row of `{name}`"


def test_table_of_limits_names_no_benchmark_that_is_gone() -> None:
    text = (TOP / "docs/performance.md").read_text()
    table = text.partition("## The limits that `make bench` holds")[2].partition("\n## ")[0]
    named = {row.split("`")[1] for row in table.splitlines() if row.startswith("| `")}
    assert named == set(NAMES)


@pytest.mark.parametrize(
    ("bench", "text"),
    [
        ("gangs", gangs.SPEC),
        ("kube", kube.text_of(teams=3, pools=kube.POOLS)),
        ("preview", pools.text_of(50)),
        ("render", render.text_of(400, pools=20, partitions=20, users=20)),
    ],
)
def test_specs_of_benchmarks_are_accepted(bench: str, text: str) -> None:
    """A new rule refused the specs of two benchmarks, and no test saw it."""
    assert inspect_text(text, f"{bench}.yaml", catalog.load()).result()
