"""A new spec and a deleted one: everything that it brings or leaves."""

from decimal import Decimal

import pytest
from support.builders import a_spec_text
from support.expert_pairs import KUBE, LAB
from support.reviewed import a_diff, a_side

from gpucluster.cost import Amount
from gpucluster.gitops.model import ABSENT, Compared, Kind, ResourceChange, RightChange
from gpucluster.gitops.report.markdown import markdown
from gpucluster.gitops.report.text import text
from gpucluster.gitops.report.values import values
from gpucluster.gitops.whole import created, deleted
from gpucluster.spec import UpdateClass

EAST = (("region: us-east-2", "region: us-east-1"), ("[us-east-2a, us-east-2b]", "[us-east-1a, us-east-1b]"))
SIDE = a_side(a_spec_text(*EAST), "stacks/burst.yaml")


def test_new_spec_shows_its_fields_files_pools_and_cost() -> None:
    """Regression: a new stack could not be reviewed."""
    found = created(SIDE, Compared())
    assert (found.whole, found.worst, found.old, found.new) == (
        Kind.ADDED, UpdateClass.LIVE, ABSENT, "stacks/burst.yaml",
    )  # fmt: skip
    assert {"aws", "pools", "partitions"} <= {one.path for one in found.spec}
    assert {file.kind for file in found.files} == {Kind.ADDED}
    assert [row.before for row in found.pools] == [None]
    assert (found.cost_before.most, found.cost_after) == (Amount(), SIDE.cost)
    shown = text(found)
    assert "live: The spec is new: it adds a cluster and changes no other\na month costs 3" in shown
    assert "as before" not in shown
    assert "### What the new spec has" in markdown(found, version="0", command="x")
    assert values(found)["whole"] == "added"


def test_deleted_spec_says_what_stays() -> None:
    found = deleted(SIDE, Compared())
    assert (found.whole, found.worst, found.new) == (Kind.REMOVED, UpdateClass.DATA_LOSS, ABSENT)
    assert {file.kind for file in found.files} == {Kind.REMOVED}
    assert [row.after for row in found.pools] == [None]
    comment = markdown(found, version="0", command="x")
    assert "the cluster, its jobs and its cost stay until" in comment
    assert "until the cluster is deleted" in comment
    assert "### What the deleted spec has" in comment


def test_deleted_spec_changes_no_access_right_or_resource() -> None:
    """Regression: `deleted, and nothing else` stood beside `Who gets in changes` and `62 removed`."""
    side = a_side(a_spec_text(*EAST, ("partitions:", "access: {ssm: true}\npartitions:")))
    gone = ResourceChange(type="aws:ec2/vpc:Vpc", name="burst", kind=Kind.REMOVED, update=UpdateClass.REPLACE)
    right = RightChange(
        type="aws:iam/role:Role", name="burst-head", kind=Kind.REMOVED, removed=("Allow",), added=()
    )
    found = deleted(side, Compared(resources=(gone,), rights=(right,)))
    for shown in (text(found), markdown(found, version="0", command="x")):
        assert "ets in" not in shown
        assert "1 removed" not in shown
        assert "esources: 1 of the cluster stay" in shown
        assert "Allow" not in shown
        assert "until `gpucluster down burst` deletes them" in shown.replace("\\", "")
    assert (found.access, found.resources, found.rights) == ((), (), ())


@pytest.mark.parametrize(
    ("spec", "words"),
    [(LAB, "the hosts, their jobs and their data stay as they are"), (KUBE, "until it is deleted by hand")],
)
def test_deleted_spec_names_no_command_that_does_not_apply(spec: str, words: str) -> None:
    """Regression: `gpucluster down NAME` was said of hosts and of Kubernetes, too."""
    shown = text(deleted(a_side(spec), Compared()))
    assert words in shown
    assert "gpucluster down" not in shown


def test_who_gets_in_is_shown_for_a_new_spec() -> None:
    side = a_side(a_spec_text(*EAST, ("partitions:", "access: {ssm: true}\npartitions:")))
    assert "who gets in: access: added {ssm: true}" in text(created(side, Compared()))


def test_unknown_cost_of_another_quantity_is_not_as_before() -> None:
    """Regression: a pool of machines without a price, from 4 to 64 nodes, costs `as before`."""
    only = ("machines: [p5en.48xlarge, p5e.48xlarge]", "machines: [p5e.48xlarge]")
    demand = ("      - {from: on-demand, machines: [p5en.48xlarge], max: 4}\n", "")
    old = a_spec_text(*EAST, only, demand, ("max: 16", "max: 4"))
    new = a_spec_text(*EAST, only, demand, ("max: 16", "max: 64"))
    shown = text(a_diff(old, new))
    assert "as before" not in shown
    assert "unknown: p5e.48xlarge (no on-demand price), 4 -> 64 of it" in shown
    assert "as before; unknown: p5e.48xlarge (no on-demand price)\n" in text(a_diff(old, old))


def test_quantities_of_unknown_parts_add_up_and_multiply() -> None:
    machine = Amount(unknown=("x",))
    assert (machine.times(4) + machine).quantity_of() == {"x": Decimal(5)}
    assert machine.times(0).quantity_of() == {}
    assert (machine + Amount(Decimal(1), ("y",), (Decimal(3),))).quantity_of() == {"x": 1, "y": 3}
