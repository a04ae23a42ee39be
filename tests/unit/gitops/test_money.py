"""What a change costs: of the least and of the most, machines that start at once, reservations, and two clusters at a time."""

from pathlib import Path

import pytest
from support.builders import SPEC, a_spec_text
from support.expert_pairs import LAB
from support.reviewed import a_diff

from gpucluster.gitops.report import words
from gpucluster.spec import UpdateClass

STACKS = Path(__file__).parents[3] / "stacks"
STEADY, FIRST, RESEARCH = ((STACKS / f"{name}.yaml").read_text() for name in ("steady", "first", "research"))
ALWAYS = ("min: 0", "min: 16")


def test_the_change_of_the_least_is_said() -> None:
    """A pool that is always on from now costs 739,297 USD a month more, and the report said +0.00 USD."""
    found = a_diff(FIRST, FIRST.replace(*ALWAYS))
    assert words.cost(found).endswith("(+739,297.28 USD at least, +0.00 USD at most)")
    assert list(words.starts(found)) == [
        "16 machines start at once in the pool h200, to stay: 1,012.74 USD an hour"
    ]
    back = a_diff(FIRST.replace(*ALWAYS), FIRST)
    assert words.cost(back).endswith("(-739,297.28 USD at least, +0.00 USD at most)")
    assert list(words.starts(back)) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("spares: 1", "spares: 3", "2 machines start at once in the pool h200, to stay: 80.00 USD an hour"),
        ("spares: 1", "spares: 2", "1 machine starts at once in the pool h200, to stay: 40.00 USD an hour"),
    ],
)
def test_spares_start_at_once_and_stay(old: str, new: str, said: str) -> None:
    assert list(words.starts(a_diff(STEADY, STEADY.replace(old, new)))) == [said]


def test_machines_without_a_price_start_too() -> None:
    found = a_diff(SPEC, a_spec_text(ALWAYS))
    assert list(words.starts(found)) == ["16 machines start at once in the pool h200, to stay: unknown price"]


def test_a_reservation_is_paid_whether_it_is_used_or_not() -> None:
    """The least fell when its pool became elastic."""
    found = a_diff(STEADY, STEADY.replace("nodes: 2  ", "nodes: {min: 0, max: 2}"))
    assert words.cost(found).endswith(", as before")


def test_a_renamed_cluster_costs_in_addition_to_the_old_one() -> None:
    found = a_diff(SPEC, a_spec_text(("name: burst", "name: other"), ALWAYS))
    said = words.cost(found)
    assert " for other, and in addition " in said
    assert " for burst, until `gpucluster down burst` deletes it" in said
    assert [one for one in words.starts(found) if one.startswith("16 machines start")]
    assert found.effects is not None
    assert found.effects.steps[-1].startswith("gpucluster down burst ")
    assert {one.path: one.update for one in found.spec} == {
        "name": UpdateClass.DATA_LOSS, "pools[h200].nodes.min": UpdateClass.NONE,
    }  # fmt: skip


def test_another_name_of_hosts_is_no_second_cluster() -> None:
    found = a_diff(LAB, LAB.replace("name: lab", "name: other"))
    assert (found.stays_beside, list(words.starts(found))) == ("", [])


@pytest.mark.parametrize(
    ("old", "new", "subject", "said"),
    [
        (STEADY, STEADY[: STEADY.index("budget:")] + STEADY[STEADY.index("access:") :], "queued", "nodes are launched for them again, also where the budget had stopped launches"),
        (STEADY, STEADY.replace("    spares: 1", "    boot_timeout: 5m\n    spares: 1"), "queued", "a node of h200 that is not up 5m after its launch fails, also one that boots now, and one whose agent is silent for 100s"),
        (RESEARCH, RESEARCH.replace(", exempt: 10m", ""), "running", "those younger than 10m may be preempted at once"),
    ],
    ids=["budget", "boot_timeout", "exempt"],
)  # fmt: skip
def test_protections_that_leave_are_named(old: str, new: str, subject: str, said: str) -> None:
    """The report said that all goes on."""
    found = a_diff(old, new).effects
    assert found is not None
    assert said in getattr(found, subject)
