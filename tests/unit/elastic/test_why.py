"""`why`, row by row: every reason of Slurm, every state of a node, hostile words, and a fleet's whole story without a gap."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_plan
from support.cluster_states import (
    BUSY,
    NOW,
    OFF,
    UP,
    WAKING,
    ask,
    instance,
    job,
    living,
    node,
    refusal,
    report_of,
    sight,
    world_of,
)
from support.fleet import Fleet, some_bindings
from support.reasons import SITUATIONS, moment_of

from gpucluster.elastic.decide.jobs import HELD_REASON, MAX_RESTARTS
from gpucluster.elastic.decide.offers import all_offers
from gpucluster.elastic.decide.world import slots_of
from gpucluster.elastic.events import JobPlaced, NodeNeeded, OfferRefused
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot, would_do
from gpucluster.elastic.inspect.why import Cause, Part, Screen, text, why
from gpucluster.elastic.inspect.why.history import meaning
from gpucluster.elastic.inspect.why.reasons import ROWS, Kind, reason_of
from gpucluster.elastic.memory import Memory
from gpucluster.elastic.model import Block, Requeue
from gpucluster.plan.messages import ControllerWatch, NodePhase
from gpucluster.slurm import hostlist
from gpucluster.slurm.values import SlurmReservation

PLAN = a_plan()
RECORDED = Path(__file__).parents[2] / "recorded/reasons"
OFFERS = all_offers(world_of(PLAN, some_bindings(PLAN), sight(PLAN).observation, Memory(), NOW))
A1, A2 = "h200-2a-1", "h200-2a-2"


def said(shown: Screen) -> str:
    return text(shown, NOW)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.begins)
def test_each_reason_of_slurm_has_a_sentence_with_a_remedy(row: object) -> None:
    assert isinstance(row, type(ROWS[0]))
    shown = why(sight(PLAN, jobs=(job(41, reason=row.begins, begins_at=NOW + 60),)), "41")
    assert shown.cause not in (Cause.UNKNOWN, Cause.UNSEEN)
    assert reason_of(row.begins) is row
    if row.kind not in (Kind.NONE, Kind.RESOURCES, Kind.PRIORITY):
        assert row.words in said(shown)
        assert row.remedy.replace("JOB", "41") in said(shown)
    assert "JOB" not in said(shown)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("QOSMaxGRESPerUser", Kind.LIMIT),
        ("QOSGrpNodeLimit", Kind.LIMIT),
        ("QOSNotAllowed", Kind.REQUEST),
        ("AssocGrpGRES", Kind.LIMIT),
        ("AssocMaxWallDurationPerJobLimit", Kind.LIMIT),
        ("MaxGRESPerAccount", Kind.LIMIT),
        ("DependencyNeverSatisfied", Kind.DEPENDENCY),
        ("launch_failed_requeued_held", Kind.HELD),
        ("job_requeued_in_held_state", Kind.HELD),
        ("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved", Kind.RESOURCES),
        ("ReqNodeNotAvail, UnavailableNodes:h200-2a-1", Kind.RESOURCES),
        ("uid 2001 not in group permitted to use this partition (vip). groups allowed: vision", Kind.REQUEST),
        ("SomethingOf30.05", Kind.OTHER),
        ("", Kind.NONE),
    ],
)
def test_each_reason_of_slurm_matches_its_row(word: str, kind: Kind) -> None:
    assert reason_of(word).kind is kind


def test_user_without_a_group_of_the_partition_is_told_which_setting_it_is() -> None:
    """Regression: the sentence was shown cut, as a reason that is not known."""
    found = reason_of(
        "uid_2001_not_in_group_permitted_to_use_this_partition_(big_vip)._groups_allowed:_vision"
    )
    assert "partition big_vip allows (AllowGroups)" in found.words
    assert found.remedy.startswith("scontrol show partition big_vip")


def test_a_job_that_was_held_for_the_gpus_that_failed_in_it_says_so() -> None:
    held = sight(PLAN, jobs=(job(41, reason="JobHeldAdmin", priority=0),))
    assert HELD_REASON not in said(why(held, "41"))
    shown = why(replace(held, memory=replace(held.memory, breaks={"41": MAX_RESTARTS + 1})), "41")
    assert HELD_REASON in said(shown)
    assert "scontrol release 41" in said(shown)


def test_a_job_of_a_foreign_partition_is_slurms_alone() -> None:
    shown = why(sight(PLAN, jobs=(job(41, partitions=("other",), reason="Resources"),)), "41")
    assert shown.cause is Cause.RESOURCES
    assert "no known pool (partition other)" in said(shown)


@pytest.mark.parametrize(
    "states",
    [OFF, UP, BUSY, WAKING, "IDLE CLOUD POWERING_DOWN", "DOWN CLOUD", "DOWN CLOUD POWERED_DOWN", "IDLE CLOUD POWER_DOWN",
     "IDLE CLOUD POWERED_DOWN POWER_DOWN", "IDLE CLOUD NOT_RESPONDING", "IDLE CLOUD DRAIN", "UNKNOWN CLOUD"],
)  # fmt: skip
@pytest.mark.parametrize("lives", [True, False], ids=["with a machine", "without"])
def test_screen_of_a_node_shows_its_state_in_slurm(states: str, lives: bool) -> None:
    events = living(A1) if lives else ()
    moment = sight(PLAN, *events, nodes=(node(A1, states),), instances=(instance(0),) if lives else ())
    shown = why(moment, A1)
    assert shown.cause is Cause.NODE
    assert shown.headline
    assert "state in Slurm" in said(shown)


@pytest.mark.parametrize(
    ("reason", "by", "words"),
    [
        ("gpucluster: no h200", "slurm", "because there is no capacity"),
        ("gpucluster: [evacuation] XID 79", "slurm", "because its instance is being evacuated"),
        (
            "gpucluster: [operator] by alice",
            "slurm",
            "`gpucluster node release h200-2a-1 -c burst` removes it",
        ),
        (
            "gpucluster: [future] x",
            "slurm",
            "another version of gpucluster may have written this: it counts as a person's",
        ),
        ("gpucluster: [health] loud", "ada", "ada wrote this, not gpucluster: it counts as a person's"),
        ("gpucluster: loud", "", "an unknown user wrote this, not gpucluster: it counts as a person's"),
        ("gpucluster: loud", "ada", "gpucluster: loud (by ada: scontrol update"),
        ("Prolog error", "slurm", "Slurm itself"),
        ("Kill task failed", "root", "Slurm itself"),
        ("broken fan", "alice", "(by alice: scontrol update"),
        ("broken fan", "root", "gpucluster does not know this reason: it counts as a person's"),
        ("Prolog error: looking", "slurm", "gpucluster does not know this reason: it counts as a person's"),
        (
            "Duplicate jobid",
            "slurm",
            "Slurm's source has this reason (slurmctld, _notify_slurmctld_nodes), and no recorded run has it",
        ),
        ("broken fan", "", "(by unknown: scontrol update"),
    ],
)
def test_a_drain_has_its_owner_named(reason: str, by: str, words: str) -> None:
    drained = node(A1, "IDLE CLOUD DRAIN", reason=reason, reason_by=by, reason_at=NOW - 60)
    assert words in said(why(sight(PLAN, nodes=(drained,)), A1))


@pytest.mark.parametrize(("reason", "by"), [("broken fan", "alice"), ("Kill task failed", "root")])
def test_a_reason_whose_writer_is_known_is_not_called_unknown(reason: str, by: str) -> None:
    drained = node(A1, "IDLE CLOUD DRAIN", reason=reason, reason_by=by, reason_at=NOW - 60)
    assert "does not know" not in said(why(sight(PLAN, nodes=(drained,)), A1))


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("25.11", "the reasons of Slurm 25.11 are not recorded: those of 24.11 are used"),
        ("27.05", "the reasons of Slurm 27.05 are not recorded: those of 26.05 are used"),
        ("23.02", "the reasons of Slurm 23.02 are not recorded: none is known"),
        ("26.05", ""),
    ],
)
def test_a_version_without_a_record_says_whose_reasons_are_used(version: str, words: str) -> None:
    drained = node(A1, "IDLE CLOUD DRAIN", reason="Prolog error", reason_by="slurm", version=version)
    shown = said(why(sight(PLAN, nodes=(drained,)), A1))
    assert words in shown
    assert ("are not recorded" in shown) is bool(words)


@pytest.mark.parametrize("program", ["Prolog", "Epilog"])
def test_a_node_that_slurm_drained_for_a_program_says_where_to_look(program: str) -> None:
    """slurmctld's reason has two words for a program that failed, that was killed, or that reached its time limit."""
    drained = node(A1, "IDLE CLOUD DRAIN", reason=f"{program} error", reason_by="slurm", reason_at=NOW - 60)
    shown = said(why(sight(PLAN, nodes=(drained,)), A1))
    assert f"a program of the {program} failed or reached its time limit" in shown
    assert f"journalctl -t gpucluster-health-{program.lower()}; " in shown
    person = node(A1, "IDLE CLOUD DRAIN", reason=f"{program} error", reason_by="alice", reason_at=NOW - 60)
    assert "reached its time limit" not in said(why(sight(PLAN, nodes=(person,)), A1))


