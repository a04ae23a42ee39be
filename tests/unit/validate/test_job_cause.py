"""Why validation's job does not start: over screens of the real `why`, and the answers of squeue and scontrol."""

import json
from collections.abc import Callable

import pytest
from support.builders import a_plan
from support.cluster_states import BUSY, NOW, OFF, UP, WAKING, ask, job, node, refusal, sight

from gpucluster.checks.check import CheckStatus, ParseError, QueryOutput
from gpucluster.elastic.events import (
    BootFailed,
    BreakerTripped,
    InstanceGone,
    LaunchDone,
    LaunchRequested,
    NodeNeeded,
    OrderGiven,
    Verb,
)
from gpucluster.elastic.inspect.daemon_view import NO_ANSWER, DaemonView
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.inspect.why import Cause, why
from gpucluster.plan import codec
from gpucluster.plan.model import Market
from gpucluster.slurm.values import ActiveJob
from gpucluster.validate import job_cause
from gpucluster.validate.job_cause import JobCause, Rivals, judged, parse_cause, rivals

PLAN = a_plan((", p5e.48xlarge", ""))
A = tuple(f"h200-2a-{n}" for n in range(1, 5))
B = tuple(f"h200-2b-{n}" for n in range(1, 5))
NONE = "InsufficientInstanceCapacity"
WAITING = job(7, reason="Resources")
PAUSED = (30.0, OrderGiven(verb=Verb.POOL_PAUSE, target="h200", by="ada", words="a new driver"))
FAILED = tuple(f"h200-2a-{n}" for n in range(1, 7))
ALONE = Rivals(jobs=(), decide=False)


def screen(snapshot: ClusterSnapshot, daemon: DaemonView | None = None) -> JobCause:
    """What `why --json` prints of job 7."""
    return parse_cause(QueryOutput(code=0, stdout=json.dumps(codec.to_json(why(snapshot, "7", daemon)))))


def refused(words: str) -> ClusterSnapshot:
    """All offers of both zones are refused."""
    events = (
        *refusal(1, A[:2], 30, words, lasts=600),
        *refusal(2, B[:2], 30, words, lasts=600),
        *refusal(3, A[:2], 30, words, lasts=600, source=1, market=Market.ON_DEMAND),
        *refusal(4, B[:2], 30, words, lasts=600, source=1, market=Market.ON_DEMAND),
    )
    return sight(PLAN, *events, jobs=(WAITING,))


def broken() -> ClusterSnapshot:
    """Six boots have failed, and the breaker of the pool is open."""
    return sight(
        PLAN,
        *((600.0, NodeNeeded(slot=slot, incarnation=1, jobs=(7,))) for slot in FAILED),
        (600.0, LaunchRequested(request=ask(1, *FAILED))),
        (598.0, LaunchDone(request="r1", instances=tuple(f"i-{n}" for n in range(6)))),
        *((250.0, BootFailed(slot=s, instance=f"i-{n}", words="step mounts", pool="h200")) for n, s in enumerate(FAILED)),
        (240.0, BreakerTripped(pool="h200", words="6 boots failed in a row", until=NOW + 660)),
        *((200.0, InstanceGone(slot=s, instance=f"i-{n}")) for n, s in enumerate(FAILED)),
        jobs=(WAITING,),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("make", "words", "remedy"),
    [
        (lambda: screen(refused(NONE)), NONE, "another zone, machine type or source"),
        (lambda: screen(refused("MaxSpotInstanceCountExceeded")), "MaxSpot", "raise the quota"),
        (lambda: screen(broken()), "6 boots failed in a row", "gpucluster pool resume h200 -c burst"),
        (lambda: screen(sight(PLAN, PAUSED, jobs=(WAITING,))), "paused by ada: a new driver", "gpucluster pool resume h200 -c burst"),
        (
            lambda: screen(sight(PLAN, jobs=(WAITING,), halted="launches are stopped, by ada")),
            "launches are stopped, by ada", "gpucluster scaling start burst",
        ),
        (
            lambda: screen(
                sight(PLAN, jobs=(job(7, *A[:2], starts=True),), nodes=[node(name, WAKING) for name in A[:2]]),
                DaemonView(acts=False, state=NO_ANSWER, remedy="systemctl status gpucluster-elastic"),
            ),
            NO_ANSWER, "systemctl status gpucluster-elastic",
        ),
        (lambda: screen(sight(PLAN, jobs=(job(7, reason="PartitionDown"),))), "its partition is down", "scontrol"),
    ],
    ids=["capacity", "quota", "breaker", "paused", "stopped", "no daemon", "partition"],
)  # fmt: skip
def test_what_the_daemon_names_is_a_failure_with_its_remedy(
    make: Callable[[], JobCause], words: str, remedy: str
) -> None:
    """V2: tier 1 said `others use the nodes` of each of these whose job waits for Resources."""
    found = judged(make(), ALONE)
    assert found.verdict is CheckStatus.FAIL
    assert words in found.words
    assert remedy in found.remedy
    assert "others use the nodes" not in found.words


