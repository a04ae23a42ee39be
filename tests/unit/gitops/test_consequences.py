"""Tests of consequences that no single spec change reports."""

from dataclasses import replace

import pytest
from support import eks_plans
from support.audited_edits import STACKS
from support.builders import SPEC, a_kube_plan, a_plan, a_spec_text, changed
from support.expert_pairs import LAB, SHIFTED
from support.reviewed import a_diff, a_side

from gpucluster.gitops.consequences import consequences
from gpucluster.gitops.model import WAITS, Consequence
from gpucluster.plan.model import ImageById, SlotRange, SlurmOnAws, Standby
from gpucluster.spec import UpdateClass

TWO = "[us-east-2a, us-east-2b]"
THREE = a_spec_text((TWO, "[us-east-2a, us-east-2b, us-east-2c]"))
SPOT, DEMAND = "machines: [p5en.48xlarge, p5e.48xlarge]", "machines: [p5en.48xlarge], max: 4"
APART = ((f"{SPOT}}}", f"{SPOT}, zones: [us-east-2a]}}"), (f"{DEMAND}}}", f"{DEMAND}, zones: [us-east-2b]}}"))


def _follows(old: str, new: str) -> list[Consequence]:
    return list(a_diff(old, new).consequences)


def test_removed_zone_removes_its_slots() -> None:
    (one,) = _follows(THREE, SPEC)
    assert (one.path, one.update) == ("pools[h200]", UpdateClass.DRAIN)
    assert one.message == f"h200-2c-[1-16] are removed from Slurm's files: {WAITS}"


def test_added_zone_removes_nothing() -> None:
    assert _follows(SPEC, THREE) == []


def test_lower_max_has_no_extra_consequence() -> None:
    assert _follows(SPEC, a_spec_text(("max: 16", "max: 8"))) == []


def test_always_on_nodes_move_with_first_source() -> None:
    old = a_spec_text(*APART, ("min: 0", "min: 2"))
    first, second = (line for line in old.splitlines(keepends=True) if "- {from:" in line)
    new = old.replace(first + second, second + first)
    (one,) = _follows(old, new)
    assert (one.path, one.update) == ("pools[h200]", UpdateClass.DRAIN)
    assert one.message.startswith("the always-on nodes move from us-east-2a to us-east-2b")
    assert _follows(old.replace("min: 2", "min: 0"), new.replace("min: 2", "min: 0")) == []


def test_new_image_replaces_head() -> None:
    plan = a_plan()
    (one,) = consequences(plan, replace(plan, image=ImageById(os="debian-13", id="ami-1")), ())
    assert (one.path, one.update) == ("head", UpdateClass.REPLACE)
    assert "image" in one.message


def test_new_kms_key_loses_created_data() -> None:
    """A machine is replaced. A file system or a volume cannot change its key."""
    key = ("aws:\n", "aws:\n  kms_key: alias/research\n")
    (head,) = _follows(SPEC, a_spec_text(key))
    assert (head.path, head.update) == ("head", UpdateClass.REPLACE)
    assert head.message.startswith("the head's KMS key changes (the key of AWS -> alias/research)")
    home = ("partitions:", "storage: [{mount: /home, efs: {}}]\npartitions:")
    (_, one) = _follows(a_spec_text(home), a_spec_text(home, key))
    assert (one.path, one.update) == ("storage[/home]", UpdateClass.DATA_LOSS)
    assert one.message.startswith("the KMS key of /home cannot change (the key of AWS -> alias/research)")