@pytest.mark.parametrize(
    ("reason", "by", "owner"),
    [
        ("gpucluster: no h200", "slurm", "daemon"),
        ("gpucluster: [health] gpu.ecc", "root", "daemon"),
        ("gpucluster: [foo] x", "slurm", "person"),
        ("gpucluster: no h200", "ada", "person"),
        ("gpucluster: no h200 : Prolog error", "slurm", "slurm"),  # what slurmctld appended
        ("Prolog error", "slurm", "slurm"),
        ("fan 3 is loud (by ann)", "slurm", "person"),
    ],
)
def test_node_and_job_give_one_answer_to_whose_a_drain_is(reason: str, by: str, owner: str) -> None:
    """`why NODE` and `why JOB` called a reason the daemon's that the daemon takes for a person's."""
    shut = tuple(
        node(n, f"{UP} DRAIN", reason=reason, reason_by=by, reason_at=NOW - 60, version="24.11")
        for n in slots_of(PLAN)
    )
    moment = sight(PLAN, nodes=shut, jobs=(job(7, reason="Resources"),))
    ours = shut[0].drain_owner.is_daemon
    assert ours is (owner == "daemon")
    assert (
        "(by the daemon" in said(why(moment, A1)) or "(by its health program" in said(why(moment, A1))
    ) is ours
    shown = said(why(moment, "7"))
    assert ("the daemon drained the nodes" in shown) is ours
    assert (f"{A1}, by " in shown) is not ours


