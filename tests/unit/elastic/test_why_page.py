"""Generate docs/why.md: one snapshot for each cause, with the real decisions and sentences, which Slurm shows as well."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.builders import a_plan
from support.cluster_states import (
    BUSY,
    NOW,
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
)

from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.world import slots_of
from gpucluster.elastic.events import (
    BootFailed,
    BreakerTripped,
    BudgetCrossed,
    Entry,
    Event,
    InstanceGone,
    JobPlaced,
    JobReleased,
    JobRunning,
    JobsSignalled,
    LaunchDeferred,
    LaunchDone,
    LaunchRequested,
    NodeNeeded,
    NodeUnneeded,
    OrderGiven,
    TerminationRefused,
    Verb,
)
from gpucluster.elastic.inspect.daemon_view import DaemonView, UnitState, view
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.inspect.why import Cause, text, why
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import Block, Comment, Drain, ReceivedReport, RecordEvents, Signal
from gpucluster.elastic.notifier import STANDBY
from gpucluster.plan.messages import Beat, GpuFault, NodePhase, Notice, NoticeKind
from gpucluster.plan.model import Budget, JobHeartbeat, SlurmOnAws

PAGE = Path(__file__).parents[3] / "docs" / "why.md"
PLAN = a_plan()
ONE = replace(
    PLAN,
    pools=(replace(PLAN.pools[0], sources=PLAN.pools[0].sources[:1], templates=PLAN.pools[0].templates[:1]),),
)
HOLDS = UnitState(active="active", sub="running", status="acts, as burst-head/b/1.2/n", silent_s=0.4)
STOPPED = UnitState(active="inactive", sub="dead", status="", silent_s=None)
SMALL = a_plan(("max: 16}", "max: 2}"), ("max: 4}", "max: 2}"))
A1, A2, A3 = "h200-2a-1", "h200-2a-2", "h200-2a-3"
B1, B2 = "h200-2b-1", "h200-2b-2"
ICE = "InsufficientInstanceCapacity"


@dataclass(frozen=True)
class Story:
    """A heading of the page, the subject of the query, the snapshot and the expected cause."""

    title: str
    cause: Cause
    moment: ClusterSnapshot
    subject: str = "41"
    daemon: DaemonView | None = None  # of the machine that is asked, if it does not act
    comment: bool = False  # `decide` writes the same sentence into the job's admin comment


def everywhere(plan: SlurmOnAws, words: str, **changes: object) -> tuple:
    """Refuse every offer of the plan's pool, each at another time."""
    found: list = []
    number = 0
    for source in plan.pools[0].sources:
        for zone, slots in (("us-east-2a", (A1, A2)), ("us-east-2b", (B1, B2))):
            for machine in source.machines:
                number += 1
                found.extend(
                    refusal(
                        number,
                        slots,
                        200 - 10 * number,
                        words,
                        source=source.position,
                        market=source.market,
                        machine=machine,
                        zone=zone,
                        lasts=20.0 + 10 * number,
                        **changes,
                    )
                )
    return tuple(found)


def booting(*steps: str, failed: str = "") -> ClusterSnapshot:
    slots = (A1, A2)
    began = (
        *((95.0, NodeNeeded(slot=slot, incarnation=1, jobs=(41,))) for slot in slots),
        (95.0, JobPlaced(job=41, slots=slots, submitted_at=NOW - 100)),
        (94.0, LaunchRequested(request=ask(1, *slots))),
        (92.0, LaunchDone(request="r1", instances=("i-0", "i-1"))),
    )
    return sight(
        PLAN,
        *began,
        nodes=(node(A1, UP.replace("IDLE", "ALLOCATED")), node(A2, WAKING)),
        jobs=(job(41, A1, A2, starts=True),),
        instances=(instance(0, 92.0), instance(1, 92.0)),
        reports={"i-1": report_of(1, *steps, failed=failed)},
    )


def paced() -> ClusterSnapshot:
    slots = (A1, A2)
    return sight(
        PLAN,
        *((12.0, NodeNeeded(slot=slot, incarnation=1, jobs=(41,))) for slot in slots),
        (12.0, JobPlaced(job=41, slots=slots, submitted_at=NOW - 20)),
        (10.0, LaunchRequested(request=ask(1, *slots))),
        (8.0, LaunchDeferred(request="r1", retry_at=NOW + 8, words="RequestLimitExceeded", pace_all=True)),
        nodes=(node(A1, WAKING), node(A2, WAKING)),
        jobs=(job(41, A1, A2, starts=True),),
    )


