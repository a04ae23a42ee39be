"""The sentences and commands of edits that an auditor tried, with resources, which is the tool's default, and without."""

import re
from functools import cache

import pytest
from support import audited_edits, audited_hosts, audited_pods
from support.audited_edits import Audited
from support.planned_diffs import a_planned_diff
from support.reviewed import a_diff

from gpucluster.gitops.model import Diff, Effects

_COPIES = re.compile(r"\b(tar|cp|mariadb-dump)\b")
_COPY = re.compile(r"(?:kubectl exec POD -- )?tar .*-cf - (\S+) [|>]")
EDITS = (*audited_edits.EDITS, *audited_pods.EDITS, *audited_hosts.EDITS)


@cache
def _diff(edit: Audited, *, with_resources: bool) -> Diff:
    return (a_planned_diff if with_resources else a_diff)(edit.old, edit.new)


def _effects(edit: Audited, *, with_resources: bool) -> Effects:
    found = _diff(edit, with_resources=with_resources).effects
    assert found is not None
    return found


both_paths = pytest.mark.parametrize("with_resources", [True, False], ids=["resources", "plans"])
each_edit = pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.id)


@both_paths
@each_edit
def test_each_subject_is_told_what_happens(edit: Audited, with_resources: bool) -> None:
    found = _effects(edit, with_resources=with_resources)
    said = {name: getattr(found, name) for name in ("running", "queued", "sessions", "data", "refused")}
    for subject, words in edit.says.items():
        assert words in said[subject]
    for subject, words in edit.is_exactly.items():
        assert said[subject] == words
    for words in edit.never:
        assert not [text for text in said.values() if words in text]
    assert ("refused" in edit.says) is bool(found.refused)


@both_paths
@each_edit
def test_commands_stand_in_their_order(edit: Audited, with_resources: bool) -> None:
    steps = _effects(edit, with_resources=with_resources).steps
    places = [next(place for place, step in enumerate(steps) if step.startswith(one)) for one in edit.steps]
    assert places == sorted(places)
    assert not [step for step in steps for one in edit.no_steps if step.startswith(one)]


@both_paths
@each_edit
def test_class_is_that_of_what_happens(edit: Audited, with_resources: bool) -> None:
    found = _diff(edit, with_resources=with_resources)
    if edit.worst:
        assert found.worst is not None
        assert (found.worst.value, found.engine_note) == (edit.worst, None)


@each_edit
def test_plans_and_resources_give_the_same_sentences(edit: Audited) -> None:
    assert _effects(edit, with_resources=True) == _effects(edit, with_resources=False)


@each_edit
def test_no_data_is_not_copied_beside_a_command_that_copies_it(edit: Audited) -> None:
    found = _effects(edit, with_resources=False)
    if "is not copied" in found.data:
        assert not [step for step in found.steps if _COPIES.search(step)]


@each_edit
def test_copy_is_put_back_where_a_new_store_takes_its_place_or_the_report_says_that_it_is_not(
    edit: Audited,
) -> None:
    """The copy of slurmctld's state had no command that puts it back, and no word about it (tests/slurm/test_restored_state.py)."""
    found = _effects(edit, with_resources=False)
    for copied in (match for step in found.steps if (match := _COPY.match(step))):
        file = f"{copied[1].rpartition('/')[2]}.tar"
        back = [step for step in found.steps if f"cat {file}'" in step or f"< {file}" in step]
        assert (
            back or f"a copy of /{copied[1]} is not put back" in found.data or "it is deleted" in found.data
        )


@each_edit
def test_nothing_is_said_twice_of_a_subject(edit: Audited) -> None:
    for _, said in _effects(edit, with_resources=False).lines():
        clauses = said.split("; ")
        assert len(clauses) == len(set(clauses))
        assert said.count("Slurm's commands wait") <= 1