@pytest.mark.parametrize(
    ("reason", "states", "words"),
    [
        ("fan 3 is loud (by ann)", f"{UP} DRAIN", "fan 3 is loud (by ann)\n"),
        ("fan (by bob) (by ann)", f"{UP} DRAIN", "fan (by bob) (by ann)\n"),
        ("fan (by a(b))", f"{UP} DRAIN", "fan (by a(b))\n"),
        ("fan (by ann) : Not responding", f"{UP} DRAIN", "fan : Not responding (by ann)\n"),
        ("fan (by ann)", "DOWN CLOUD", "fan (by ann) (by slurm: scontrol update nodename=h200-2a-1 state=resume)"),
    ],
)  # fmt: skip
def test_ordered_drain_is_the_operators(reason: str, states: str, words: str) -> None:
    """`why` said `by slurm: scontrol`, that gpucluster does not know its own words, and to report them."""
    shut = node(A1, states, reason=reason, reason_by="slurm", reason_at=NOW - 60, version="24.11")
    shown = said(why(sight(PLAN, nodes=(shut,)), A1))
    assert words in shown
    ordered = "DRAIN" in states
    assert ("gpucluster node undrain h200-2a-1 -c burst returns the node" in shown) is ordered
    assert ("gpucluster does not know this reason" in shown) is not ordered
    assert ("report it with the version of Slurm" in shown) is not ordered


@pytest.mark.parametrize("by", ["root", "ann"])
def test_form_of_an_order_from_another_user_is_no_order(by: str) -> None:
    shut = node(A1, f"{UP} DRAIN", reason="fan (by ann)", reason_by=by, version="24.11")
    assert f"fan (by ann) (by {by}: scontrol update" in said(why(sight(PLAN, nodes=(shut,)), A1))


