"""What an edit does to the quotas of teams and to the flavors of pools."""

import pytest
from support.audited_edits import STACKS, Change
from support.reviewed import a_diff

from gpucluster.gitops.model import Effects

KUBE = (STACKS / "kube.yaml").read_text()
FIRST = "    - {name: first, quota: {nvidia.com/gpu: 16}}\n"
SECOND = "    - {name: second, quota: {nvidia.com/gpu: 16}}\n"
TUNE = next(line for line in KUBE.splitlines(keepends=True) if line.startswith("  - {name: tune,"))
RESEARCH = KUBE[KUBE.index("    - name: research\n") : KUBE.index("storage:")]
HALVES: tuple[Change, ...] = (  # two pools of two nodes, and a team for each
    (RESEARCH, f"{FIRST}{SECOND}"),
    (TUNE, f"{TUNE.replace('nodes: 4', 'nodes: 2')}{TUNE.replace('tune,', 'more,').replace('nodes: 4', 'nodes: 2')}"),
)  # fmt: skip
RECLAIM = ": Kueue ends them, and queues them again, when another team needs its quota"


def _edited(text: str, changes: tuple[Change, ...]) -> str:
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def _effects(*changes: Change, base: tuple[Change, ...] = ()) -> Effects:
    old = _edited(KUBE, base)
    found = a_diff(old, _edited(old, changes)).effects
    assert found is not None
    return found


@pytest.mark.parametrize(("policy", "rest"), [("any", RECLAIM), ("never", "")])
def test_other_order_of_teams_swaps_their_pools(policy: str, rest: str) -> None:
    """Teams fill pools in their order. Regression: `diff` said only that pods go on."""
    never: Change = ("preemption: {", f"preemption: {{reclaim_within_cohort: {policy}, ")
    found = _effects((f"{FIRST}{SECOND}", f"{SECOND}{FIRST}"), base=(*HALVES, never))
    assert found.running == (
        f"go on; those of the team first above its smaller quota of tune count as borrowed{rest}; "
        f"those of the team second above its smaller quota of more count as borrowed{rest}"
    )
    assert found.queued == "stay in the queue"


def test_smaller_quota_is_told_and_a_larger_one_is_not() -> None:
    less: Change = ("nvidia.com/gpu: 32", "nvidia.com/gpu: 16")
    words = f"those of the team research above its smaller quota of tune count as borrowed{RECLAIM}"
    assert _effects(less).running == f"go on; {words}"
    assert _effects((less[1], less[0]), base=(less,)).running == "go on"


def test_pool_with_another_topology_has_another_flavor() -> None:
    """Its gangs run on nodes that the new flavor offers to others. Regression: the apply was refused."""
    found = _effects(("nodes: 4,", "nodes: {min: 4, max: 5},"))
    words = "those of tune stay in the old flavor, and the quota of the new one does not count them"
    assert words in found.running
    assert "above its smaller quota" not in found.running
    words = "those for tune can be admitted while others still have the nodes, and then wait for them"
    assert words in found.queued
    assert found.steps[-1].startswith("gpucluster k8s up kube --bindings bindings.json --prune")


def test_quota_of_a_removed_team_or_pool_is_told_with_it() -> None:
    serving = "    - {name: serving,  quota: {nvidia.com/mig-1g.10gb: 28}, may_borrow: true, share: 2}\n"
    assert "count as borrowed" not in _effects((serving, "")).running


BORROWS = "quota: {nvidia.com/mig-1g.10gb: 28}, may_borrow: true, share: 2}"
SOME = "quota: {nvidia.com/mig-1g.10gb: 14%s}%s}"
PRUNE = "`gpucluster k8s up kube --prune`"


def _borrows(more: str = "") -> tuple[Change, Change]:
    """A team that may borrow, and the edit that takes it away."""
    lent = SOME % (more, ", may_borrow: true")
    return (BORROWS, lent), (lent, SOME % (more, ""))


def test_team_that_borrows_no_more_has_work_that_never_starts() -> None:
    """Regression: `diff` said that it stays in the queue, as if it would start."""
    lent, lost = _borrows()
    words = (
        "those of the team serving that need more than 14 nvidia.com/mig-1g.10gb in one pool are not admitted any more:"
        " the team can have no more, also borrowed"
    )
    assert _effects(lost, base=(lent,)).queued == f"stay in the queue; {words}"
    assert _effects((lost[1], lost[0]), base=((BORROWS, lost[1]),)).queued == "stay in the queue"


def test_team_without_a_quota_that_borrows_no_more_has_nothing() -> None:
    lent, lost = _borrows(", nvidia.com/gpu: 0")
    words = "those of the team serving that need nvidia.com/gpu are not admitted any more"
    assert words in _effects(lost, base=(lent,)).queued


def test_smaller_pool_is_not_told_as_less_to_borrow() -> None:
    less: Change = (TUNE, TUNE.replace("nodes: 4", "nodes: 2"))
    assert "not admitted any more" not in _effects(("nvidia.com/gpu: 32", "nvidia.com/gpu: 16"), less).queued


def test_renamed_team_has_its_quota_twice_until_prune() -> None:
    """Regression: both queues together had more quota than there are GPUs, and `diff` did not say so."""
    found = _effects(("    - name: research\n", "    - name: science\n"))
    assert (
        "those of other teams can be admitted for nodes that the pods of research have, and then wait for them:"
        f" the queue of research keeps its quota until {PRUNE}"
    ) in found.queued


def test_resource_that_no_pool_has_any_more_is_told() -> None:
    """Other slices: a service that asks for the old ones never starts again. Regression: waiting pods stayed in the queue."""
    slices: tuple[Change, ...] = (
        ("mig: {1g.10gb: 7}", "mig: {2g.20gb: 3}"),
        ("nvidia.com/mig-1g.10gb: 28", "nvidia.com/mig-2g.20gb: 6"),
    )
    said = "those that need nvidia.com/mig-1g.10gb never start: no pool has it any more"
    assert _effects(*slices).queued == f"stay in the queue; {said}"
    back = tuple((new, old) for old, new in slices)
    assert said.replace("1g.10gb", "2g.20gb") in _effects(*back, base=slices).queued
