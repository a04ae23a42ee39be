"""The work of `check` and `resolve` grows in proportion to the spec. The calls of functions are counted, so no clock decides."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from bench import kube, pools, render
from gpucluster import catalog
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text, inspect_workloads_text

HOSTS = 160


def _hosts(*, partitions: int = 8, users: int = 10) -> str:
    return render.text_of(HOSTS, pools=8, partitions=partitions, users=users)


SPECS: dict[str, Callable[[int], str]] = {
    "teams": lambda n: kube.text_of(teams=n, pools=4),
    "pools of Kubernetes": lambda n: kube.text_of(teams=4, pools=n),
    "pools of Slurm": pools.text_of,
    "partitions": lambda n: _hosts(partitions=n),
    "users and accounts": lambda n: _hosts(users=10 * n),
}


def _calls(work: Callable[[], object]) -> int:
    count = 0

    def seen(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def _growth(work: Callable[[int], object]) -> float:
    """Return 2 if the work is linear in its size, and 4 if it is quadratic. The first run fills caches."""
    work(10)
    small, middle, large = (_calls(lambda size=size: work(size)) for size in (10, 20, 40))
    return (large - middle) / (middle - small)


@pytest.mark.parametrize("name", SPECS)
def test_spec_twice_as_large_takes_twice_the_calls(name: str) -> None:
    """The queue of each team was computed from the quotas of all teams: 1,000 teams took minutes."""
    facts = catalog.load()
    growth = _growth(lambda n: resolve(inspect_text(SPECS[name](n), "x.yaml", facts).result(), facts))
    assert growth < 2.5, f"{name}: {growth:.2f}"


@pytest.mark.parametrize("kind", ["train", "serve"])
def test_workloads_twice_as_many_take_twice_the_calls(kind: str) -> None:
    facts = catalog.load()
    spec = inspect_text(kube.text_of(teams=4, pools=4), "x.yaml", facts).result()
    row = {
        "train": "nodes: 1, gpus_per_node: 2",
        "serve": "port: 8000, replicas: {min: 1, max: 1}, resources: {nvidia.com/gpu: 1}",
    }[kind]

    def text(count: int) -> str:
        rows = (
            f"  - {{name: w{n}, team: t{n % 4}, image: registry.example.org/a:2.0, {row}}}\n"
            for n in range(count)
        )
        return f"schema: 1\ncluster: many\n{kind}:\n{''.join(rows)}"

    growth = _growth(lambda n: inspect_workloads_text(text(n), "w.yaml", spec, facts).result())
    assert growth < 2.5, f"{kind}: {growth:.2f}"