def test_volume_cannot_change_zone() -> None:
    """The state volume survives a new head, but not a new zone."""
    turned = (TWO, "[us-east-2b, us-east-2a]")
    state = ("  machine: m7i.2xlarge", "  machine: m7i.2xlarge\n  state: 100GiB")
    without = ("{id: head-state, because: it lives as long as a test}, ", "")
    (head, lost) = _follows(a_spec_text(state, without), a_spec_text(state, without, turned))
    assert head.message.endswith("the head is deleted and created again, and the queue on it is lost")
    assert lost.update is UpdateClass.DATA_LOSS
    assert lost.message.startswith(
        "the zone of /srv/gpucluster-state cannot change (us-east-2a -> us-east-2b)"
    )
    (kept,) = _follows(SPEC, a_spec_text(turned))
    assert (kept.update, kept.message[-27:]) == (UpdateClass.REPLACE, "and the queue on it is lost")


def test_login_machines_follow_the_head_to_another_zone() -> None:
    login = ("pools:\n", "login: {machine: m7i.xlarge}\naccess: {ssm: true}\npools:\n")
    found = _follows(a_spec_text(login), a_spec_text(login, (TWO, "[us-east-2b, us-east-2a]")))
    assert [(one.path, one.update) for one in found if one.path == "login"] == [
        ("login", UpdateClass.REPLACE)
    ]


def test_second_node_with_efa_is_placed_near_the_first() -> None:
    alone = (("max: 16", "max: 1"), (", max: 4}", "}"))
    (one,) = _follows(a_spec_text(*alone), a_spec_text(alone[1]))
    assert (one.path, one.update) == ("pools[h200]", UpdateClass.NEW_NODES)
    assert "in a placement group" in one.message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ((), "`pulumi up` updates the node group of always-on nodes, which replaces node after node"),
        (eks_plans.PREPAID, "`pulumi up` deletes the node group of always-on nodes"),
    ],
    ids=["on demand", "capacity block"],
)
def test_new_image_reaches_always_on_nodes_of_eks(changes: tuple[tuple[str, str], ...], words: str) -> None:
    """EKS updates no group of a capacity block that has nodes, so a new one replaces it."""
    image = ("control_plane: eks", "control_plane: eks\n  node_image: 1.36.4-20261101")
    found = consequences(a_kube_plan(*changes), a_kube_plan(*changes, image), ())
    (tune,) = (one for one in found if one.path == "pools[tune]")
    assert tune.message == f"{words}: EKS evicts their pods"


def test_other_slices_are_other_hardware_of_nodes_of_the_site() -> None:
    site = ("control_plane: eks", "existing: {context: prod, eks_name: prod}")
    other = (("mig: {1g.10gb: 7}", "mig: {3g.40gb: 2}"), ("mig-1g.10gb: 28", "mig-3g.40gb: 8"))
    found = consequences(a_kube_plan(site), a_kube_plan(site, *other), ())
    (serve,) = (one for one in found if one.path == "pools[serve]")
    assert "each in 7 x 1g.10gb, 96 CPUs -> 8 x a100, each in 2 x 3g.40gb" in serve.message
    assert (
        "Karpenter keeps its nodes until they are empty; always-on nodes: they are made and" in serve.message
    )


def test_other_hardware_of_a_pool_without_elastic_nodes_says_nothing_of_karpenter() -> None:
    site = ("control_plane: eks", "existing: {context: prod, eks_name: prod}")
    other = ("nodes: 4\n    capacity: [{from: on-demand, machines: [p4de.24xlarge]}]", "nodes: 4\n    capacity: [{from: on-demand, machines: [p5.48xlarge]}]")  # fmt: skip
    found = consequences(a_kube_plan(site), a_kube_plan(site, other), ())
    (tune,) = (one for one in found if one.path == "pools[tune]")
    assert "always-on nodes: they are made and" in tune.message
    assert "Karpenter" not in tune.message


def _zones(*zones: str) -> tuple[tuple[str, str], ...]:
    return (("zones: [us-west-2a]", f"zones: [{', '.join(zones)}]"),)