def test_jobs_on_the_nodes_change_no_verdict_of_the_daemon() -> None:
    assert judged(screen(refused(NONE)), Rivals(jobs=(3,), decide=True)).verdict is CheckStatus.FAIL


def busy(*, of: tuple[str, ...] = A) -> ClusterSnapshot:
    return sight(PLAN, jobs=(WAITING, job(3, *of)), nodes=[node(name, BUSY) for name in of])


@pytest.mark.parametrize("reason", ["Resources", "Priority"])
def test_other_jobs_that_hold_the_nodes_are_named(reason: str) -> None:
    cause = screen(sight(PLAN, jobs=(job(7, reason=reason), job(3, *A)), nodes=[node(n, BUSY) for n in A]))
    found = judged(cause, Rivals(jobs=(3, 5), decide=True), ours=frozenset({5}))
    assert (found.verdict, found.remedy) == (CheckStatus.UNKNOWN, "")
    assert found.words == "others use the nodes: jobs 3, 5 (of this run)"


def test_job_that_waits_beside_free_nodes_is_a_failure() -> None:
    found = judged(screen(sight(PLAN, jobs=(WAITING,))), ALONE)
    assert found.verdict is CheckStatus.FAIL
    assert found.words.startswith("no other job uses its nodes; h200 in us-east-2a: 0 of 16 busy")
    assert found.remedy == ""  # that of `why` waits for busy nodes
    few = judged(screen(busy()), Rivals(jobs=(3,), decide=False))
    assert few.verdict is CheckStatus.FAIL
    assert few.words.startswith("other jobs are not why; h200 in us-east-2a: 4 of 16 busy")


def test_cluster_that_cannot_be_seen_has_no_verdict() -> None:
    blind = sight(PLAN, jobs=(WAITING,), slurm=None)
    assert judged(screen(blind), ALONE).verdict is CheckStatus.UNKNOWN
    assert judged(screen(sight(PLAN)), ALONE).verdict is CheckStatus.UNKNOWN  # the job has gone


def test_causes_with_their_own_verdict_are_causes_of_why() -> None:
    assert {*job_cause.BY_JOBS, *job_cause.UNSEEN} <= {cause.value for cause in Cause}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (QueryOutput(code=127, stdout="", stderr="python: not found"), "python: not found"),
        (QueryOutput(code=124, stdout=""), "no answer in time"),
        (QueryOutput(code=0, stdout="hello"), "not JSON"),
        (QueryOutput(code=0, stdout="{}"), "no cause"),
    ],
)
def test_answer_that_is_no_screen_is_told(answer: QueryOutput, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parse_cause(answer)


def active(number: int, *on: str) -> ActiveJob:
    return ActiveJob(id=number, pending=not on, partitions=("gpu",), nodes=on)


def nodes(**states: str):
    """The four nodes of zone a, off if nothing is said of them, in the partition gpu."""
    words = {name: states.get(f"n{n}", OFF) for n, name in enumerate(A, 1)}
    return tuple(node(name, state, partitions=("gpu",)) for name, state in words.items())


@pytest.mark.parametrize(
    ("states", "others", "jobs", "decide"),
    [
        ({}, (), (), False),
        ({"n1": BUSY}, (active(3, A[0]),), (3,), False),  # three nodes are left
        ({"n1": BUSY, "n2": BUSY, "n3": BUSY}, (active(3, *A[:3]),), (3,), True),
        ({"n1": BUSY, "n2": BUSY, "n3": "IDLE DRAIN", "n4": "DOWN"}, (active(3, *A[:2]),), (3,), True),
        ({"n1": BUSY, "n2": "IDLE DRAIN", "n3": "IDLE DRAIN", "n4": "DOWN"}, (active(3, A[0]),), (3,), False),
        # a job left them, and they power down
        ({"n1": BUSY, "n2": "IDLE CLOUD POWERING_DOWN", "n3": f"{UP} COMPLETING"}, (active(3, A[0]),), (3,), True),
        ({"n1": BUSY}, (active(3, "other-1"), active(4), active(7, *A)), (), False),
    ],
)  # fmt: skip
def test_other_jobs_are_the_cause_if_the_job_fits_only_without_them(states, others, jobs, decide) -> None:
    found = rivals(job(7), nodes(**states), others, leaves=())
    assert found == Rivals(jobs=jobs, decide=decide)


def test_job_stays_below_one_leaf_switch_and_off_what_it_excludes() -> None:
    held = (active(3, A[0], A[2]),)
    shown = nodes(n1=BUSY, n3=BUSY)
    assert rivals(job(7), shown, held, leaves=(A[:2], A[2:])).decide
    assert not rivals(job(7), shown, held, leaves=(A,)).decide
    assert rivals(job(7, excluded_nodes=(A[1],)), shown, held, leaves=(A,)).decide
    assert rivals(job(7, excluded_nodes=A), shown, held, leaves=()) == ALONE
