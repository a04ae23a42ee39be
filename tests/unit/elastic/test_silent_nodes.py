"""A node whose slurmd does not run, or does not answer: `status`, `why NODE`, `why JOB` and the metric say so before it is DOWN."""

from dataclasses import replace

import pytest
from support.builders import a_lab_plan, a_plan
from support.cluster_states import BUSY, NOW, UP, instance, job, living, node, report_of, sight

from gpucluster.cloud.bundle_status import Published
from gpucluster.elastic.decide import decide
from gpucluster.elastic.events import Event, OrderGiven, StateLingers, Verb
from gpucluster.elastic.inspect.head import NO_CLOUD
from gpucluster.elastic.inspect.metrics.gauges import LeaseStatus, Since, gauge_rows
from gpucluster.elastic.inspect.overview import overview, text
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.inspect.why import text as why_text
from gpucluster.elastic.inspect.why import why
from gpucluster.elastic.memory import Memory
from gpucluster.elastic.model import CloudView, Observation, ReceivedReport, RecordEvents
from gpucluster.plan.messages import NodePhase
from gpucluster.slurm.values import SlurmJob, SlurmView

PLAN = a_plan()
ONE = "1" * 64
A1 = "h200-2a-1"
SILENT = f"{BUSY} NOT_RESPONDING"
LINGERS = StateLingers(slot=A1, phase="not-responding", bound_s=312.0)


def reported(
    down_s: float | None = 60.0, *, ago: float = 5.0, incarnation: int = 1
) -> dict[str, ReceivedReport]:
    received = report_of(0, phase=NodePhase.UP)
    report = replace(received.report, incarnation=incarnation, slurmd_down_s=down_s)
    return {"i-0": replace(received, report=report, at=NOW - ago)}


def moment(
    state: str = BUSY,
    *events: tuple[float, Event],
    drained: str = "",
    by: str = "ada",
    started_ago: float | None = 9000.0,
    jobs: tuple[SlurmJob, ...] | None = None,
    **more: object,
) -> ClusterSnapshot:
    """`started_ago`: of slurmctld; None: not known."""
    if jobs is None:
        jobs = (job(41, A1),) if "ALLOCATED" in state else ()
    seen = sight(
        PLAN,
        *living(A1),
        *events,
        nodes=(node(A1, state, last_busy=NOW - 10, reason=drained, reason_by=by if drained else ""),),
        jobs=jobs,
        instances=(instance(0),),
        **more,
    )
    assert seen.observation.slurm is not None
    started_at = None if started_ago is None else NOW - started_ago
    view = replace(seen.observation.slurm, started_at=started_at)
    return replace(seen, observation=replace(seen.observation, slurm=view))


def lines(seen: ClusterSnapshot, subject: str = A1) -> list[str]:
    return why_text(why(seen, subject), NOW).splitlines()


def status(seen: ClusterSnapshot) -> list[str]:
    shown = text(overview(seen, ONE, Published(bundle=ONE, ready=True)), NOW)
    return [line for line in shown.splitlines() if line.startswith("  silent")]


@pytest.mark.parametrize("state", [BUSY, UP, SILENT])
def test_slurmd_that_does_not_run_is_told(state: str) -> None:
    """Until SlurmdTimeout such a node was shown as idle, or as used by a job."""
    seen = moment(state, reports=reported())
    shown = lines(seen)
    assert any(
        "13:58:55 UTC, 65 s ago: slurmd does not run on it, as its agent reports" in line for line in shown
    )
    assert any(
        "14:03:07 UTC, in 3 min: slurmctld marks it DOWN by then (SlurmdTimeout is 3 min)" in line
        for line in shown
    )  # fmt: skip
    assert any(
        f"on {A1}: journalctl -u slurmd; systemctl restart slurmd brings it back, and its jobs go on" in line
        for line in shown
    )
    assert status(seen) == [
        f"  silent    {A1}: slurmd does not run on it, as its agent reports, since 13:58:55 UTC, 65 s ago; "
        "DOWN by 14:03:07 UTC, in 3 min"
    ]


@pytest.mark.parametrize(
    ("reports", "words"),
    [
        (reported(None), "slurmctld gets no answer from slurmd, which runs, as its agent reports"),
        (reported(None, ago=200.0), "slurmctld gets no answer from slurmd, and its agent does not report either, since 13:56:40 UTC, 3 min ago"),
        ({}, "slurmctld gets no answer from slurmd"),
    ],
)  # fmt: skip
def test_node_that_slurm_marks_is_told_since_when(reports: dict[str, ReceivedReport], words: str) -> None:
    seen = moment(SILENT, (100.0, LINGERS), reports=reports)
    assert any(f"13:58:20 UTC, 100 s ago: {words}" in line for line in lines(seen)), lines(seen)
    (line,) = status(seen)
    assert f"{A1}: {words.partition(', since')[0]}, since 13:58:20 UTC" in line
    assert "DOWN by 14:02:32 UTC, in 2 min" in line


def test_since_when_slurm_marks_a_node_is_journaled() -> None:
    seen = moment(SILENT)
    actions = decide(PLAN, seen.bindings, seen.observation, seen.memory, NOW)
    events = [e.event for a in actions if isinstance(a, RecordEvents) for e in a.entries]
    assert LINGERS in events


@pytest.mark.parametrize(
    "reports",
    [{}, reported(None), reported(ago=200.0), reported(incarnation=0)],
    ids=["no report", "slurmd runs", "an old report", "of an earlier incarnation"],
)
def test_node_whose_slurmd_may_run_is_not_told(reports: dict[str, ReceivedReport]) -> None:
    seen = moment(reports=reports)
    assert status(seen) == []
    assert not any("slurmd" in line for line in lines(seen))