@pytest.mark.parametrize(
    ("old", "new", "gone"),
    [
        (("us-west-2a",), ("us-west-2a", "us-west-2b"), ""),
        (("us-west-2a",), ("us-west-2a", "us-west-2c"), "us-west-2b"),
        (("us-west-2a", "us-west-2b"), ("us-west-2a", "us-west-2b", "us-west-2c"), ""),
        (("us-west-2a", "us-west-2c"), ("us-west-2a",), "us-west-2c"),
        (("us-west-2a", "us-west-2b"), ("us-west-2a",), ""),
    ],
)
def test_control_plane_of_eks_keeps_its_zones(old: tuple[str, ...], new: tuple[str, ...], gone: str) -> None:
    """A network of one zone has a second one for the control plane alone, us-west-2b. The edit was `live`, and `pulumi up` failed."""
    found = consequences(a_kube_plan(*_zones(*old)), a_kube_plan(*_zones(*new)), ())
    mine = [one for one in found if one.path == "aws.network.zones"]
    assert [one.update for one in mine] == [UpdateClass.REPLACE] * bool(gone)
    assert all(f"cannot delete the subnet in {gone}: " in one.message for one in mine)


@pytest.mark.parametrize(
    ("zones", "system", "words"),
    [
        (("us-west-2a", "us-west-2b"), "", []),
        (("us-west-2a", "us-west-2b"), "{machine: m7i.2xlarge}", ["`pulumi up` deletes the node group of always-on nodes"]),
        (("us-west-2a", "us-west-2b"), "{nodes: 1}", ["EKS ends some of the always-on nodes"]),
    ],
)  # fmt: skip
def test_added_zone_leaves_the_nodes_of_the_add_ons(
    zones: tuple[str, ...], system: str, words: list[str]
) -> None:
    """The program ignores changes of their subnets. A group that another edit replaces is made in all zones."""
    part = (("control_plane: eks", f"control_plane: eks\n  system: {system}"),) if system else ()
    found = consequences(a_kube_plan(), a_kube_plan(*_zones(*zones), *part), ())
    mine = [one.message for one in found if one.path == "kubernetes.system"]
    assert mine == [f"{word}: EKS evicts their pods" for word in words]


def test_renamed_cluster_has_no_consequences_but_its_loss() -> None:
    assert consequences(a_plan(), a_plan(("name: burst", "name: rush"), (TWO, "[us-east-2b]")), ()) == ()


def test_host_with_swapped_address_is_named() -> None:
    """Regression: the report was `a host is added; no other host changes`, but every name had its neighbour's address."""
    (one,) = _follows(LAB, SHIFTED)
    assert one.update is UpdateClass.DRAIN
    assert "gpu01 192.0.2.11 -> 192.0.2.20, gpu02 192.0.2.12 -> 192.0.2.11, gpu03 " in one.message


def test_existing_head_is_never_deleted() -> None:
    assert _follows(LAB, LAB.replace("192.0.2.10", "192.0.2.9")) == []


def test_different_sockets_are_different_hardware() -> None:
    other = LAB.replace("sockets: 2, cores_per_socket: 56", "sockets: 1, cores_per_socket: 112")
    plans = (a_side(LAB).plan, a_side(other).plan)
    (one,) = consequences(*plans, ())
    assert "2 x 56 x 2 CPUs" in one.message
    assert "1 x 112 x 2 CPUs" in one.message


def _with_slots(*numbers: tuple[int, int]) -> SlurmOnAws:
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
        ([(1, 9)], [(1, 3), (5, 7)], "n[4,8-9]"),
        ([(1, 3), (5, 7)], [(2, 6)], "n[1,7]"),
        ([(1, 9)], [], "n[1-9]"),
    ],
)
def test_lost_slots_are_named_as_ranges(
    old: list[tuple[int, int]], new: list[tuple[int, int]], lost: str
) -> None:
    found = [one.message for one in consequences(_with_slots(*old), _with_slots(*new), ())]
    assert [message.split(" are removed ")[0] for message in found] == ([lost] if lost else [])


