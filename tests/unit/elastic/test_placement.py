"""The slots that a waiting job can use, by its own constraints and by the state of the nodes."""

import pytest

from gpucluster.elastic.decide.placement import Need, Part, has_features, is_open, lacking
from gpucluster.elastic.decide.reserved import Holds
from gpucluster.slurm.values import SlurmNode

INSIDE = Holds(named=frozenset({"course"}), inside=())
ZONE = ("a-1", "a-2", "a-3", "a-4")


def node(name: str = "a-1", states: str = "IDLE CLOUD", reservation: str = "") -> SlurmNode:
    return SlurmNode(
        name=name, states=frozenset(states.split()), reservation=reservation, features=("spot", "h200")
    )


def need(**changes: object) -> Need:
    return Need((), (Part(**changes),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("features", "constraint", "meets"),
    [
        (("spot", "h200"), "spot", True),
        (("spot", "h200"), "on-demand", False),
        (("spot", "h200"), "spot&h200", True),
        (("spot", "h200"), "spot&h100", False),
        (("spot", "h200"), "h100|h200", True),
        (("spot", "h200"), "h100|a100", False),
        (("spot", "h200"), "[rack1*2&rack2*4]", True),  # too complex to read: it counts as met
        (("spot", "h200"), "(h100&spot)|a100", True),
    ],
)
def test_features_meet_a_constraint(features: tuple[str, ...], constraint: str, meets: bool) -> None:
    assert has_features(features, constraint) is meets


@pytest.mark.parametrize(
    ("wants", "machine", "allowed"),
    [
        (need(), node(), True),
        (need(excluded=frozenset({"a-1"})), node(), False),
        (need(excluded=frozenset({"a-2"})), node(), True),
        (need(), node(states="IDLE CLOUD RESERVED", reservation="course"), False),
        (need(), node(states="IDLE CLOUD MAINTENANCE"), False),
        (need(holds=INSIDE), node(states="IDLE CLOUD RESERVED", reservation="course"), True),
        (need(holds=INSIDE), node(states="IDLE CLOUD RESERVED", reservation="exam"), False),
        (need(holds=INSIDE), node(), False),
        (Need((), (Part(holds=INSIDE), Part())), node(), True),  # one component of a het job may use it
        (need(features="on-demand"), node(), False),
        (need(features="spot"), node(), True),
        (Need((), (Part(features="h100"), Part(features="on-demand"))), node(), False),
        (Need((), (Part(features="h100"), Part(features="spot"))), node(), True),
        (need(near=frozenset({"a-1", "a-2"})), node(), True),
        (need(near=frozenset({"a-2"})), node(), False),
    ],
)
def test_need_allows_a_node(wants: Need, machine: SlurmNode, allowed: bool) -> None:
    assert wants.allows(machine) is allowed


@pytest.mark.parametrize(
    ("states", "opens"),
    [
        ("IDLE CLOUD", True),
        ("IDLE CLOUD RESERVED", True),  # its reservation decides
        ("IDLE CLOUD COMPLETING", False),
        ("IDLE CLOUD DRAIN", False),
        ("IDLE CLOUD FAIL", False),
        ("IDLE CLOUD INVALID_REG", False),  # it registered with less than slurm.conf says
        ("IDLE CLOUD POWER_DOWN", False),
        ("MIXED CLOUD", False),
    ],
)
def test_node_that_is_open_for_a_job(states: str, opens: bool) -> None:
    assert is_open(node(states=states)) is opens


@pytest.mark.parametrize(
    ("count", "required", "idle", "free", "found"),
    [
        (2, (), (), ("a-1", "a-2", "a-3"), ("a-1", "a-2")),
        (2, (), ("a-4",), ("a-1",), ("a-1",)),
        (2, (), ("a-3", "a-4"), ("a-1",), ()),
        (3, (), ("a-4",), ("a-1",), None),
        (1, ("a-3",), (), ("a-1", "a-3"), ("a-3",)),
        (2, ("a-3",), ("a-4",), ("a-1", "a-3"), ("a-3",)),
        (1, ("a-3",), ("a-4",), ("a-1",), None),  # its required node is neither idle nor free
        (1, ("a-3",), ("a-3",), ("a-1",), ()),
        (2, ("a-2", "a-3"), ("a-1", "a-4"), ("a-2", "a-3"), ("a-2", "a-3")),
        (1, ("b-1",), ("a-1",), ("a-2",), None),  # its required node is in another zone
    ],
)
def test_zone_lacks_slots_for_a_need(
    count: int,
    required: tuple[str, ...],
    idle: tuple[str, ...],
    free: tuple[str, ...],
    found: tuple[str, ...] | None,
) -> None:
    assert lacking(need(count=count, required=frozenset(required)), idle, free, ZONE) == found
