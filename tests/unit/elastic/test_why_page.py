"""docs/why.md is made here: a moment for each cause, the real decide and the real words; and each sentence stands in Slurm too."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from builders import a_plan
from moments import (
    BUSY,
    NOW,
    UP,
    WAKING,
    ask,
    heard,
    instance,
    job,
    living,
    node,
    refusal,
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
    JobLeft,
    JobPlaced,
    JobRunning,
    LaunchAsked,
    LaunchDeferred,
    LaunchDone,
    Needed,
    Ordered,
    Signalled,
    Verb,
)
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import Block, Comment, Drain, Heard, Remember, Signal
from gpucluster.elastic.sight import Sight
from gpucluster.elastic.why import Cause, text, why
from gpucluster.plan.messages import Beat, GpuFault, NodePhase, Notice, NoticeKind
from gpucluster.plan.model import Budget, ClusterPlan, Hung

PAGE = Path(__file__).parents[3] / "docs" / "why.md"
PLAN = a_plan()
ONE = replace(
    PLAN,
    pools=(replace(PLAN.pools[0], sources=PLAN.pools[0].sources[:1], templates=PLAN.pools[0].templates[:1]),),
)
SMALL = a_plan(("max: 16}", "max: 2}"), ("max: 4}", "max: 2}"))
A1, A2, A3 = "h200-2a-1", "h200-2a-2", "h200-2a-3"
B1, B2 = "h200-2b-1", "h200-2b-2"
ICE = "InsufficientInstanceCapacity"


@dataclass(frozen=True)
class Story:
    """A heading of the page, what to ask, the moment, and the cause that must come out."""

    title: str
    cause: Cause
    moment: Sight
    subject: str = "41"
    comment: bool = False  # decide writes the same sentence into the job's admin comment, in the same moment


def everywhere(plan: ClusterPlan, words: str, **changes: object) -> tuple:
    """Every offer of the plan's pool refused, each at its own time."""
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


def booting(*steps: str, failed: str = "") -> Sight:
    slots = (A1, A2)
    began = (
        *((95.0, Needed(slot=slot, life=1, jobs=(41,))) for slot in slots),
        (95.0, JobPlaced(job=41, slots=slots, submitted_at=NOW - 100)),
        (94.0, LaunchAsked(ask=ask(1, *slots))),
        (92.0, LaunchDone(request="r1", instances=("i-0", "i-1"))),
    )
    return sight(
        PLAN,
        *began,
        nodes=(node(A1, UP.replace("IDLE", "ALLOCATED")), node(A2, WAKING)),
        jobs=(job(41, A1, A2, starts=True),),
        instances=(instance(0, 92.0), instance(1, 92.0)),
        reports={"i-1": heard(1, *steps, failed=failed)},
    )


def paced() -> Sight:
    slots = (A1, A2)
    return sight(
        PLAN,
        *((12.0, Needed(slot=slot, life=1, jobs=(41,))) for slot in slots),
        (12.0, JobPlaced(job=41, slots=slots, submitted_at=NOW - 20)),
        (10.0, LaunchAsked(ask=ask(1, *slots))),
        (8.0, LaunchDeferred(request="r1", retry_at=NOW + 8, words="RequestLimitExceeded", pace_all=True)),
        nodes=(node(A1, WAKING), node(A2, WAKING)),
        jobs=(job(41, A1, A2, starts=True),),
    )