def unreadable(halted: str | None = None) -> ClusterSnapshot:
    """Return a snapshot of a job with nodes, while the KMS key of the bucket is disabled."""
    plan = replace(PLAN, aws=replace(PLAN.aws, kms_key="alias/research"))
    words = "KMS.DisabledException: arn:aws:kms:us-east-2:123456789012:key/0123abcd is disabled."
    return sight(
        plan,
        *((12.0, NodeNeeded(slot=slot, incarnation=1, jobs=(41,))) for slot in (A1, A2)),
        (12.0, JobPlaced(job=41, slots=(A1, A2), submitted_at=NOW - 20)),
        nodes=(node(A1, WAKING), node(A2, WAKING)),
        jobs=(job(41, A1, A2, starts=True),),
        halted=f"the control object cannot be read: {words}" if halted is None else halted,
    )


def broken() -> ClusterSnapshot:
    """Return a snapshot with six failed boots in a row."""
    slots = tuple(f"h200-2a-{n}" for n in range(1, 7))
    words = "step mounts: mount.nfs: access denied by server"
    return sight(
        PLAN,
        *((600.0, NodeNeeded(slot=slot, incarnation=1, jobs=(40,))) for slot in slots),
        (600.0, LaunchRequested(request=ask(1, *slots))),
        (598.0, LaunchDone(request="r1", instances=tuple(f"i-{n}" for n in range(6)))),
        *(
            (250.0, BootFailed(slot=s, instance=f"i-{n}", words=f"i-{n}: {words}", pool="h200"))
            for n, s in enumerate(slots)
        ),
        (
            240.0,
            BreakerTripped(
                pool="h200", words=f"6 boots failed in a row, the last: i-5: {words}", until=NOW + 660
            ),
        ),
        *((200.0, InstanceGone(slot=s, instance=f"i-{n}")) for n, s in enumerate(slots)),
        jobs=(job(41),),
    )


def settled(moment: ClusterSnapshot) -> ClusterSnapshot:
    """Return the snapshot after the daemon has recorded its events and signalled the jobs."""
    entries: list[Entry] = []
    for action in decide(moment.plan, moment.bindings, moment.observation, moment.memory, moment.now):
        match action:
            case RecordEvents(entries=found):
                entries.extend(found)
            case Signal(instance=instance, jobs=jobs, signal=signal):
                entries.append(
                    Entry(at=NOW, event=JobsSignalled(instance=instance, jobs=jobs, signal=signal))
                )
            case _:
                pass
    return replace(moment, memory=fold(moment.memory, entries), entries=(*moment.entries, *entries))


def noticed() -> ClusterSnapshot:
    return settled(
        running(
            reports={
                "i-0": replace_report(
                    report_of(0, "slurmd", phase=NodePhase.UP),
                    notices=(Notice(kind=NoticeKind.SPOT, at=NOW + 110),),
                )
            }
        )
    )


def faulted() -> ClusterSnapshot:
    fault = GpuFault(
        xid=79, device="0000:53:00", count=1, last_at=NOW - 2, text="GPU has fallen off the bus."
    )
    return settled(
        running(reports={"i-1": replace_report(report_of(1, "slurmd", phase=NodePhase.UP), faults=(fault,))})
    )


def hung() -> ClusterSnapshot:
    heartbeats = PLAN.pools[0]
    plan = replace(PLAN, pools=(replace(heartbeats, job_heartbeat=JobHeartbeat(after_s=240, requeue=False)),))
    report = replace_report(
        report_of(0, "slurmd", phase=NodePhase.UP),
        heartbeats=(Beat(job=41, uid=1000, at=NOW - 300),),
        clock=NOW - 5,
    )
    moment = running(
        reports={"i-0": report, "i-1": report_of(1, "slurmd", phase=NodePhase.UP)},
        plan=plan,
        started_at=NOW - 480,
        user_id=1000,
    )
    return settled(moment)


def replace_report(old: ReceivedReport, **changes: object) -> ReceivedReport:
    return replace(old, report=replace(old.report, **changes))  # type: ignore[arg-type]


