"""The table of `gpucluster k8s status` for people."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpucluster.text import printable

if TYPE_CHECKING:
    from gpucluster.k8s_apply.status import Status


def lines(found: "Status") -> Iterator[str]:
    """Yield the lines. Texts of controllers are untrusted, so they are made printable."""
    tree = found.wanted[:12]
    state = {found.wanted: f"the tree {tree} is applied", "": f"the tree {tree} is not applied"}
    yield state.get(found.applied, f"the tree {found.applied[:12]} is applied, the spec makes {tree}")
    for row in _rows(found):
        yield "  ".join(
            printable(cell, 120).ljust(width) for cell, width in zip(row, (8, 34, 22, 0), strict=True)
        ).rstrip()


def _rows(found: "Status") -> Iterator[tuple[str, str, str, str]]:
    for chart in found.charts:
        yield "chart", f"{chart.name} {chart.wanted}", chart.installed or "-", chart.state
    for wave in found.waves:
        there = wave.objects - len(wave.missing)
        words = [
            *(f"missing: {name}" for name in wave.missing),
            *(f"differs: {name}" for name in wave.changed),
        ]
        yield "wave", wave.folder, f"{there} of {wave.objects} objects", "; ".join(words)
    for pool in found.pools:
        limits = ", ".join(f"{key} {value}" for key, value in sorted(pool.limits.items()))
        yield "pool", pool.name, f"{pool.nodes} nodes", pool.waiting or (f"limit: {limits}" if limits else "")
    for queue in found.queues:
        yield "queue", queue.name, f"{queue.admitted} admitted, {queue.pending} pending", queue.waiting
        for use in queue.uses:
            yield "", f"  {use.flavor} {use.resource}", f"{use.used} of {use.quota}", ""
    for one in found.workloads:
        yield "workload", one.name, one.state, one.why
    for name in found.leftovers:
        yield "left", name, "not in the spec", ""
