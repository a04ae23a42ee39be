"""The daemon's metrics: what happened is counted as the journal takes it, what stands is worked out when it is asked for.

Nothing is computed in the daemon's own thread but a few additions an event; a scrape reads immutable values in its own.
"""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from gpucluster.elastic.events import Entry
from gpucluster.elastic.memory import Memory
from gpucluster.elastic.metrics.counted import Counted
from gpucluster.elastic.metrics.standing import GAUGES, Office, Since, standing
from gpucluster.elastic.sight import Sight

__all__ = ["Meter", "Office"]


class Meter:
    """One per daemon. `sight` and `office` are called at each scrape, from the server's threads."""

    def __init__(self, sight: Callable[[], Sight], office: Callable[[], Office]) -> None:
        self._sight, self._office, self._since = sight, office, Since()
        disable_created_metrics()  # of each counter a second line that nobody asks for
        self._registry = CollectorRegistry()
        self._counted = Counted(self._registry)
        self._registry.register(_Standing(self._families))

    def count(self, entries: Sequence[Entry], before: Memory, after: Memory) -> None:
        """Take what the journal has just taken."""
        for entry in entries:
            self._counted.add(entry, before, after)

    def turned(self, seconds: float) -> None:
        """One turn of the daemon's loop took so long."""
        self._counted.turn(seconds)

    def text(self) -> bytes:
        """As Prometheus reads it."""
        self._counted.know(pool.name for pool in self._sight().plan.pools)
        return generate_latest(self._registry)

    def _families(self) -> Iterator[Metric]:
        found: dict[str, GaugeMetricFamily] = {
            name: GaugeMetricFamily(f"gpucluster_{name}", gauge.words, labels=gauge.labels)
            for name, gauge in GAUGES.items()
        }
        for name, labels, value in standing(self._sight(), self._office(), self._since):
            found[name].add_metric(labels, value)
        yield from found.values()


class _Standing:
    """A collector whose families are made anew at each scrape, so that what is gone is not shown."""

    def __init__(self, families: Callable[[], Iterator[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families()

    def describe(self) -> Sequence[Metric]:
        """Nothing is computed when it is registered."""
        return ()