def running(
    reports: dict[str, ReceivedReport] | None = None, plan: SlurmOnAws = PLAN, **changes: object
) -> ClusterSnapshot:
    one = replace(job(41, A1, A2, time_limit_s=7200.0), **changes)  # type: ignore[arg-type]
    return sight(
        plan,
        *living(A1, A2),
        (480.0, JobRunning(job=41)),
        nodes=(node(A1, BUSY), node(A2, BUSY)),
        jobs=(one,),
        instances=(instance(0), instance(1)),
        reports=reports or {},
    )


def stories() -> tuple[Story, ...]:
    waiting = (job(41),)
    with_budget = replace(
        PLAN, budget=Budget(monthly=100_000_000, warn_at=80_000_000, stop_scaling_at=95_000_000)
    )
    return (
        Story("No zone has free capacity", Cause.REFUSED, sight(ONE, *everywhere(ONE, ICE), jobs=waiting), comment=True),
        Story(
            "Spot capacity is refused, and the job is allocated in that zone",
            Cause.LAUNCHING,
            sight(
                PLAN,
                *((62.0, NodeNeeded(slot=s, incarnation=1, jobs=(41,))) for s in (A1, A2)),
                (62.0, JobPlaced(job=41, slots=(A1, A2), submitted_at=NOW - 65)),
                *refusal(1, (A1, A2), 58.0, ICE),
                nodes=(node(A1, WAKING), node(A2, WAKING)),
                jobs=(job(41, A1, A2, starts=True, requeueable=False),),
            ),
        ),
        Story(
            "The account's quota is reached",
            Cause.QUOTA,
            sight(
                ONE,
                *refusal(1, (A1, A2), 90.0, "MaxSpotInstanceCountExceeded (Max spot instance count exceeded)", lasts=1700.0),
                jobs=waiting,
            ),
        ),
        Story(
            "The pool's `max` is reached",
            Cause.MAX,
            sight(
                SMALL,
                *living(A1, A2),
                nodes=(node(A1, BUSY), node(A2, BUSY)),
                jobs=(job(42, reason="Resources"), job(40, A1, A2)),
                instances=(instance(0), instance(1)),
            ),
            subject="42",
            comment=True,
        ),
        Story(
            "The month's budget is spent",
            Cause.BUDGET,
            sight(
                with_budget,
                *living(A1, A2, ago=7200.0),
                (100.0, BudgetCrossed(line="stop", month="2026-11", spent=96_000_000)),
                nodes=(node(A1, BUSY), node(A2, BUSY)),
                jobs=(job(42), job(40, A1, A2)),
                instances=(instance(0, 7200.0), instance(1, 7200.0)),
            ),
            subject="42",
            comment=True,
        ),
        Story("The pool's breaker is open: its instances do not become nodes", Cause.BREAKER, broken(), comment=True),
        Story(
            "An operator paused the pool",
            Cause.PAUSED,
            sight(PLAN, (1800.0, OrderGiven(verb=Verb.POOL_PAUSE, target="h200", by="alice", words="new driver, until noon")), jobs=waiting),
            comment=True,
        ),
        Story(
            "Launches are stopped for the whole cluster",
            Cause.HALTED,
            sight(PLAN, jobs=waiting, halted="launches are stopped, by gpucluster down"),
            comment=True,
        ),
        Story(
            "The daemon does not run, for example because its unit cannot start",
            Cause.NO_DAEMON,
            replace(unreadable(halted=""), daemon=False),
            daemon=view(STOPPED, answers=False),
        ),
        Story(
            "The daemon hangs",
            Cause.NO_DAEMON,
            replace(unreadable(halted=""), daemon=False),
            daemon=view(replace(HOLDS, silent_s=47.0), answers=True),
        ),
        Story(
            "The clock of the head is off by an hour, so that S3 refuses its requests",
            Cause.NO_DAEMON,
            replace(unreadable(halted=""), daemon=False),
            daemon=view(replace(HOLDS, status=f"{STANDBY}the control object: RequestTimeTooSkewed"), answers=False),
        ),
        Story(
            "The second head is asked, while the daemon of the first acts",
            Cause.LAUNCHING,
            replace(unreadable(halted=""), daemon=False),
            daemon=view(replace(HOLDS, status=f"{STANDBY}burst-head/b/1.2/n holds the lease"), answers=False),
        ),
        Story(
            "EC2 refuses to terminate the instance of a node",
            Cause.NODE,
            sight(
                PLAN,
                *living(A1, ago=2000.0),
                (900.0, NodeUnneeded(slot=A1)),
                (25.0, TerminationRefused(instances=("i-0",), words="UnauthorizedOperation: You are not authorized to perform this operation.", until=NOW + 5, refused=True)),
                nodes=(node(A1, "IDLE CLOUD POWERED_DOWN DRAIN", reason="gpucluster: [termination] i-0 cannot be terminated: UnauthorizedOperation: You are not authorized to perform this operation.", reason_by="slurm", reason_at=NOW - 880),),
                instances=(instance(0, 2000.0),),
            ),
            subject=A1,
        ),
        Story(
            "Slurm drained the nodes of a job that does not end",
            Cause.NODE,
            sight(
                PLAN,
                *living(A1, A2, ago=2000.0),
                nodes=tuple(
                    node(slot, f"{UP} DRAIN", reason="Kill task failed (JobId=41 StepId=0)", reason_by="root", reason_at=NOW - 200, version="26.05")
                    for slot in (A1, A2)
                ),
                instances=(instance(0, 2000.0), instance(1, 2000.0)),
            ),
            subject=A1,
        ),
        Story(
            "An operator drained a node with `gpucluster node drain`",
            Cause.NODE,
            sight(
                PLAN,
                *living(A1, ago=2000.0),
                nodes=(node(A1, f"{UP} DRAIN", reason="fan 3 is loud (by ann)", reason_by="slurm", reason_at=NOW - 200, version="24.11"),),
                instances=(instance(0, 2000.0),),
            ),
            subject=A1,
        ),
        Story(
            "A drain whose reason is unknown",
            Cause.NODE,
            sight(
                PLAN,
                *living(A1, ago=2000.0),
                nodes=(node(A1, f"{UP} DRAIN", reason="fan 3 is loud", reason_by="root", reason_at=NOW - 200, version="25.11"),),
                instances=(instance(0, 2000.0),),
            ),
            subject=A1,
        ),
        Story("The bucket cannot be read, for example because its KMS key is disabled", Cause.HALTED, unreadable()),
        Story("Instances boot", Cause.BOOTING, booting("guard", "machine", "bundle")),
        Story("The API takes no more calls for a moment", Cause.RATE_LIMITED, paced()),
        Story(
            "Slurm delays a requeued job",
            Cause.REQUEUED,
            sight(
                PLAN,
                (70.0, JobPlaced(job=41, slots=(A1, A2), submitted_at=NOW - 80)),
                (20.0, JobReleased(job=41)),
                jobs=(job(41, reason="BeginTime", begins_at=NOW + 101, restarts=1, admin_comment="gpucluster: no h200 in us-east-2a: spot p5en.48xlarge InsufficientInstanceCapacity"),),
            ),
        ),
        Story("Jobs of a higher priority are ahead", Cause.PRIORITY, sight(PLAN, jobs=(job(38), job(41, reason="Priority")))),
        Story("The job depends on another job", Cause.DEPENDENCY, sight(PLAN, jobs=(job(41, reason="Dependency"),))),
        Story("The job exceeds a limit of its QOS", Cause.LIMIT, sight(PLAN, jobs=(job(41, reason="QOSMaxGRESPerUser"),))),
        Story(
            "The job requests more time than its partition allows",
            Cause.LIMIT,
            sight(PLAN, jobs=(job(41, reason="PartitionTimeLimit"),)),
        ),
        Story("An operator holds the job", Cause.HELD, sight(PLAN, jobs=(job(41, reason="JobHeldAdmin"),))),
        Story(
            "An operator drained the nodes",
            Cause.DRAINED,
            sight(
                SMALL,
                nodes=tuple(
                    node(name, "IDLE CLOUD POWERED_DOWN DRAIN", reason="water leak, see ticket 812", reason_by="alice", reason_at=NOW - 86_400)
                    for name in slots_of(SMALL)
                ),
                jobs=(job(41, reason="Resources"),),
            ),
        ),
        Story("The job requests more nodes than a zone has", Cause.TOO_LARGE, sight(PLAN, jobs=(job(41, node_count=20, reason="Resources"),))),
        Story("The components of a het job request more nodes than a pool has", Cause.TOO_LARGE, sight(PLAN, jobs=tuple(job(n, node_count=9, het_id=41, reason="Resources") for n in (41, 42)))),
        Story("A spot notice", Cause.EVACUATING, noticed(), comment=True),
        Story("A GPU failed", Cause.EVACUATING, faulted(), comment=True),
        Story("A job that makes no progress", Cause.STALLED, hung(), comment=True),
        Story("A job has ended", Cause.FINISHED, sight(PLAN, *living(A1, A2), (30.0, JobReleased(job=41)))),
        Story(
            "A node is drained because there is no capacity",
            Cause.NODE,
            sight(
                ONE,
                *everywhere(ONE, ICE),
                nodes=(node(A1, "IDLE CLOUD POWERED_DOWN DRAIN", reason="gpucluster: no h200 in us-east-2a: spot p5en.48xlarge InsufficientInstanceCapacity", reason_by="slurm", reason_at=NOW - 150),),
                jobs=waiting,
            ),
            subject=A1,
        ),
        Story("A node's spot instance is reclaimed", Cause.NODE, noticed(), subject=A1),
        Story("A node's boot failed", Cause.NODE, replace(
            failing := booting("guard", failed="bundle: the bucket answers AccessDenied"),
            memory=fold_more(failing, BootFailed(slot=A2, instance="i-1", words="i-1: step bundle: the bucket answers AccessDenied", pool="h200")),
        ), subject=A2),
    )  # fmt: skip