def test_job_names_the_operator_of_an_ordered_drain() -> None:
    shut = tuple(
        node(n, f"{UP} DRAIN", reason="rack 4 (by ann)", reason_by="slurm", version="24.11")
        for n in slots_of(PLAN)
    )
    waits = job(7, reason="Resources")
    shown = said(why(sight(PLAN, nodes=shut, jobs=(waits,)), "7"))
    assert f"{A1}, by ann: rack 4" in shown
    assert "the person who drained them can run: gpucluster node undrain NODE -c burst" in shown
    assert "scontrol update nodename=NODE" not in shown
    mixed = (replace(shut[0], reason="fan", reason_by="bob"), *shut[1:])
    shown = said(why(sight(PLAN, nodes=mixed, jobs=(waits,)), "7"))
    assert "gpucluster node undrain NODE -c burst, or scontrol update nodename=NODE state=resume" in shown


UNHEALTHY = (
    "gpucluster: [health] unhealthy, and not drained, because 1 of pool h200 are (limit 1): gpu.ecc: GPU 3"
)


def test_a_node_that_stays_because_of_the_limit_says_so() -> None:
    shown = said(why(sight(a_plan(), nodes=[node("h200-2a-1", UP, comment=UNHEALTHY)]), "h200-2a-1"))
    assert "unhealthy, and not drained, because 1 of pool h200 are (limit 1): gpu.ecc: GPU 3" in shown
    assert "look for a common cause" in shown
    assert "single nodes: `gpucluster node drain NODE --because WORDS -c burst`" in shown
    plain = said(why(sight(a_plan(), nodes=[node("h200-2a-1", UP, comment="rack 4")]), "h200-2a-1"))
    assert "rack 4" not in plain


def test_names_of_nothing_are_answered_with_what_there_is() -> None:
    moment = sight(PLAN)
    for subject in ("h200-2c-1", "h200-2a-17", "h200-2a-01", "x" * 500, "\x1b[2J", "41; rm"):
        shown = why(moment, subject)
        assert shown.cause is Cause.UNKNOWN
        assert not shown.known
    assert why(moment, "999999999999").cause is Cause.UNKNOWN


@given(words=st.text(max_size=300))
def test_control_characters_of_others_are_not_printed(words: str) -> None:
    held = node(A1, "IDLE CLOUD DRAIN", reason=f"x{words}", reason_by=words, reason_at=NOW)
    one = job(41, reason=words, admin_comment=f"gpucluster: {words}", partitions=("gpu", words))
    moment = sight(PLAN, nodes=(held,), jobs=(one,))
    for subject in (A1, "41"):
        assert all(c.isprintable() or c == "\n" for c in said(why(moment, subject)))


def test_codes_of_the_cloud_have_a_meaning_and_others_none() -> None:
    assert "no free capacity" in meaning("InsufficientInstanceCapacity")
    assert "quota" in meaning("VcpuLimitExceeded (x)")
    assert meaning("does not boot: i-1") == ""


def test_nothing_is_lost_in_the_story_of_a_fleet(tmp_path: Path) -> None:
    """Whatever the moment, every job and node has an answer, and one that waits has a cause and a next step."""
    f = Fleet(a_plan(("idle: 5m", "idle: 1m")), tmp_path)
    f.model.set_capacity(zone="us-east-2a", free=0)
    f.broken = lambda i: "mount failed" if i.zone == "us-east-2b" and f.now < began + 120 else None
    began = f.now
    jobs = [
        f.slurm.submit(2, lasts=40),
        f.slurm.submit(17, lasts=5),
        f.slurm.submit(1, lasts=30, batch=False),
    ]
    causes: set[Cause] = set()
    for _ in range(60):
        f.run(10)
        entries = tuple(f.journal.entries())
        moment = ClusterSnapshot(
            plan=f.plan,
            bindings=f.bindings,
            observation=f.reconciler.observation,
            memory=f.journal.memory,
            now=f.now,
            entries=entries,
        )
        for one in jobs:
            shown = why(moment, str(one.id))
            causes.add(shown.cause)
            assert shown.known, said(shown)
            if shown.cause not in (Cause.RUNNING, Cause.FINISHED):
                assert any(line.part in (Part.NEXT, Part.REMEDY) for line in shown.lines), said(shown)
        for slot in (A1, A2, "h200-2b-1"):
            assert why(moment, slot).cause is Cause.NODE
    assert {Cause.TOO_LARGE, Cause.BOOTING, Cause.FINISHED} <= causes


