"""The daemon's metrics: events are counted when the journal stores them; the present state is computed at each scrape.

The daemon's main thread does only a few additions per event. A scrape reads immutable values in its own thread.
"""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from gpucluster.elastic.events import Entry
from gpucluster.elastic.inspect.metrics.counters import EventCounters
from gpucluster.elastic.inspect.metrics.gauges import GAUGES, LeaseStatus, Since, gauge_rows
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.memory import Memory

__all__ = ["LeaseStatus", "Meter"]


class Meter:
    """One per daemon. `snapshot` and `lease` are called at each scrape, from the server's threads."""

    def __init__(self, snapshot: Callable[[], ClusterSnapshot], lease: Callable[[], LeaseStatus]) -> None:
        self._snapshot, self._lease, self._since = snapshot, lease, Since()
        disable_created_metrics()  # no second `_created` line for each counter
        self._registry = CollectorRegistry()
        self._counted = EventCounters(self._registry)
        self._registry.register(_GaugeCollector(self._families))

    def count(self, entries: Sequence[Entry], before: Memory, after: Memory) -> None:
        """Count entries that the journal has just stored."""
        for entry in entries:
            self._counted.add(entry, before, after)

    def turned(self, seconds: float) -> None:
        """Record the duration of one pass of the daemon, in seconds."""
        self._counted.count_pass(seconds)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        self._counted.create_series(pool.name for pool in self._snapshot().plan.pools)
        return generate_latest(self._registry)

    def _families(self) -> Iterator[Metric]:
        found: dict[str, GaugeMetricFamily] = {
            name: GaugeMetricFamily(f"gpucluster_{name}", gauge.words, labels=gauge.labels)
            for name, gauge in GAUGES.items()
        }
        for name, labels, value in gauge_rows(self._snapshot(), self._lease(), self._since):
            found[name].add_metric(labels, value)
        yield from found.values()


class _GaugeCollector:
    """A collector that builds its families at each scrape, so that removed series are not shown."""

    def __init__(self, families: Callable[[], Iterator[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families()

    def describe(self) -> Sequence[Metric]:
        """Compute nothing at registration."""
        return ()