def fold_more(moment: ClusterSnapshot, *events: Event) -> Memory:
    return fold(moment.memory, [Entry(at=NOW - 5, event=event) for event in events])


STORIES = stories()


def page() -> str:
    parts = [
        "# Why is my job not running?",
        "",
        "`gpucluster why JOB` and `gpucluster why NODE` show one screen. The first line is the cause. If the daemon wrote a sentence",
        "into Slurm (the reason of a node, the admin comment of a job), the first line is this sentence. The test",
        "`tests/unit/elastic/test_why_page.py` generates this page from snapshots of a small cluster (`--update-golden`).",
    ]
    for story in STORIES:
        shown = text(why(story.moment, story.subject, story.daemon), NOW)
        parts += ["", f"## {story.title}", "```", f"$ gpucluster why {story.subject}", shown, "```"]
    return "\n".join(parts) + "\n"


def test_page_matches_the_code(request: pytest.FixtureRequest) -> None:
    made = page()
    if request.config.getoption("--update-golden"):
        PAGE.write_text(made)
    assert PAGE.read_text() == made, (
        "docs/why.md is stale: pytest tests/unit/elastic --update-golden, then read git diff"
    )


@pytest.mark.parametrize("story", STORIES, ids=lambda s: s.title)
def test_each_story_shows_its_cause_and_a_next_step(story: Story) -> None:
    shown = why(story.moment, story.subject, story.daemon)
    assert shown.cause is story.cause
    assert shown.headline
    assert any(line.part.value in ("next", "remedy") for line in shown.lines), text(shown, NOW)
    assert max(len(line) for line in text(shown, NOW).splitlines()) < 400