@pytest.mark.parametrize(
    ("old", "new", "follows"), [("min: 0", "min: 2", 0), ("min: 2", "min: 0", 0), ("min: 2", "min: 2", 1)]
)
def test_always_on_nodes_move_only_where_there_are_some_on_both_sides(
    old: str, new: str, follows: int
) -> None:
    text = a_spec_text(*APART)
    first, second = (line for line in text.splitlines(keepends=True) if "- {from:" in line)
    moved = text.replace(first + second, second + first)
    told = _follows(text.replace("min: 0", old), moved.replace("min: 0", new))
    assert len([one for one in told if "always-on" in one.message]) == follows


def test_standby_keeps_state_of_moved_head() -> None:
    plan = a_plan()
    assert plan.head is not None
    alone = replace(plan, head=replace(plan.head, standby=None, volumes=()))
    standby = Standby(machine="m7i.large", address="10.42.32.11", zone="us-east-2b", state="/state")
    pair = replace(plan, head=replace(plan.head, standby=standby, volumes=()))
    said = {}
    for name, one in (("alone", alone), ("pair", pair)):
        assert one.head is not None
        moved = replace(one, head=replace(one.head, address="10.42.0.20"))
        (found,) = consequences(one, moved, ())
        said[name] = found.message.rpartition(", ")[2]
    assert said == {"alone": "and the queue on it is lost", "pair": "and keeps its state"}


ELASTIC = (
    ("tune,  nodes: 4,", "tune,  nodes: {min: 2, max: 8},"),
    ("us-west-2a]", "us-west-2a, us-west-2b]"),
)
TUNE_IS_P5 = ("{min: 2, max: 8}, capacity: [{from: on-demand, machines: [p4de.24xlarge]", "{min: 2, max: 8}, capacity: [{from: on-demand, machines: [p5.48xlarge]")  # fmt: skip


def _changed(stack: str, *changes: tuple[str, str]) -> str:
    text = (STACKS / f"{stack}.yaml").read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def test_parts_of_a_pool_have_the_consequences_of_the_pool_once() -> None:
    """Regression: each part was a pool of its own, beside the change of the pool."""
    found = _follows(_changed("kube", *ELASTIC), _changed("kube", *ELASTIC, TUNE_IS_P5))
    assert [one.path for one in found if "hardware" in one.message] == ["pools[tune]"]
    assert {one.path for one in found} == {"pools[tune]"}


def test_pool_that_becomes_elastic_keeps_its_always_on_nodes() -> None:
    """Regression: the name of its part was a tag of their launch template, so EKS replaced each of them."""
    was = ("tune,  nodes: 4,", "tune,  nodes: 2,")
    found = _follows(
        _changed("kube", was, ("nvidia.com/gpu: 32", "nvidia.com/gpu: 16")),
        _changed("kube", ("tune,  nodes: 4,", "tune,  nodes: {min: 2, max: 4},")),
    )
    assert found == []


def test_part_of_a_pool_beside_slurm_is_of_kubernetes() -> None:
    """Regression: its name is not that of the pool, so the note spoke of the head's bundle."""
    old = _changed("hybrid", ("kubernetes, nodes: 4,", "kubernetes, nodes: {min: 2, max: 8},"))
    found = a_diff(old, old.replace("{min: 2, max: 8}", "{min: 2, max: 6}"))
    (change,) = found.spec
    assert (change.path, change.update) == ("pools[tune].nodes.max", UpdateClass.NEW_NODES)
    assert "Karpenter" in change.why
    assert found.effects is not None
    assert "gpucluster k8s up hybrid --bindings bindings.json" in found.effects.steps


@pytest.mark.parametrize("stack", ["kube", "hybrid"])
def test_nodes_of_a_control_plane_that_is_replaced_are_not_updated(stack: str) -> None:
    """Regression: "updates the node group" stood beside "pods end"."""
    text = (STACKS / f"{stack}.yaml").read_text()
    key = ("region: us-west-2,", "region: us-west-2, kms_key: alias/research,")
    said = " ".join(one.message for one in a_diff(text, changed(text, key)).consequences)
    assert "node group" not in said
    assert "the driver" not in said