def test_newest_refusal_has_its_own_time() -> None:
    """The newest words stood beside the time of the first refusal: an answer of a fleet was not read as one."""
    first = refusal(1, (A1, A2), 500.0, "InsufficientInstanceCapacity")
    key = ask(1, A1, A2).offer_key
    again = OfferRefused(key=key, words="SpotMaxPriceTooLow", until=NOW + 60)
    shown = why(sight(PLAN, *first, (20.0, again), jobs=(job(41, reason="Resources"),)), "41")
    (line,) = [line for line in shown.lines if "SpotMaxPriceTooLow" in line.words]
    assert line.at == NOW - 20


def test_job_without_a_daemon_has_no_next_step_of_the_cloud() -> None:
    """With a removed spool folder the daemon could not start, and `why` said that EC2 answers within seconds."""
    moment = sight(
        PLAN,
        (12.0, NodeNeeded(slot=A1, incarnation=1, jobs=(41,))),
        nodes=(node(A1, WAKING),),
        jobs=(job(41, A1, starts=True),),
    )
    shown = why(replace(moment, daemon=False), "41")
    assert shown.cause is Cause.NO_DAEMON
    assert "EC2 answers" not in said(shown)
    assert "the daemon launches" not in said(shown)
    assert "systemctl status gpucluster-elastic" in said(shown)


@pytest.mark.parametrize("subject", ["41", A1])
def test_screens_without_a_daemon_name_no_action_of_it(subject: str) -> None:
    moment = sight(
        PLAN,
        *living(A1),
        nodes=(node(A1, UP),),
        jobs=(job(41, reason="Resources"),),
        instances=(instance(0),),
    )
    shown = why(replace(moment, daemon=False), subject)
    assert not [line for line in shown.lines if line.part is Part.NEXT]
    assert "does not answer" in said(shown)


def test_silent_slurmctld_is_reported_with_its_time() -> None:
    moment = sight(PLAN, jobs=(job(41),))
    silent = replace(
        moment,
        observation=replace(moment.observation, slurm=None),
        controller=ControllerWatch(silent_since=NOW - 60),
    )
    shown = why(silent, "41")
    assert shown.cause is Cause.UNSEEN
    assert "slurmctld runs, but does not answer" in said(shown)
    assert "restarts it" in said(shown)


def test_begin_time_after_a_step_of_the_clock_is_reported() -> None:
    """The clock of slurmctld was an hour ahead for 20 s: `why` said that Slurm waits 121 s, and the job waited 58 min."""
    late = sight(PLAN, jobs=(job(41, reason="BeginTime", begins_at=NOW + 58 * 60, restarts=1),))
    shown = why(late, "41")
    assert shown.cause is Cause.BEGIN
    assert "it was requeued and begins in 58 min. Slurm itself waits 61 s: its clock was ahead" in said(shown)
    assert "scontrol update jobid=41 starttime=now" in said(shown)
    soon = sight(PLAN, jobs=(job(41, reason="BeginTime", begins_at=NOW + 58, restarts=1),))
    assert why(soon, "41").cause is Cause.REQUEUED


def held_slots(expires: float) -> ClusterSnapshot:
    """Every slot is drained for capacity; all offers are refused until `expires` seconds from now."""
    reason = "gpucluster: no h200 in us-east-2a: spot p5en.48xlarge InsufficientInstanceCapacity"
    shut = tuple(
        node(n, f"{OFF} DRAIN", reason=reason, reason_by="slurm", reason_at=NOW - 60) for n in slots_of(PLAN)
    )
    events = [e for n, key in enumerate(sorted({k for some in OFFERS.values() for o in some for k in o.keys[:1]}))
              for e in ((90.0 - n, OfferRefused(key=key, words="InsufficientInstanceCapacity", until=NOW + expires)),)]  # fmt: skip
    return sight(PLAN, *events, nodes=shut, jobs=(job(41, reason="Resources", begins_at=NOW + 5),))


