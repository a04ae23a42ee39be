"""The parser of Slurm's JSON: recorded answers of 24.11, and invalid answers."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucluster.slurm import parse
from gpucluster.slurm.hostlist import expand_slurm
from gpucluster.slurm.states import BASES, FLAGS, SPELLINGS, SlurmPhase, canonical, classify
from gpucluster.slurm.values import SlurmJob, SlurmNode

RECORDED = Path(__file__).parents[2] / "recorded" / "scontrol" / "24.11"
JOBS, NODES, RESERVATIONS = '{"jobs": []}', '{"nodes": []}', '{"reservations": []}'


def nodes(name: str) -> dict[str, SlurmNode]:
    return dict(parse.view((RECORDED / name).read_text(), JOBS, 1.0, RESERVATIONS).nodes)


def jobs(name: str) -> tuple[SlurmJob, ...]:
    return parse.view(NODES, (RECORDED / name).read_text(), 1.0, RESERVATIONS).jobs


def phases(name: str) -> set[SlurmPhase]:
    return {classify(node.states) for node in nodes(name).values()}


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("nodes-powering-up.json", {SlurmPhase.POWERING_UP, SlurmPhase.OFF}),
        ("nodes-drained.json", {SlurmPhase.POWERING_UP, SlurmPhase.OFF}),
        ("nodes-resume-timeout.json", {SlurmPhase.POWERING_UP, SlurmPhase.DOWN_OFF, SlurmPhase.OFF}),
    ],
)
def test_recorded_nodes_have_their_phases(name: str, seen: set[SlurmPhase]) -> None:
    assert phases(name) == seen


def test_node_after_resume_timeout_has_the_reason_of_slurm() -> None:
    down = [
        n for n in nodes("nodes-resume-timeout.json").values() if classify(n.states) is SlurmPhase.DOWN_OFF
    ]
    assert down
    assert {n.reason for n in down} == {"ResumeTimeout reached"}
    assert {n.version for n in down} == {"24.11"}


@pytest.mark.parametrize(
    "meta", [{}, {"slurm": {}}, {"slurm": {"release": 24}}, {"slurm": {"release": "main"}}, []]
)
def test_answer_without_a_version_is_read(meta: object) -> None:
    body = json.loads((RECORDED / "nodes-drained.json").read_text()) | {"meta": meta}
    assert {n.version for n in parse.parse_nodes(json.dumps(body))} == {""}


def test_configuring_job_has_all_its_nodes() -> None:
    (job,) = [j for j in jobs("jobs-configuring.json") if j.configuring]
    assert not job.running
    assert not job.pending
    assert len(job.nodes) == job.node_count
    assert job.submitted_at > 1e9
    assert job.requeues_on_failure


def test_array_tasks_are_separate_jobs() -> None:
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


def test_hostile_names_and_unknown_fields_are_ignored() -> None:
    hostile = _job(name="x NodeList=b-1 \n{}", comment='"}]', admin_comment="\x1b[2J", brand_new={"a": [1]})
    job = parse.parse_job(hostile)
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
def test_missing_needed_field_is_an_error(bad: dict[str, Any]) -> None:
    with pytest.raises(parse.SlurmAnswerError):
        parse.parse_job(_job(**bad))


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
def test_answer_of_unknown_shape_is_an_error(text: str) -> None:
    with pytest.raises(parse.SlurmAnswerError):
        parse.view(text, JOBS, 1.0, RESERVATIONS)


def test_records_that_wait() -> None:
    assert parse.parse_waiting_records('{"statistics": {"dbd_agent_queue_size": 303}, "errors": []}') == 303


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"statistics": []}',
        '{"statistics": {}}',
        '{"statistics": {"dbd_agent_queue_size": null}}',
        '{"statistics": {"dbd_agent_queue_size": 0}, "errors": [{"error": "Unable to contact slurm controller"}]}',
    ],
)
def test_records_that_wait_are_never_guessed(text: str) -> None:
    with pytest.raises(parse.SlurmAnswerError):
        parse.parse_waiting_records(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(changes=st.dictionaries(st.sampled_from(sorted(_job())), JSON, max_size=4))
@settings(max_examples=100)
def test_any_json_is_a_job_or_a_slurm_answer_error(changes: dict[str, Any]) -> None:
    body = json.dumps({"jobs": [_job(**changes)]})
    with contextlib.suppress(parse.SlurmAnswerError):
        parse.view(NODES, body, 1.0, RESERVATIONS)


@given(base=st.sampled_from(sorted(BASES)), flags=st.frozensets(st.sampled_from(sorted(FLAGS))))
def test_every_state_has_a_phase(base: str, flags: frozenset[str]) -> None:
    states = flags | {base}
    phase = classify(states)
    if phase is SlurmPhase.UNKNOWN:
        assert "POWERING_DOWN" in flags
        assert "POWERING_UP" in flags or base == "FUTURE"
    elif base == "FUTURE":
        assert phase is SlurmPhase.FUTURE
    elif "POWERING_DOWN" in states:
        assert phase is SlurmPhase.POWERING_DOWN
    elif "POWERED_DOWN" in states:
        assert phase in (SlurmPhase.OFF, SlurmPhase.POWERING_UP, SlurmPhase.DOWN_OFF, SlurmPhase.STUCK)
    elif "DOWN" in states:
        assert phase is SlurmPhase.DOWN


@pytest.mark.parametrize(
    "words", ["IDLE CLOUD POWER", "CLOUD POWERED_DOWN", "IDLE DOWN CLOUD", "IDLE EXTERNAL", "INVALID"]
)
def test_unknown_words_and_contradictions_have_the_phase_unknown(words: str) -> None:
    """`POWER` matched nothing in aws-plugin-for-slurm (#36): its nodes looked idle."""
    assert classify(frozenset(words.split())) is SlurmPhase.UNKNOWN


@pytest.mark.parametrize(("word", "same"), sorted(SPELLINGS.items()))
def test_each_spelling_has_one_canonical_word(word: str, same: str) -> None:
    assert canonical(frozenset({word, "CLOUD"})) == {same, "CLOUD"}
    assert same in BASES | FLAGS


@pytest.mark.parametrize(
    ("words", "phase"),
    [
        ("IDLE CLOUD POWERED_DOWN", SlurmPhase.OFF),
        ("IDLE CLOUD DRAIN NOT_RESPONDING POWERED_DOWN", SlurmPhase.OFF),
        ("MIXED CLOUD POWERED_DOWN", SlurmPhase.POWERING_UP),
        ("ALLOCATED CLOUD NOT_RESPONDING POWERING_UP", SlurmPhase.POWERING_UP),
        ("IDLE CLOUD", SlurmPhase.UP),
        ("IDLE CLOUD COMPLETING", SlurmPhase.UP),
        ("ALLOCATED CLOUD NOT_RESPONDING", SlurmPhase.NOT_RESPONDING),
        ("ALLOCATED CLOUD POWER_DOWN", SlurmPhase.POWER_DOWN_PENDING),
        ("IDLE CLOUD POWERING_DOWN", SlurmPhase.POWERING_DOWN),
        ("DOWN CLOUD POWERED_DOWN", SlurmPhase.DOWN_OFF),
        ("DOWN CLOUD NOT_RESPONDING POWERING_UP", SlurmPhase.DOWN),
        ("IDLE CLOUD POWER_DOWN POWERED_DOWN", SlurmPhase.STUCK),
        ("IDLE CLOUD NOT_RESPONDING POWERING_UP POWER_DOWN", SlurmPhase.STUCK),
        ("MIXED CLOUD PLANNED", SlurmPhase.UP),
        ("IDLE CLOUD POWERED_DOWN POWER_UP", SlurmPhase.POWERING_UP),
        ("ALLOCATED CLOUD POWER_UP", SlurmPhase.UP),  # it ran a job, and was ended as a failed boot
    ],
)
def test_states_of_real_slurm_have_their_phases(words: str, phase: SlurmPhase) -> None:
    assert classify(frozenset(words.split())) is phase


@given(first=st.integers(1, 50), count=st.integers(1, 60))
def test_slurm_hostlist_expands_to_its_names(first: int, count: int) -> None:
    names = tuple(f"h200-1a-{n}" for n in range(first, first + count))
    text = f"h200-1a-[{first}-{first + count - 1}]" if count > 1 else names[0]
    assert expand_slurm(text) == names


def test_view_has_every_reservation() -> None:
    text = (RECORDED / "reservations.json").read_text()
    (reservation,) = parse.view(NODES, JOBS, 1.0, text).reservations
    assert (reservation.name, reservation.nodes) == ("gpucluster-x", ("h200-1b-7", "h200-1b-8"))
    assert reservation.ends_at - reservation.starts_at == 540
    assert reservation.users == ("root",)
    assert "MAINT" in reservation.flags
    assert reservation.whole


def test_recorded_job_has_owner_start_time_and_restarts() -> None:
    job = jobs("jobs-configuring.json")[0]
    assert (job.user_id, job.restarts, job.time_limit_s) == (0, 1, 3600.0)
    assert job.started_at == 1795265479


@pytest.mark.parametrize("owner", [None, "0", True, {"set": True, "number": 0}])
def test_missing_user_id_is_not_root(owner: object) -> None:
    item = json.loads((RECORDED / "jobs-configuring.json").read_text())["jobs"][0] | {"user_id": owner}
    assert parse.parse_job(item).user_id == -1


@pytest.mark.parametrize(
    ("number", "constraints"),
    [
        (1, (1, "Resources", (), (), "")),
        (2, (2, "ReqNodeNotAvail", (), (), "")),  # sbatch -N 2-3
        (3, (2, "ReqNodeNotAvail", ("g00-2",), (), "")),  # sbatch -N 2 -w g00-2
        (4, (1, "ReqNodeNotAvail", (), ("g00-1", "g00-2"), "")),  # sbatch -x g00-[1-2]
        (7, (1, "None", (), (), "r1")),
        (9, (1, "Licenses", (), (), "")),
        (10, (1, "JobArrayTaskLimit", (), (), "")),
        (11, (1, "PartitionDown", (), (), "")),
        (20, (2, "ReqNodeNotAvail", (), (), "")),  # sbatch -n 3 --mem=900: its size follows from its tasks
    ],
)
def test_recorded_waiting_job_has_its_constraints(number: int, constraints: tuple[object, ...]) -> None:
    jobs = {job.id: job for job in parse.parse_jobs((RECORDED / "jobs-waiting.json").read_text())}
    job = jobs[number]
    found = (job.node_count, job.reason, job.required_nodes, job.excluded_nodes, job.reservation)
    assert found == constraints  # nodes at least, reason, required nodes, excluded nodes, reservation


@pytest.mark.parametrize(
    ("gres", "shown"),
    [
        ("gpu:h200:8", "gpu:h200:8"),
        ("gpu:h200:8(S:0-1)", "gpu:h200:8"),
        ("gpu:h200:4(S:0),shard:16(S:0-1)", "gpu:h200:4,shard:16"),
    ],
)
def test_sockets_of_gpus_are_no_part_of_the_hardware(gres: str, shown: str) -> None:
    body = json.loads((RECORDED / "nodes-drained.json").read_text())
    hardware = parse.parse_node(body["nodes"][0] | {"gres": gres}).hardware
    assert hardware is not None
    assert hardware.gres == shown


@pytest.mark.parametrize(("version", "at"), [("24.11", 1795405697.0), ("26.05", 1795405698.0)])
def test_start_of_slurmctld(version: str, at: float) -> None:
    config = (RECORDED.parents[1] / "checks" / version / "config.txt").read_text()
    assert parse.started_at(config) == at
    assert parse.started_at(config.replace("BOOT_TIME", "BOOT")) is None
