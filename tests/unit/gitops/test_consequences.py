"""What follows for the cluster though no wish of the same part says so."""

from dataclasses import replace

import pytest
from builders import SPEC, a_plan, a_spec_text
from expert_pairs import LAB, SHIFTED
from reviewed import a_diff, a_side

from gpucluster.gitops.consequences import consequences
from gpucluster.gitops.model import Consequence
from gpucluster.plan.model import ClusterPlan, Image, SlotRange
from gpucluster.spec import UpdateClass

TWO = "[us-east-2a, us-east-2b]"
THREE = a_spec_text((TWO, "[us-east-2a, us-east-2b, us-east-2c]"))
SPOT, DEMAND = "machines: [p5en.48xlarge, p5e.48xlarge]", "machines: [p5en.48xlarge], max: 4"
APART = ((f"{SPOT}}}", f"{SPOT}, zones: [us-east-2a]}}"), (f"{DEMAND}}}", f"{DEMAND}, zones: [us-east-2b]}}"))


def _follows(old: str, new: str) -> list[Consequence]:
    return list(a_diff(old, new).consequences)


def test_a_zone_less_takes_the_slots_of_every_pool_there() -> None:
    (one,) = _follows(THREE, SPEC)
    assert (one.path, one.update) == ("pools[h200]", UpdateClass.DRAIN)
    assert one.says == "h200-2c-[1-16] leave Slurm's files: what runs there must end first"


def test_a_zone_more_takes_nothing() -> None:
    assert _follows(SPEC, THREE) == []


def test_a_lower_max_says_so_itself() -> None:
    assert _follows(SPEC, a_spec_text(("max: 16", "max: 8"))) == []


def test_always_on_nodes_follow_their_first_source_to_another_zone() -> None:
    old = a_spec_text(*APART, ("min: 0", "min: 2"))
    first, second = (line for line in old.splitlines(keepends=True) if "- {from:" in line)
    new = old.replace(first + second, second + first)
    (one,) = _follows(old, new)
    assert (one.path, one.update) == ("pools[h200]", UpdateClass.DRAIN)
    assert one.says.startswith("the always-on nodes stand in us-east-2b instead of us-east-2a")
    assert _follows(old.replace("min: 2", "min: 0"), new.replace("min: 2", "min: 0")) == []


def test_another_image_makes_the_head_anew() -> None:
    plan = a_plan()
    assert plan.aws is not None
    (one,) = consequences(
        plan, replace(plan, aws=replace(plan.aws, image=Image(os="debian-13", id="ami-1"))), ()
    )
    assert (one.path, one.update) == ("head", UpdateClass.REPLACE)
    assert "image" in one.says


def test_a_volume_never_leaves_its_zone() -> None:
    """The state outlives the head, and not its way to another zone."""
    turned = (TWO, "[us-east-2b, us-east-2a]")
    state = ("  machine: m7i.2xlarge", "  machine: m7i.2xlarge\n  state: 100GiB")
    without = ("accept: [{id: head-state, because: it lives as long as a test}]\n", "")
    (lost,) = _follows(a_spec_text(state, without), a_spec_text(state, without, turned))
    assert lost.update is UpdateClass.DATA_LOSS
    assert lost.says.endswith("and its volumes (/srv/gpucluster-state) cannot leave their zone")
    (kept,) = _follows(SPEC, a_spec_text(turned))
    assert (kept.update, kept.says[-20:]) == (UpdateClass.REPLACE, "with the queue on it")


def test_login_machines_follow_the_head_to_another_zone() -> None:
    login = ("pools:\n", "login: {machine: m7i.xlarge}\naccess: {ssm: true}\npools:\n")
    found = _follows(a_spec_text(login), a_spec_text(login, (TWO, "[us-east-2b, us-east-2a]")))
    assert [(one.path, one.update) for one in found if one.path == "login"] == [
        ("login", UpdateClass.REPLACE)
    ]


def test_a_second_node_with_efa_is_placed_near_the_first() -> None:
    alone = (("max: 16", "max: 1"), (", max: 4}", "}"))
    (one,) = _follows(a_spec_text(*alone), a_spec_text(alone[1]))
    assert (one.path, one.update) == ("pools[h200]", UpdateClass.NEW_NODES)
    assert "near each other" in one.says


def test_a_renamed_cluster_has_no_consequences_but_its_loss() -> None:
    assert consequences(a_plan(), a_plan(("name: burst", "name: rush"), (TWO, "[us-east-2b]")), ()) == ()


def test_a_host_whose_address_is_anothers_is_named() -> None:
    """`a further host joins; no other is touched`, it said, while every name led to its neighbour."""
    (one,) = _follows(LAB, SHIFTED)
    assert one.update is UpdateClass.DRAIN
    assert "gpu01 192.0.2.11 -> 192.0.2.20, gpu02 192.0.2.12 -> 192.0.2.11, gpu03 " in one.says


def test_a_head_that_exists_is_never_destroyed() -> None:
    assert _follows(LAB, LAB.replace("192.0.2.10", "192.0.2.9")) == []


def test_as_many_cpus_of_other_sockets_are_another_look() -> None:
    other = LAB.replace("sockets: 2, cores_per_socket: 56", "sockets: 1, cores_per_socket: 112")
    plans = (a_side(LAB).plan, a_side(other).plan)
    (one,) = consequences(*plans, ())
    assert "2 x 56 x 2 CPUs" in one.says
    assert "1 x 112 x 2 CPUs" in one.says


def _with_slots(*numbers: tuple[int, int]) -> ClusterPlan:
    plan = a_plan()
    spans = tuple(SlotRange(zone="us-east-2a", prefix="n", first=a, last=b) for a, b in numbers)
    return replace(plan, pools=(replace(plan.pools[0], slots=spans),))


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ([(1, 9)], [(1, 9)], ""),
        ([(1, 9)], [(1, 12)], ""),
        ([(1, 9)], [(1, 4)], "n[5-9]"),
        ([(1, 9)], [(5, 9)], "n[1-4]"),
        ([(1, 9)], [(1, 3), (5, 7)], "n4, n[8-9]"),
        ([(1, 3), (5, 7)], [(2, 6)], "n1, n7"),
        ([(1, 9)], [], "n[1-9]"),
    ],
)
def test_lost_slots_are_named_as_ranges(
    old: list[tuple[int, int]], new: list[tuple[int, int]], lost: str
) -> None:
    found = [one.says for one in consequences(_with_slots(*old), _with_slots(*new), ())]
    assert [says.split(" leave ")[0] for says in found] == ([lost] if lost else [])