def after_pass(moment: ClusterSnapshot) -> ClusterSnapshot:
    """The daemon has written its present reasons."""
    blocks = [a for a in would_do(moment) if isinstance(a, Block)]
    reasons = {slot: a.reason for a in blocks for slot in a.slots}
    slurm = moment.observation.slurm
    assert slurm is not None
    nodes = {n: replace(one, reason=reasons.get(n, one.reason)) for n, one in slurm.nodes.items()}
    return replace(moment, observation=replace(moment.observation, slurm=replace(slurm, nodes=nodes)))


def test_held_slots_are_not_called_busy_and_tested_ones_have_room() -> None:
    """`why` called drained slots busy, and a zone that a gang tests one without capacity."""
    shown = said(why(held_slots(expires=-5.0), "41"))
    assert "busy," not in shown.splitlines()[0]
    assert "the daemon drained the nodes that it can use: no h200 in us-east-2a" in shown
    assert "16 drained, 16 of them by the daemon" in shown
    told = said(why(after_pass(held_slots(expires=-5.0)), A1))
    assert "no source has capacity left" not in told
    assert "one waiting gang tests the zone" in told


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_every_reason_of_slurm_has_words_and_a_command(version: str) -> None:
    """`sacct --helpreason` of the real programs. Reasons without a command need none."""
    words = (RECORDED / f"reasons-{version}.txt").read_text().split()
    assert len(words) > 200
    unknown = [
        w
        for w in words
        if "Slurm's reason is" in reason_of(w).words and w not in ("InvalidReason", "InvaildReason")
    ]
    assert unknown == []
    assert [w for w in words if not reason_of(w).remedy and reason_of(w).kind is not Kind.NONE] == []


@pytest.mark.parametrize("version", ["24.11", "26.05"])
@pytest.mark.parametrize("name", SITUATIONS)
def test_recorded_job_is_reported_in_the_words_of_its_situation(version: str, name: str) -> None:
    """The jobs of tests/slurm/test_reasons.py, as the real slurmctld with slurmdbd showed them."""
    body = json.loads((RECORDED / f"{version}.json").read_text())[name]
    assert body["state_reason"] == SITUATIONS[name].reason
    assert SITUATIONS[name].words in said(why(moment_of(body), str(body["job_id"])))


MAINT = SlurmReservation(
    name="gpucluster-x", starts_at=NOW + 600, ends_at=NOW + 4200, nodes=tuple(slots_of(PLAN))
)


@pytest.mark.parametrize(
    ("says", "changes", "cause"),
    [
        ("no time limit", {}, Cause.RESERVATION),
        ("it could run into it", {"time_limit_s": 601.0}, Cause.RESERVATION),
        ("it ends before", {"time_limit_s": 600.0}, Cause.RESOURCES),
        ("it is its own", {"reservation": "gpucluster-x"}, Cause.RESOURCES),
        ("jobs are ahead of it", {"reason": "Priority"}, Cause.PRIORITY),
        ("one node is enough for it and is free", {"node_count": 1, "time_limit_s": 600.0}, Cause.RESOURCES),
    ],
)
def test_why_names_the_reservation_that_holds_the_nodes(
    says: str, changes: dict[str, object], cause: Cause
) -> None:
    waiting = job(41, **{"reason": "ReqNodeNotAvail", **changes})
    seen = sight(PLAN, jobs=(waiting,))
    assert seen.observation.slurm is not None
    view = replace(seen.observation.slurm, reservations=(MAINT,))
    shown = why(replace(seen, observation=replace(seen.observation, slurm=view)), "41")
    assert shown.cause is cause, says
    window = "from 2026-11-17 14:10 UTC to 2026-11-17 15:10 UTC"
    assert (
        f"because of the reservation gpucluster-x of {hostlist.fold(MAINT.nodes)} {window}" in said(shown)
    ) is (cause is Cause.RESERVATION)
    assert ("scontrol update jobid=41 timelimit=TIME" in said(shown)) is (cause is Cause.RESERVATION)


def test_a_reservation_of_a_few_nodes_is_not_the_cause() -> None:
    seen = sight(PLAN, jobs=(job(41, reason="Resources"),))
    assert seen.observation.slurm is not None
    few = replace(MAINT, nodes=(A1, A2))
    view = replace(seen.observation.slurm, reservations=(few,))
    assert (
        why(replace(seen, observation=replace(seen.observation, slurm=view)), "41").cause
        is not Cause.RESERVATION
    )


