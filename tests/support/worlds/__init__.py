"""Tables of worlds by topic, for the golden decisions of tests/unit/elastic/test_decisions.py."""

from collections.abc import Callable, Mapping

from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from support.worlds.blocked import BLOCKED
from support.worlds.interruptions import INTERRUPTIONS
from support.worlds.launches import LAUNCHES
from support.worlds.nodes import NODES

WORLDS: Mapping[str, Mapping[str, Callable[[], ClusterSnapshot]]] = {
    "blocked": BLOCKED,
    "interruptions": INTERRUPTIONS,
    "launches": LAUNCHES,
    "nodes": NODES,
}