def broken() -> Sight:
    """Six machines in a row that did not become nodes."""
    slots = tuple(f"h200-2a-{n}" for n in range(1, 7))
    words = "step mounts: mount.nfs: access denied by server"
    return sight(
        PLAN,
        *((600.0, Needed(slot=slot, life=1, jobs=(40,))) for slot in slots),
        (600.0, LaunchAsked(ask=ask(1, *slots))),
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


def settled(moment: Sight) -> Sight:
    """The same moment when the daemon has noted what it sees, and told and signalled whom it wants to."""
    entries: list[Entry] = []
    for action in decide(moment.plan, moment.bindings, moment.seen, moment.memory, moment.now):
        match action:
            case Remember(entries=found):
                entries.extend(found)
            case Signal(instance=instance, jobs=jobs, signal=signal):
                entries.append(Entry(at=NOW, event=Signalled(instance=instance, jobs=jobs, signal=signal)))
            case _:
                pass
    return replace(moment, memory=fold(moment.memory, entries), entries=(*moment.entries, *entries))


def noticed() -> Sight:
    return settled(
        running(
            reports={
                "i-0": replace_report(
                    heard(0, "slurmd", phase=NodePhase.UP),
                    notices=(Notice(kind=NoticeKind.SPOT, at=NOW + 110),),
                )
            }
        )
    )


def faulted() -> Sight:
    fault = GpuFault(
        xid=79, device="0000:53:00", count=1, last_at=NOW - 2, text="GPU has fallen off the bus."
    )
    return settled(
        running(reports={"i-1": replace_report(heard(1, "slurmd", phase=NodePhase.UP), faults=(fault,))})
    )


def hung() -> Sight:
    beats = PLAN.pools[0]
    plan = replace(PLAN, pools=(replace(beats, hung=Hung(after_s=240, requeue=False)),))
    report = replace_report(
        heard(0, "slurmd", phase=NodePhase.UP), beats=(Beat(job=41, uid=1000, at=NOW - 300),), clock=NOW - 5
    )
    moment = running(
        reports={"i-0": report, "i-1": heard(1, "slurmd", phase=NodePhase.UP)},
        plan=plan,
        started_at=NOW - 480,
        user_id=1000,
    )
    return settled(moment)


def replace_report(old: Heard, **changes: object) -> Heard:
    return replace(old, report=replace(old.report, **changes))  # type: ignore[arg-type]


def running(reports: dict[str, Heard] | None = None, plan: ClusterPlan = PLAN, **changes: object) -> Sight:
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
        Story("The cloud has nothing in any zone", Cause.REFUSED, sight(ONE, *everywhere(ONE, ICE), jobs=waiting), comment=True),
        Story(
            "Spot is refused in one zone, and the job holds its nodes there",
            Cause.LAUNCHING,
            sight(
                PLAN,
                *((62.0, Needed(slot=s, life=1, jobs=(41,))) for s in (A1, A2)),
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
        Story("The pool's breaker is open: its machines come and do not become nodes", Cause.BREAKER, broken(), comment=True),
        Story(
            "A person paused the pool",
            Cause.PAUSED,
            sight(PLAN, (1800.0, Ordered(verb=Verb.POOL_PAUSE, target="h200", by="alice", words="new driver, until noon")), jobs=waiting),
            comment=True,
        ),
        Story(
            "Launches are stopped for the whole cluster",
            Cause.HALTED,
            sight(PLAN, jobs=waiting, halted="launches are stopped, by gpucluster down"),
            comment=True,
        ),
        Story("Machines boot", Cause.BOOTING, booting("guard", "machine", "bundle")),
        Story("The API takes no more calls for a moment", Cause.PACED, paced()),
        Story(
            "Slurm lets a requeued job wait",
            Cause.REQUEUED,
            sight(
                PLAN,
                (70.0, JobPlaced(job=41, slots=(A1, A2), submitted_at=NOW - 80)),
                (20.0, JobLeft(job=41)),
                jobs=(job(41, reason="BeginTime", begins_at=NOW + 101, restarts=1, admin_comment="gpucluster: no h200 in us-east-2a: spot p5en.48xlarge InsufficientInstanceCapacity"),),
            ),
        ),
        Story("More important jobs are ahead", Cause.PRIORITY, sight(PLAN, jobs=(job(38), job(41, reason="Priority")))),
        Story("A dependency", Cause.DEPENDENCY, sight(PLAN, jobs=(job(41, reason="Dependency"),))),
        Story("A limit of a QOS", Cause.LIMIT, sight(PLAN, jobs=(job(41, reason="QOSMaxGRESPerUser"),))),
        Story(
            "More time asked than the partition allows",
            Cause.LIMIT,
            sight(PLAN, jobs=(job(41, reason="PartitionTimeLimit"),)),
        ),
        Story("A hold", Cause.HELD, sight(PLAN, jobs=(job(41, reason="JobHeldAdmin"),))),
        Story(
            "People keep the nodes back",
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
        Story("A gang that no zone can hold", Cause.TOO_LARGE, sight(PLAN, jobs=(job(41, node_count=20, reason="Resources"),))),
        Story("A spot notice", Cause.LEAVING, noticed(), comment=True),
        Story("A GPU failed", Cause.LEAVING, faulted(), comment=True),
        Story("A job that makes no progress", Cause.HUNG, hung(), comment=True),
        Story("A job that is over", Cause.FINISHED, sight(PLAN, *living(A1, A2), (30.0, JobLeft(job=41)))),
        Story(
            "A node that is kept back for want of capacity",
            Cause.NODE,
            sight(
                ONE,
                *everywhere(ONE, ICE),
                nodes=(node(A1, "IDLE CLOUD POWERED_DOWN DRAIN", reason="gpucluster: no h200 in us-east-2a: spot p5en.48xlarge InsufficientInstanceCapacity", reason_by="slurm", reason_at=NOW - 150),),
                jobs=waiting,
            ),
            subject=A1,
        ),
        Story("A node whose machine is to be taken back", Cause.NODE, noticed(), subject=A1),
        Story("A node whose boot failed", Cause.NODE, replace(
            failing := booting("guard", failed="bundle: the bucket answers AccessDenied"),
            memory=fold_more(failing, BootFailed(slot=A2, instance="i-1", words="i-1: step bundle: the bucket answers AccessDenied", pool="h200")),
        ), subject=A2),
    )  # fmt: skip


def fold_more(moment: Sight, *events: Event) -> Memory:
    return fold(moment.memory, [Entry(at=NOW - 5, event=event) for event in events])


STORIES = stories()


def page() -> str:
    parts = [
        "# Why is my job not running?",
        "",
        "`gpucluster why JOB` and `gpucluster why NODE` answer on one screen. The first line says the cause; where the daemon",
        "wrote a sentence into Slurm (a node's reason, a job's admin comment) it is the same one. Each screen here is made by",
        "`tests/unit/elastic/test_why_page.py` from a moment of a small cluster; `--update-golden` writes the page anew.",
    ]
    for story in STORIES:
        shown = text(why(story.moment, story.subject), NOW)
        parts += ["", f"## {story.title}", "```", f"$ gpucluster why {story.subject}", shown, "```"]
    return "\n".join(parts) + "\n"


def test_the_page_is_what_the_code_says(request: pytest.FixtureRequest) -> None:
    made = page()
    if request.config.getoption("--update-golden"):
        PAGE.write_text(made)
    assert PAGE.read_text() == made, (
        "docs/why.md is stale: pytest tests/unit/elastic --update-golden, then read git diff"
    )


@pytest.mark.parametrize("story", STORIES, ids=lambda s: s.title)
def test_each_story_has_its_cause_and_a_next_step(story: Story) -> None:
    shown = why(story.moment, story.subject)
    assert shown.cause is story.cause
    assert shown.headline
    assert any(line.part.value in ("next", "do") for line in shown.lines), text(shown, NOW)
    assert max(len(line) for line in text(shown, NOW).splitlines()) < 400


@pytest.mark.parametrize("story", [s for s in STORIES if s.comment], ids=lambda s: s.title)
def test_the_headline_is_what_decide_writes_for_the_job(story: Story) -> None:
    moment = story.moment
    actions = decide(moment.plan, moment.bindings, moment.seen, moment.memory, moment.now)
    comments = {a.reason for a in actions if isinstance(a, Comment) and int(story.subject) in a.jobs}
    (comment,) = comments
    assert why(moment, story.subject).headline.endswith(comment.removeprefix("gpucluster: "))
    blocks = {a.reason for a in actions if isinstance(a, Block | Drain)}
    assert all(reason.removeprefix("gpucluster: ") in comment for reason in blocks)
    assert blocks or story.cause is Cause.HUNG


@pytest.mark.parametrize("number", ["41", "77"], ids=["one of ours", "one that nobody knows"])
def test_a_job_that_is_over_is_sought_where_it_is_known(number: str) -> None:
    """No cluster that we render has accounting: `sacct` would fail each time."""
    over = next(story.moment for story in STORIES if story.title == "A job that is over")
    shown = text(why(over, number), NOW)
    assert "slurmctld" in shown
    assert "sacct" not in shown


def test_the_page_has_more_than_ten_causes() -> None:
    assert len({story.cause for story in STORIES}) >= 15