@pytest.mark.parametrize("story", [s for s in STORIES if s.comment], ids=lambda s: s.title)
def test_headline_equals_the_admin_comment(story: Story) -> None:
    moment = story.moment
    actions = decide(moment.plan, moment.bindings, moment.observation, moment.memory, moment.now)
    comments = {a.reason for a in actions if isinstance(a, Comment) and int(story.subject) in a.jobs}
    (comment,) = comments
    assert why(moment, story.subject).headline.endswith(comment.removeprefix("gpucluster: "))
    blocks = {a.reason for a in actions if isinstance(a, Block | Drain)}
    assert all(reason.removeprefix("gpucluster: ") in comment for reason in blocks)
    assert blocks or story.cause is Cause.STALLED


@pytest.mark.parametrize("number", ["41", "77"], ids=["known job", "unknown job"])
def test_ended_job_refers_to_slurmctld_not_sacct(number: str) -> None:
    """No rendered cluster has accounting, so `sacct` always fails."""
    over = next(story.moment for story in STORIES if story.title == "A job has ended")
    shown = text(why(over, number), NOW)
    assert "slurmctld" in shown
    assert "sacct" not in shown


def test_the_page_has_more_than_ten_causes() -> None:
    assert len({story.cause for story in STORIES}) >= 15
