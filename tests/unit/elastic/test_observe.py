"""Slurm's JSON as the real 24.11 wrote it, and as nobody ever should."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucluster.elastic import observe
from gpucluster.elastic.model import Phase, SlurmJob, SlurmNode
from gpucluster.elastic.states import BASES, FLAGS, SPELLINGS, canonical, classify

RECORDED = Path(__file__).parents[2] / "recorded" / "scontrol" / "24.11"
JOBS, NODES = '{"jobs": []}', '{"nodes": []}'


def nodes(name: str) -> dict[str, SlurmNode]:
    return dict(observe.view((RECORDED / name).read_text(), JOBS, 1.0).nodes)


def jobs(name: str) -> tuple[SlurmJob, ...]:
    return observe.view(NODES, (RECORDED / name).read_text(), 1.0).jobs


def phases(name: str) -> set[Phase]:
    return {classify(node.states) for node in nodes(name).values()}


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("nodes-powering-up.json", {Phase.WANTED, Phase.OFF}),
        ("nodes-drained.json", {Phase.WANTED, Phase.OFF}),
        ("nodes-resume-timeout.json", {Phase.WANTED, Phase.DOWN_OFF, Phase.OFF}),
    ],
)
def test_recorded_nodes_are_in_the_phases_that_they_were_in(name: str, seen: set[Phase]) -> None:
    assert phases(name) == seen


def test_a_node_that_missed_its_resume_timeout_says_so_in_slurms_own_words() -> None:
    down = [n for n in nodes("nodes-resume-timeout.json").values() if classify(n.states) is Phase.DOWN_OFF]
    assert down
    assert {n.reason for n in down} == {"ResumeTimeout reached"}


def test_a_job_that_waits_for_its_nodes_is_configuring_with_all_of_them() -> None:
    (job,) = [j for j in jobs("jobs-configuring.json") if j.configuring]
    assert not job.running
    assert not job.pending
    assert len(job.nodes) == job.node_count
    assert job.submitted_at > 1e9
    assert job.returns


def test_array_tasks_are_jobs_of_their_own() -> None:
    found = jobs("jobs-pending-and-arrays.json")
    assert len({j.id for j in found}) == len(found)
    assert any(j.pending for j in found)


def _job(**changes: Any) -> dict[str, Any]:
    number = {"set": True, "infinite": False, "number": 2}
    plain = {
        "job_id": 7,
        "job_state": ["RUNNING", "CONFIGURING"],
        "nodes": "a-[1-2]",
        "node_count": number,
        "requeue": True,
        "batch_flag": True,
    }
    return {**plain, **changes}


def test_hostile_names_and_unknown_fields_change_nothing() -> None:
    hostile = _job(name="x NodeList=b-1 \n{}", comment='"}]', admin_comment="\x1b[2J", brand_new={"a": [1]})
    job = observe.parse_job(hostile)
    assert job.nodes == ("a-1", "a-2")
    assert job.id == 7


@pytest.mark.parametrize(
    "bad",
    [
        {"job_id": "seven"},
        {"job_state": []},
        {"job_state": None},
        {"nodes": "a-[1-"},
        {"requeue": None, "job_id": None},
    ],
)
def test_what_is_needed_and_not_there_is_an_error(bad: dict[str, Any]) -> None:
    with pytest.raises(observe.ObserveError):
        observe.parse_job(_job(**bad))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"nodes": {}}',
        '{"nodes": [{"name": ""}]}',
        '{"nodes": [1]}',
        '{"nodes": [], "errors": [{"error": "Unable to contact slurm controller"}]}',
    ],
)
def test_an_answer_of_another_form_is_an_error(text: str) -> None:
    with pytest.raises(observe.ObserveError):
        observe.view(text, JOBS, 1.0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(changes=st.dictionaries(st.sampled_from(sorted(_job())), JSON, max_size=4))
@settings(max_examples=100)
def test_any_json_is_a_job_or_an_observe_error(changes: dict[str, Any]) -> None:
    body = json.dumps({"jobs": [_job(**changes)]})
    with contextlib.suppress(observe.ObserveError):
        observe.view(NODES, body, 1.0)


@given(base=st.sampled_from(sorted(BASES)), flags=st.frozensets(st.sampled_from(sorted(FLAGS))))
def test_every_set_of_state_words_has_a_phase(base: str, flags: frozenset[str]) -> None:
    states = flags | {base}
    phase = classify(states)
    if phase is Phase.ODD:
        assert "POWERING_DOWN" in flags
        assert "POWERING_UP" in flags or base == "FUTURE"
    elif base == "FUTURE":
        assert phase is Phase.FUTURE
    elif "POWERING_DOWN" in states:
        assert phase is Phase.ENDING
    elif "POWERED_DOWN" in states:
        assert phase in (Phase.OFF, Phase.WANTED, Phase.DOWN_OFF, Phase.STRANDED)
    elif "DOWN" in states:
        assert phase is Phase.DOWN


@pytest.mark.parametrize(
    "words", ["IDLE CLOUD POWER", "CLOUD POWERED_DOWN", "IDLE DOWN CLOUD", "IDLE EXTERNAL", "INVALID"]
)
def test_words_that_are_unknown_or_cannot_stand_together_mean_nothing(words: str) -> None:
    """`POWER` matched nothing in aws-plugin-for-slurm (#36): its nodes looked idle."""
    assert classify(frozenset(words.split())) is Phase.ODD


@pytest.mark.parametrize(("word", "same"), sorted(SPELLINGS.items()))
def test_each_spelling_is_read_as_the_same_word(word: str, same: str) -> None:
    assert canonical(frozenset({word, "CLOUD"})) == {same, "CLOUD"}
    assert same in BASES | FLAGS


@pytest.mark.parametrize(
    ("words", "phase"),
    [
        ("IDLE CLOUD POWERED_DOWN", Phase.OFF),
        ("IDLE CLOUD DRAIN NOT_RESPONDING POWERED_DOWN", Phase.OFF),
        ("MIXED CLOUD POWERED_DOWN", Phase.WANTED),
        ("ALLOCATED CLOUD NOT_RESPONDING POWERING_UP", Phase.WANTED),
        ("IDLE CLOUD", Phase.UP),
        ("IDLE CLOUD COMPLETING", Phase.UP),
        ("ALLOCATED CLOUD NOT_RESPONDING", Phase.SILENT),
        ("ALLOCATED CLOUD POWER_DOWN", Phase.LEAVING),
        ("IDLE CLOUD POWERING_DOWN", Phase.ENDING),
        ("DOWN CLOUD POWERED_DOWN", Phase.DOWN_OFF),
        ("DOWN CLOUD NOT_RESPONDING POWERING_UP", Phase.DOWN),
        ("IDLE CLOUD POWER_DOWN POWERED_DOWN", Phase.STRANDED),
        ("IDLE CLOUD NOT_RESPONDING POWERING_UP POWER_DOWN", Phase.STRANDED),
        ("MIXED CLOUD PLANNED", Phase.UP),
        ("IDLE CLOUD POWERED_DOWN POWER_UP", Phase.WANTED),
        ("ALLOCATED CLOUD POWER_UP", Phase.UP),  # it ran a job, and was ended as a failed boot
    ],
)
def test_states_as_slurm_prints_them(words: str, phase: Phase) -> None:
    assert classify(frozenset(words.split())) is phase


@given(first=st.integers(1, 50), count=st.integers(1, 60))
def test_a_hostlist_unfolds_to_its_names(first: int, count: int) -> None:
    names = tuple(f"h200-1a-{n}" for n in range(first, first + count))
    text = f"h200-1a-[{first}-{first + count - 1}]" if count > 1 else names[0]
    assert observe.expand(text) == names


def test_recorded_reservations_of_ours_are_windows_and_others_are_not() -> None:
    text = (RECORDED / "reservations.json").read_text().replace("gpucluster-x", "gpucluster-cr-x")
    (window,) = observe.view(NODES, JOBS, 1.0, text).windows
    assert (window.name, window.nodes) == ("gpucluster-cr-x", ("h200-1b-7", "h200-1b-8"))
    assert window.ends_at - window.starts_at == 540
    assert observe.view(NODES, JOBS, 1.0, text.replace("gpucluster-cr-x", "gpucluster-maint")).windows == ()
    assert observe.view(NODES, JOBS, 1.0).windows == ()


def test_a_recorded_job_says_whose_it_is_since_when_it_runs_and_how_often() -> None:
    job = jobs("jobs-configuring.json")[0]
    assert (job.user_id, job.restarts, job.batch_host, job.time_limit_s) == (0, 1, "b-1", 3600.0)
    assert job.started_at == 1795265479


@pytest.mark.parametrize("owner", [None, "0", True, {"set": True, "number": 0}])
def test_an_owner_that_is_not_told_is_never_taken_for_root(owner: object) -> None:
    item = json.loads((RECORDED / "jobs-configuring.json").read_text())["jobs"][0] | {"user_id": owner}
    assert observe.parse_job(item).user_id == -1