def test_node_that_a_person_reboots_is_not_told() -> None:
    assert status(moment("IDLE CLOUD REBOOT_ISSUED NOT_RESPONDING", reports=reported())) == []


OFF = "14:08:07 UTC, in 8 min: the daemon powers it down if slurmd has not answered 5 min after that"
STAYS = "then it stays DOWN until slurmd answers"
KEEP = (300.0, OrderGiven(verb=Verb.NODE_KEEP, target=A1, by="ada"))


@pytest.mark.parametrize(
    ("state", "events", "jobs", "then"),
    [
        (BUSY, (), True, OFF),
        (UP, (), False, OFF),
        (BUSY, (KEEP,), True, STAYS),
        (f"{UP} DRAIN", (), False, STAYS),  # by a person
    ],
)
def test_what_follows_is_what_the_node_table_does(state: str, events: tuple, jobs: bool, then: str) -> None:
    shown = lines(moment(state, *events, drained="a fan" if "DRAIN" in state else "", reports=reported()))
    assert [line for line in shown if line.endswith(then)]
    assert any("(SlurmdTimeout is 3 min): its jobs end" in line for line in shown) is jobs


def test_action_of_the_daemon_comes_first() -> None:
    shown = lines(
        moment(f"{UP} DRAIN", drained="gpucluster: [health] gpu.ecc", by="root", reports=reported())
    )
    assert any("slurmd does not run on it" in line for line in shown)
    assert any("the daemon sets it DOWN and powers it down" in line for line in shown)
    assert not any("slurmctld marks it DOWN" in line for line in shown)


def test_node_that_stays_unanswered_past_the_timeout_is_told() -> None:
    seen = moment(SILENT, (400.0, LINGERS))
    assert any(
        "slurmctld has not marked it DOWN, although that takes at most 4 min" in line for line in lines(seen)
    )
    assert not any("marks it DOWN by then" in line for line in lines(seen))
    assert status(seen)[0].endswith("not DOWN, which was due 13:57:32 UTC, 2 min ago")


LATER = "at most 4 min after its last answer, or after slurmctld's own start if that is later"


@pytest.mark.parametrize("state", [BUSY, SILENT])
@pytest.mark.parametrize(
    ("started_ago", "node_says", "status_says"),
    [
        (60.0, "14:03:12 UTC, in 3 min: slurmctld marks it DOWN by then", "; DOWN by 14:03:12 UTC, in 3 min"),
        (300.0, "slurmctld has not marked it DOWN, although that takes at most 4 min", "; not DOWN, which was due 13:59:12 UTC, 48 s ago"),
        (None, f"slurmctld marks it DOWN {LATER}", "ago"),
    ],
)  # fmt: skip
def test_start_of_slurmctld_delays_the_end_of_the_timeout(
    started_ago: float | None, node_says: str, status_says: str, state: str
) -> None:
    """After each restart a dead slurmd was called overdue. With two heads it is not known since when one acts."""
    seen = moment(state, (400.0, LINGERS), reports=reported(400.0), started_ago=started_ago)
    assert any(node_says in line for line in lines(seen)), lines(seen)
    assert status(seen)[0].endswith(status_says)
    if started_ago is None:
        assert not any("DOWN" in line for line in (*status(seen), *lines(seen, "41")))


def test_node_that_slurmctld_does_not_ping_is_not_promised_to_go_down() -> None:
    seen = moment(f"{UP} DRAIN INVALID_REG", drained="a fan", reports=reported(900.0))
    shown = lines(seen)
    assert any("slurmctld does not ping a node with INVALID_REG" in line for line in shown)
    assert not any("marks it DOWN" in line or "has not marked it DOWN" in line for line in shown)
    assert "DOWN" not in status(seen)[0]


def test_suspended_job_ends_with_the_node_too() -> None:
    asleep = replace(job(41, A1), states=frozenset({"SUSPENDED"}))
    shown = lines(moment(UP, jobs=(asleep,), reports=reported()))
    assert any("(SlurmdTimeout is 3 min): its jobs end" in line for line in shown)


def test_job_on_such_a_node_is_told() -> None:
    shown = lines(moment(reports=reported()), "41")
    assert any(f"{A1}: slurmd does not run on it, as its agent reports" in line for line in shown)
    assert any(f"slurmctld marks {A1} DOWN by then, and the job is queued again" in line for line in shown), (
        shown
    )


def test_existing_host_is_told_without_a_daemon() -> None:
    plan = a_lab_plan()
    hosts = [name for pool in plan.pools for name, _ in pool.hosts()]
    name = hosts[0]
    nodes = {one: node(one, "IDLE") for one in hosts} | {name: node(name, "IDLE NOT_RESPONDING")}
    observed = Observation(
        slurm=SlurmView(at=NOW, nodes=nodes, jobs=()), cloud=CloudView(at=NOW, instances={})
    )
    seen = ClusterSnapshot(
        plan=plan, bindings=NO_CLOUD, observation=observed, memory=Memory(epoch="e"), now=NOW
    )
    shown = why_text(why(seen, name), NOW)
    assert "slurmctld gets no answer from slurmd" in shown
    assert "slurmctld marks it DOWN at most 7 min after its last answer" in shown
    assert f"on {name}: journalctl -u slurmd" in shown
    assert "daemon" not in shown
    assert len(status(seen)) == 1


def test_nodes_are_counted_by_pool() -> None:
    rows = gauge_rows(moment(reports=reported()), LeaseStatus(), Since())
    assert ("nodes_silent", ("h200",), 1.0) in list(rows)
