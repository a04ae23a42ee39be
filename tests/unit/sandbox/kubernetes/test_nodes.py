"""Nodes of a pool, in the zones of real ones."""

import pytest
from support.builders import a_kube_plan

from gpucluster.plan.model.eks import EksControlPlane
from gpucluster.plan.model.kubernetes import NodePool
from gpucluster.sandbox.kubernetes import nodes

ZONE = "topology.kubernetes.io/zone"
ZONES = ("zones: [us-west-2a]", "zones: [us-west-2a, us-west-2b]")
SPOT = "{from: spot, machines: [p4de.24xlarge]}"
FIRST = "{from: spot, machines: [p4de.24xlarge], zones: [us-west-2b], max: 2}"
SECOND = "{from: on-demand, machines: [p4de.24xlarge], zones: [us-west-2a]}"


def _serve(*changes: tuple[str, str]) -> tuple[NodePool, list[tuple[str, int]]]:
    """The pool without EFA, and zone and nodes of its node groups."""
    part = a_kube_plan(*changes).kubernetes
    assert isinstance(part.control_plane, EksControlPlane)
    (pool,) = (one for one in part.pools if one.of == "serve")
    return pool, [
        (group.zones[0], group.nodes) for group in part.control_plane.groups if group.pool == "serve"
    ]


def _zones(pool: NodePool, count: int) -> list[str]:
    return [node["metadata"]["labels"][ZONE] for node in nodes.of_pool("kube", pool, count)]


def test_always_on_nodes_are_in_the_zones_of_their_node_groups() -> None:
    """Regression: all were in one zone, so a gang that no real zone can hold ran."""
    pool, groups = _serve(ZONES, ("{min: 1, max: 6}", "{min: 5, max: 6}"), (SPOT, f"{FIRST}, {SECOND}"))
    assert groups == [("us-west-2b", 2), ("us-west-2a", 3)]
    fixed = [zone for zone, count in groups for _ in range(count)]
    assert _zones(pool, 5) == fixed
    assert _zones(pool, 1) == fixed[:1]
    assert _zones(pool, 6)[:5] == fixed
    assert {one["metadata"]["labels"][ZONE] for one in nodes.of_pool("kube", pool, 5, zone="z")} == {"z"}


@pytest.mark.parametrize("count", [1, 6])
def test_nodes_of_one_zone(count: int) -> None:
    pool, _ = _serve()
    assert _zones(pool, count) == ["us-west-2a"] * count