@pytest.mark.parametrize(
    ("ago", "changes", "words"),
    [
        (10, {}, "it is requeued, if the Prolog has not ended by then"),
        (10, {"requeueable": False}, "it gets a comment, if the Prolog has not ended by then"),
        (301, {}, "it is requeued now"),
        (301, {"requeueable": False}, "scancel 41, and submit it again"),
    ],
)
def test_running_job_without_a_batch_step_is_named(ago: int, changes: dict[str, Any], words: str) -> None:
    """After a storm of reconfigures a job was RUNNING, with reason Prolog and without a batch step; `why` said that it runs."""
    one = job(41, A1, reason="Prolog", started_at=NOW - ago, **changes)
    seen = sight(PLAN, nodes=(node(A1, BUSY),), jobs=(one,))
    shown = said(why(seen, "41"))
    assert "is RUNNING, but has no batch step: a node has not reported the end of its Prolog" in shown
    assert words in shown
    requeues = [a for a in would_do(seen) if isinstance(a, Requeue)]
    assert bool(requeues) is (words == "it is requeued now")


@pytest.mark.parametrize(
    ("changes", "words"),
    [({}, "it is requeued now"), ({"requeueable": False}, "scancel 41, and submit it again")],
)
def test_running_job_whose_node_lacks_the_batch_script_is_named(changes: dict[str, Any], words: str) -> None:
    one = job(41, A1, started_at=NOW - 301, **changes)
    sent = report_of(0, phase=NodePhase.UP)
    lacks = replace(sent, report=replace(sent.report, without_script=(41,)))
    seen = sight(
        PLAN,
        *living(A1),
        nodes=(node(A1, BUSY),),
        jobs=(one,),
        instances=(instance(0),),
        reports={"i-0": lacks},
    )
    shown = said(why(seen, "41"))
    assert "is RUNNING, but has only half started: its node has no batch script of it" in shown
    assert words in shown
    requeues = [a for a in would_do(seen) if isinstance(a, Requeue)]
    assert bool(requeues) is (words == "it is requeued now")


def test_finished_job_without_events_is_not_sent_to_the_timeline() -> None:
    """Regression: `timeline` sent the reader back to `why`, which sent him to `timeline`."""
    ended = job(50, "h200-2a-1", states=frozenset({"COMPLETED"}))
    alone = said(why(sight(a_plan(), jobs=(ended,)), "50"))
    assert "scontrol show job 50 shows how it ended" in alone
    assert "timeline" not in alone
    placed = (60.0, JobPlaced(job=50, slots=("h200-2a-1",), submitted_at=NOW - 61))
    known = said(why(sight(a_plan(), placed, jobs=(ended,)), "50"))
    assert "`gpucluster timeline 50 -c burst` shows its events" in known


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"exit_code": 2}, "has ended (FAILED, exit code 2)"),
        ({"exit_signal": 9}, "has ended (FAILED, signal 9)"),
        ({}, "has ended (FAILED)"),
    ],
)
def test_exit_code_and_signal_of_a_failed_job_are_told(changes: dict[str, Any], words: str) -> None:
    ended = job(50, "h200-2a-1", states=frozenset({"FAILED"}), **changes)
    assert said(why(sight(a_plan(), jobs=(ended,)), "50")).startswith(f"job 50 {words}\n")


def test_job_that_slurm_refused_when_it_was_submitted_has_not_ended() -> None:
    """Regression: it "has ended (FAILED, signal 1)", although it never had a node: Slurm writes 1 as its exit code."""
    refused = job(50, states=frozenset({"FAILED"}), exit_signal=1, reason="BadConstraints")
    shown = said(why(sight(a_plan(), jobs=(refused,)), "50"))
    assert shown.startswith("job 50 never had a node: Slurm refused it (FAILED, BadConstraints)\n")
    placed = (60.0, JobPlaced(job=50, slots=("h200-2a-1",), submitted_at=NOW - 61))
    assert "has ended (FAILED" in said(why(sight(a_plan(), placed, jobs=(refused,)), "50"))
